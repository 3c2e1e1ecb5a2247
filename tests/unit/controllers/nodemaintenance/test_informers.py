"""What is known of a maintenance before its node is taken: from the server itself, and no older than a moment."""

import asyncio
from datetime import timedelta
from random import Random

import msgspec
import pytest
from msgspec import structs

from haulout.api.nodemaintenance import NODE_MAINTENANCES, NodeMaintenance
from haulout.api.objects import Node
from haulout.controllers.nodemaintenance.informers import MaintenanceGone, NodeMaintenanceInformers, has_relevant_change
from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout_sandbox.apiserver import ApiServer
from support.builders.objects import a_node
from support.faults.injected_responses import ResponseInjector
from support.operators.nodemaintenance import CRD, LEASE_NAMESPACE, NAME, a_lease, a_maintenance

SPEC = {"metadata": {"annotations": {"note": "written by us"}}}


class CountedClient:
    """A cluster with one maintenance, and somebody who sees to it by a copy that never changes."""

    def __init__(self, clock: Clock) -> None:
        self.api = ApiServer(clock, random=Random(1))
        self.api.put(CRD)
        self.api.put(a_maintenance("n1"))
        self.answers = ResponseInjector()
        self.client = Client(self.answers.wrap_transport(self.api.transport("operator")), clock=clock, random=Random(1))
        self.sight = NodeMaintenanceInformers(self.client, lease_namespace=LEASE_NAMESPACE)

    async def known(self) -> NodeMaintenance:
        """Return it as it is; nobody noted that it was read."""
        return await self.client.get(NODE_MAINTENANCES, NAME)

    async def reads(self, maintenance: NodeMaintenance) -> int:
        """Have it confirmed; return how many questions that took."""
        before = len(self.answers.requests)
        await self.sight.confirm(maintenance)
        return len(self.answers.requests) - before


async def test_a_copy_is_not_believed(clock: Clock) -> None:
    cluster = CountedClient(clock)
    assert await cluster.reads(await cluster.known()) == 1


async def test_what_the_server_has_just_told_is_not_asked_for_again(clock: Clock) -> None:
    cluster = CountedClient(clock)
    changed = await cluster.sight.patch(await cluster.known(), SPEC)
    assert await cluster.reads(changed) == 0
    await clock.sleep(timedelta(seconds=2))
    assert await cluster.reads(changed) == 1
    assert await cluster.reads(changed) == 0
    cluster.sight.forget(NAME)
    assert await cluster.reads(changed) == 1


async def test_another_one_of_the_same_name_is_not_what_was_told_of(clock: Clock) -> None:
    cluster = CountedClient(clock)
    changed = await cluster.sight.patch(await cluster.known(), SPEC)
    await cluster.client.delete(NODE_MAINTENANCES, NAME)
    cluster.api.put(a_maintenance("n1"))
    successor = await cluster.known()
    assert successor.uid != changed.uid
    assert await cluster.reads(successor) == 1
    with pytest.raises(MaintenanceGone):
        await cluster.sight.confirm(changed)


async def test_one_that_is_gone_is_not_confirmed(clock: Clock) -> None:
    cluster = CountedClient(clock)
    changed = await cluster.sight.patch(await cluster.known(), SPEC)
    cluster.sight.maintenances.record_delete(changed)
    with pytest.raises(MaintenanceGone):
        await cluster.sight.confirm(changed)
    await cluster.client.delete(NODE_MAINTENANCES, NAME)
    with pytest.raises(MaintenanceGone):
        await cluster.sight.patch(changed, SPEC)


async def test_one_that_is_over_is_remembered_for_a_while_or_until_it_is_there_again(clock: Clock) -> None:
    cluster = CountedClient(clock)
    known, sight = await cluster.known(), cluster.sight
    for name in ("first", "second"):
        sight.note_ended(structs.replace(known, metadata=structs.replace(known.metadata, name=name)))
        await clock.sleep(timedelta(minutes=20))
    sight.note_ended(known)
    remembered = {name: sight.ended(name) for name in ("first", "second", NAME)}
    assert [name for name, it in remembered.items() if it is not None and it.is_being_deleted] == ["second", NAME]
    await sight.patch(known, SPEC)
    assert sight.ended(NAME) is None


def test_a_heartbeat_of_a_node_wakes_no_maintenance() -> None:
    node = msgspec.convert(a_node("n1").ready(), Node)
    beating = structs.replace(node, metadata=structs.replace(node.metadata, resource_version="8"))
    cordoned = structs.replace(node, spec=structs.replace(node.spec, unschedulable=True))
    assert not has_relevant_change(node, beating)
    assert has_relevant_change(node, cordoned)
    assert has_relevant_change(None, node)
    assert has_relevant_change(node, None)


@pytest.mark.parametrize("path", ["/api/v1/nodes", "/leases"])
async def test_it_is_not_synced_before_nodes_and_leases_are_known(clock: Clock, path: str) -> None:
    api = ApiServer(clock, random=Random(1))
    for obj in (CRD, a_node("n1"), a_lease("n1", holder="somebody", now=clock.now())):
        api.put(obj)
    line = api.transport("operator")
    line.faults.delay(timedelta(seconds=5), path=path, times=None)
    sight = NodeMaintenanceInformers(Client(line, clock=clock, random=Random(1)), lease_namespace=LEASE_NAMESPACE)
    async with asyncio.TaskGroup() as group:
        following = [group.create_task(run()) for run in sight.run_functions()]
        await sight.wait_synced()
        assert len(sight.nodes.informer.all()) == len(sight.leases.informer.all()) == 1
        for task in following:
            task.cancel()
