"""Conditions in the plain JSON of a status: lookup, and updates as Kubernetes' controllers make them.

A condition without news keeps its times; one with unchanged status keeps its lastTransitionTime. So a newly computed
status equals the existing one unless something happened.
"""

from datetime import datetime
from typing import Any

from haulout.api.objects import RawObject
from haulout_sandbox.nodes.conditions import format_time, parse_time

__all__ = ["find", "format_time", "is_true", "merge", "new_condition", "parse_time", "upsert", "without"]


def find(status: RawObject, condition_type: str) -> RawObject | None:
    for condition in status.get("conditions") or ():
        if condition["type"] == condition_type:
            found: RawObject = condition
            return found
    return None


def is_true(status: RawObject, condition_type: str) -> bool:
    condition = find(status, condition_type)
    return condition is not None and condition["status"] == "True"


def upsert(conditions: list[RawObject], condition: RawObject, *, now: datetime) -> list[RawObject]:
    """Return the conditions with `condition` added or replaced, unless the existing one says the same."""
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
    return [condition for condition in conditions if condition["type"] != condition_type]


def new_condition(
    condition_type: str, *, is_true: bool, reason: str = "", message: str = "", **extra_fields: Any
) -> RawObject:
    """Return a condition without times."""
    texts = {"reason": reason, "message": message}
    return (
        {"type": condition_type, "status": str(is_true)}
        | {name: text for name, text in texts.items() if text}
        | extra_fields
    )


def merge(status: RawObject, *new_conditions: RawObject, now: datetime) -> list[RawObject]:
    """Return the conditions of a status with the new ones added or replaced; their messages are always updated."""
    merged: list[RawObject] = list(status.get("conditions") or ())
    for condition in new_conditions:
        merged = [
            {**candidate, "message": condition.get("message", "")}
            if candidate["type"] == condition["type"] and candidate.get("message", "") != condition.get("message", "")
            else candidate
            for candidate in upsert(merged, condition, now=now)
        ]
    return merged
