"""Conditions in the plain JSON of a status: found, and replaced as Kubernetes' controllers do it.

A condition that says nothing new stays as it is, with its times; one whose status is unchanged keeps the time of its
last transition. So a status that is computed anew is equal to the one that is there, unless something happened.
"""

from datetime import UTC, datetime
from typing import Any

from haulout.api.objects import RawObject


def format_time(instant: datetime) -> str:
    """Return an instant as Kubernetes writes it: RFC 3339, whole seconds."""
    return f"{instant.astimezone(UTC).isoformat()[:19]}Z"


def parse_time(text: str) -> datetime:
    """Return the instant that `format_time` wrote."""
    return datetime.fromisoformat(text)


def find(status: RawObject, condition_type: str) -> RawObject | None:
    """Return the condition of this type."""
    for condition in status.get("conditions") or ():
        if condition["type"] == condition_type:
            found: RawObject = condition
            return found
    return None


def is_true(status: RawObject, condition_type: str) -> bool:
    """Tell whether the condition of this type is there and holds."""
    condition = find(status, condition_type)
    return condition is not None and condition["status"] == "True"


def upsert(conditions: list[RawObject], condition: RawObject, *, now: datetime) -> list[RawObject]:
    """Return the conditions with `condition` replacing one of its type, unless they say the same."""
    existing = next((candidate for candidate in conditions if candidate["type"] == condition["type"]), None)
    if existing is not None and (existing["status"], existing.get("reason")) == (
        condition["status"],
        condition.get("reason"),
    ):
        return conditions
    same_status = (
        existing is not None and existing["status"] == condition["status"] and "lastTransitionTime" in existing
    )
    transition_time = existing["lastTransitionTime"] if existing is not None and same_status else format_time(now)
    return [*without(conditions, condition["type"]), condition | {"lastTransitionTime": transition_time}]


def without(conditions: list[RawObject], condition_type: str) -> list[RawObject]:
    """Return the conditions of all other types."""
    return [condition for condition in conditions if condition["type"] != condition_type]


def new_condition(
    condition_type: str, *, is_true: bool, reason: str = "", message: str = "", **extra_fields: Any
) -> RawObject:
    """Return a condition, without the times."""
    texts = {"reason": reason, "message": message}
    return (
        {"type": condition_type, "status": str(is_true)}
        | {name: text for name, text in texts.items() if text}
        | extra_fields
    )
