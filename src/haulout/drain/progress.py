"""Progress, outcome and blockers of a drain, as status, events, CLI, metrics and dashboard show them.

All are values. Equal values mean that there is nothing new to show. Objects that each decision creates per pod are
structs, which cost a fraction of a dataclass. This module does no I/O.

`describe_long_blocked` decides when a blocked drain is worth a report. `LongestBlockerTracker` remembers what blocked a
drain longest, for the history and metrics after the drain has ended:

    tracker = tracker.observe(progress.blockers, now=now)
    tracker.longest

Several pods that wait for the same object count as one blocker, from the first pod's wait to the end of the last.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from haulout.core import duration, text
from haulout.drain.blockers import Blocker
from haulout.drain.escalation import EscalationStep
from haulout.drain.state import Checkpoint

_MAX_PODS_NAMED = 5  # pods per sentence

# A PodDisruptionBudget blocks nearly every drain for a moment, until replacements are ready. A longer block is worth a
# report.
BLOCKED_AFTER = timedelta(seconds=30)  # for all controllers, and for what the dashboard calls blocked
STALLED_AFTER = timedelta(minutes=30)  # a person must act: same time as the alert HauloutDrainBlocked
_MAX_BLOCKERS_NAMED = 2  # blockers per text


class PodDrainState(StrEnum):
    """The state of one pod in a drain."""

    QUEUED = "Queued"  # other pods leave first
    EVICTING = "Evicting"  # an eviction is in flight or about to be sent
    BLOCKED = "Blocked"  # something blocks the eviction
    FINISHING = "Finishing"  # not evicted, but the drain waits for its completion
    LEAVING = "Leaving"  # terminating, within its grace period
    OVERDUE = "Overdue"  # terminating, beyond its grace period


@dataclass(frozen=True, slots=True)
class ActiveBlocker:
    """A blocker, and since when it blocks."""

    blocker: Blocker
    since: datetime

    def __str__(self) -> str:
        return f"{self.blocker} (since {self.since:%H:%M:%S} UTC)"


class PodProgress(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The progress of one pod that is still on the node."""

    pod: str  # namespace/name
    uid: str
    state: PodDrainState
    message: str
    turn_since: datetime | None = None  # when its turn came
    next_at: datetime | None = None  # when its next request or escalation step is due
    requested_step: EscalationStep | None = None  # the step that this drain has requested, or is requesting
    ends_at: datetime | None = None  # end of its grace period, once it is terminating
    active_blocker: ActiveBlocker | None = None

    def __str__(self) -> str:
        return f"{self.pod}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainProgress:
    """The progress of a drain at one moment. Everything that users see about a drain is derived from it."""

    node: str
    started: datetime
    total: int = 0  # pods that leave or have left
    gone: int = 0
    leaving: int = 0  # terminating
    percent: int = 0  # never decreases
    pods: tuple[PodProgress, ...] = ()  # pods that have yet to leave
    returning: tuple[str, ...] = ()  # pods that stay, because they came back after evictions
    warning: str = ""  # about what is lost or left
    stale_reason: str = ""  # why this may be stale
    is_known: bool = False  # all pods were judged; before that only problems are known
    deadline: datetime | None = None
    volumes: tuple[ActiveBlocker, ...] = ()  # still attached, once all pods have left
    volumes_until: datetime | None = None  # end of the wait for volumes
    left_attached: str = ""  # warning about volumes for which the drain stopped waiting

    @property
    def waiting(self) -> int:
        """The number of pods that are not terminating yet."""
        return len(self.pods) - self.leaving

    @property
    def blockers(self) -> tuple[ActiveBlocker, ...]:
        return (*(pod.active_blocker for pod in self.pods if pod.active_blocker is not None), *self.volumes)

    @property
    def checkpoint(self) -> Checkpoint:
        """What a successor needs to continue this drain after a crash or a handover."""
        since = {pod.uid: pod.turn_since for pod in self.pods if pod.turn_since is not None}
        since |= {active.blocker.uid: active.since for active in self.volumes if active.blocker.uid}
        return Checkpoint(started=self.started, since=since, gone=self.gone, percent=self.percent)


class OutcomeResult(StrEnum):
    """The result of a drain; its value is shown in status, metrics and history."""

    DRAINED = "Drained"
    REFUSED = "Refused"  # the policy must not evict some pod
    TIMED_OUT = "TimedOut"
    CANCELLED = "Cancelled"


@dataclass(frozen=True, slots=True)
class DrainOutcome:
    """The result of a drain, and its progress at the end."""

    result: OutcomeResult
    message: str  # one or two sentences
    progress: DrainProgress
    problems: tuple[str, ...] = ()  # of a refused drain, in kubectl's words

    @property
    def is_drained(self) -> bool:
        return self.result is OutcomeResult.DRAINED


def drained_message(progress: DrainProgress) -> str:
    message = f"node {progress.node} is drained: {text.format_pod_count(progress.gone)} removed"
    if progress.returning:
        message += f"; these pods were recreated on the node and stay: {_format_list(progress.returning)}"
    return f"{message}; {progress.left_attached}" if progress.left_attached else message


def timed_out_message(progress: DrainProgress, timeout: timedelta | None) -> str:
    within = f" within {duration.format(timeout)}" if timeout is not None else ""
    if not progress.pods:
        return (
            f"node {progress.node} was not drained{within}: {progress.stale_reason or 'its pods could not be listed'}"
        )
    remaining = f"{text.format_pod_count(len(progress.pods))} left: {_format_list(tuple(map(str, progress.pods)))}"
    return f"node {progress.node} was not drained{within}, {remaining}"


def _format_list(texts: tuple[str, ...]) -> str:
    more = f" and {len(texts) - _MAX_PODS_NAMED} more" if len(texts) > _MAX_PODS_NAMED else ""
    return "; ".join(texts[:_MAX_PODS_NAMED]) + more


def describe_long_blocked(progress: DrainProgress, *, now: datetime) -> tuple[str, datetime | None]:
    """Return a text about blockers older than BLOCKED_AFTER; without any, when the first becomes so."""
    blockers = [active for active in progress.blockers if not active.blocker.is_progress]
    long_blocked = [active for active in blockers if active.since + BLOCKED_AFTER <= now]
    if long_blocked:
        return text.format_list(
            dict.fromkeys(str(active.blocker) for active in long_blocked), max_names=_MAX_BLOCKERS_NAMED
        ), None
    return "", min((active.since + BLOCKED_AFTER for active in blockers), default=None)


@dataclass(frozen=True, slots=True)
class LongestBlocker:
    """A blocking object, and how long it blocked."""

    object: str
    duration: timedelta


@dataclass(frozen=True, slots=True)
class LongestBlockerTracker:
    """The current blockers, and the longest so far."""

    longest: LongestBlocker | None = None
    since: Mapping[str, datetime] = field(default_factory=dict)  # current blockers

    def observe(self, blockers: Iterable[ActiveBlocker], *, now: datetime) -> "LongestBlockerTracker":
        """Return the tracker with these current blockers."""
        current: dict[str, datetime] = {}
        for active in blockers:
            if active.blocker.is_progress:
                continue
            blocking_object = active.blocker.object or active.blocker.kind
            current[blocking_object] = min(
                active.since, current.get(blocking_object, active.since), self.since.get(blocking_object, active.since)
            )
        durations = [
            LongestBlocker(blocking_object, now - since) for blocking_object, since in {**self.since, **current}.items()
        ]
        known = [] if self.longest is None else [self.longest]
        return LongestBlockerTracker(
            max((*known, *durations), key=lambda active: active.duration, default=None), current
        )
