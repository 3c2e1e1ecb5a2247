"""A cluster on AWS, with the source that listens to AWS: it can be killed at any step, and another takes over.

A step is a call of AWS or a write of a notice; there is one before it takes effect, and one after.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random

from haulout.core.clock import Clock
from haulout.kinds.notice import MAINTENANCE_NOTICES, MaintenanceNotice, definition
from haulout.kube.cache import Cache, as_is
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder
from haulout.kube.follow import Selection
from haulout.kube.objects import Node
from haulout.kube.patches import strategic_patch
from haulout.kube.resources import NODES
from haulout.kube.transport import Transport
from haulout.notices.controller import Controller
from haulout.notices.inbox import Inbox
from haulout.notices.sources.aws.metadata_source import AwsMetadataSource
from haulout.notices.sources.aws.settings import Settings
from haulout.notices.sources.aws.source import AwsSource
from haulout_sandbox.clouds.aws import AwsCloud
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
    cloud: AwsCloud
    client: Client
    group: asyncio.TaskGroup
    transport: Transport
    settings: Settings
    has_queue: bool
    crash_at: int | None = None
    steps: list[str] = field(default_factory=list)
    source: AwsSource | None = None
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
        nodes: Cache[Node] = Cache(client, Selection(NODES), row=as_is)
        self.source = AwsSource(
            ec2=self.cloud,
            groups=self.cloud,
            sqs=self.cloud if self.has_queue else None,
            client=client,
            nodes=nodes,
            settings=self.settings,
        )
        async with asyncio.TaskGroup() as group:
            group.create_task(nodes.run())
            group.create_task(self.source.run(Inbox(client)))

    # The agents

    def start_agent(self, node: str, instance: str, *, drains_for_network: bool = False) -> AwsMetadataSource:
        """Run what the agent of a node runs."""
        client = Client(self.transport, clock=self.clock, random=Random(8), field_manager="haulout-agent")
        source = AwsMetadataSource(
            self.cloud.metadata(instance),
            node=node,
            clock=self.clock,
            random=Random(9),
            drains_for_network=drains_for_network,
        )
        self._agents[node] = self.group.create_task(source.run(Inbox(client)))
        return source

    async def stop_agents(self) -> None:
        """End all of them, as a crash does."""
        for task in self._agents.values():
            task.cancel()
        await asyncio.gather(*self._agents.values(), return_exceptions=True)
        self._agents.clear()

    # The cluster

    async def join(self, name: str, **tags: str) -> str:
        """Return a new instance that is a node of this name."""
        instance = self.cloud.launch(tags=tags)
        await self.add_node(name, instance)
        return instance

    async def add_node(self, name: str, instance: str) -> None:
        """Have an instance be a node."""
        await self.client.create(NODES, a_node(name).with_spec(providerID=f"aws:///eu-west-1a/{instance}"))

    async def say(self, name: str, condition: str, *, status: str = "True") -> None:
        """Have a node say something about itself."""
        at = f"{self.clock.now():%Y-%m-%dT%H:%M:%SZ}"
        conditions = [{"type": condition, "status": status, "lastTransitionTime": at}]
        await self.client.patch(
            NODES, name, strategic_patch({"status": {"conditions": conditions}}), subresource="status"
        )

    # What came of it

    async def notices(self) -> dict[str, MaintenanceNotice]:
        """Return all notices, by name."""
        return {it.name: it for it in (await self.client.list(MAINTENANCE_NOTICES)).items}

    async def the(self) -> MaintenanceNotice:
        """Return the only notice."""
        (found,) = (await self.notices()).values()
        return found

    async def outcome(self) -> list[tuple[str, str, str, str]]:
        """Return what notices there are, in short: instance, kind, stage, start."""
        return sorted(
            (it.spec.provider_id, it.spec.kind, it.spec.stage, str(it.spec.start and it.spec.start.isoformat()))
            for it in (await self.notices()).values()
        )

    async def becomes(self, stage: str, *, phase: str = "", within: timedelta = timedelta(minutes=10)) -> None:
        """Return when the only notice is so."""

        async def look() -> list[tuple[str, str]]:
            found = (await self.notices()).values()
            return [(it.spec.stage, it.status.phase if phase else "") for it in found]

        await eventually(self.clock, look, becomes=[(stage, phase)], within=within, every=within / 200)


@asynccontextmanager
async def a_world(
    clock: Clock, *, settings: Settings | None = None, has_queue: bool = True, crash_at: int | None = None
) -> AsyncIterator[World]:
    """Run a cluster on AWS; the source runs when `start` is called."""
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
            cloud=AwsCloud(clock),
            client=client,
            group=group,
            transport=cluster.cluster.transport(),
            settings=settings or Settings(),
            has_queue=has_queue,
            crash_at=crash_at,
        )

        async def watcher(operation: str, after: bool) -> None:  # noqa: FBT001 - as the cloud calls it
            await world.step(f"{'after' if after else 'before'} {operation}")

        world.cloud.faults.watcher = watcher
        try:
            yield world
        finally:
            await world.stop()
            await world.stop_agents()
            for task in tasks:
                task.cancel()
