"""Runs the drains of a command: all nodes are cordoned first, then drained, so many at once.

    conductor = Conductor(client, nodes, policy, parallel=10, show=show)
    await conductor.run()

A node that cannot be cordoned is not drained: the pods would come back to it. One that has only pods left which cannot
leave however long one waits is given up. The others go on.

When the task is cancelled (Ctrl-C, SIGTERM) no further pod is asked to leave. What is under way is waited for, a few
seconds at most, so that what is then said of the nodes is true; then the cancellation goes on its way.
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
from haulout.drain.volume_attachment_informer import VolumeAttachmentInformer
from haulout.errors import KubeError
from haulout.kube.client import Client


class ProgressReporter(Protocol):
    """Tells somebody how it goes."""

    def on_cordoned(self, node_drain: NodeDrain, result: ChangeResult) -> None:
        """Tell that a node was cordoned, or why not."""
        ...

    def on_progress(self, node_drain: NodeDrain) -> None:
        """Tell what is new of a node that is being drained."""
        ...

    def on_ended(self, node_drain: NodeDrain) -> None:
        """Tell how a node's drain ended, or why it could not begin."""
        ...

    def on_stopping(self) -> None:
        """Tell that no further pod is asked to leave, and that what is under way is waited for."""
        ...

    async def run(self) -> None:
        """Do what is to be done as time goes by, until cancelled."""
        ...


class DrainRunner:
    """Drains nodes. `node_drains` tells how it stands at any time."""

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
        """Drain the nodes. A cancellation is passed on after the records say what was left."""
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
