"""A cluster, a model of Azure, and an agent on each node, which can be stopped and started again.

async with an_azure_world(clock, "n1", "n2") as world:
    world.start("n1")
    event = world.cloud.schedule([machine_of("n1")], "Reboot", start=clock.now() + HOUR)
    await world.becomes("n1", event, Phase.PLANNED)
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random

from haulout.core.clock import Clock
from haulout.errors import NotFound
from haulout.kinds.notice import MAINTENANCE_NOTICES, MaintenanceNotice, NoticeCondition, Phase, definition, name_of
from haulout.kube.cache import Cache, as_is
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder
from haulout.kube.follow import Selection
from haulout.kube.objects import Condition, Node
from haulout.kube.patches import merge_patch
from haulout.kube.resources import NODES
from haulout.kube.transport import Transport
from haulout.notices.agent.running import Agent
from haulout.notices.controller import Controller
from haulout.notices.sources.azure.reading import SOURCE, notice_id
from haulout.notices.sources.azure.source import AzureSource
from haulout.notices.sources.azure.together import AzureStarter
from haulout_sandbox.clouds.azure import AzureCloud
from support.backends import Sandbox
from support.builders import a_node
from support.defining import define
from support.eventually import eventually

SECOND, MINUTE, HOUR, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


def machine_of(node: str) -> str:
    """Return what Azure calls the machine of a node."""
    return f"aks-np1-31415926-vmss_{node[1:]}"


@dataclass
class AzureWorld:
    """What a story about Azure happens in."""

    clock: Clock
    client: Client
    cluster: Sandbox
    cloud: AzureCloud
    tasks: asyncio.TaskGroup
    agents: dict[str, Agent] = field(default_factory=dict)
    begins_early: bool = True
    lives: int = 0
    operator: asyncio.Task[None] | None = None
    _running: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    # The agents

    def start(self, *nodes: str, transport: Transport | None = None) -> None:
        """Run agents, each as a new process."""
        for node in nodes:
            self.lives += 1
            random = Random(self.lives)
            way = transport or self.cluster.cluster.transport()
            client = Client(way, clock=self.clock, random=random, field_manager="haulout-agent")
            kind = AzureStarter if self.begins_early else AzureSource
            source = kind(self.cloud.metadata(machine_of(node)), node=node, clock=self.clock, random=random)
            agent = self.agents[node] = Agent(client, source, node=node)
            self._running[node] = self.tasks.create_task(agent.run())

    def kill(self, *nodes: str) -> None:
        """End agents, at once; without a name, all."""
        for node in nodes or tuple(self._running):
            self._running.pop(node).cancel()

    # The operator, as far as notices go

    def start_operator(self) -> None:
        """Run what sees to notices."""
        self.operator = self.tasks.create_task(self._operate())

    def kill_operator(self) -> None:
        """End it, at once."""
        if self.operator is not None:
            self.operator.cancel()
            self.operator = None

    async def _operate(self) -> None:
        self.lives += 1
        client = Client(self.cluster.cluster.transport(), clock=self.clock, random=Random(self.lives))
        events = EventRecorder(client, instance="test")
        nodes: Cache[Node] = Cache(client, Selection(NODES), row=as_is)
        controller = Controller(client, events=events, nodes=nodes)
        async with asyncio.TaskGroup() as group:
            for run in (nodes.run, events.run, controller.run):
                group.create_task(run())

    async def empty(self, node: str, *, owner: str = "profile/notices") -> None:
        """Have a node cordoned and drained, as by a profile."""
        now = self.clock.now().isoformat()
        mark = f'{{"owners": {{"{owner}": {{"since": "{now}"}}}}}}'
        change = {"metadata": {"annotations": {"haulout.dev/cordon": mark}}, "spec": {"unschedulable": True}}
        await self.client.patch(NODES, node, merge_patch(change))
        drained = {"type": "Drained", "status": "True", "reason": "DrainCompleted", "lastTransitionTime": now}
        await self.client.patch(NODES, node, merge_patch({"status": {"conditions": [drained]}}), subresource="status")

    # What came of it

    async def notice(self, node: str, event: str) -> MaintenanceNotice:
        """Return the notice of a node about an event; KeyError while there is none."""
        try:
            return await self.client.get(MAINTENANCE_NOTICES, name_of(SOURCE, notice_id(event, machine_of(node))))
        except NotFound:
            raise KeyError(event) from None

    async def notices(self) -> list[MaintenanceNotice]:
        """Return all notices."""
        return list((await self.client.list(MAINTENANCE_NOTICES)).items)

    async def phase(self, node: str, event: str) -> str:
        """Return how a maintenance stands."""
        return (await self.notice(node, event)).status.phase

    async def becomes(
        self, node: str, event: str, phase: Phase, *, within: timedelta = 10 * SECOND
    ) -> MaintenanceNotice:
        """Return the notice of a maintenance when it stands so."""
        await eventually(self.clock, lambda: self.phase(node, event), becomes=phase, within=within, every=SECOND / 10)
        return await self.notice(node, event)

    async def says(self, node: str, event: str, kind: NoticeCondition) -> tuple[str, str, str]:
        """Return status, reason and message of a condition."""
        found = (await self.notice(node, event)).status.condition(kind) or Condition()
        return found.status, found.reason, found.message


@asynccontextmanager
async def an_azure_world(
    clock: Clock, *nodes: str, warm_up: timedelta = timedelta(), begins_early: bool = True
) -> AsyncIterator[AzureWorld]:
    """Yield a world with nodes, in which the operator runs and no agent does yet."""
    cluster = Sandbox(clock)
    client = await cluster.client()
    await define(cluster, client, MAINTENANCE_NOTICES, definition())
    cloud = AzureCloud(clock, warm_up=warm_up)
    for name in nodes:
        cloud.launch(machine_of(name), group="np1")
        await client.create(NODES, a_node(name))
    async with asyncio.TaskGroup() as group:
        world = AzureWorld(clock, client, cluster, cloud, group, begins_early=begins_early)
        world.start_operator()
        try:
            yield world
        finally:
            world.kill()
            world.kill_operator()
