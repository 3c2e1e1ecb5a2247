"""An API server asks our webhook before it takes a NodeMaintenance."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from haulout.errors import AlreadyExists, Forbidden
from haulout.kube.patches import json_patch, merge_patch, replace
from haulout.kube.resources import DEFINITIONS, NAMESPACES, NODES
from haulout.maintenance.etcd import is_openshift
from haulout.maintenance.quorum import KUBE_SYSTEM, OPENSHIFT_ETCD
from haulout.maintenance.resource import NODE_MAINTENANCES
from support.backends import Cluster
from support.builders import a_budget, a_namespace
from support.definitions import a_definition, an_object
from support.eventually import eventually
from support.hooked import CONTROL_PLANE, Hooked, hooked

DENIED = 'admission webhook "vnodemaintenance.kb.io" denied the request: '
QUORUM = (
    "can not put master/control-plane node into maintenance at this moment, disrupting node {} will violate etcd quorum"
)
GUARD = {"app": "guard"}


@pytest.fixture
async def world(cluster: Cluster) -> AsyncIterator[Hooked]:
    """Yield a cluster with the webhook."""
    async with hooked(cluster) as world:
        yield world


async def test_an_order_for_an_unknown_node_is_refused(world: Hooked) -> None:
    assert await world.refusal("absent") == f"{DENIED}invalid nodeName, no node with name absent found"
    assert await world.refusal("../nodes", name="odd") == f"{DENIED}invalid nodeName, no node with name ../nodes found"
    assert await world.refusal("", name="nameless") == f"{DENIED}invalid nodeName, no node with name found"


async def test_a_second_order_for_a_node_is_refused_also_while_the_first_is_deleted(world: Hooked) -> None:
    node = await world.node("n1")
    await world.order(node)
    refusal = f"{DENIED}invalid nodeName, a NodeMaintenance for node {node} already exists"
    assert await world.refusal(node, name=world.named("second")) == refusal
    finalizers = merge_patch({"metadata": {"finalizers": ["test.haulout.dev/held"]}})
    await world.client.patch(NODE_MAINTENANCES, node, finalizers)
    await world.client.delete(NODE_MAINTENANCES, node)
    assert await world.refusal(node, name=world.named("second")) == refusal
    await world.client.patch(NODE_MAINTENANCES, node, merge_patch({"metadata": {"finalizers": None}}))
    assert await world.refusal(node, name=world.named("second")) == ""


async def test_of_orders_that_come_at_once_for_one_node_one_is_taken(world: Hooked) -> None:
    node = await world.node("n1")
    names = [world.named(f"order-{number}") for number in range(5)]
    refusals = await asyncio.gather(*(world.refusal(node, name=name) for name in names))
    assert sorted(bool(it) for it in refusals) == [False, True, True, True, True]


async def test_the_node_of_an_order_cannot_be_changed_but_the_reason_can(world: Hooked) -> None:
    node, other = await world.node("n1"), await world.node("n2")
    await world.order(node)
    await world.client.patch(NODE_MAINTENANCES, node, merge_patch({"spec": {"reason": "disk"}}))
    with pytest.raises(Forbidden) as caught:
        await world.client.patch(NODE_MAINTENANCES, node, json_patch(replace("/spec/nodeName", other)))
    assert caught.value.message == f"{DENIED}updating spec.NodeName isn't allowed"
    assert caught.value.code == 403


async def test_an_order_whose_node_is_gone_can_still_be_changed_and_deleted(world: Hooked) -> None:
    node = await world.node("n1")
    await world.order(node)
    await world.client.delete(NODES, node)
    held = await world.client.patch(
        NODE_MAINTENANCES, node, merge_patch({"metadata": {"finalizers": ["test.haulout.dev/held"]}})
    )
    assert held.metadata.finalizers == ("test.haulout.dev/held",)
    await world.client.patch(NODE_MAINTENANCES, node, merge_patch({"metadata": {"finalizers": None}}))
    await world.client.delete(NODE_MAINTENANCES, node)


async def test_a_drain_policy_that_makes_no_sense_is_refused_with_all_that_is_wrong(world: Hooked) -> None:
    node = await world.node("n1")
    nonsense = {"timeout": "1m", "evictionTimeout": "5m", "rules": [{"name": "a"}, {"name": "a"}]}
    refusal = await world.refusal(node, drain=nonsense)
    assert refusal.startswith(f"{DENIED}invalid drain policy, ")
    assert "spec.drain.timeout" in refusal
    assert "spec.drain.rules" in refusal
    assert await world.refusal(node, drain={"timeout": "1h"}) == ""


async def test_a_dry_run_takes_nothing(world: Hooked) -> None:
    node = await world.node("n1")
    assert await world.refusal(node, dry_run=True) == ""
    assert await world.refusal(node, name=world.named("real")) == ""


# The quorum of etcd, where members are counted


async def test_a_control_plane_node_is_taken_while_a_majority_of_etcd_stays(world: Hooked) -> None:
    nodes = [await world.node(f"cp{number}", labels=CONTROL_PLANE) for number in (1, 2, 3)]
    for node in nodes:
        await world.member(node)
    assert await world.refusal(nodes[0]) == ""
    refusal = await world.refusal(nodes[1])
    assert refusal.startswith(DENIED + QUORUM.format(nodes[1]))
    assert f"{nodes[0]} is in maintenance by NodeMaintenance {nodes[0]}" in refusal
    await world.client.delete(NODE_MAINTENANCES, nodes[0])
    assert await world.refusal(nodes[1]) == ""


async def test_of_control_plane_nodes_that_are_ordered_at_once_one_is_taken(world: Hooked) -> None:
    nodes = [await world.node(f"cp{number}", labels=CONTROL_PLANE) for number in (1, 2, 3)]
    for node in nodes:
        await world.member(node)
    refusals = await asyncio.gather(*(world.refusal(node) for node in nodes))
    assert sorted(bool(it) for it in refusals) == [False, True, True]


async def test_a_member_on_a_node_that_is_not_ready_is_down(world: Hooked) -> None:
    nodes = [await world.node(f"cp{number}", labels=CONTROL_PLANE, ready=number != 3) for number in (1, 2, 3)]
    for node in nodes:
        await world.member(node)
    assert f"{nodes[2]} is not ready" in await world.refusal(nodes[0])
    assert await world.refusal(nodes[2]) == ""


async def test_members_are_found_by_a_budget_about_etcd_too(world: Hooked) -> None:
    nodes = [await world.node(f"cp{number}", labels=CONTROL_PLANE) for number in (1, 2)]
    name = world.named("etcd")
    for node in nodes:
        await world.member(node, labels={"app": "etcd", "of": name})
    budget = a_budget(name).with_spec(selector={"matchLabels": {"app": "etcd", "of": name}}, minAvailable=2)
    await world.budget(budget, namespace=KUBE_SYSTEM)
    assert "etcd has 2 members and needs 2" in await world.refusal(nodes[0])


async def test_a_control_plane_whose_etcd_is_not_to_be_seen_is_let_go_and_so_is_a_worker(world: Hooked) -> None:
    assert await world.refusal(await world.node("cp1", labels=CONTROL_PLANE)) == ""
    assert await world.refusal(await world.node("w1")) == ""


async def test_the_count_of_members_can_be_turned_off(cluster: Cluster) -> None:
    async with hooked(cluster, guard_quorum=False) as world:
        node = await world.node("cp1", labels=CONTROL_PLANE)
        await world.member(node)
        assert await world.refusal(node) == ""


# On OpenShift, where guards decide


@pytest.fixture
async def openshift(world: Hooked) -> AsyncIterator[Hooked]:
    """Yield a cluster that looks like OpenShift."""
    group = a_definition("clusterversions", "ClusterVersion", an_object(), group="config.openshift.io")
    name = group["metadata"]["name"]
    await world.client.create(DEFINITIONS, group)
    with suppress(AlreadyExists):
        await world.client.create(NAMESPACES, a_namespace(OPENSHIFT_ETCD))
    await eventually(world.cluster.clock, lambda: is_openshift(world.client))
    yield world
    await world.client.delete(DEFINITIONS, name)

    async def forgotten() -> bool:
        left = [it["metadata"]["name"] for it in (await world.client.list(DEFINITIONS)).items]
        return name not in left and not await is_openshift(world.client)

    await eventually(world.cluster.clock, forgotten)


@pytest.mark.parametrize(("ready", "refused"), [("True", True), ("Unknown", True), ("False", False)])
async def test_on_openshift_a_guard_that_is_up_holds_its_node(openshift: Hooked, ready: str, *, refused: bool) -> None:
    node = await openshift.node("cp1", labels=CONTROL_PLANE)
    await openshift.member(node, namespace=OPENSHIFT_ETCD, labels=GUARD, ready=ready)
    await openshift.budget(a_budget("etcd-guard-pdb", app="guard", minAvailable=2), namespace=OPENSHIFT_ETCD)
    assert await openshift.refusal(node) == (DENIED + QUORUM.format(node) if refused else "")


async def test_on_openshift_a_node_without_a_guard_can_go(openshift: Hooked) -> None:
    node = await openshift.node("cp1", labels=CONTROL_PLANE)
    await openshift.budget(a_budget("etcd-guard-pdb", app="guard", minAvailable=2), namespace=OPENSHIFT_ETCD)
    assert await openshift.refusal(node) == ""


async def test_on_openshift_one_node_goes_when_the_budget_allows_one(openshift: Hooked) -> None:
    first, second = [await openshift.node(name, labels=CONTROL_PLANE) for name in ("cp1", "cp2")]
    for node in (first, second):
        await openshift.member(node, namespace=OPENSHIFT_ETCD, labels=GUARD)
    await openshift.budget(a_budget("etcd-guard-pdb", app="guard", minAvailable=1), namespace=OPENSHIFT_ETCD, allowed=1)
    assert await openshift.refusal(first) == ""
    assert await openshift.refusal(second) == DENIED + QUORUM.format(second)


async def test_on_openshift_no_budget_is_a_refusal(openshift: Hooked) -> None:
    node = await openshift.node("cp1", labels=CONTROL_PLANE)
    assert await openshift.refusal(node) == DENIED + QUORUM.format(node)
    assert await openshift.refusal(await openshift.node("w1")) == ""


async def test_a_plain_cluster_is_not_taken_for_openshift(cluster: Cluster) -> None:
    assert not await is_openshift(await cluster.client())
