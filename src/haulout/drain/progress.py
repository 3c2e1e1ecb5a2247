"""Progress and outcome of a drain: what status, events, CLI, metrics and dashboard show.

All are values. Equal values mean that there is nothing new to show. Objects that each decision creates per pod are
structs, which cost a fraction of a dataclass.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import msgspec

from haulout.drain.blockers import Blocker
from haulout.drain.escalation import EscalationStep
from haulout.drain.state import Checkpoint


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
    """The progress of a drain."""

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
        """What a successor needs to continue."""
        since = {pod.uid: pod.turn_since for pod in self.pods if pod.turn_since is not None}
        since |= {active.blocker.uid: active.since for active in self.volumes if active.blocker.uid}
        return Checkpoint(started=self.started, since=since, gone=self.gone, percent=self.percent)


class OutcomeResult(StrEnum):
    """The result of a drain."""

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
