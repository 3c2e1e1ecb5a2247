"""Run the drains of a command: cordon all nodes first, then drain a limited number in parallel.

    runner = DrainRunner(client, nodes, policy, parallel=10, reporter=reporter)
    await runner.run()

A node that cannot be cordoned is not drained, because its pods would be rescheduled to it. A node whose remaining pods
can never leave is given up. The other nodes continue.

When the task is cancelled (Ctrl-C, SIGTERM), no further pod is evicted. Requests in progress are awaited for a few
seconds at most, so that the final report is correct; then the cancellation continues.

`NodeDrain` is the state of each node's drain, the source of all output.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Protocol

from haulout.api.objects import Node
from haulout.cli.cordon.node_changes import ChangeResult, ChangeVerb, cordon_node
from haulout.core import duration
from haulout.drain.blockers import BlockerKind
from haulout.drain.drainer import Drainer
from haulout.drain.eviction_client import EvictionClient
from haulout.drain.machine_drain_rules import with_machine_drain_rules
from haulout.drain.pod_filters import aggregate_errors
from haulout.drain.policy import DrainPolicy
from haulout.drain.progress import DrainOutcome, DrainProgress, OutcomeResult, PodDrainState, PodProgress
from haulout.drain.volumes import VolumeAttachmentInformer
from haulout.errors import KubeError
from haulout.kube.client import Client

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
        return tuple(pod for pod in self.pods if pod.state in (PodDrainState.LEAVING, PodDrainState.OVERDUE))

    @property
    def running_pods(self) -> tuple[PodProgress, ...]:
        """The pods that are not terminating yet."""
        return tuple(pod for pod in self.pods if pod.state not in (PodDrainState.LEAVING, PodDrainState.OVERDUE))

    @property
    def is_over(self) -> bool:
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
    return all(node_drain.result is NodeDrainState.DRAINED for node_drain in node_drains)


class ProgressReporter(Protocol):
    """Reports the progress of drains."""

    def on_cordoned(self, node_drain: NodeDrain, result: ChangeResult) -> None:
        """Report that a node was cordoned, or why not."""
        ...

    def on_progress(self, node_drain: NodeDrain) -> None: ...

    def on_ended(self, node_drain: NodeDrain) -> None:
        """Report how a drain ended, or why it did not begin."""
        ...

    def on_stopping(self) -> None:
        """Report that no further pod is evicted, and that requests in progress are awaited."""
        ...

    async def run(self) -> None:
        """Refresh the output periodically, until cancelled."""
        ...


class DrainRunner:
    """Drains nodes; `node_drains` has the current state of each."""

    def __init__(
        self, client: Client, nodes: Sequence[Node], policy: DrainPolicy, *, parallel: int, reporter: ProgressReporter
    ) -> None:
        self.node_drains = [NodeDrain(node.name, timeout=policy.timeout) for node in nodes]
        self._client = client
        self._clock = client.clock
        self._nodes = nodes
        self._policy = policy
        self._reporter = reporter
        self._eviction_client = EvictionClient(client)
        self._volumes = VolumeAttachmentInformer(client)
        self._semaphore = asyncio.Semaphore(parallel)
        self._drains: dict[str, Drainer] = {}
        self._is_stopping = False

    async def run(self) -> None:
        """Drain the nodes. A cancellation continues after the records are final."""
        try:
            async with asyncio.TaskGroup() as group:
                background = group.create_task(self._reporter.run()), group.create_task(self._volumes.run())
                try:
                    await self._run(group)
                finally:
                    for task in background:
                        task.cancel()
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _run(self, group: asyncio.TaskGroup) -> None:
        tasks = [group.create_task(self._drain_nodes(group))]
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError:
            self._is_stopping = True
            self._reporter.on_stopping()
            for drain in self._drains.values():
                drain.stop()
            await asyncio.wait(tasks)
            raise

    async def _drain_nodes(self, group: asyncio.TaskGroup) -> None:
        for node_drain, node in zip(self.node_drains, self._nodes, strict=True):
            if not self._is_stopping:
                await self._cordon(node_drain, node)
        pairs = zip(self.node_drains, self._nodes, strict=True)
        draining = [
            group.create_task(self._drain(node_drain, node)) for node_drain, node in pairs if node_drain.is_cordoned
        ]
        if draining:
            await asyncio.wait(draining)

    async def _cordon(self, node_drain: NodeDrain, node: Node) -> None:
        result = await cordon_node(self._client, node)
        node_drain.is_cordoned = result.verb is not None
        node_drain.was_cordoned = result.verb is ChangeVerb.ALREADY_CORDONED
        self._reporter.on_cordoned(node_drain, result)
        if not node_drain.is_cordoned:
            node_drain.fail(f"it could not be cordoned: {result.problem}", at=self._clock.now())
            self._reporter.on_ended(node_drain)

    async def _drain(self, node_drain: NodeDrain, node: Node) -> None:
        async with self._semaphore:
            if self._is_stopping:
                return
            node_drain.started, node_drain.result = self._clock.now(), NodeDrainState.DRAINING
            policy = with_machine_drain_rules(self._policy, node)
            drain = Drainer(
                self._client,
                node_drain.node,
                policy,
                eviction_client=self._eviction_client,
                volumes=self._volumes,
                on_progress=partial(self._on_progress, node_drain),
            )
            self._drains[node_drain.node] = drain
            try:
                outcome = await drain.run()
            except KubeError as error:
                node_drain.fail(str(error), at=self._clock.now())
            else:
                node_drain.end(outcome, at=self._clock.now())
            self._reporter.on_ended(node_drain)

    def _on_progress(self, node_drain: NodeDrain, progress: DrainProgress) -> None:
        node_drain.progress = progress
        self._reporter.on_progress(node_drain)
        if node_drain.is_permanently_blocked:
            self._drains[node_drain.node].stop()
