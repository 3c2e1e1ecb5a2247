"""How a drain stands and how it ended: what status, events, the command line, metrics and the dashboard show.

All are values. Two of them are equal if there is nothing new to tell, so whoever shows them can leave it at that. Those
that are made for each pod at each look are structs, which cost a fraction of a dataclass.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import msgspec

from haulout.drain.blockers import Blocker
from haulout.drain.escalation import EscalationStep
from haulout.drain.state import Checkpoint


class PodDrainState(StrEnum):
    """How it stands with one pod."""

    QUEUED = "Queued"  # others leave first
    EVICTING = "Evicting"  # it is being asked, or about to be
    BLOCKED = "Blocked"  # somebody says no
    FINISHING = "Finishing"  # nobody asks it to leave, but it is waited for
    LEAVING = "Leaving"  # it was told to go and has time for that
    OVERDUE = "Overdue"  # it should be gone


@dataclass(frozen=True, slots=True)
class ActiveBlocker:
    """What stands in the way, and since when."""

    blocker: Blocker
    since: datetime

    def __str__(self) -> str:
        """Return it in one line."""
        return f"{self.blocker} (since {self.since:%H:%M:%S} UTC)"


class PodProgress(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How it stands with one pod that is still there."""

    pod: str  # namespace/name
    uid: str
    state: PodDrainState
    message: str
    turn_since: datetime | None = None  # when its turn to leave came
    next_at: datetime | None = None  # when something is done about it next, whatever else happens
    requested_step: EscalationStep | None = None  # by what this drain told it to go, or tells it right now
    ends_at: datetime | None = None  # until when it has time to end, once it was told to go
    active_blocker: ActiveBlocker | None = None

    def __str__(self) -> str:
        """Return it in one line."""
        return f"{self.pod}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainProgress:
    """How a drain stands."""

    node: str
    started: datetime
    total: int = 0  # pods that leave, or have left
    gone: int = 0
    leaving: int = 0  # told to go
    percent: int = 0  # never goes back
    pods: tuple[PodProgress, ...] = ()  # that are still there and are to leave
    returning: tuple[str, ...] = ()  # pods that came back after one like them had been made to leave: they stay
    warning: str = ""  # what people should know about what is lost or left
    stale_reason: str = ""  # why what is said here may be old
    is_known: bool = False  # all pods were looked through: before that there is nothing to tell but trouble
    deadline: datetime | None = None
    volumes: tuple[ActiveBlocker, ...] = ()  # that are still attached, once all pods have left
    volumes_until: datetime | None = None  # until when these are waited for
    left_attached: str = ""  # what is to be said of volumes that were waited for in vain

    @property
    def waiting(self) -> int:
        """How many pods are still to be told to go."""
        return len(self.pods) - self.leaving

    @property
    def blockers(self) -> tuple[ActiveBlocker, ...]:
        """What stands in the way."""
        return (*(pod.active_blocker for pod in self.pods if pod.active_blocker is not None), *self.volumes)

    @property
    def checkpoint(self) -> Checkpoint:
        """What a successor needs to go on from here."""
        since = {pod.uid: pod.turn_since for pod in self.pods if pod.turn_since is not None}
        since |= {active.blocker.uid: active.since for active in self.volumes if active.blocker.uid}
        return Checkpoint(started=self.started, since=since, gone=self.gone, percent=self.percent)


class OutcomeResult(StrEnum):
    """How a drain ended."""

    DRAINED = "Drained"
    REFUSED = "Refused"  # the policy does not let some pod go
    TIMED_OUT = "TimedOut"
    CANCELLED = "Cancelled"


@dataclass(frozen=True, slots=True)
class DrainOutcome:
    """How a drain ended, and how it stood then."""

    result: OutcomeResult
    message: str  # in a sentence or two
    progress: DrainProgress
    problems: tuple[str, ...] = ()  # of a policy that does not let some pod go, in kubectl's words

    @property
    def is_drained(self) -> bool:
        """Tell whether nothing is left that was to leave."""
        return self.result is OutcomeResult.DRAINED
