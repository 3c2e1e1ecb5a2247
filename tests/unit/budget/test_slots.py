"""Slots are released only with proof: a slot is bound to a node version and to its owner."""

from datetime import timedelta
from random import Random

from haulout.api.objects import Node
from haulout.api.resources import NODES
from haulout.budget.slots import LEDGER, SLOT_WITHDRAWN_ANNOTATION, UNUSED_AFTER, BudgetSlots
from haulout.budget.unavailable_nodes import NODE_MAINTENANCE_OWNER_PREFIX, STATE_LABEL, MaintenanceCause
from haulout.controllers.nodemaintenance.node_cordon import CORDON_REQUEST
from haulout.core.clock import Clock
from haulout.drain import cordon
from haulout.errors import Conflict
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from haulout.kube.slot_ledger import SlotLedger, SlotLimit
from haulout_sandbox.apiserver import ApiServer
from support.builders.objects import a_node

ONE = [SlotLimit(max_slots=1)]


class SlotUser:
    """A controller of one process that uses slots."""

    def __init__(self, api: ApiServer, clock: Clock, cause: MaintenanceCause, identity: str = "a") -> None:
        self.client = Client(api.transport(identity), clock=clock, random=Random(f"{identity} {cause}"))
        self.slots = BudgetSlots(self.client, namespace="haulout", cause=cause)
        self.cause = cause

    async def node(self, name: str) -> Node:
        """Return a node as it is."""
        return await self.client.get(NODES, name)

    async def acquires(self, node: Node) -> bool:
        """Acquire a slot; return whether that succeeded."""
        return await self.slots.acquire(node, ONE) is None

    async def cordon_node(self, node: Node) -> Node:
        """Cordon the node, if it has not changed."""
        if self.cause is MaintenanceCause.NODE_MAINTENANCES:
            change = cordon.acquire(
                node, f"{NODE_MAINTENANCE_OWNER_PREFIX}x", CORDON_REQUEST, now=self.client.clock.now()
            )
        else:
            basis = {"uid": node.uid, "resourceVersion": node.resource_version}
            change = {"metadata": basis | {"labels": {STATE_LABEL: "in-maintenance"}}}
        assert change is not None
        return await self.client.patch(NODES, node.name, merge_patch(change))

    async def release_node(self, node: Node) -> Node:
        """Release the node."""
        if self.cause is MaintenanceCause.NODE_MAINTENANCES:
            change = cordon.release(node, f"{NODE_MAINTENANCE_OWNER_PREFIX}x")
        else:
            change = {"metadata": {"labels": {STATE_LABEL: None}}}
        assert change is not None
        return await self.client.patch(NODES, node.name, merge_patch(change))


def an_api_server(clock: Clock) -> ApiServer:
    api = ApiServer(clock, namespaces=["haulout"])
    for name in ("n1", "n2"):
        api.put(a_node(name).ready())
    return api


async def slots_in_use(user: SlotUser) -> list[str]:
    found = await SlotLedger(user.client, namespace="haulout").slots(LEDGER)
    return [f"{slot.name} {slot.by.partition('/')[0]}" for slot in found]


async def test_profiles_and_node_maintenances_share_their_slots(clock: Clock) -> None:
    api = an_api_server(clock)
    orders, profiles = (
        SlotUser(api, clock, MaintenanceCause.NODE_MAINTENANCES),
        SlotUser(api, clock, MaintenanceCause.PROFILES),
    )
    assert await orders.acquires(await orders.node("n1"))
    assert not await profiles.acquires(await profiles.node("n2"))
    held = await orders.cordon_node(await orders.node("n1"))
    assert not await profiles.acquires(await profiles.node("n2"))
    await orders.slots.release(await orders.release_node(held))
    assert await profiles.acquires(await profiles.node("n2"))


async def test_releasing_a_node_keeps_the_slot_of_the_other_owner(clock: Clock) -> None:
    api = an_api_server(clock)
    orders, profiles = (
        SlotUser(api, clock, MaintenanceCause.NODE_MAINTENANCES),
        SlotUser(api, clock, MaintenanceCause.PROFILES),
    )
    for user in (orders, profiles):
        assert await user.acquires(await user.node("n1"))
        await user.cordon_node(await user.node("n1"))
    await profiles.slots.release(await profiles.release_node(await profiles.node("n1")))
    assert await slots_in_use(orders) == ["n1 NodeMaintenance"]
    assert not await profiles.acquires(await profiles.node("n2"))


async def test_late_release_keeps_a_slot_that_was_acquired_since(clock: Clock) -> None:
    """A deposed leader releases the slot of a maintenance that ended, after the next maintenance has started."""
    api = an_api_server(clock)
    old, new = (
        SlotUser(api, clock, MaintenanceCause.NODE_MAINTENANCES, "a"),
        SlotUser(api, clock, MaintenanceCause.NODE_MAINTENANCES, "b"),
    )
    assert await old.acquires(await old.node("n1"))
    free = await old.release_node(await old.cordon_node(await old.node("n1")))
    assert await new.acquires(await new.node("n1"))
    await new.cordon_node(await new.node("n1"))
    await old.slots.release(free)
    assert await slots_in_use(new) == ["n1 NodeMaintenance"]
    assert not await old.acquires(await old.node("n2"))


async def test_release_unused_removes_only_the_slot_of_this_process(clock: Clock) -> None:
    """Both believe they lead, and both hold a slot for the same node version; one does not use it."""
    api = an_api_server(clock)
    one, other = (
        SlotUser(api, clock, MaintenanceCause.PROFILES, "a"),
        SlotUser(api, clock, MaintenanceCause.PROFILES, "b"),
    )
    node = await one.node("n1")
    assert await one.acquires(node)
    assert await other.acquires(node)
    await one.slots.release_unused(node)
    await other.cordon_node(node)
    assert not await one.acquires(await one.node("n2"))


async def test_slot_is_not_released_while_its_owner_holds_the_node(clock: Clock) -> None:
    api = an_api_server(clock)
    orders = SlotUser(api, clock, MaintenanceCause.NODE_MAINTENANCES)
    assert await orders.acquires(await orders.node("n1"))
    await orders.slots.release(await orders.cordon_node(await orders.node("n1")))
    assert await slots_in_use(orders) == ["n1 NodeMaintenance"]


async def test_unused_slot_is_voided_and_its_owner_gets_a_conflict(clock: Clock) -> None:
    api = an_api_server(clock)
    slow, other = (
        SlotUser(api, clock, MaintenanceCause.NODE_MAINTENANCES, "a"),
        SlotUser(api, clock, MaintenanceCause.NODE_MAINTENANCES, "b"),
    )
    before = await slow.node("n1")
    assert await slow.acquires(before)
    refused = await other.slots.acquire(await other.node("n2"), ONE)
    assert refused is not None
    assert refused.requeue_at is not None, "it may prove to be unused"
    await clock.sleep(UNUSED_AFTER + timedelta(seconds=1))
    assert await other.acquires(await other.node("n2"))
    try:
        await slow.cordon_node(before)
    except Conflict:
        pass
    else:
        raise AssertionError("a controller without a slot could still cordon the node")
    assert SLOT_WITHDRAWN_ANNOTATION not in (await other.node("n1")).metadata.annotations


async def test_slot_in_use_is_awaited_without_polling(clock: Clock) -> None:
    api = an_api_server(clock)
    orders = SlotUser(api, clock, MaintenanceCause.NODE_MAINTENANCES)
    assert await orders.acquires(await orders.node("n1"))
    await orders.cordon_node(await orders.node("n1"))
    refused = await orders.slots.acquire(await orders.node("n2"), ONE)
    assert refused is not None
    assert ([slot.name for slot in refused.slots], refused.requeue_at) == (["n1"], None)


async def test_slot_acquired_without_limits_counts_for_later_requests(clock: Clock) -> None:
    """A node that is down needs no slot, but after its recovery a stale cache knows it only by its slot."""
    api = an_api_server(clock)
    orders = SlotUser(api, clock, MaintenanceCause.NODE_MAINTENANCES)
    assert await orders.slots.acquire(await orders.node("n1"), []) is None
    await orders.cordon_node(await orders.node("n1"))
    assert not await orders.acquires(await orders.node("n2"))
