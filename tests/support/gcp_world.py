"""A cluster on Google Cloud, with a source that listens to it: it can be killed at any step, and another takes over.

The source is the operator's, which asks the Compute API, or that of an agent on one of the nodes. A step is a call of
the Compute API or a write of a notice; there is one before it takes effect, and one after.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random

from haulout.app.sandbox.cloud_sources import asking
from haulout.core.clock import Clock
from haulout.kinds.notice import MAINTENANCE_NOTICES, MaintenanceNotice, definition
from haulout.kube.cache import Cache, as_is
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder
from haulout.kube.follow import Selection
from haulout.kube.objects import Node
from haulout.kube.patches import merge_patch
from haulout.kube.resources import NODES
from haulout.kube.transport import Transport
from haulout.notices.controller import Controller
from haulout.notices.inbox import Inbox
from haulout.notices.sources import Starter
from haulout.notices.sources.gcp.compute import RestCompute
from haulout.notices.sources.gcp.metadata import GcpMetadataSource
from haulout.notices.sources.gcp.settings import Settings
from haulout.notices.sources.gcp.source import BeginningComputeSource
from haulout.notices.sources.gcp.tokens import FromMetadata, Tokens
from haulout.notices.starting import Starting
from haulout_sandbox.clouds.gcp import GcpCloud
from support.backends import Sandbox
from support.builders import a_node
from support.defining import define
from support.eventually import eventually
from support.told_steps import Stepping

_DOWN_FOR = timedelta(seconds=2)


@dataclass
class World:
    """The cluster, the cloud, and the source."""

    clock: Clock
    cloud: GcpCloud
    client: Client
    group: asyncio.TaskGroup
    transport: Transport
    settings: Settings
    agent_on: str  # the node that an agent runs on; empty: the source is the operator's
    crash_at: int | None = None
    boot: str = "first"
    steps: list[str] = field(default_factory=list)
    source: GcpMetadataSource | BeginningComputeSource | None = None
    _process: asyncio.Task[None] | None = None

    # The source

    def start(self) -> None:
        """Run a source."""
        self._process = self.group.create_task(self._run())

    async def stop(self) -> None:
        """End it as a crash does."""
        if self._process is not None:
            self._process.cancel()
            await asyncio.wait([self._process])

    async def step(self, what: str) -> None:
        """Count a step of the source; at a chosen one it dies, and another begins soon."""
        self.steps.append(what)
        if len(self.steps) == self.crash_at and self._process is not None:
            self._process.cancel()
            self.group.create_task(self._revive())
            await asyncio.Event().wait()

    async def _revive(self) -> None:
        await self.clock.sleep(_DOWN_FOR)
        self.start()

    async def _run(self) -> None:
        client = Client(Stepping(self.transport, self.step), clock=self.clock, random=Random(7))
        if self.agent_on:
            fetch = asking(self.cloud, machine=self.agent_on)
            self.source = GcpMetadataSource(
                fetch, clock=self.clock, random=Random(7), node=self.agent_on, boot=self.boot
            )
            await self.source.run(Inbox(client))
            return
        nodes: Cache[Node] = Cache(client, Selection(NODES), row=as_is)
        fetch = asking(self.cloud)
        compute = RestCompute(fetch, Tokens(FromMetadata(fetch), clock=self.clock))
        self.source = BeginningComputeSource(compute, client=client, nodes=nodes, settings=self.settings)
        notices: Cache[MaintenanceNotice] = Cache(client, Selection(MAINTENANCE_NOTICES), row=as_is)
        starting = Starting(client, notices, starter_of=self._starter)
        notices.subscribe(lambda _, new: None if new is None else starting.add(new))
        async with asyncio.TaskGroup() as group:
            for run in (nodes.run(), notices.run(), starting.run(), self.source.run(Inbox(client))):
                group.create_task(run)

    def _starter(self, _: str) -> Starter | None:
        return self.source if isinstance(self.source, Starter) else None

    async def compute_begins(self, notice: MaintenanceNotice) -> None:
        """Have the operator's source tell Google to begin."""
        assert isinstance(self.source, BeginningComputeSource)
        await self.source.begin(notice)

    def troubles(self) -> list[str]:
        """Return what keeps the source from its work."""
        return [] if self.source is None else list(self.source.troubles())

    def is_up(self) -> bool:
        """Tell whether the source hears what Google says."""
        return self.source is not None and self.source.is_up

    # The cluster

    async def join(self, name: str, *, migrates: bool = False, spot: bool = False, zone: str = "") -> str:
        """Return a new instance that is a node of this name."""
        self.cloud.launch(name, migrates=migrates, spot=spot, zone=zone)
        await self.client.create(NODES, a_node(name).with_spec(providerID=self.cloud.provider_id(name)))
        return name

    async def empty(self, node: str) -> None:
        """Have a node cordoned and drained, as by a profile."""
        now = self.clock.now().isoformat()
        mark = f'{{"owners": {{"profile/notices": {{"since": "{now}"}}}}}}'
        change = {"metadata": {"annotations": {"haulout.dev/cordon": mark}}, "spec": {"unschedulable": True}}
        await self.client.patch(NODES, node, merge_patch(change))
        drained = {"type": "Drained", "status": "True", "reason": "DrainCompleted", "lastTransitionTime": now}
        await self.client.patch(NODES, node, merge_patch({"status": {"conditions": [drained]}}), subresource="status")

    # What came of it

    async def notices(self) -> dict[str, MaintenanceNotice]:
        """Return all notices, by name."""
        return {it.name: it for it in (await self.client.list(MAINTENANCE_NOTICES)).items}

    async def the(self) -> MaintenanceNotice:
        """Return the only notice."""
        (found,) = (await self.notices()).values()
        return found

    async def outcome(self) -> list[tuple[str, str, str]]:
        """Return what notices there are, in short: node, kind, stage."""
        found = (await self.notices()).values()
        return sorted((it.spec.node_name, it.spec.kind, it.spec.stage) for it in found)

    async def becomes(self, stage: str, *, phase: str = "", within: timedelta = timedelta(minutes=10)) -> None:
        """Return when the only notice is so."""

        async def look() -> list[tuple[str, str]]:
            found = (await self.notices()).values()
            return [(it.spec.stage, it.status.phase if phase else "") for it in found]

        await eventually(self.clock, look, becomes=[(stage, phase)], within=within, every=within / 200)


@asynccontextmanager
async def a_world(
    clock: Clock, *, settings: Settings | None = None, agent_on: str = "", crash_at: int | None = None
) -> AsyncIterator[World]:
    """Run a cluster on Google Cloud; the source runs when `start` is called."""
    cluster = Sandbox(clock)
    client = await cluster.client()
    await define(cluster, client, MAINTENANCE_NOTICES, definition())
    events = EventRecorder(client, instance="test")
    nodes: Cache[Node] = Cache(client, Selection(NODES), row=as_is)
    controller = Controller(client, events=events, nodes=nodes)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run()) for run in (nodes.run, events.run, controller.run)]
        world = World(
            clock=clock,
            cloud=GcpCloud(clock),
            client=client,
            group=group,
            transport=cluster.cluster.transport(),
            settings=settings or Settings(),
            agent_on=agent_on,
            crash_at=crash_at,
        )

        async def watcher(operation: str, after: bool) -> None:  # noqa: FBT001 - as the cloud calls it
            if not operation.startswith("Metadata "):
                await world.step(f"{'after' if after else 'before'} {operation}")

        world.cloud.faults.watcher = watcher
        try:
            yield world
        finally:
            await world.stop()
            for task in tasks:
                task.cancel()
