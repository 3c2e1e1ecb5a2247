"""Conditions of Cluster API: as elsewhere, but what they say in words is kept up to date, too."""

from datetime import datetime

from haulout.kube.objects import RawObject
from haulout_sandbox.controllers import conditions


def told(status: RawObject, *new: RawObject, now: datetime) -> list[RawObject]:
    """Return the conditions of a status with these in place of their predecessors."""
    known: list[RawObject] = list(status.get("conditions") or ())
    for condition in new:
        known = conditions.put(known, condition, now=now)
        known = [_reworded(it, condition) if it["type"] == condition["type"] else it for it in known]
    return known


def _reworded(old: RawObject, new: RawObject) -> RawObject:
    return old if old.get("message", "") == new.get("message", "") else {**old, "message": new.get("message", "")}
