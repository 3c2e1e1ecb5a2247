"""A node that maintenance is announced for is woken when it should be, and no other node is."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from haulout.core.clock import Clock
from haulout.kinds.notice import MAINTENANCE_NOTICES, definition
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder
from haulout.kube.resources import NODES
from haulout.kube.timestamps import whole_seconds
from haulout.profiles import default
from haulout.profiles.controller import Controller, Settings
from haulout.profiles.surroundings import Surroundings
from haulout.profiles.tallies import CONTROLLER
from haulout.profiles.telling import Teller
from support.backends import Sandbox
from support.builders import a_node
from support.defining import define
from support.eventually import eventually
from support.outside import FakeOutside

NODE_COUNT = 12


@dataclass(frozen=True, slots=True)
class World:
    """A cluster with profiles by the default."""

    client: Client
    controller: Controller

    @property
    def looks(self) -> float:
        """How often a node was looked at."""
        return self.controller.tallies.looks.values[CONTROLLER, "success"]

    async def is_cordoned(self, name: str) -> bool:
        """Tell whether a node takes no pods."""
        return (await self.client.get(NODES, name)).spec.unschedulable

    async def announce(self, name: str, *, ahead: timedelta) -> None:
        """Announce a maintenance."""
        start = whole_seconds(self.client.clock.now() + ahead)
        spec = {"nodeName": name, "source": "me", "noticeID": name, "kind": "Reboot", "start": start}
        head = {"apiVersion": MAINTENANCE_NOTICES.api_version, "kind": MAINTENANCE_NOTICES.kind}
        await self.client.create(MAINTENANCE_NOTICES, {**head, "metadata": {"name": f"me-{name}"}, "spec": spec})


@asynccontextmanager
async def a_world(clock: Clock) -> AsyncIterator[World]:
    cluster = Sandbox(clock)
    client = await cluster.client()
    await define(cluster, client, MAINTENANCE_NOTICES, definition())
    for number in range(NODE_COUNT):
        await client.create(NODES, a_node(f"n{number}"))
    made: list[Surroundings] = []

    def surround(it: Controller) -> Surroundings:
        made.append(Surroundings(it, client, outside=FakeOutside()))
        return made[0]

    events = EventRecorder(client, instance="test", controller="maintenance")
    teller = Teller(events, clock=clock)
    controller = Controller(client, teller=teller, settings=Settings(namespace="haulout"), surroundings=surround)
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(it) for it in (events.run(), controller.run())]
        await made[0].prepare(default.configuration())
        controller.use(default.configuration())
        await clock.sleep(timedelta(seconds=5))
        yield World(client, controller)
        for task in running:
            task.cancel()


async def test_a_notice_wakes_its_node_and_no_other(clock: Clock) -> None:
    async with a_world(clock) as world:
        before = world.looks
        await world.announce("n7", ahead=timedelta(hours=5))
        await clock.sleep(timedelta(minutes=1))
        assert 1 <= world.looks - before <= 2
        assert [it.name for it in world.controller.info.all()] == ["n7"]


async def test_a_maintenance_that_is_a_week_ahead_is_begun_to_the_second(clock: Clock) -> None:
    async with a_world(clock) as world:
        await world.announce("n7", ahead=timedelta(weeks=1))
        await clock.sleep(timedelta(minutes=1))
        before = world.looks
        await clock.sleep(timedelta(weeks=1) - timedelta(minutes=16, seconds=2))
        assert world.looks == before, "nothing happened, so nobody looked"
        assert not await world.is_cordoned("n7")
        await eventually(clock, lambda: world.is_cordoned("n7"), within=timedelta(seconds=4))
        assert not await world.is_cordoned("n6")
