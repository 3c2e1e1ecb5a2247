"""Conditions in the plain JSON of a status: found, and replaced as Kubernetes' controllers do it.

A condition that says nothing new stays as it is, with its times; one whose status is unchanged keeps the time of its
last transition. So a status that is computed anew is equal to the one that is there, unless something happened.
"""

from datetime import UTC, datetime
from typing import Any

from haulout.kube.objects import RawObject


def stamp(instant: datetime) -> str:
    """Return an instant as Kubernetes writes it: RFC 3339, whole seconds."""
    return f"{instant.astimezone(UTC).isoformat()[:19]}Z"


def instant(text: str) -> datetime:
    """Return the instant that `stamp` wrote."""
    return datetime.fromisoformat(text)


def find(status: RawObject, kind: str) -> RawObject | None:
    """Return the condition of this type."""
    for condition in status.get("conditions") or ():
        if condition["type"] == kind:
            found: RawObject = condition
            return found
    return None


def is_true(status: RawObject, kind: str) -> bool:
    """Tell whether the condition of this type is there and holds."""
    condition = find(status, kind)
    return condition is not None and condition["status"] == "True"


def put(conditions: list[RawObject], new: RawObject, *, now: datetime) -> list[RawObject]:
    """Return the conditions with `new` in the place of its predecessor, which stays if `new` tells nothing new."""
    old = next((it for it in conditions if it["type"] == new["type"]), None)
    if old is not None and (old["status"], old.get("reason")) == (new["status"], new.get("reason")):
        return conditions
    same_status = old is not None and old["status"] == new["status"] and "lastTransitionTime" in old
    since = old["lastTransitionTime"] if old is not None and same_status else stamp(now)
    return [*without(conditions, new["type"]), new | {"lastTransitionTime": since}]


def without(conditions: list[RawObject], kind: str) -> list[RawObject]:
    """Return the conditions of all other types."""
    return [it for it in conditions if it["type"] != kind]


def made(kind: str, *, holds: bool, reason: str = "", message: str = "", **more: Any) -> RawObject:
    """Return a condition, without the times."""
    told = {"reason": reason, "message": message}
    return {"type": kind, "status": str(holds)} | {name: text for name, text in told.items() if text} | more
