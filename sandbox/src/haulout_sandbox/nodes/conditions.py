"""Conditions in a status, as plain objects: change those that are ours, keep those that are not."""

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache

from haulout.kube.objects import RawObject


@lru_cache(maxsize=256)  # much is written at one and the same instant
def timestamp(at: datetime) -> str:
    """Return an instant as Kubernetes writes it: whole seconds."""
    return f"{at.astimezone(UTC).isoformat()[:19]}Z"


@lru_cache(maxsize=256)
def instant(text: str) -> datetime:
    """Return the instant that `timestamp` wrote."""
    return datetime.fromisoformat(text)


def condition(kind: str, status: str, reason: str = "", message: str = "", **more: str | int) -> RawObject:
    """Return a condition; what is empty is left out."""
    said: RawObject = {"type": kind, "status": status}
    if reason:
        said["reason"] = reason
    if message:
        said["message"] = message
    for name, value in more.items():
        if value:
            said[name] = value
    return said


def find(conditions: Iterable[RawObject], kind: str) -> RawObject | None:
    """Return the condition of this type."""
    for each in conditions:
        if each["type"] == kind:
            return each
    return None


def merged(old: Iterable[RawObject], new: Iterable[RawObject], *, now: datetime) -> list[RawObject]:
    """Return the old conditions with the new ones in them, in place or at the end.

    The time of transition is that of the old one, unless the status is another.
    """
    result = {it["type"]: it for it in old}
    at = timestamp(now)
    for wanted in new:
        known = result.get(wanted["type"])
        same = known is not None and known["status"] == wanted["status"]
        since = known.get("lastTransitionTime") if known and same else None
        result[wanted["type"]] = {**wanted, "lastTransitionTime": since or at}
    return list(result.values())


def says(conditions: Iterable[RawObject], wanted: RawObject) -> bool:
    """Tell whether a condition already is as wanted, whatever its times."""
    known = find(conditions, wanted["type"])
    return known is not None and all(
        known.get(name, "") == wanted.get(name, "") for name in ("status", "reason", "message")
    )
