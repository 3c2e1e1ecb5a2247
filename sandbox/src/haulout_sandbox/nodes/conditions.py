"""Conditions in a status, as plain JSON: updates that keep the conditions of other writers."""

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache

from haulout.api.objects import RawObject


@lru_cache(maxsize=256)  # many writes have the same timestamp
def format_time(instant: datetime) -> str:
    """Return an instant as Kubernetes writes it: whole seconds."""
    return f"{instant.astimezone(UTC).isoformat()[:19]}Z"


@lru_cache(maxsize=256)
def parse_time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def new_condition(
    condition_type: str, status: str, reason: str = "", message: str = "", **extra_fields: str | int
) -> RawObject:
    """Return a condition; empty fields are omitted."""
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
    for condition in conditions:
        if condition["type"] == condition_type:
            return condition
    return None


def merge_conditions(existing: Iterable[RawObject], updates: Iterable[RawObject], *, now: datetime) -> list[RawObject]:
    """Return the existing conditions with the updates applied, in place or appended.

    lastTransitionTime changes only with the status.
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
    """Return whether a condition equals the expected one, apart from its times."""
    existing = find_condition(conditions, expected["type"])
    return existing is not None and all(
        existing.get(name, "") == expected.get(name, "") for name in ("status", "reason", "message")
    )
