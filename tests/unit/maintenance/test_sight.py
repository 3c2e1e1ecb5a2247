"""What is known of a maintenance before its node is taken: from the server itself, and no older than a moment."""

import asyncio
from datetime import timedelta
from random import Random

import msgspec
import pytest
from msgspec import structs

from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout.kube.objects import Node
from haulout.maintenance.resource import NODE_MAINTENANCES, NodeMaintenance
from haulout.maintenance.sight import MaintenanceGone, Sight, changed_for_us
from haulout_sandbox.apiserver import ApiServer
from support.builders import a_node
from support.interposed import Interposed
from support.maintaining import DEFINITION, LEASES, NAME, a_lease, a_maintenance

SPEC = {"metadata": {"annotations": {"note": "written by us"}}}


class Watched:
    """A cluster with one maintenance, and somebody who sees to it by a copy that never changes."""

    def __init__(self, clock: Clock) -> None:
        self.api = ApiServer(clock, random=Random(1))
        self.api.put(DEFINITION)
        self.api.put(a_maintenance("n1"))
        self.answers = Interposed()
        self.client = Client(self.answers.on(self.api.transport("operator")), clock=clock, random=Random(1))
        self.sight = Sight(self.client, lease_namespace=LEASES)

    async def known(self) -> NodeMaintenance:
        """Return it as it is; nobody noted that it was read."""
        return await self.client.get(NODE_MAINTENANCES, NAME)

    async def reads(self, maintenance: NodeMaintenance) -> int:
        """Have it confirmed; return how many questions that took."""
        before = len(self.answers.asked)
        await self.sight.confirmed(maintenance)
        return len(self.answers.asked) - before


async def test_a_copy_is_not_believed(clock: Clock) -> None:
    cluster = Watched(clock)
    assert await cluster.reads(await cluster.known()) == 1


async def test_what_the_server_has_just_told_is_not_asked_for_again(clock: Clock) -> None:
    cluster = Watched(clock)
    changed = await cluster.sight.patch(await cluster.known(), SPEC)
    assert await cluster.reads(changed) == 0
    await clock.sleep(timedelta(seconds=2))
    assert await cluster.reads(changed) == 1
    assert await cluster.reads(changed) == 0
    cluster.sight.forget(NAME)
    assert await cluster.reads(changed) == 1


async def test_another_one_of_the_same_name_is_not_what_was_told_of(clock: Clock) -> None:
    cluster = Watched(clock)
    changed = await cluster.sight.patch(await cluster.known(), SPEC)
    await cluster.client.delete(NODE_MAINTENANCES, NAME)
    cluster.api.put(a_maintenance("n1"))
    successor = await cluster.known()
    assert successor.uid != changed.uid
    assert await cluster.reads(successor) == 1
    with pytest.raises(MaintenanceGone):
        await cluster.sight.confirmed(changed)


async def test_one_that_is_gone_is_not_confirmed(clock: Clock) -> None:
    cluster = Watched(clock)
    changed = await cluster.sight.patch(await cluster.known(), SPEC)
    cluster.sight.maintenances.note_gone(changed)
    with pytest.raises(MaintenanceGone):
        await cluster.sight.confirmed(changed)
    await cluster.client.delete(NODE_MAINTENANCES, NAME)
    with pytest.raises(MaintenanceGone):
        await cluster.sight.patch(changed, SPEC)


async def test_one_that_is_over_is_remembered_for_a_while_or_until_it_is_there_again(clock: Clock) -> None:
    cluster = Watched(clock)
    known, sight = await cluster.known(), cluster.sight
    for name in ("first", "second"):
        sight.note_over(structs.replace(known, metadata=structs.replace(known.metadata, name=name)))
        await clock.sleep(timedelta(minutes=20))
    sight.note_over(known)
    remembered = {name: sight.over(name) for name in ("first", "second", NAME)}
    assert [name for name, it in remembered.items() if it is not None and it.is_leaving] == ["second", NAME]
    await sight.patch(known, SPEC)
    assert sight.over(NAME) is None


def test_a_heartbeat_of_a_node_wakes_no_maintenance() -> None:
    node = msgspec.convert(a_node("n1").ready(), Node)
    beating = structs.replace(node, metadata=structs.replace(node.metadata, resource_version="8"))
    cordoned = structs.replace(node, spec=structs.replace(node.spec, unschedulable=True))
    assert not changed_for_us(node, beating)
    assert changed_for_us(node, cordoned)
    assert changed_for_us(None, node)
    assert changed_for_us(node, None)


@pytest.mark.parametrize("path", ["/api/v1/nodes", "/leases"])
async def test_it_is_not_synced_before_nodes_and_leases_are_known(clock: Clock, path: str) -> None:
    api = ApiServer(clock, random=Random(1))
    for obj in (DEFINITION, a_node("n1"), a_lease("n1", holder="somebody", now=clock.now())):
        api.put(obj)
    line = api.transport("operator")
    line.faults.slow(timedelta(seconds=5), path=path, times=None)
    sight = Sight(Client(line, clock=clock, random=Random(1)), lease_namespace=LEASES)
    async with asyncio.TaskGroup() as group:
        following = [group.create_task(run()) for run in sight.runs()]
        await sight.wait_synced()
        assert len(sight.nodes.cache.all()) == len(sight.leases.cache.all()) == 1
        for task in following:
            task.cancel()
