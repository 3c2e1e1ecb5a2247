"""Conditions in a status, as plain objects: change those that are ours, keep those that are not."""

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache

from haulout.api.objects import RawObject


@lru_cache(maxsize=256)  # much is written at one and the same instant
def format_time(instant: datetime) -> str:
    """Return an instant as Kubernetes writes it: whole seconds."""
    return f"{instant.astimezone(UTC).isoformat()[:19]}Z"


@lru_cache(maxsize=256)
def parse_time(text: str) -> datetime:
    """Return the instant that `format_time` wrote."""
    return datetime.fromisoformat(text)


def new_condition(
    condition_type: str, status: str, reason: str = "", message: str = "", **extra_fields: str | int
) -> RawObject:
    """Return a condition; what is empty is left out."""
    fields: RawObject = {"type": condition_type, "status": status}
    if reason:
        fields["reason"] = reason
    if message:
        fields["message"] = message
    for name, value in extra_fields.items():
        if value:
            fields[name] = value
    return fields


def find_condition(conditions: Iterable[RawObject], condition_type: str) -> RawObject | None:
    """Return the condition of this type."""
    for condition in conditions:
        if condition["type"] == condition_type:
            return condition
    return None


def merge_conditions(existing: Iterable[RawObject], updates: Iterable[RawObject], *, now: datetime) -> list[RawObject]:
    """Return the old conditions with the new ones in them, in place or at the end.

    The time of transition is that of the old one, unless the status is another.
    """
    result = {condition["type"]: condition for condition in existing}
    now_text = format_time(now)
    for update in updates:
        previous = result.get(update["type"])
        is_unchanged = previous is not None and previous["status"] == update["status"]
        transition_time = previous.get("lastTransitionTime") if previous and is_unchanged else None
        result[update["type"]] = {**update, "lastTransitionTime": transition_time or now_text}
    return list(result.values())


def has_condition(conditions: Iterable[RawObject], expected: RawObject) -> bool:
    """Tell whether a condition already is as wanted, whatever its times."""
    existing = find_condition(conditions, expected["type"])
    return existing is not None and all(
        existing.get(name, "") == expected.get(name, "") for name in ("status", "reason", "message")
    )
