"""The admission webhook for NodeMaintenances, called by an API server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from haulout.api.nodemaintenance import NODE_MAINTENANCES
from haulout.api.resources import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, NODES
from haulout.controllers.nodemaintenance.etcd_quorum import KUBE_SYSTEM, OPENSHIFT_ETCD, is_openshift
from haulout.errors import AlreadyExists, Forbidden
from haulout.kube.patches import json_patch, merge_patch, replace
from support.builders.crds import a_crd, object_schema
from support.builders.objects import a_namespace, a_pdb
from support.clusters.backends import ClusterBackend
from support.expectations.eventually import eventually
from support.operators.webhook_cluster import CONTROL_PLANE, WebhookCluster, webhook_cluster

DENIED = 'admission webhook "vnodemaintenance.kb.io" denied the request: '
QUORUM = (
    "can not put master/control-plane node into maintenance at this moment, disrupting node {} will violate etcd quorum"
)
GUARD = {"app": "guard"}


@pytest.fixture
async def world(cluster: ClusterBackend) -> AsyncIterator[WebhookCluster]:
    """Yield a cluster with the webhook."""
    async with webhook_cluster(cluster) as world:
        yield world


async def test_maintenance_of_an_unknown_node_is_refused(world: WebhookCluster) -> None:
    assert await world.denial_message("absent") == f"{DENIED}invalid nodeName, no node with name absent found"
    assert (
        await world.denial_message("../nodes", name="odd")
        == f"{DENIED}invalid nodeName, no node with name ../nodes found"
    )
    assert await world.denial_message("", name="nameless") == f"{DENIED}invalid nodeName, no node with name found"


async def test_second_maintenance_of_a_node_is_refused_even_while_the_first_is_terminating(
    world: WebhookCluster,
) -> None:
    node = await world.create_node("n1")
    await world.create_maintenance(node)
    refusal = f"{DENIED}invalid nodeName, a NodeMaintenance for node {node} already exists"
    assert await world.denial_message(node, name=world.unique_name("second")) == refusal
    finalizers = merge_patch({"metadata": {"finalizers": ["test.haulout.dev/held"]}})
    await world.client.patch(NODE_MAINTENANCES, node, finalizers)
    await world.client.delete(NODE_MAINTENANCES, node)
    assert await world.denial_message(node, name=world.unique_name("second")) == refusal
    await world.client.patch(NODE_MAINTENANCES, node, merge_patch({"metadata": {"finalizers": None}}))
    assert await world.denial_message(node, name=world.unique_name("second")) == ""


async def test_only_one_of_many_concurrent_maintenances_of_a_node_is_admitted(world: WebhookCluster) -> None:
    node = await world.create_node("n1")
    names = [world.unique_name(f"order-{number}") for number in range(5)]
    refusals = await asyncio.gather(*(world.denial_message(node, name=name) for name in names))
    assert sorted(bool(refusal) for refusal in refusals) == [False, True, True, True, True]


async def test_node_name_is_immutable_and_the_reason_is_not(world: WebhookCluster) -> None:
    node, other = await world.create_node("n1"), await world.create_node("n2")
    await world.create_maintenance(node)
    await world.client.patch(NODE_MAINTENANCES, node, merge_patch({"spec": {"reason": "disk"}}))
    with pytest.raises(Forbidden) as caught:
        await world.client.patch(NODE_MAINTENANCES, node, json_patch(replace("/spec/nodeName", other)))
    assert caught.value.message == f"{DENIED}updating spec.NodeName isn't allowed"
    assert caught.value.code == 403


async def test_maintenance_of_a_deleted_node_can_be_changed_and_deleted(world: WebhookCluster) -> None:
    node = await world.create_node("n1")
    await world.create_maintenance(node)
    await world.client.delete(NODES, node)
    held = await world.client.patch(
        NODE_MAINTENANCES, node, merge_patch({"metadata": {"finalizers": ["test.haulout.dev/held"]}})
    )
    assert held.metadata.finalizers == ("test.haulout.dev/held",)
    await world.client.patch(NODE_MAINTENANCES, node, merge_patch({"metadata": {"finalizers": None}}))
    await world.client.delete(NODE_MAINTENANCES, node)


async def test_invalid_drain_policy_is_refused_with_all_errors(world: WebhookCluster) -> None:
    node = await world.create_node("n1")
    invalid_policy = {"timeout": "1m", "evictionTimeout": "5m", "rules": [{"name": "a"}, {"name": "a"}]}
    refusal = await world.denial_message(node, drain=invalid_policy)
    assert refusal.startswith(f"{DENIED}invalid drain policy, ")
    assert "spec.drain.timeout" in refusal
    assert "spec.drain.rules" in refusal
    assert await world.denial_message(node, drain={"timeout": "1h"}) == ""


async def test_dry_run_reserves_nothing(world: WebhookCluster) -> None:
    node = await world.create_node("n1")
    assert await world.denial_message(node, dry_run=True) == ""
    assert await world.denial_message(node, name=world.unique_name("real")) == ""


# The quorum of etcd, where members are counted


async def test_control_plane_node_is_admitted_while_etcd_keeps_its_quorum(world: WebhookCluster) -> None:
    nodes = [await world.create_node(f"cp{number}", labels=CONTROL_PLANE) for number in (1, 2, 3)]
    for node in nodes:
        await world.create_etcd_member(node)
    assert await world.denial_message(nodes[0]) == ""
    refusal = await world.denial_message(nodes[1])
    assert refusal.startswith(DENIED + QUORUM.format(nodes[1]))
    assert f"{nodes[0]} is in maintenance by NodeMaintenance {nodes[0]}" in refusal
    await world.client.delete(NODE_MAINTENANCES, nodes[0])
    assert await world.denial_message(nodes[1]) == ""


async def test_only_one_of_many_concurrent_control_plane_maintenances_is_admitted(world: WebhookCluster) -> None:
    nodes = [await world.create_node(f"cp{number}", labels=CONTROL_PLANE) for number in (1, 2, 3)]
    for node in nodes:
        await world.create_etcd_member(node)
    refusals = await asyncio.gather(*(world.denial_message(node) for node in nodes))
    assert sorted(bool(refusal) for refusal in refusals) == [False, True, True]


async def test_etcd_member_on_an_unready_node_counts_as_down(world: WebhookCluster) -> None:
    nodes = [await world.create_node(f"cp{number}", labels=CONTROL_PLANE, ready=number != 3) for number in (1, 2, 3)]
    for node in nodes:
        await world.create_etcd_member(node)
    assert f"{nodes[2]} is not ready" in await world.denial_message(nodes[0])
    assert await world.denial_message(nodes[2]) == ""


async def test_etcd_members_are_found_by_a_disruption_budget(world: WebhookCluster) -> None:
    nodes = [await world.create_node(f"cp{number}", labels=CONTROL_PLANE) for number in (1, 2)]
    name = world.unique_name("etcd")
    for node in nodes:
        await world.create_etcd_member(node, labels={"app": "etcd", "of": name})
    budget = a_pdb(name).with_spec(selector={"matchLabels": {"app": "etcd", "of": name}}, minAvailable=2)
    await world.create_pdb(budget, namespace=KUBE_SYSTEM)
    assert "etcd has 2 members and needs 2" in await world.denial_message(nodes[0])


async def test_control_plane_node_without_visible_etcd_and_a_worker_are_admitted(world: WebhookCluster) -> None:
    assert await world.denial_message(await world.create_node("cp1", labels=CONTROL_PLANE)) == ""
    assert await world.denial_message(await world.create_node("w1")) == ""


async def test_quorum_check_can_be_disabled(cluster: ClusterBackend) -> None:
    async with webhook_cluster(cluster, guard_quorum=False) as world:
        node = await world.create_node("cp1", labels=CONTROL_PLANE)
        await world.create_etcd_member(node)
        assert await world.denial_message(node) == ""


# On OpenShift, where guards decide


@pytest.fixture
async def openshift(world: WebhookCluster) -> AsyncIterator[WebhookCluster]:
    """Yield a cluster that looks like OpenShift."""
    group = a_crd("clusterversions", "ClusterVersion", object_schema(), group="config.openshift.io")
    name = group["metadata"]["name"]
    await world.client.create(CUSTOM_RESOURCE_DEFINITIONS, group)
    with suppress(AlreadyExists):
        await world.client.create(NAMESPACES, a_namespace(OPENSHIFT_ETCD))
    await eventually(world.cluster.clock, lambda: is_openshift(world.client))
    yield world
    await world.client.delete(CUSTOM_RESOURCE_DEFINITIONS, name)

    async def forgotten() -> bool:
        left = [crd["metadata"]["name"] for crd in (await world.client.list(CUSTOM_RESOURCE_DEFINITIONS)).items]
        return name not in left and not await is_openshift(world.client)

    await eventually(world.cluster.clock, forgotten)


@pytest.mark.parametrize(("ready", "refused"), [("True", True), ("Unknown", True), ("False", False)])
async def test_openshift_refuses_a_node_whose_guard_is_ready(
    openshift: WebhookCluster, ready: str, *, refused: bool
) -> None:
    node = await openshift.create_node("cp1", labels=CONTROL_PLANE)
    await openshift.create_etcd_member(node, namespace=OPENSHIFT_ETCD, labels=GUARD, ready=ready)
    await openshift.create_pdb(a_pdb("etcd-guard-pdb", app="guard", minAvailable=2), namespace=OPENSHIFT_ETCD)
    assert await openshift.denial_message(node) == (DENIED + QUORUM.format(node) if refused else "")


async def test_openshift_admits_a_node_without_a_guard(openshift: WebhookCluster) -> None:
    node = await openshift.create_node("cp1", labels=CONTROL_PLANE)
    await openshift.create_pdb(a_pdb("etcd-guard-pdb", app="guard", minAvailable=2), namespace=OPENSHIFT_ETCD)
    assert await openshift.denial_message(node) == ""


async def test_openshift_admits_one_node_when_the_disruption_budget_allows_one(openshift: WebhookCluster) -> None:
    first, second = [await openshift.create_node(name, labels=CONTROL_PLANE) for name in ("cp1", "cp2")]
    for node in (first, second):
        await openshift.create_etcd_member(node, namespace=OPENSHIFT_ETCD, labels=GUARD)
    await openshift.create_pdb(
        a_pdb("etcd-guard-pdb", app="guard", minAvailable=1), namespace=OPENSHIFT_ETCD, allowed=1
    )
    assert await openshift.denial_message(first) == ""
    assert await openshift.denial_message(second) == DENIED + QUORUM.format(second)


async def test_openshift_refuses_without_a_disruption_budget(openshift: WebhookCluster) -> None:
    node = await openshift.create_node("cp1", labels=CONTROL_PLANE)
    assert await openshift.denial_message(node) == DENIED + QUORUM.format(node)
    assert await openshift.denial_message(await openshift.create_node("w1")) == ""


async def test_plain_cluster_is_not_detected_as_openshift(cluster: ClusterBackend) -> None:
    assert not await is_openshift(await cluster.client())
