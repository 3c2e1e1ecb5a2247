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
TIME_TO_TERMINATE = timedelta(seconds=15)
# For a last request before the deadline.
TIME_TO_FORCE_DELETE = timedelta(seconds=5)


class EscalationStep(StrEnum):
    """What is done to make a pod leave."""

    EVICT = "evict"
    DELETE = "delete"
    FORCE_DELETE = "kill"


class EscalationLimits(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How far a policy lets a drain go with one pod."""

    grace: timedelta  # that the pod has once it is told to go
    grace_override: timedelta | None = None  # the same, if it is not the pod's own
    may_evict: bool = True
    eviction_timeout: timedelta | None = None  # None: it is never deleted
    deletion_timeout: timedelta | None = None  # None: it is never killed


class Termination(NamedTuple):
    """When a pod was told to go, and until when it has time for that."""

    started_at: datetime
    ends_at: datetime


class Escalation(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """When each rung begins for one pod; None: never."""

    evict_at: datetime | None = None
    delete_at: datetime | None = None
    force_delete_at: datetime | None = None

    def step_at(self, now: datetime) -> EscalationStep | None:
        """Return what is to be done by now, if anything."""
        reached = None
        for at, step in self._steps():
            if at is not None and at <= now:
                reached = step
        return reached

    def next_step_after(self, now: datetime) -> datetime | None:
        """Return when the next rung begins."""
        first = None
        for at, _ in self._steps():
            if at is not None and at > now and (first is None or at < first):
                first = at
        return first

    def _steps(self) -> tuple[tuple[datetime | None, EscalationStep], ...]:
        return (
            (self.evict_at, EscalationStep.EVICT),
            (self.delete_at, EscalationStep.DELETE),
            (self.force_delete_at, EscalationStep.FORCE_DELETE),
        )


def escalation_for(
    limits: EscalationLimits, *, since: datetime, deadline: datetime | None, termination: Termination | None = None
) -> Escalation:
    """Return the ladder of a pod whose turn to leave came at `since`; one that was told to go has one rung left."""
    if termination is not None:
        return Escalation(force_delete_at=_force_deletion_time(limits, termination, deadline))
    if not limits.may_evict:
        return Escalation(delete_at=since)
    return Escalation(evict_at=since, delete_at=_deletion_time(limits, since, deadline))


def completion_deadline(
    limits: EscalationLimits, timeout: timedelta, *, started: datetime, deadline: datetime | None
) -> datetime:
    """Return until when a pod may run to completion in a drain that began at `started`, before it is evicted."""
    return _before_grace_period(started + timeout, limits, since=started, deadline=deadline)


def _deletion_time(limits: EscalationLimits, since: datetime, deadline: datetime | None) -> datetime | None:
    if limits.eviction_timeout is None:
        return None
    return _before_grace_period(since + limits.eviction_timeout, limits, since=since, deadline=deadline)


def _before_grace_period(
    at: datetime, limits: EscalationLimits, *, since: datetime, deadline: datetime | None
) -> datetime:
    """Return `started_at`, or so much earlier that the pod's grace period fits before the deadline."""
    if deadline is not None:
        at = min(at, deadline - limits.grace - TIME_TO_TERMINATE)
    return max(at, since)


def _force_deletion_time(
    limits: EscalationLimits, termination: Termination, deadline: datetime | None
) -> datetime | None:
    if limits.deletion_timeout is None:
        return None
    at = termination.started_at + limits.deletion_timeout
    if deadline is not None:
        at = min(at, deadline - TIME_TO_FORCE_DELETE)
    return max(at, termination.ends_at)
