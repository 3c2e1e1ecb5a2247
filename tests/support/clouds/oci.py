"""A cluster, a simulated OCI, and the OCI event source, which can be stopped and started again."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceNotice, NoticePhase, definition, object_name
from haulout.api.objects import Node
from haulout.api.resources import NODES
from haulout.controllers.notices.controller import MaintenanceNoticeController, notice_informer
from haulout.core.clock import Clock
from haulout.errors import NotFound
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.recorder import EventRecorder
from haulout.kube.reflector import ListWatch
from haulout.kube.transport import Transport
from haulout.providers.notice_writer import NoticeWriter
from haulout.providers.oci.event_source import OciEventSource
from haulout.providers.oci.stream_consumer import ConsumerOptions
from haulout.runtime.freezes import NoFreezes
from haulout_sandbox.clouds.oci import OciCloud
from support.builders.objects import a_node
from support.clusters.backends import SandboxBackend, SandboxConnection
from support.clusters.crd_installation import install_crd
from support.expectations.eventually import eventually

SECOND, MINUTE, HOUR, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


@dataclass
class OciWorld:
    """The cluster, the cloud, and the source."""

    clock: Clock
    client: Client
    cloud: OciCloud
    transport: Transport  # the source's own connection to the API server
    tasks: asyncio.TaskGroup
    nodes: Informer[Node]
    idle_pause: timedelta = timedelta(seconds=6)
    compartments: tuple[str, ...] = ()
    source: OciEventSource | None = None
    process_count: int = 0
    adopts_cronjobs: bool = False
    _running: asyncio.Task[None] | None = field(default=None, repr=False)

    def start(self) -> OciEventSource:
        """Start the source as a new process."""
        self.process_count += 1
        random = Random(self.process_count)
        self.source = OciEventSource(
            self.cloud.compute(),
            streaming=self.cloud.streaming(),
            consumer_options=ConsumerOptions(instance=f"pod-{self.process_count}", idle_pause=self.idle_pause),
            compartments=self.compartments,
            clock=self.clock,
            random=random,
        )
        client = Client(self.transport, clock=self.clock, random=random)
        if self.adopts_cronjobs:
            self.source.adopt_cronjobs(client, nodes=self.nodes)
        self._running = self.tasks.create_task(self.source.run(NoticeWriter(client)))
        return self.source

    def kill(self) -> None:
        """Kill the source."""
        if self._running is not None:
            self._running.cancel()
            self._running = None

    async def stop_for(self, duration: timedelta) -> None:
        """Stop the source for a while."""
        self.kill()
        await self.clock.sleep(duration)
        self.start()

    async def create_node(self, name: str, machine: str) -> None:
        """Create the node of a machine."""
        await self.client.create(NODES, a_node(name).with_spec(providerID=machine))

    async def notices(self) -> list[MaintenanceNotice]:
        """Return all notices."""
        return list((await self.client.list(MAINTENANCE_NOTICES)).items)

    async def notice(self, event: str) -> MaintenanceNotice:
        """Return the notice of a maintenance; KeyError while there is none."""
        try:
            return await self.client.get(MAINTENANCE_NOTICES, object_name("oci", event))
        except NotFound:
            raise KeyError(event) from None

    async def phase_of(self, event: str) -> str:
        """Return the phase of a maintenance."""
        return (await self.notice(event)).status.phase

    async def start_time_of(self, event: str) -> datetime | None:
        """Return when a maintenance begins."""
        return (await self.notice(event)).spec.start

    async def wait_for_phase(
        self, event: str, phase: NoticePhase, *, within: timedelta = 10 * SECOND
    ) -> MaintenanceNotice:
        """Return the notice of a maintenance once it has this phase."""
        await eventually(
            self.clock, lambda: self.phase_of(event), becomes=phase, within=within, every=max(within / 100, SECOND / 10)
        )
        return await self.notice(event)


@asynccontextmanager
async def an_oci_world(
    clock: Clock, *, partitions: int = 1, idle_pause: timedelta = 6 * SECOND
) -> AsyncIterator[OciWorld]:
    """Yield a world in which no source runs yet."""
    cluster = SandboxBackend(clock)
    client = await cluster.client()
    await install_crd(cluster, client, MAINTENANCE_NOTICES, definition())
    events = EventRecorder(client, instance="test")
    cache: Informer[Node] = Informer(client, ListWatch(NODES), transform=as_is)
    controller = MaintenanceNoticeController(
        client, events=events, nodes=cache, notices=notice_informer(client), freezes=NoFreezes()
    )
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run()) for run in (cache.run, controller.notices.run, events.run, controller.run)]
        transport = cluster.api_server.transport()
        cloud = OciCloud(clock, partitions=partitions)
        world = OciWorld(clock, client, cloud, transport, group, cache, idle_pause=idle_pause)
        try:
            yield world
        finally:
            world.kill()
            for task in tasks:
                task.cancel()


def source_connection(world: OciWorld) -> SandboxConnection:
    """Return the connection between the source and the API server."""
    return SandboxConnection(world.transport)  # type: ignore[arg-type]  # a story that wraps it does not cut it
