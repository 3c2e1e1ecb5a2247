"""How far a drain goes with one pod, and when: it is asked to leave, then told to, then gets no more time.

    evict    while the disruption budget allows it
    delete   whatever the budget says, with the pod's whole grace period
    kill     with no grace at all, for a pod that was told to go and did not

Each rung begins at an instant. Those instants are chosen so that a pod's grace period fits before the deadline of the
drain: the later rungs begin early if the deadline is near. They never begin so early that a grace period is cut short:
a pod is killed only after the time that it was given. No rung is there that the policy does not allow.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

import msgspec

# From the end of a grace period until the pod is gone: its kubelet kills what is left, and tells the API server.
ROOM_TO_END = timedelta(seconds=15)
# For a last request before the deadline.
ROOM_TO_KILL = timedelta(seconds=5)


class Rung(StrEnum):
    """What is done to make a pod leave."""

    EVICT = "evict"
    DELETE = "delete"
    KILL = "kill"


class Limits(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How far a policy lets a drain go with one pod."""

    grace: timedelta  # that the pod has once it is told to go
    override: timedelta | None = None  # the same, if it is not the pod's own
    evicts: bool = True
    eviction_timeout: timedelta | None = None  # None: it is never deleted
    deletion_timeout: timedelta | None = None  # None: it is never killed


class Told(NamedTuple):
    """When a pod was told to go, and until when it has time for that."""

    at: datetime
    ends_at: datetime


class Ladder(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """When each rung begins for one pod; None: never."""

    evict_at: datetime | None = None
    delete_at: datetime | None = None
    kill_at: datetime | None = None

    def rung(self, now: datetime) -> Rung | None:
        """Return what is to be done by now, if anything."""
        reached = None
        for at, rung in self._rungs():
            if at is not None and at <= now:
                reached = rung
        return reached

    def next_after(self, now: datetime) -> datetime | None:
        """Return when the next rung begins."""
        first = None
        for at, _ in self._rungs():
            if at is not None and at > now and (first is None or at < first):
                first = at
        return first

    def _rungs(self) -> tuple[tuple[datetime | None, Rung], ...]:
        return ((self.evict_at, Rung.EVICT), (self.delete_at, Rung.DELETE), (self.kill_at, Rung.KILL))


def ladder(limits: Limits, *, since: datetime, deadline: datetime | None, told: Told | None = None) -> Ladder:
    """Return the ladder of a pod whose turn to leave came at `since`; one that was told to go has one rung left."""
    if told is not None:
        return Ladder(kill_at=_kill_at(limits, told, deadline))
    if not limits.evicts:
        return Ladder(delete_at=since)
    return Ladder(evict_at=since, delete_at=_delete_at(limits, since, deadline))


def completion_deadline(
    limits: Limits, timeout: timedelta, *, started: datetime, deadline: datetime | None
) -> datetime:
    """Return until when a pod may run to completion in a drain that began at `started`, before it is evicted."""
    return _with_grace(started + timeout, limits, since=started, deadline=deadline)


def _delete_at(limits: Limits, since: datetime, deadline: datetime | None) -> datetime | None:
    if limits.eviction_timeout is None:
        return None
    return _with_grace(since + limits.eviction_timeout, limits, since=since, deadline=deadline)


def _with_grace(at: datetime, limits: Limits, *, since: datetime, deadline: datetime | None) -> datetime:
    """Return `at`, or so much earlier that the pod's grace period fits before the deadline."""
    if deadline is not None:
        at = min(at, deadline - limits.grace - ROOM_TO_END)
    return max(at, since)


def _kill_at(limits: Limits, told: Told, deadline: datetime | None) -> datetime | None:
    if limits.deletion_timeout is None:
        return None
    at = told.at + limits.deletion_timeout
    if deadline is not None:
        at = min(at, deadline - ROOM_TO_KILL)
    return max(at, told.ends_at)
