"""What is known of each node that is to be drained: what is said about it, in whichever form, is made from this."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from haulout.core import duration
from haulout.drain.blockers import Kind
from haulout.drain.progress import Ending, Outcome, PodProgress, Progress, State
from haulout.drain.selection import aggregate

# Nobody who waits gets further with these: kubectl gives up on them at once, and so do we when nothing else is left.
HOPELESS = (Kind.PERMISSION, Kind.SEVERAL_BUDGETS, Kind.RULE)


class Result(StrEnum):
    """How it stands with a node."""

    QUEUED = "Queued"
    DRAINING = "Draining"
    DRAINED = "Drained"
    REFUSED = "Refused"  # pods are on it that the flags do not let go
    TIMED_OUT = "TimedOut"
    BLOCKED = "Blocked"  # what is left cannot leave, however long one waits
    FAILED = "Failed"  # it could not even begin
    INTERRUPTED = "Interrupted"


_BY_ENDING = {Ending.DRAINED: Result.DRAINED, Ending.REFUSED: Result.REFUSED, Ending.TIMED_OUT: Result.TIMED_OUT}


@dataclass(slots=True)
class Record:
    """One node."""

    node: str
    result: Result = Result.QUEUED
    was_cordoned: bool = False  # before we came
    is_cordoned: bool = False
    progress: Progress | None = None
    started: datetime | None = None
    ended: datetime | None = None
    problem: str = ""  # why it was not drained, in kubectl's words
    timeout: timedelta | None = None

    @property
    def pods(self) -> tuple[PodProgress, ...]:
        """The pods that are still to leave."""
        return () if self.progress is None else self.progress.pods

    @property
    def told(self) -> tuple[PodProgress, ...]:
        """Of these, those that were told to go, and have time for that."""
        return tuple(pod for pod in self.pods if pod.state in (State.LEAVING, State.OVERDUE))

    @property
    def untold(self) -> tuple[PodProgress, ...]:
        """Of these, those that still run."""
        return tuple(pod for pod in self.pods if pod.state not in (State.LEAVING, State.OVERDUE))

    @property
    def is_over(self) -> bool:
        """Tell whether nothing more will happen to it."""
        return self.result not in (Result.QUEUED, Result.DRAINING)

    @property
    def is_hopeless(self) -> bool:
        """Tell whether all that is left cannot leave, however long one waits."""
        return bool(self.pods) and all(it.standing and it.standing.blocker.kind in HOPELESS for it in self.pods)

    def fail(self, problem: str, *, at: datetime) -> None:
        """Note that it could not begin, or broke off."""
        self.result, self.problem, self.ended = Result.FAILED, problem, at

    def end(self, outcome: Outcome, *, at: datetime) -> None:
        """Note how its drain ended."""
        self.progress, self.ended = outcome.progress, at
        given_up = Result.BLOCKED if self.is_hopeless else Result.INTERRUPTED
        self.result = _BY_ENDING.get(outcome.ending, given_up)
        match self.result:
            case Result.DRAINED:
                self.problem = ""
            case Result.TIMED_OUT | Result.BLOCKED if self.pods:
                self.problem = aggregate([self._problem(pod) for pod in self.pods])
            case _:
                self.problem = outcome.why

    def _problem(self, pod: PodProgress) -> str:
        """Return why a pod is still there, in kubectl's words."""
        namespace, _, name = pod.pod.partition("/")
        if pod in self.told:
            return f'error when waiting for pod "{name}" in namespace "{namespace}" to terminate: {_DEADLINE}'
        late = f"global timeout reached: {duration.format(self.timeout)}" if self.timeout else ""
        why = pod.words if self.result is Result.BLOCKED else late
        return f'error when evicting pods/"{name}" -n "{namespace}": {why or pod.words}'


_DEADLINE = "context deadline exceeded"


def is_success(records: Sequence[Record]) -> bool:
    """Tell whether all nodes are drained."""
    return all(record.result is Result.DRAINED for record in records)
