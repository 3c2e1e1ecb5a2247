"""A slot is given back with proof: each rests on a version of the node, and on who took it."""

from datetime import timedelta
from random import Random

from haulout.budget.away import ORDER_PREFIX, STATE_LABEL, Cause
from haulout.budget.slots import LEDGER, UNUSED_AFTER, WITHDRAWN, Slots
from haulout.core.clock import Clock
from haulout.drain import cordon
from haulout.errors import Conflict
from haulout.kube.client import Client
from haulout.kube.ledger import Ledger, Limit
from haulout.kube.objects import Node
from haulout.kube.patches import merge_patch
from haulout.kube.resources import NODES
from haulout.maintenance.holding import WISHES
from haulout_sandbox.apiserver import ApiServer
from support.builders import a_node

ONE = [Limit(most=1)]


class Taker:
    """One controller of one process."""

    def __init__(self, api: ApiServer, clock: Clock, cause: Cause, who: str = "a") -> None:
        self.client = Client(api.transport(who), clock=clock, random=Random(f"{who} {cause}"))
        self.slots = Slots(self.client, namespace="haulout", cause=cause)
        self.cause = cause

    async def node(self, name: str) -> Node:
        """Return a node as it is."""
        return await self.client.get(NODES, name)

    async def takes(self, node: Node) -> bool:
        """Take a slot; return whether that was possible."""
        return await self.slots.take(node, ONE) is None

    async def write(self, node: Node) -> Node:
        """Take the node out of service, if it is as it was."""
        if self.cause is Cause.ORDERS:
            change = cordon.acquire(node, f"{ORDER_PREFIX}x", WISHES, now=self.client.clock.now())
        else:
            basis = {"uid": node.uid, "resourceVersion": node.resource_version}
            change = {"metadata": basis | {"labels": {STATE_LABEL: "in-maintenance"}}}
        assert change is not None
        return await self.client.patch(NODES, node.name, merge_patch(change))

    async def let_go(self, node: Node) -> Node:
        """Put the node back into service."""
        if self.cause is Cause.ORDERS:
            change = cordon.release(node, f"{ORDER_PREFIX}x")
        else:
            change = {"metadata": {"labels": {STATE_LABEL: None}}}
        assert change is not None
        return await self.client.patch(NODES, node.name, merge_patch(change))


def a_place(clock: Clock) -> ApiServer:
    api = ApiServer(clock, namespaces=["haulout"])
    for name in ("n1", "n2"):
        api.put(a_node(name).ready())
    return api


async def taken(taker: Taker) -> list[str]:
    found = await Ledger(taker.client, namespace="haulout").slots(LEDGER)
    return [f"{it.name} {it.by.partition('/')[0]}" for it in found]


async def test_profiles_and_orders_see_each_others_slots(clock: Clock) -> None:
    api = a_place(clock)
    orders, profiles = Taker(api, clock, Cause.ORDERS), Taker(api, clock, Cause.PROFILES)
    assert await orders.takes(await orders.node("n1"))
    assert not await profiles.takes(await profiles.node("n2"))
    held = await orders.write(await orders.node("n1"))
    assert not await profiles.takes(await profiles.node("n2"))
    await orders.slots.give_back(await orders.let_go(held))
    assert await profiles.takes(await profiles.node("n2"))


async def test_one_that_lets_go_of_a_node_leaves_the_others_slot(clock: Clock) -> None:
    api = a_place(clock)
    orders, profiles = Taker(api, clock, Cause.ORDERS), Taker(api, clock, Cause.PROFILES)
    for it in (orders, profiles):
        assert await it.takes(await it.node("n1"))
        await it.write(await it.node("n1"))
    await profiles.slots.give_back(await profiles.let_go(await profiles.node("n1")))
    assert await taken(orders) == ["n1 NodeMaintenance"]
    assert not await profiles.takes(await profiles.node("n2"))


async def test_who_gives_back_late_does_not_give_back_what_was_taken_since(clock: Clock) -> None:
    """A deposed leader wakes up and gives back the slot of a maintenance that ended; the next one has begun."""
    api = a_place(clock)
    old, new = Taker(api, clock, Cause.ORDERS, "a"), Taker(api, clock, Cause.ORDERS, "b")
    assert await old.takes(await old.node("n1"))
    free = await old.let_go(await old.write(await old.node("n1")))
    assert await new.takes(await new.node("n1"))
    await new.write(await new.node("n1"))
    await old.slots.give_back(free)
    assert await taken(new) == ["n1 NodeMaintenance"]
    assert not await old.takes(await old.node("n2"))


async def test_who_makes_no_use_of_a_slot_gives_back_its_own_and_no_other(clock: Clock) -> None:
    """Both believe to lead, and both have leave for the same version of a node; one of them will not use it."""
    api = a_place(clock)
    one, other = Taker(api, clock, Cause.PROFILES, "a"), Taker(api, clock, Cause.PROFILES, "b")
    node = await one.node("n1")
    assert await one.takes(node)
    assert await other.takes(node)
    await one.slots.withdraw(node)
    await other.write(node)
    assert not await one.takes(await one.node("n2"))


async def test_a_node_is_not_given_back_while_its_cause_has_it(clock: Clock) -> None:
    api = a_place(clock)
    orders = Taker(api, clock, Cause.ORDERS)
    assert await orders.takes(await orders.node("n1"))
    await orders.slots.give_back(await orders.write(await orders.node("n1")))
    assert await taken(orders) == ["n1 NodeMaintenance"]


async def test_a_slot_that_nobody_used_is_voided_and_its_owner_is_refused(clock: Clock) -> None:
    api = a_place(clock)
    slow, other = Taker(api, clock, Cause.ORDERS, "a"), Taker(api, clock, Cause.ORDERS, "b")
    before = await slow.node("n1")
    assert await slow.takes(before)
    refused = await other.slots.take(await other.node("n2"), ONE)
    assert refused is not None
    assert refused.again_at is not None, "it may prove to be unused"
    await clock.sleep(UNUSED_AFTER + timedelta(seconds=1))
    assert await other.takes(await other.node("n2"))
    try:
        await slow.write(before)
    except Conflict:
        pass
    else:
        raise AssertionError("who lost its slot could still take the node")
    assert WITHDRAWN not in (await other.node("n1")).metadata.annotations


async def test_a_slot_in_use_is_waited_for_without_looking_again_and_again(clock: Clock) -> None:
    api = a_place(clock)
    orders = Taker(api, clock, Cause.ORDERS)
    assert await orders.takes(await orders.node("n1"))
    await orders.write(await orders.node("n1"))
    refused = await orders.slots.take(await orders.node("n2"), ONE)
    assert refused is not None
    assert ([it.name for it in refused.slots], refused.again_at) == (["n1"], None)


async def test_what_was_taken_without_room_counts_for_those_who_come_after(clock: Clock) -> None:
    """A node that is down takes no room, but once it is back only its slot tells an old copy of it."""
    api = a_place(clock)
    orders = Taker(api, clock, Cause.ORDERS)
    assert await orders.slots.take(await orders.node("n1"), []) is None
    await orders.write(await orders.node("n1"))
    assert not await orders.takes(await orders.node("n2"))
