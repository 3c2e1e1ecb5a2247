"""A cluster on AWS with the AWS event source, which can be killed at any step and replaced by another one.

A step is a call of AWS or a write of a notice; there is one before it takes effect, and one after.
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
from haulout.controllers.notices.controller import MaintenanceNoticeController, notice_informer
from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.patches import strategic_patch
from haulout.kube.recorder import EventRecorder
from haulout.kube.reflector import ListWatch
from haulout.kube.transport import Transport
from haulout.providers.aws.event_source import AwsEventSource
from haulout.providers.aws.imds_event_source import ImdsEventSource
from haulout.providers.aws.settings import AwsSettings
from haulout.providers.notice_writer import NoticeWriter
from haulout.runtime.freezes import NoFreezes
from haulout_sandbox.clouds.aws import AwsCloud
from support.builders.objects import a_node
from support.clusters.backends import SandboxBackend
from support.clusters.crd_installation import install_crd
from support.expectations.eventually import eventually
from support.faults.notice_write_steps import NoticeStepTransport

_RESTART_DELAY = timedelta(seconds=2)


@dataclass
class AwsWorld:
    """The cluster, the cloud, and the source."""

    clock: Clock
    cloud: AwsCloud
    client: Client
    group: asyncio.TaskGroup
    transport: Transport
    settings: AwsSettings
    has_queue: bool
    crash_at: int | None = None
    steps: list[str] = field(default_factory=list)
    source: AwsEventSource | None = None
    _process: asyncio.Task[None] | None = None
    _agents: dict[str, asyncio.Task[None]] = field(default_factory=dict)

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
        nodes: Informer[Node] = Informer(client, ListWatch(NODES), transform=as_is)
        self.source = AwsEventSource(
            ec2=self.cloud,
            auto_scaling=self.cloud,
            sqs=self.cloud if self.has_queue else None,
            client=client,
            nodes=nodes,
            settings=self.settings,
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(nodes.run())
            group.create_task(self.source.run(NoticeWriter(client)))

    # The agents

    def start_agent(self, node: str, instance: str, *, drains_for_network: bool = False) -> ImdsEventSource:
        """Run what the agent of a node runs."""
        client = Client(self.transport, clock=self.clock, random=Random(8), field_manager="haulout-agent")
        source = ImdsEventSource(
            self.cloud.metadata(instance),
            node=node,
            clock=self.clock,
            random=Random(9),
            drains_for_network_maintenance=drains_for_network,
        )
        self._agents[node] = self.group.create_task(source.run(NoticeWriter(client)))
        return source

    async def stop_agents(self) -> None:
        """End all of them, as a crash does."""
        for task in self._agents.values():
            task.cancel()
        await asyncio.gather(*self._agents.values(), return_exceptions=True)
        self._agents.clear()

    # The cluster

    async def join_node(self, name: str, **tags: str) -> str:
        """Return a new instance that is a node of this name."""
        instance = self.cloud.launch(tags=tags)
        await self.add_node(name, instance)
        return instance

    async def add_node(self, name: str, instance: str) -> None:
        """Create the node of an instance."""
        await self.client.create(NODES, a_node(name).with_spec(providerID=f"aws:///eu-west-1a/{instance}"))

    async def set_condition(self, name: str, condition: str, *, status: str = "True") -> None:
        """Set a condition of a node."""
        at = f"{self.clock.now():%Y-%m-%dT%H:%M:%SZ}"
        conditions = [{"type": condition, "status": status, "lastTransitionTime": at}]
        await self.client.patch(
            NODES, name, strategic_patch({"status": {"conditions": conditions}}), subresource="status"
        )

    # Results

    async def notices(self) -> dict[str, MaintenanceNotice]:
        """Return all notices, by name."""
        return {notice.name: notice for notice in (await self.client.list(MAINTENANCE_NOTICES)).items}

    async def only_notice(self) -> MaintenanceNotice:
        """Return the only notice."""
        (found,) = (await self.notices()).values()
        return found

    async def notice_summaries(self) -> list[tuple[str, str, str, str]]:
        """Return a summary of the notices: instance, kind, stage, start."""
        return sorted(
            (
                notice.spec.provider_id,
                notice.spec.kind,
                notice.spec.stage,
                str(notice.spec.start and notice.spec.start.isoformat()),
            )
            for notice in (await self.notices()).values()
        )

    async def wait_for_stage(self, stage: str, *, phase: str = "", within: timedelta = timedelta(minutes=10)) -> None:
        """Return when the only notice has this stage."""

        async def notice_states() -> list[tuple[str, str]]:
            found = (await self.notices()).values()
            return [(notice.spec.stage, notice.status.phase if phase else "") for notice in found]

        await eventually(self.clock, notice_states, becomes=[(stage, phase)], within=within, every=within / 200)


@asynccontextmanager
async def an_aws_world(
    clock: Clock, *, settings: AwsSettings | None = None, has_queue: bool = True, crash_at: int | None = None
) -> AsyncIterator[AwsWorld]:
    """Run a cluster on AWS; the source runs when `start` is called."""
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
        world = AwsWorld(
            clock=clock,
            cloud=AwsCloud(clock),
            client=client,
            group=group,
            transport=cluster.api_server.transport(),
            settings=settings or AwsSettings(),
            has_queue=has_queue,
            crash_at=crash_at,
        )

        async def on_call(operation: str, after: bool) -> None:  # noqa: FBT001 - as the cloud calls it
            await world.step(f"{'after' if after else 'before'} {operation}")

        world.cloud.faults.on_call = on_call
        try:
            yield world
        finally:
            await world.stop()
            await world.stop_agents()
            for task in tasks:
                task.cancel()
