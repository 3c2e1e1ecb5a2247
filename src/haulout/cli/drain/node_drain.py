"""The state of each node's drain, the source of all output."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from haulout.core import duration
from haulout.drain.blockers import BlockerKind
from haulout.drain.pod_filters import aggregate_errors
from haulout.drain.progress import DrainOutcome, DrainProgress, OutcomeResult, PodDrainState, PodProgress

# Waiting does not help with these: like kubectl, give up at once if nothing else is left.
PERMANENT_BLOCKERS = (BlockerKind.PERMISSION, BlockerKind.SEVERAL_DISRUPTION_BUDGETS, BlockerKind.RULE)


class NodeDrainState(StrEnum):
    """The state of a node's drain."""

    QUEUED = "Queued"
    DRAINING = "Draining"
    DRAINED = "Drained"
    REFUSED = "Refused"  # it has pods that the flags do not allow to evict
    TIMED_OUT = "TimedOut"
    BLOCKED = "Blocked"  # the remaining pods can never leave
    FAILED = "Failed"  # it could not begin
    INTERRUPTED = "Interrupted"


_STATE_OF_ENDING = {
    OutcomeResult.DRAINED: NodeDrainState.DRAINED,
    OutcomeResult.REFUSED: NodeDrainState.REFUSED,
    OutcomeResult.TIMED_OUT: NodeDrainState.TIMED_OUT,
}


@dataclass(slots=True)
class NodeDrain:
    """The drain of one node."""

    node: str
    result: NodeDrainState = NodeDrainState.QUEUED
    was_cordoned: bool = False  # before this command
    is_cordoned: bool = False
    progress: DrainProgress | None = None
    started: datetime | None = None
    ended: datetime | None = None
    problem: str = ""  # why it was not drained, in kubectl's words
    timeout: timedelta | None = None

    @property
    def pods(self) -> tuple[PodProgress, ...]:
        """The pods that have not left yet."""
        return () if self.progress is None else self.progress.pods

    @property
    def terminating_pods(self) -> tuple[PodProgress, ...]:
        """The pods that are terminating."""
        return tuple(pod for pod in self.pods if pod.state in (PodDrainState.LEAVING, PodDrainState.OVERDUE))

    @property
    def running_pods(self) -> tuple[PodProgress, ...]:
        """The pods that are not terminating yet."""
        return tuple(pod for pod in self.pods if pod.state not in (PodDrainState.LEAVING, PodDrainState.OVERDUE))

    @property
    def is_over(self) -> bool:
        """Whether the drain has ended."""
        return self.result not in (NodeDrainState.QUEUED, NodeDrainState.DRAINING)

    @property
    def is_permanently_blocked(self) -> bool:
        """Whether no remaining pod can ever leave."""
        return bool(self.pods) and all(
            pod.active_blocker and pod.active_blocker.blocker.kind in PERMANENT_BLOCKERS for pod in self.pods
        )

    def fail(self, problem: str, *, at: datetime) -> None:
        """Record that the drain could not begin, or failed."""
        self.result, self.problem, self.ended = NodeDrainState.FAILED, problem, at

    def end(self, outcome: DrainOutcome, *, at: datetime) -> None:
        """Record how the drain ended."""
        self.progress, self.ended = outcome.progress, at
        unfinished = NodeDrainState.BLOCKED if self.is_permanently_blocked else NodeDrainState.INTERRUPTED
        self.result = _STATE_OF_ENDING.get(outcome.result, unfinished)
        match self.result:
            case NodeDrainState.DRAINED:
                self.problem = ""
            case NodeDrainState.TIMED_OUT | NodeDrainState.BLOCKED if self.pods:
                self.problem = aggregate_errors([self._problem(pod) for pod in self.pods])
            case _:
                self.problem = outcome.message

    def _problem(self, pod: PodProgress) -> str:
        """Return why a pod has not left, in kubectl's words."""
        namespace, _, name = pod.pod.partition("/")
        if pod in self.terminating_pods:
            return f'error when waiting for pod "{name}" in namespace "{namespace}" to terminate: {_DEADLINE_EXCEEDED}'
        timeout_message = f"global timeout reached: {duration.format(self.timeout)}" if self.timeout else ""
        why = pod.message if self.result is NodeDrainState.BLOCKED else timeout_message
        return f'error when evicting pods/"{name}" -n "{namespace}": {why or pod.message}'


_DEADLINE_EXCEEDED = "context deadline exceeded"


def is_success(node_drains: Sequence[NodeDrain]) -> bool:
    """Return whether all nodes are drained."""
    return all(node_drain.result is NodeDrainState.DRAINED for node_drain in node_drains)
