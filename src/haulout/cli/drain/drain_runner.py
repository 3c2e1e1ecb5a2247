"""Run the drains of a command: cordon all nodes first, then drain a limited number in parallel.

    runner = DrainRunner(client, nodes, policy, parallel=10, reporter=reporter)
    await runner.run()

A node that cannot be cordoned is not drained, because its pods would be rescheduled to it. A node whose remaining pods
can never leave is given up. The other nodes continue.

When the task is cancelled (Ctrl-C, SIGTERM), no further pod is evicted. Requests in progress are awaited for a few
seconds at most, so that the final report is correct; then the cancellation continues.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Protocol

from haulout.api.objects import Node
from haulout.cli.cordon.node_changes import ChangeResult, ChangeVerb, cordon_node
from haulout.cli.drain.node_drain import NodeDrain, NodeDrainState
from haulout.drain.drainer import Drainer
from haulout.drain.eviction_client import EvictionClient
from haulout.drain.machine_drain_rules import with_machine_drain_rules
from haulout.drain.policy import DrainPolicy
from haulout.drain.progress import DrainProgress
from haulout.drain.volumes import VolumeAttachmentInformer
from haulout.errors import KubeError
from haulout.kube.client import Client


class ProgressReporter(Protocol):
    """Reports the progress of drains."""

    def on_cordoned(self, node_drain: NodeDrain, result: ChangeResult) -> None:
        """Report that a node was cordoned, or why not."""
        ...

    def on_progress(self, node_drain: NodeDrain) -> None:
        """Report new progress of a drain."""
        ...

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
