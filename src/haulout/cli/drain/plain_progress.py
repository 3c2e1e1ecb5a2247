"""Plain output of a drain for scripts and logs: the lines of `kubectl drain`, on the same streams.

kubectl repeats every five seconds what it waits for. Here each reason is printed once, with the blocker and advice, and
a summary once a minute if nothing else was printed meanwhile.
"""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from haulout.cli.cordon.node_changes import ChangeResult, result_lines
from haulout.cli.cordon_owners import format_elapsed
from haulout.cli.drain.drain_runner import NodeDrain, NodeDrainState
from haulout.cli.output import OutputLine
from haulout.core.clock import Clock
from haulout.core.text import format_pod_count
from haulout.drain.blockers import BlockerKind
from haulout.drain.escalation import EscalationStep
from haulout.drain.policy import DrainPolicy
from haulout.drain.progress import ActiveBlocker, DrainProgress, PodDrainState, PodProgress

_SUMMARY_INTERVAL = timedelta(minutes=1)
_EVICTION_STATES = (PodDrainState.EVICTING, PodDrainState.BLOCKED, PodDrainState.LEAVING, PodDrainState.OVERDUE)
_VERBS = {
    EscalationStep.EVICT: "evicted",
    EscalationStep.DELETE: "deleted",
    EscalationStep.FORCE_DELETE: "deleted without grace",
}
_VIOLATES_BUDGET = "Cannot evict pod as it would violate the pod's disruption budget."


class PlainReporter:
    """Prints the progress of drains line by line."""

    def __init__(
        self, policy: DrainPolicy, *, clock: Clock, print_line: Callable[[OutputLine], None] = OutputLine.print
    ) -> None:
        self._policy = policy
        self._clock = clock
        self._print_line = print_line
        self._nodes: dict[str, NodeReporter] = {}
        self._node_drains: dict[str, NodeDrain] = {}
        self._printed_at = clock.now()

    def on_cordoned(self, node_drain: NodeDrain, result: ChangeResult) -> None:
        del node_drain
        for line in result_lines(result, verb="cordon"):
            self._print(line)

    def on_progress(self, node_drain: NodeDrain) -> None:
        self._node_drains[node_drain.node] = node_drain
        if node_drain.progress is not None:
            for line in self._node_reporter(node_drain).new_lines(node_drain.progress, now=self._clock.now()):
                self._print(line)

    def on_ended(self, node_drain: NodeDrain) -> None:
        if node_drain.progress is not None and node_drain.result is not NodeDrainState.REFUSED:
            for line in self._node_reporter(node_drain).final_lines(node_drain.progress, now=self._clock.now()):
                self._print(line)
        for line in ending_lines(node_drain):
            self._print(line)

    def on_stopping(self) -> None:
        self._print(OutputLine("Stopping: waiting for requests in progress; Ctrl-C again exits at once."))

    async def run(self) -> None:
        """Print a summary after each minute without output."""
        while True:
            await self._clock.sleep(self._printed_at + _SUMMARY_INTERVAL - self._clock.now())
            if self._clock.now() - self._printed_at < _SUMMARY_INTERVAL:
                continue
            self._printed_at = self._clock.now()
            for node_drain in self._node_drains.values():
                if not node_drain.is_over:
                    self._print(OutputLine(progress_line(node_drain, now=self._clock.now())))

    def _node_reporter(self, node_drain: NodeDrain) -> "NodeReporter":
        return self._nodes.setdefault(node_drain.node, NodeReporter(self._policy))

    def _print(self, line: OutputLine) -> None:
        self._printed_at = self._clock.now()
        self._print_line(line)


class WarningFilter:
    """Finds new warnings about one node; a warning about fewer pods is not new."""

    def __init__(self) -> None:
        self._named_before: set[str] = set()

    def new_lines(self, progress: DrainProgress) -> Iterator[OutputLine]:
        """Yield the warning if it names pods that no earlier one named."""
        named = {name for text in progress.warning.split("; ") for name in text.rpartition(": ")[2].split(", ")}
        if progress.warning and not named <= self._named_before:
            self._named_before |= named
            yield OutputLine(f"Warning: {progress.warning}")


class NodeReporter:
    """Finds what is new about one node."""

    def __init__(self, policy: DrainPolicy) -> None:
        self._policy = policy
        self._rows: dict[str, PodProgress] = {}
        self._reported: set[str] = set()
        self._escalated: dict[str, EscalationStep] = {}  # by uid
        self._warnings = WarningFilter()
        self._reported_blockers: dict[str, tuple[BlockerKind, str]] = {}  # by uid
        self._volumes: set[str] = set()  # already reported
        self._last_trouble = ""

    def new_lines(self, progress: DrainProgress, *, now: datetime) -> Iterator[OutputLine]:
        """Yield what is new, in kubectl's order."""
        # Pods that the flags do not allow to evict are reported at the end, all together.
        eviction_pods = [
            pod
            for pod in progress.pods
            if pod.active_blocker is None or pod.active_blocker.blocker.kind is not BlockerKind.POLICY
        ]
        newly_evicted = [pod for pod in eviction_pods if _is_evicted(pod) and pod.uid not in self._reported]
        if newly_evicted:
            yield from self._warnings.new_lines(progress)
        for pod in newly_evicted:
            self._reported.add(pod.uid)
            if not self._policy.disable_eviction:
                yield OutputLine(f"evicting pod {pod.pod}", is_result=True)
        for pod in eviction_pods:
            yield from self._blocker_line(pod, now=now)
            yield from self._escalation_line(pod)
        yield from self._gone_lines(progress, now=now)
        for volume in progress.volumes:
            if volume.blocker.object not in self._volumes:
                self._volumes.add(volume.blocker.object)
                yield OutputLine(f"waiting: {volume.blocker}")
        if progress.stale_reason and progress.stale_reason != self._last_trouble:
            yield OutputLine(
                f"Warning: node {progress.node}: this information may be outdated: {progress.stale_reason}"
            )
        self._last_trouble = progress.stale_reason

    def final_lines(self, progress: DrainProgress, *, now: datetime) -> Iterator[OutputLine]:
        """Yield what is left to report when the drain has ended."""
        yield from self._warnings.new_lines(progress)
        yield from self.new_lines(progress, now=now)
        for pod in progress.returning:
            yield OutputLine(
                f"Warning: pod {pod} was created again and stays: its replacements would be created again, too"
            )

    def _escalation_line(self, pod: PodProgress) -> Iterator[OutputLine]:
        """Yield a line when an evicted pod is now deleted."""
        if pod.requested_step in (None, EscalationStep.EVICT, self._escalated.get(pod.uid)):
            return
        self._escalated[pod.uid] = pod.requested_step
        if not self._policy.disable_eviction:
            how = " without grace" if pod.requested_step is EscalationStep.FORCE_DELETE else ""
            yield OutputLine(f"deleting pod {pod.pod}{how}", is_result=True)

    def _blocker_line(self, pod: PodProgress, *, now: datetime) -> Iterator[OutputLine]:
        if pod.active_blocker is None:
            self._reported_blockers.pop(pod.uid, None)
            return
        blocker = pod.active_blocker.blocker
        if self._reported_blockers.get(pod.uid) == (blocker.kind, blocker.object):
            return
        self._reported_blockers[pod.uid] = blocker.kind, blocker.object
        yield OutputLine(blocker_line(pod, pod.active_blocker, now=now))

    def _gone_lines(self, progress: DrainProgress, *, now: datetime) -> Iterator[OutputLine]:
        current = {pod.uid: pod for pod in progress.pods}
        gone = [pod for uid, pod in self._rows.items() if uid not in current]
        self._rows = current
        skip_after = self._policy.filters.skip_wait_for_delete
        for pod in gone:
            name = pod.pod.partition("/")[2]
            if pod.state is PodDrainState.FINISHING:
                yield OutputLine(f"pod/{name} completed", is_result=True)
            elif skip_after and pod.ends_at is not None and now >= pod.ends_at + skip_after:
                seconds = int(skip_after.total_seconds())
                yield OutputLine(
                    f'pod "{name}" has DeletionTimestamp older than {seconds} seconds, skipping', is_result=True
                )
            elif pod.uid in self._reported:
                yield OutputLine(f"pod/{name} {self._gone_verb(pod)}", is_result=True)

    def _gone_verb(self, pod: PodProgress) -> str:
        """Return what happened to a pod that no longer exists; another client may have deleted it."""
        if pod.requested_step is not None:
            return _VERBS[pod.requested_step]
        if pod.state is PodDrainState.EVICTING:  # so fast that the answer to the eviction was never observed
            return _VERBS[EscalationStep.DELETE if self._policy.disable_eviction else EscalationStep.EVICT]
        return "gone"


def _is_evicted(pod: PodProgress) -> bool:
    """Return whether a pod is being evicted; a pod with an unreadable drain rule is not."""
    return pod.state in _EVICTION_STATES and (
        pod.active_blocker is None or pod.active_blocker.blocker.kind is not BlockerKind.RULE
    )


def blocker_line(pod: PodProgress, active_blocker: ActiveBlocker, *, now: datetime) -> str:
    """Return what blocks a pod: a line that begins like kubectl's and ends with our reason."""
    blocker = active_blocker.blocker
    namespace, _, name = pod.pod.partition("/")
    why = blocker.reason + (f"; {blocker.remedy}" if blocker.remedy else "")
    if pod.state is not PodDrainState.BLOCKED or blocker.kind is BlockerKind.RULE:
        return f"waiting for pod {pod.pod}: {why}"
    again = f" (will retry after {format_elapsed(pod.next_at - now)})" if pod.next_at and pod.next_at > now else ""
    if blocker.kind is BlockerKind.NAMESPACE:
        return f'error when evicting pod "{name}" from terminating namespace "{namespace}"{again}: {why}'
    message = f"{_VIOLATES_BUDGET} {why}" if blocker.kind is BlockerKind.DISRUPTION_BUDGET else why
    return f'error when evicting pods/"{name}" -n "{namespace}"{again}: {message}'


def ending_lines(node_drain: NodeDrain) -> Iterator[OutputLine]:
    if node_drain.result is NodeDrainState.DRAINED:
        yield OutputLine(f"node/{node_drain.node} drained", is_result=True)
        return
    if node_drain.result is NodeDrainState.INTERRUPTED:
        return  # reported for all nodes together
    if node_drain.pods and node_drain.result is not NodeDrainState.REFUSED:
        yield OutputLine(
            f'There are pending pods in node "{node_drain.node}" when an error occurred: {node_drain.problem}'
        )
        for pod in node_drain.pods:
            yield OutputLine(f"pod/{pod.pod.partition('/')[2]}")
            if pod.active_blocker is not None:
                yield OutputLine(f"  {pod.active_blocker}")
    yield OutputLine(
        f'error: unable to drain node "{node_drain.node}" due to error: {node_drain.problem}, continuing command...'
    )


def summary_lines(node_drains: list[NodeDrain]) -> Iterator[OutputLine]:
    """Yield kubectl's last lines of a command that failed."""
    pending = [entry for entry in node_drains if entry.result is not NodeDrainState.DRAINED]
    if pending:
        yield OutputLine("There are pending nodes to be drained:")
        for node_drain in pending:
            yield OutputLine(f" {node_drain.node}")
        for problem in dict.fromkeys(entry.problem for entry in pending):
            yield OutputLine(problem)


def progress_line(node_drain: NodeDrain, *, now: datetime) -> str:
    """Return the state of a node's drain in one line."""
    progress = node_drain.progress
    if progress is None or node_drain.started is None:
        return f"node/{node_drain.node}: its pods were not listed yet"
    text = f"node/{node_drain.node}: {len(progress.pods)} of {format_pod_count(progress.total)} left"
    text += f" after {format_elapsed(now - node_drain.started)}"
    blocked = sorted(progress.blockers, key=lambda blocked_pod: blocked_pod.since)
    if blocked:
        more = f", and {len(blocked) - 1} more" if len(blocked) > 1 else ""
        text += f"; blocked for {format_elapsed(now - blocked[0].since)}: {blocked[0].blocker}{more}"
    return text
