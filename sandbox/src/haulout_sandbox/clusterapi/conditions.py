"""Conditions of Cluster API: like others, but their messages are always updated, too."""

from datetime import datetime

from haulout.api.objects import RawObject
from haulout_sandbox.controllers import conditions


def merge_conditions(status: RawObject, *new_conditions: RawObject, now: datetime) -> list[RawObject]:
    """Return the conditions of a status with the new ones added or replaced."""
    merged: list[RawObject] = list(status.get("conditions") or ())
    for condition in new_conditions:
        merged = conditions.upsert(merged, condition, now=now)
        merged = [
            _with_message(existing, condition) if existing["type"] == condition["type"] else existing
            for existing in merged
        ]
    return merged


def _with_message(existing: RawObject, condition: RawObject) -> RawObject:
    return (
        existing
        if existing.get("message", "") == condition.get("message", "")
        else {**existing, "message": condition.get("message", "")}
    )
