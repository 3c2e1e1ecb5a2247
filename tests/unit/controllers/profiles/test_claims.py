"""Limits of nodes in maintenance hold with stale caches, slow writers and several leaders."""

from collections import Counter
from random import Random

import pytest

from haulout.api.objects import Node
from haulout.api.resources import NODES
from haulout.budget.budget_check import WaitingList
from haulout.controllers.profiles.executor import ProfilesExecutor
from haulout.controllers.profiles.plugin import STATE_LABEL, Claim, LeaseClaim, SlotClaim, State
from haulout.controllers.profiles.plugins.checks.max_maintenance import NodeScope
from haulout.controllers.profiles.view.node_index import NodeIndex
from haulout.core.clock import Clock
from haulout.errors import Conflict, NotFound
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from haulout_sandbox.apiserver import ApiServer
from support.builders.objects import a_node
from support.fakes.cluster_view import MINUTE, PROFILE

ZONE = "zone"
IN_ALL, IN_ZONE = 3, 1


class Operator:
    """An operator process with a cache that is refreshed explicitly and delayed writes."""

    def __init__(self, api: ApiServer, clock: Clock, name: str) -> None:
        self.client = Client(api.transport(name), clock=clock, random=Random(name))
        self.nodes = NodeIndex(lambda _: {}, on_change=lambda *_: None)
        self.executor = ProfilesExecutor(
            self.client,
            self.nodes,
            namespace="haulout",
            write_data=lambda _result, before: before,
            requeue=lambda _: None,
            waiting_list=WaitingList(),
        )
        self.allowed: list[Node] = []  # nodes with a slot that are not patched yet

    async def refresh(self) -> None:
        """Refresh the cache."""
        for node in (await self.client.list(NODES)).items:
            self.nodes.on_watch_event(None, node)

    async def take(self, name: str, *claims: Claim) -> str:
        """Claim slots for a cached node; return the reason of a refusal."""
        observed = self.nodes.get(name)
        assert observed is not None
        wanted = claims or tuple(claims_of(observed.node))
        refusal = (await self.executor.take_claims([(PROFILE, claim) for claim in wanted], observed.node)).get(PROFILE)
        if refusal is None:
            self.allowed.append(observed.node)
        return "" if refusal is None else refusal.reason

    async def write(self, node: Node) -> None:
        """Patch a node with a slot, if it has not changed."""
        self.allowed.remove(node)
        basis = {"uid": node.uid, "resourceVersion": node.resource_version}
        change = merge_patch({"metadata": basis | {"labels": {STATE_LABEL: State.IN_MAINTENANCE}}})
        try:
            await self.client.patch(NODES, node.name, change)
        except (Conflict, NotFound):
            return

    async def touch(self, name: str, label: str, value: str | None) -> None:
        """Change a label of a node, as anybody may."""
        await self.client.patch(NODES, name, merge_patch({"metadata": {"labels": {label: value}}}))


def claims_of(node: Node) -> tuple[SlotClaim, SlotClaim]:
    zone = NodeScope(labels=((ZONE, node.metadata.labels[ZONE]),))
    return SlotClaim(limit=IN_ALL, scope=NodeScope()), SlotClaim(limit=IN_ZONE, scope=zone)


async def a_cluster(clock: Clock, *nodes: str) -> ApiServer:
    """Return a cluster; the zone of a node is its first letter."""
    api = ApiServer(clock, namespaces=["haulout"])
    for name in nodes:
        api.put(a_node(name, labels={ZONE: name[0]}))
    return api


def down(api: ApiServer) -> list[str]:
    nodes = [node["metadata"] for node in api.objects("nodes")]
    return sorted(node["name"] for node in nodes if node.get("labels", {}).get(STATE_LABEL) == State.IN_MAINTENANCE)


async def operators(api: ApiServer, clock: Clock, count: int = 2) -> list[Operator]:
    made = [Operator(api, clock, f"operator-{number}") for number in range(count)]
    for made_node in made:
        await made_node.refresh()
    return made


async def test_operator_with_a_stale_cache_is_refused_by_the_slot_ledger(clock: Clock) -> None:
    api = await a_cluster(clock, "a1", "a2", "b1")
    one, other = await operators(api, clock)
    assert not await one.take("a1")
    await one.write(one.allowed[0])
    assert await other.take("a2") == (
        "no slot for another node in maintenance: at most 3 in the whole cluster, 1 in zone=a"
    )
    assert not await other.take("b1")


async def test_slot_whose_owner_may_still_write_is_kept(clock: Clock) -> None:
    """The owner is slow, not dead: it may still patch the node."""
    api = await a_cluster(clock, "a1", "a2")
    one, other = await operators(api, clock)
    assert not await one.take("a1")
    assert await other.take("a2")
    await one.write(one.allowed[0])
    assert down(api) == ["a1"]


async def test_slot_whose_owner_can_no_longer_write_is_free(clock: Clock) -> None:
    api = await a_cluster(clock, "a1", "a2")
    one, other = await operators(api, clock)
    assert not await one.take("a1")
    await other.touch("a1", "touched", "yes")
    assert not await other.take("a2")
    await one.write(one.allowed[0])
    await other.write(other.allowed[0])
    assert down(api) == ["a2"]


async def test_limits_over_different_nodes_count_the_same_slots(clock: Clock) -> None:
    """One profile has a limit per zone, another for the whole cluster; neither has the other's nodes in its cache."""
    api = await a_cluster(clock, "a1", "b1", "c1")
    one, other = await operators(api, clock)
    in_zone = SlotClaim(limit=1, scope=NodeScope(labels=((ZONE, "a"),)))
    in_all = SlotClaim(limit=1, scope=NodeScope())
    assert not await one.take("a1", in_zone)
    await one.write(one.allowed[0])
    assert await other.take("b1", in_all) == "no slot for another node in maintenance: at most 1 in the whole cluster"


async def test_slot_of_a_deleted_node_is_free(clock: Clock) -> None:
    api = await a_cluster(clock, "a1", "a2")
    one, other = await operators(api, clock)
    assert not await one.take("a1")
    await other.client.delete(NODES, "a1")
    assert not await other.take("a2")


async def test_own_slot_does_not_block_the_node(clock: Clock) -> None:
    api = await a_cluster(clock, "a1")
    (one,) = await operators(api, clock, 1)
    for _ in range(2):
        assert not await one.take("a1")
        await one.write(one.allowed[0])
        await one.refresh()


async def test_lease_is_not_acquired_without_a_free_slot(clock: Clock) -> None:
    api = await a_cluster(clock, "a1", "a2")
    one, other = await operators(api, clock)
    lease = LeaseClaim(
        namespace="haulout", name="s-0", resource_version="", holder="a2", duration=MINUTE, transitions=0
    )
    assert not await one.take("a1")
    slot_claim = SlotClaim(limit=1, scope=NodeScope())
    assert (await other.take("a2", lease, slot_claim)).startswith("no slot")
    assert not api.has("leases", "s-0", "haulout")
    assert not await other.take("a2", lease)
    assert await other.take("a1", lease) == "Lease haulout/s-0 was taken for another node"


@pytest.mark.parametrize("seed", range(25))
async def test_no_limit_is_exceeded_at_any_time(clock: Clock, seed: int) -> None:
    """Three operators decide on stale caches and write late or never; nodes change and are released."""
    random = Random(seed)
    names = [f"{zone}{number}" for zone in "abcde" for number in (1, 2)]
    api = await a_cluster(clock, *names)
    all_operators = await operators(api, clock, 3)
    entered = 0
    for _ in range(120):
        operator, name = random.choice(all_operators), random.choice(names)
        match random.randrange(7):
            case 0:
                await operator.refresh()
            case 1 | 2:
                if name not in down(api):
                    await operator.take(name)
            case 3 | 4 if operator.allowed:
                before = down(api)
                await operator.write(random.choice(operator.allowed))
                entered += down(api) != before
            case 5 if name in down(api):
                await operator.touch(name, STATE_LABEL, State.OPERATIONAL)
            case 6:
                await operator.touch(name, "heartbeat", str(random.random()))
        there = down(api)
        assert len(there) <= IN_ALL
        assert max(Counter(item[0] for item in there).values(), default=0) <= IN_ZONE
    assert entered
