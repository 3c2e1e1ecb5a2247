"""Before a node is cordoned, its NodeMaintenance is confirmed by a recent response of the API server."""

import asyncio
from datetime import timedelta
from random import Random

import msgspec
import pytest
from msgspec import structs

from haulout.api.nodemaintenance import NODE_MAINTENANCES, NodeMaintenance
from haulout.api.objects import Node
from haulout.controllers.nodemaintenance.informers import (
    MaintenanceGone,
    NodeMaintenanceInformers,
    has_relevant_change,
    maintenance_informer,
    node_cache,
)
from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout_sandbox.apiserver import ApiServer
from support.builders.objects import a_node
from support.faults.injected_responses import ResponseInjector
from support.operators.nodemaintenance import CRD, LEASE_NAMESPACE, NAME, a_lease, a_maintenance

SPEC = {"metadata": {"annotations": {"note": "written by us"}}}


def informers_of(client: Client) -> NodeMaintenanceInformers:
    nodes, maintenances = node_cache(client), maintenance_informer(client)
    return NodeMaintenanceInformers(client, lease_namespace=LEASE_NAMESPACE, nodes=nodes, maintenances=maintenances)


class CountedClient:
    """A cluster with one NodeMaintenance, and informers whose cache never changes."""

    def __init__(self, clock: Clock) -> None:
        self.api = ApiServer(clock, random=Random(1))
        self.api.put(CRD)
        self.api.put(a_maintenance("n1"))
        self.answers = ResponseInjector()
        self.client = Client(self.answers.wrap_transport(self.api.transport("operator")), clock=clock, random=Random(1))
        self.informers = informers_of(self.client)

    async def known(self) -> NodeMaintenance:
        """Return the NodeMaintenance without recording the read."""
        return await self.client.get(NODE_MAINTENANCES, NAME)

    async def reads(self, maintenance: NodeMaintenance) -> int:
        """Confirm the NodeMaintenance; return the number of requests."""
        before = len(self.answers.requests)
        await self.informers.confirm(maintenance)
        return len(self.answers.requests) - before


async def test_cached_copy_is_confirmed_by_a_read(clock: Clock) -> None:
    cluster = CountedClient(clock)
    assert await cluster.reads(await cluster.known()) == 1


async def test_recent_server_response_is_not_read_again(clock: Clock) -> None:
    cluster = CountedClient(clock)
    changed = await cluster.informers.patch(await cluster.known(), SPEC)
    assert await cluster.reads(changed) == 0
    await clock.sleep(timedelta(seconds=2))
    assert await cluster.reads(changed) == 1
    assert await cluster.reads(changed) == 0
    cluster.informers.forget(NAME)
    assert await cluster.reads(changed) == 1


async def test_recreated_maintenance_is_read_again(clock: Clock) -> None:
    cluster = CountedClient(clock)
    changed = await cluster.informers.patch(await cluster.known(), SPEC)
    await cluster.client.delete(NODE_MAINTENANCES, NAME)
    cluster.api.put(a_maintenance("n1"))
    successor = await cluster.known()
    assert successor.uid != changed.uid
    assert await cluster.reads(successor) == 1
    with pytest.raises(MaintenanceGone):
        await cluster.informers.confirm(changed)


async def test_deleted_maintenance_is_not_confirmed(clock: Clock) -> None:
    cluster = CountedClient(clock)
    changed = await cluster.informers.patch(await cluster.known(), SPEC)
    cluster.informers.maintenances.record_delete(changed)
    with pytest.raises(MaintenanceGone):
        await cluster.informers.confirm(changed)
    await cluster.client.delete(NODE_MAINTENANCES, NAME)
    with pytest.raises(MaintenanceGone):
        await cluster.informers.patch(changed, SPEC)


async def test_ended_maintenance_is_remembered_for_a_while_or_until_it_exists_again(clock: Clock) -> None:
    cluster = CountedClient(clock)
    known, informers = await cluster.known(), cluster.informers
    for name in ("first", "second"):
        informers.note_ended(structs.replace(known, metadata=structs.replace(known.metadata, name=name)))
        await clock.sleep(timedelta(minutes=20))
    informers.note_ended(known)
    remembered = {name: informers.ended(name) for name in ("first", "second", NAME)}
    assert [name for name, it in remembered.items() if it is not None and it.is_being_deleted] == ["second", NAME]
    await informers.patch(known, SPEC)
    assert informers.ended(NAME) is None


def test_node_heartbeat_triggers_no_reconcile() -> None:
    node = msgspec.convert(a_node("n1").ready(), Node)
    beating = structs.replace(node, metadata=structs.replace(node.metadata, resource_version="8"))
    cordoned = structs.replace(node, spec=structs.replace(node.spec, unschedulable=True))
    assert not has_relevant_change(node, beating)
    assert has_relevant_change(node, cordoned)
    assert has_relevant_change(None, node)
    assert has_relevant_change(node, None)


@pytest.mark.parametrize("path", ["/api/v1/nodes", "/leases"])
async def test_informers_are_not_synced_before_nodes_and_leases_are_listed(clock: Clock, path: str) -> None:
    api = ApiServer(clock, random=Random(1))
    for obj in (CRD, a_node("n1"), a_lease("n1", holder="somebody", now=clock.now())):
        api.put(obj)
    transport = api.transport("operator")
    transport.faults.delay(timedelta(seconds=5), path=path, times=None)
    informers = informers_of(Client(transport, clock=clock, random=Random(1)))
    caches = informers.maintenances.informer, informers.nodes.informer, informers.leases.informer
    async with asyncio.TaskGroup() as group:
        following = [group.create_task(cache.run()) for cache in caches]
        await informers.wait_synced()
        assert len(informers.nodes.informer.all()) == len(informers.leases.informer.all()) == 1
        for task in following:
            task.cancel()
