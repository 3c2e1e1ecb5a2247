"""Escalation: how far a drain goes with one pod, and when.

    evict         as long as the PodDisruptionBudget allows it
    delete        regardless of PodDisruptionBudgets, with the pod's whole grace period
    force-delete  with grace period 0, for a pod that is terminating and does not end

Each step begins at a time that is chosen so that the pod's grace period fits before the deadline of the drain: later
steps begin early if the deadline is near. They never cut a grace period short: a pod is force-deleted only after its
grace period. Steps that the policy does not allow do not exist.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

import msgspec

# From the end of a grace period until the pod is gone: the kubelet kills it and reports to the API server.
TIME_TO_TERMINATE = timedelta(seconds=15)
# For the last request before the deadline.
TIME_TO_FORCE_DELETE = timedelta(seconds=5)


class EscalationStep(StrEnum):
    """How a pod is made to leave."""

    EVICT = "evict"
    DELETE = "delete"
    FORCE_DELETE = "force-delete"


class EscalationLimits(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How far a policy lets a drain go with one pod."""

    grace: timedelta  # grace period, counted from the eviction or deletion
    grace_override: timedelta | None = None  # set if it is not the pod's own
    may_evict: bool = True
    eviction_timeout: timedelta | None = None  # None: never deleted
    deletion_timeout: timedelta | None = None  # None: never force-deleted


class Termination(NamedTuple):
    """Begin and end of a terminating pod's grace period."""

    started_at: datetime
    ends_at: datetime


class Escalation(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """When each step begins for one pod; None: never."""

    evict_at: datetime | None = None
    delete_at: datetime | None = None
    force_delete_at: datetime | None = None

    def step_at(self, now: datetime) -> EscalationStep | None:
        """Return the latest step that has begun, if any."""
        reached = None
        for at, step in self._steps():
            if at is not None and at <= now:
                reached = step
        return reached

    def next_step_after(self, now: datetime) -> datetime | None:
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
    """Return the escalation of a pod whose turn came at `since`. For a terminating pod only force-deletion is left."""
    if termination is not None:
        return Escalation(force_delete_at=_force_deletion_time(limits, termination, deadline))
    if not limits.may_evict:
        return Escalation(delete_at=since)
    return Escalation(evict_at=since, delete_at=_deletion_time(limits, since, deadline))


def completion_deadline(
    limits: EscalationLimits, timeout: timedelta, *, started: datetime, deadline: datetime | None
) -> datetime:
    """Return until when a pod may run to completion, before it is evicted, in a drain that began at `started`."""
    return _before_grace_period(started + timeout, limits, since=started, deadline=deadline)


def _deletion_time(limits: EscalationLimits, since: datetime, deadline: datetime | None) -> datetime | None:
    if limits.eviction_timeout is None:
        return None
    return _before_grace_period(since + limits.eviction_timeout, limits, since=since, deadline=deadline)


def _before_grace_period(
    at: datetime, limits: EscalationLimits, *, since: datetime, deadline: datetime | None
) -> datetime:
    """Return `at`, or an earlier time so that the pod's grace period fits before the deadline; never before `since`."""
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
    # A force-deletion removes the object while the containers may still run: the API server does not wait for the
    # kubelet (https://kubernetes.io/docs/tasks/run-application/force-delete-stateful-set-pod/). During the grace period
    # they do, and a StatefulSet would start a second pod of the same name beside the first.
    return max(at, termination.ends_at)
