"""A cluster, a model of OCI, and between them the source of notices, which can be stopped and started again."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random

from haulout.core.clock import Clock
from haulout.errors import NotFound
from haulout.kinds.notice import MAINTENANCE_NOTICES, MaintenanceNotice, Phase, definition, name_of
from haulout.kube.cache import Cache, as_is
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder
from haulout.kube.follow import Selection
from haulout.kube.objects import Node
from haulout.kube.resources import NODES
from haulout.kube.transport import Transport
from haulout.notices.controller import Controller
from haulout.notices.inbox import Inbox
from haulout.notices.sources.oci.consumer import Place
from haulout.notices.sources.oci.source import OciSource
from haulout_sandbox.clouds.oci import OciCloud
from support.backends import Sandbox, SandboxWire
from support.builders import a_node
from support.defining import define
from support.eventually import eventually

SECOND, MINUTE, HOUR, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


@dataclass
class OciWorld:
    """What a story about OCI happens in."""

    clock: Clock
    client: Client
    cloud: OciCloud
    transport: Transport  # the source's own way to the API server
    tasks: asyncio.TaskGroup
    nodes: Cache[Node]
    idle_pause: timedelta = timedelta(seconds=6)
    compartments: tuple[str, ...] = ()
    source: OciSource | None = None
    lives: int = 0
    adopts: bool = False
    _running: asyncio.Task[None] | None = field(default=None, repr=False)

    def start(self) -> OciSource:
        """Begin to listen to OCI, as a new process."""
        self.lives += 1
        random = Random(self.lives)
        self.source = OciSource(
            self.cloud.compute(),
            streaming=self.cloud.streaming(),
            place=Place(instance=f"pod-{self.lives}", idle_pause=self.idle_pause),
            compartments=self.compartments,
            clock=self.clock,
            random=random,
        )
        client = Client(self.transport, clock=self.clock, random=random)
        if self.adopts:
            self.source.adopt(client, nodes=self.nodes)
        self._running = self.tasks.create_task(self.source.run(Inbox(client)))
        return self.source

    def kill(self) -> None:
        """End the process that listens, at once."""
        if self._running is not None:
            self._running.cancel()
            self._running = None

    async def down(self, lasting: timedelta) -> None:
        """Have nobody listen for a while."""
        self.kill()
        await self.clock.sleep(lasting)
        self.start()

    async def node(self, name: str, machine: str) -> None:
        """Have a node on a machine."""
        await self.client.create(NODES, a_node(name).with_spec(providerID=machine))

    async def notices(self) -> list[MaintenanceNotice]:
        """Return all notices."""
        return list((await self.client.list(MAINTENANCE_NOTICES)).items)

    async def notice(self, event: str) -> MaintenanceNotice:
        """Return the notice of a maintenance; KeyError while there is none."""
        try:
            return await self.client.get(MAINTENANCE_NOTICES, name_of("oci", event))
        except NotFound:
            raise KeyError(event) from None

    async def phase(self, event: str) -> str:
        """Return how a maintenance stands."""
        return (await self.notice(event)).status.phase

    async def start_of(self, event: str) -> datetime | None:
        """Return when a maintenance begins."""
        return (await self.notice(event)).spec.start

    async def becomes(self, event: str, phase: Phase, *, within: timedelta = 10 * SECOND) -> MaintenanceNotice:
        """Return the notice of a maintenance when it stands so."""
        await eventually(
            self.clock, lambda: self.phase(event), becomes=phase, within=within, every=max(within / 100, SECOND / 10)
        )
        return await self.notice(event)


@asynccontextmanager
async def an_oci_world(
    clock: Clock, *, partitions: int = 1, idle_pause: timedelta = 6 * SECOND
) -> AsyncIterator[OciWorld]:
    """Yield a world in which nobody listens to OCI yet."""
    cluster = Sandbox(clock)
    client = await cluster.client()
    await define(cluster, client, MAINTENANCE_NOTICES, definition())
    events = EventRecorder(client, instance="test")
    cache: Cache[Node] = Cache(client, Selection(NODES), row=as_is)
    controller = Controller(client, events=events, nodes=cache)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run()) for run in (cache.run, events.run, controller.run)]
        transport = cluster.cluster.transport()
        cloud = OciCloud(clock, partitions=partitions)
        world = OciWorld(clock, client, cloud, transport, group, cache, idle_pause=idle_pause)
        try:
            yield world
        finally:
            world.kill()
            for task in tasks:
                task.cancel()


def wire(world: OciWorld) -> SandboxWire:
    """Return the line between the source and the API server."""
    return SandboxWire(world.transport)  # type: ignore[arg-type]  # a story that wraps it does not cut it
