"""A cluster, a simulated Azure, and an agent on each node that can be stopped and started again.

async with an_azure_world(clock, "n1", "n2") as world:
    world.start("n1")
    event = world.cloud.schedule([vm_name("n1")], "Reboot", start=clock.now() + HOUR)
    await world.wait_for_phase("n1", event, NoticePhase.PLANNED)
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random

from haulout.api.maintenancenotice import (
    MAINTENANCE_NOTICES,
    MaintenanceNotice,
    NoticeCondition,
    NoticePhase,
    definition,
    object_name,
)
from haulout.api.objects import Condition, Node
from haulout.api.resources import NODES
from haulout.controllers.notices.controller import MaintenanceNoticeController, notice_informer
from haulout.core.clock import Clock
from haulout.errors import NotFound
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.patches import merge_patch
from haulout.kube.recorder import EventRecorder
from haulout.kube.reflector import ListWatch
from haulout.kube.transport import Transport
from haulout.providers.agent.agent import Agent
from haulout.providers.azure.event_source import AzureEarlyStartSource, AzureEventSource
from haulout.providers.azure.scheduled_events import SOURCE, notice_id
from haulout.runtime.freezes import NoFreezes
from haulout_sandbox.clouds.azure import AzureCloud
from support.builders.objects import a_node
from support.clusters.backends import SandboxBackend
from support.clusters.crd_installation import install_crd
from support.expectations.eventually import eventually

SECOND, MINUTE, HOUR, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


def vm_name(node: str) -> str:
    """Return what Azure calls the machine of a node."""
    return f"aks-np1-31415926-vmss_{node[1:]}"


@dataclass
class AzureWorld:
    """The cluster, the cloud, and the agents."""

    clock: Clock
    client: Client
    cluster: SandboxBackend
    cloud: AzureCloud
    tasks: asyncio.TaskGroup
    agents: dict[str, Agent] = field(default_factory=dict)
    starts_early: bool = True
    process_count: int = 0
    operator: asyncio.Task[None] | None = None
    _running: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    # The agents

    def start(self, *nodes: str, transport: Transport | None = None) -> None:
        """Run agents, each as a new process."""
        for node in nodes:
            self.process_count += 1
            random = Random(self.process_count)
            api_transport = transport or self.cluster.api_server.transport()
            client = Client(api_transport, clock=self.clock, random=random, field_manager="haulout-agent")
            kind = AzureEarlyStartSource if self.starts_early else AzureEventSource
            source = kind(self.cloud.metadata(vm_name(node)), node=node, clock=self.clock, random=random)
            agent = self.agents[node] = Agent(client, source, node=node)
            self._running[node] = self.tasks.create_task(agent.run())

    def kill(self, *nodes: str) -> None:
        """End agents, at once; without a name, all."""
        for node in nodes or tuple(self._running):
            self._running.pop(node).cancel()

    # The notice controller of the operator

    def start_operator(self) -> None:
        """Run the notice controller."""
        self.operator = self.tasks.create_task(self._run_operator())

    def kill_operator(self) -> None:
        """End it, at once."""
        if self.operator is not None:
            self.operator.cancel()
            self.operator = None

    async def _run_operator(self) -> None:
        self.process_count += 1
        client = Client(self.cluster.api_server.transport(), clock=self.clock, random=Random(self.process_count))
        events = EventRecorder(client, instance="test")
        nodes: Informer[Node] = Informer(client, ListWatch(NODES), transform=as_is)
        controller = MaintenanceNoticeController(
            client, events=events, nodes=nodes, notices=notice_informer(client), freezes=NoFreezes()
        )
        async with asyncio.TaskGroup() as group:
            for run in (nodes.run, controller.notices.run, events.run, controller.run):
                group.create_task(run())

    async def mark_drained(self, node: str, *, owner: str = "profile/notices") -> None:
        """Mark a node as cordoned and drained, as a profile does."""
        now = self.clock.now().isoformat()
        cordon_annotation = f'{{"owners": {{"{owner}": {{"since": "{now}"}}}}}}'
        change = {
            "metadata": {"annotations": {"haulout.dev/cordon": cordon_annotation}},
            "spec": {"unschedulable": True},
        }
        await self.client.patch(NODES, node, merge_patch(change))
        drained = {"type": "Drained", "status": "True", "reason": "DrainCompleted", "lastTransitionTime": now}
        await self.client.patch(NODES, node, merge_patch({"status": {"conditions": [drained]}}), subresource="status")

    # Results

    async def notice(self, node: str, event: str) -> MaintenanceNotice:
        """Return the notice of a node about an event; KeyError while there is none."""
        try:
            return await self.client.get(MAINTENANCE_NOTICES, object_name(SOURCE, notice_id(event, vm_name(node))))
        except NotFound:
            raise KeyError(event) from None

    async def notices(self) -> list[MaintenanceNotice]:
        """Return all notices."""
        return list((await self.client.list(MAINTENANCE_NOTICES)).items)

    async def phase_of(self, node: str, event: str) -> str:
        """Return the phase of a maintenance."""
        return (await self.notice(node, event)).status.phase

    async def wait_for_phase(
        self, node: str, event: str, phase: NoticePhase, *, within: timedelta = 10 * SECOND
    ) -> MaintenanceNotice:
        """Return the notice of a maintenance once it has this phase."""
        await eventually(
            self.clock, lambda: self.phase_of(node, event), becomes=phase, within=within, every=SECOND / 10
        )
        return await self.notice(node, event)

    async def condition_of(self, node: str, event: str, kind: NoticeCondition) -> tuple[str, str, str]:
        """Return status, reason and message of a condition."""
        found = (await self.notice(node, event)).status.condition(kind) or Condition()
        return found.status, found.reason, found.message


@asynccontextmanager
async def an_azure_world(
    clock: Clock, *nodes: str, warm_up: timedelta = timedelta(), starts_early: bool = True
) -> AsyncIterator[AzureWorld]:
    """Yield a world with nodes, in which the operator runs and no agent does yet."""
    cluster = SandboxBackend(clock)
    client = await cluster.client()
    await install_crd(cluster, client, MAINTENANCE_NOTICES, definition())
    cloud = AzureCloud(clock, warm_up=warm_up)
    for name in nodes:
        cloud.launch(vm_name(name), group="np1")
        await client.create(NODES, a_node(name))
    async with asyncio.TaskGroup() as group:
        world = AzureWorld(clock, client, cluster, cloud, group, starts_early=starts_early)
        world.start_operator()
        try:
            yield world
        finally:
            world.kill()
            world.kill_operator()
