"""Notices trigger reconciles of their node at the right time, and of no other node."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, definition
from haulout.api.resources import NODES
from haulout.budget.budget_check import WaitingList
from haulout.controllers.nodemaintenance.informers import node_cache
from haulout.controllers.profiles import default_profile
from haulout.controllers.profiles.controller import NAME, ProfilesController
from haulout.controllers.profiles.events import ProfileEvents
from haulout.controllers.profiles.metrics import CONTROLLER
from haulout.controllers.profiles.view.informers import ProfileInformers
from haulout.core.clock import Clock
from haulout.core.timestamps import whole_seconds
from haulout.history.interface import NoHistory
from haulout.kube.client import Client
from haulout.kube.recorder import EventRecorder
from haulout.runtime.freezes import NoFreezes
from haulout.runtime.handover import Handover
from haulout.runtime.journal import Journal
from support.builders.objects import a_node
from support.clusters.backends import SandboxBackend
from support.clusters.crd_installation import install_crd
from support.expectations.eventually import eventually
from support.fakes.external_client import FakeExternalClient

NODE_COUNT = 12


@dataclass(frozen=True, slots=True)
class World:
    """A cluster with profiles by the default."""

    client: Client
    controller: ProfilesController

    @property
    def reconcile_count(self) -> float:
        """The number of reconciles."""
        return self.controller.metrics.reconciles.values[CONTROLLER, "success"]

    async def is_cordoned(self, name: str) -> bool:
        """Tell whether a node is cordoned."""
        return (await self.client.get(NODES, name)).spec.unschedulable

    async def announce(self, name: str, *, ahead: timedelta) -> None:
        """Announce a maintenance."""
        start = whole_seconds(self.client.clock.now() + ahead)
        spec = {"nodeName": name, "source": "me", "noticeID": name, "kind": "Reboot", "start": start}
        head = {"apiVersion": MAINTENANCE_NOTICES.api_version, "kind": MAINTENANCE_NOTICES.kind}
        await self.client.create(MAINTENANCE_NOTICES, {**head, "metadata": {"name": f"me-{name}"}, "spec": spec})


@asynccontextmanager
async def a_world(clock: Clock) -> AsyncIterator[World]:
    cluster = SandboxBackend(clock)
    client = await cluster.client()
    await install_crd(cluster, client, MAINTENANCE_NOTICES, definition())
    for number in range(NODE_COUNT):
        await client.create(NODES, a_node(f"n{number}"))
    made: list[ProfileInformers] = []

    def create_informers(item: ProfilesController) -> ProfileInformers:
        made.append(ProfileInformers(item, client, external=FakeExternalClient()))
        return made[0]

    events = EventRecorder(client, instance="test", controller="maintenance")
    profile_events = ProfileEvents(Journal(NAME, events, metrics=client.metrics), clock=clock)
    nodes = node_cache(client)
    controller = ProfilesController(
        client,
        events=profile_events,
        namespace="haulout",
        informers=create_informers,
        nodes=nodes,
        history=NoHistory(),
        waiting_list=WaitingList(),
        handover=Handover(),
        freezes=NoFreezes(),
    )
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(item) for item in (events.run(), nodes.run(), controller.run())]
        await made[0].prepare(default_profile.configuration())
        controller.use(default_profile.configuration())
        await clock.sleep(timedelta(seconds=5))
        yield World(client, controller)
        for task in running:
            task.cancel()


async def test_notice_triggers_a_reconcile_of_its_node_only(clock: Clock) -> None:
    async with a_world(clock) as world:
        before = world.reconcile_count
        await world.announce("n7", ahead=timedelta(hours=5))
        await clock.sleep(timedelta(minutes=1))
        assert 1 <= world.reconcile_count - before <= 2
        assert [item.name for item in world.controller.statuses.all()] == ["n7"]


async def test_maintenance_a_week_ahead_starts_on_the_second(clock: Clock) -> None:
    async with a_world(clock) as world:
        await world.announce("n7", ahead=timedelta(weeks=1))
        await clock.sleep(timedelta(minutes=1))
        before = world.reconcile_count
        await clock.sleep(timedelta(weeks=1) - timedelta(minutes=16, seconds=2))
        assert world.reconcile_count == before, "no reconcile without an event"
        assert not await world.is_cordoned("n7")
        await eventually(clock, lambda: world.is_cordoned("n7"), within=timedelta(seconds=4))
        assert not await world.is_cordoned("n6")
