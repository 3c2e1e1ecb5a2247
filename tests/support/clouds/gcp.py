"""A cluster on Google Cloud with its event source, which can be killed at any step and replaced by another one.

The source is the operator's, which calls the Compute API, or that of an agent on one of the nodes. A step is a call of
the Compute API or a write of a notice; there is one before it takes effect, and one after.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceNotice, definition
from haulout.api.objects import Node
from haulout.api.resources import NODES
from haulout.app.sandbox.clouds import gcp_fetch
from haulout.controllers.notices.controller import MaintenanceNoticeController, notice_informer
from haulout.controllers.notices.early_start import EarlyStarter
from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.mutation_cache import MutationCache
from haulout.kube.patches import merge_patch
from haulout.kube.recorder import EventRecorder
from haulout.kube.reflector import ListWatch
from haulout.kube.transport import Transport
from haulout.providers.event_source import EarlyStartSource
from haulout.providers.gcp.compute_api import RestCompute
from haulout.providers.gcp.compute_event_source import GcpEarlyStartSource
from haulout.providers.gcp.metadata_event_source import GcpMetadataEventSource
from haulout.providers.gcp.settings import GcpSettings
from haulout.providers.gcp.tokens import MetadataTokenIssuer, TokenCache
from haulout.providers.notice_writer import NoticeWriter
from haulout.runtime.freezes import NoFreezes
from haulout_sandbox.clouds.gcp import GcpCloud
from support.builders.objects import a_node
from support.clusters.backends import SandboxBackend
from support.clusters.crd_installation import install_crd
from support.expectations.eventually import eventually
from support.faults.notice_write_steps import NoticeStepTransport

_RESTART_DELAY = timedelta(seconds=2)


@dataclass
class GcpWorld:
    """The cluster, the cloud, and the source."""

    clock: Clock
    cloud: GcpCloud
    client: Client
    group: asyncio.TaskGroup
    transport: Transport
    settings: GcpSettings
    agent_on: str  # the node that an agent runs on; empty: the source is the operator's
    crash_at: int | None = None
    boot: str = "first"
    steps: list[str] = field(default_factory=list)
    source: GcpMetadataEventSource | GcpEarlyStartSource | None = None
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

    async def step(self, description: str) -> None:
        """Count a step of the source; at the chosen one it is killed, and another source starts soon."""
        self.steps.append(description)
        if len(self.steps) == self.crash_at and self._process is not None:
            self._process.cancel()
            self.group.create_task(self._restart_later())
            await asyncio.Event().wait()

    async def _restart_later(self) -> None:
        await self.clock.sleep(_RESTART_DELAY)
        self.start()

    async def _run(self) -> None:
        client = Client(NoticeStepTransport(self.transport, self.step), clock=self.clock, random=Random(7))
        if self.agent_on:
            fetch = gcp_fetch(self.cloud, machine=self.agent_on)
            self.source = GcpMetadataEventSource(
                fetch, clock=self.clock, random=Random(7), node=self.agent_on, current_boot_id=self.boot
            )
            await self.source.run(NoticeWriter(client))
            return
        nodes: Informer[Node] = Informer(client, ListWatch(NODES), transform=as_is)
        fetch = gcp_fetch(self.cloud)
        compute = RestCompute(fetch, TokenCache(MetadataTokenIssuer(fetch), clock=self.clock))
        self.source = GcpEarlyStartSource(compute, client=client, nodes=nodes, settings=self.settings)
        notices: Informer[MaintenanceNotice] = Informer(client, ListWatch(MAINTENANCE_NOTICES), transform=as_is)
        early_starter = EarlyStarter(client, MutationCache(notices), early_start_source_of=self._early_start_source)
        notices.subscribe(lambda _, new: None if new is None else early_starter.add(new))
        async with asyncio.TaskGroup() as group:
            for run in (nodes.run(), notices.run(), early_starter.run(), self.source.run(NoticeWriter(client))):
                group.create_task(run)

    def _early_start_source(self, _: str) -> EarlyStartSource | None:
        return self.source if isinstance(self.source, EarlyStartSource) else None

    async def start_early(self, notice: MaintenanceNotice) -> None:
        """Start the maintenance early through the operator's source."""
        assert isinstance(self.source, GcpEarlyStartSource)
        await self.source.start_early(notice)

    def problems(self) -> list[str]:
        """Return the problems of the source."""
        return [] if self.source is None else list(self.source.problems())

    def is_up(self) -> bool:
        """Return whether the source receives responses from Google."""
        return self.source is not None and self.source.is_up

    # The cluster

    async def join_node(self, name: str, *, migrates: bool = False, spot: bool = False, zone: str = "") -> str:
        """Return a new instance that is a node of this name."""
        self.cloud.launch(name, live_migrates=migrates, is_spot=spot, zone=zone)
        await self.client.create(NODES, a_node(name).with_spec(providerID=self.cloud.provider_id(name)))
        return name

    async def mark_drained(self, node: str) -> None:
        """Mark a node as cordoned and drained, as a profile does."""
        now = self.clock.now().isoformat()
        cordon_annotation = f'{{"owners": {{"profile/notices": {{"since": "{now}"}}}}}}'
        change = {
            "metadata": {"annotations": {"haulout.dev/cordon": cordon_annotation}},
            "spec": {"unschedulable": True},
        }
        await self.client.patch(NODES, node, merge_patch(change))
        drained = {"type": "Drained", "status": "True", "reason": "DrainCompleted", "lastTransitionTime": now}
        await self.client.patch(NODES, node, merge_patch({"status": {"conditions": [drained]}}), subresource="status")

    # Results

    async def notices(self) -> dict[str, MaintenanceNotice]:
        """Return all notices, by name."""
        return {notice.name: notice for notice in (await self.client.list(MAINTENANCE_NOTICES)).items}

    async def only_notice(self) -> MaintenanceNotice:
        """Return the only notice."""
        (found,) = (await self.notices()).values()
        return found

    async def notice_summaries(self) -> list[tuple[str, str, str]]:
        """Return a summary of the notices: node, kind, stage."""
        found = (await self.notices()).values()
        return sorted((notice.spec.node_name, notice.spec.kind, notice.spec.stage) for notice in found)

    async def wait_for_stage(self, stage: str, *, phase: str = "", within: timedelta = timedelta(minutes=10)) -> None:
        """Return when the only notice has this stage."""

        async def notice_states() -> list[tuple[str, str]]:
            found = (await self.notices()).values()
            return [(notice.spec.stage, notice.status.phase if phase else "") for notice in found]

        await eventually(self.clock, notice_states, becomes=[(stage, phase)], within=within, every=within / 200)


@asynccontextmanager
async def a_gcp_world(
    clock: Clock, *, settings: GcpSettings | None = None, agent_on: str = "", crash_at: int | None = None
) -> AsyncIterator[GcpWorld]:
    """Run a cluster on Google Cloud; the source runs when `start` is called."""
    cluster = SandboxBackend(clock)
    client = await cluster.client()
    await install_crd(cluster, client, MAINTENANCE_NOTICES, definition())
    events = EventRecorder(client, instance="test")
    nodes: Informer[Node] = Informer(client, ListWatch(NODES), transform=as_is)
    controller = MaintenanceNoticeController(
        client, events=events, nodes=nodes, notices=notice_informer(client), freezes=NoFreezes()
    )
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run()) for run in (nodes.run, controller.notices.run, events.run, controller.run)]
        world = GcpWorld(
            clock=clock,
            cloud=GcpCloud(clock),
            client=client,
            group=group,
            transport=cluster.api_server.transport(),
            settings=settings or GcpSettings(),
            agent_on=agent_on,
            crash_at=crash_at,
        )

        async def on_call(operation: str, after: bool) -> None:  # noqa: FBT001 - as the cloud calls it
            if not operation.startswith("Metadata "):
                await world.step(f"{'after' if after else 'before'} {operation}")

        world.cloud.faults.on_call = on_call
        try:
            yield world
        finally:
            await world.stop()
            for task in tasks:
                task.cancel()
