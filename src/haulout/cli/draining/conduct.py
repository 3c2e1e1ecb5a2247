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

from haulout.cli.cordoning import Done, Verb, cordon_node
from haulout.cli.draining.records import Record, Result
from haulout.drain.engine import Drain
from haulout.drain.machine_rules import honoured
from haulout.drain.policy import Policy
from haulout.drain.progress import Progress
from haulout.drain.requests import Lane
from haulout.drain.volume_watch import VolumeAttachments
from haulout.errors import KubeError
from haulout.kube.client import Client
from haulout.kube.objects import Node


class Show(Protocol):
    """Tells somebody how it goes."""

    def cordoned(self, record: Record, done: Done) -> None:
        """Tell that a node was cordoned, or why not."""
        ...

    def moved(self, record: Record) -> None:
        """Tell what is new of a node that is being drained."""
        ...

    def ended(self, record: Record) -> None:
        """Tell how a node's drain ended, or why it could not begin."""
        ...

    def stopping(self) -> None:
        """Tell that no further pod is asked to leave, and that what is under way is waited for."""
        ...

    async def run(self) -> None:
        """Do what is to be done as time goes by, until cancelled."""
        ...


class Conductor:
    """Drains nodes. `records` tells how it stands at any time."""

    def __init__(self, client: Client, nodes: Sequence[Node], policy: Policy, *, parallel: int, show: Show) -> None:
        self.records = [Record(node.name, timeout=policy.timeout) for node in nodes]
        self._client = client
        self._clock = client.clock
        self._nodes = nodes
        self._policy = policy
        self._show = show
        self._lane = Lane(client)
        self._volumes = VolumeAttachments(client)
        self._gate = asyncio.Semaphore(parallel)
        self._drains: dict[str, Drain] = {}
        self._is_stopping = False

    async def run(self) -> None:
        """Drain the nodes. A cancellation is passed on after the records say what was left."""
        try:
            async with asyncio.TaskGroup() as group:
                beside = group.create_task(self._show.run()), group.create_task(self._volumes.run())
                try:
                    await self._run(group)
                finally:
                    for task in beside:
                        task.cancel()
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _run(self, group: asyncio.TaskGroup) -> None:
        working = [group.create_task(self._work(group))]
        try:
            await asyncio.wait(working)
        except asyncio.CancelledError:
            self._is_stopping = True
            self._show.stopping()
            for drain in self._drains.values():
                drain.stop()
            await asyncio.wait(working)
            raise

    async def _work(self, group: asyncio.TaskGroup) -> None:
        for record, node in zip(self.records, self._nodes, strict=True):
            if not self._is_stopping:
                await self._cordon(record, node)
        both = zip(self.records, self._nodes, strict=True)
        draining = [group.create_task(self._drain(record, node)) for record, node in both if record.is_cordoned]
        if draining:
            await asyncio.wait(draining)

    async def _cordon(self, record: Record, node: Node) -> None:
        done = await cordon_node(self._client, node)
        record.is_cordoned = done.verb is not None
        record.was_cordoned = done.verb is Verb.ALREADY_CORDONED
        self._show.cordoned(record, done)
        if not record.is_cordoned:
            record.fail(f"it could not be cordoned: {done.problem}", at=self._clock.now())
            self._show.ended(record)

    async def _drain(self, record: Record, node: Node) -> None:
        async with self._gate:
            if self._is_stopping:
                return
            record.started, record.result = self._clock.now(), Result.DRAINING
            policy = honoured(self._policy, node)
            drain = Drain(
                self._client,
                record.node,
                policy,
                lane=self._lane,
                volumes=self._volumes,
                on_progress=partial(self._note, record),
            )
            self._drains[record.node] = drain
            try:
                outcome = await drain.run()
            except KubeError as error:
                record.fail(str(error), at=self._clock.now())
            else:
                record.end(outcome, at=self._clock.now())
            self._show.ended(record)

    def _note(self, record: Record, progress: Progress) -> None:
        record.progress = progress
        self._show.moved(record)
        if record.is_hopeless:
            self._drains[record.node].stop()
