"""Pods of nodes that are lost are ended, so that others can take their place."""

import pytest

from haulout.core.clock import Clock
from haulout.kube.patches import merge_patch
from haulout_sandbox.controllers.objects import NODES, PODS, STATEFUL_SETS
from haulout_sandbox.controllers.podgc import PodGCController
from haulout_sandbox.controllers.statefulset import StatefulSetController
from support.builders.objects import SHOP, a_node, a_workload
from support.clusters.controller_cluster import ControllerCluster
from support.expectations.objects import is_ready


@pytest.fixture
async def world(clock: Clock) -> ControllerCluster:
    world = ControllerCluster(clock, kinds=(StatefulSetController, PodGCController))
    for name in ("n1", "n2", "n3"):
        world.cluster.put(a_node(name))
    return world


async def node_of(world: ControllerCluster) -> str:
    await world.client.create(STATEFUL_SETS, a_workload("StatefulSet", replicas=1), namespace=SHOP)
    await world.settle()
    name: str = world.get("pods", "cart-0")["spec"]["nodeName"]
    return name


async def test_pods_of_a_deleted_node_fail_and_go(world: ControllerCluster) -> None:
    async with world.running():
        lost = await node_of(world)
        world.kubelets.nodes.remove(lost)
        world.cluster.remove("nodes", lost)
        await world.settle(39)
        assert is_ready(world.get("pods", "cart-0"))
        await world.settle(20)
    pod = world.get("pods", "cart-0")
    assert is_ready(pod)
    assert pod["spec"]["nodeName"] != lost
    last = [
        write.before
        for write in world.cluster.history
        if write.kind.plural == "pods" and write.before and write.after and "deletionTimestamp" not in write.before
    ]
    failed = [item for item in last if item["status"]["phase"] == "Failed"]
    assert any(
        (item["type"], item["reason"]) == ("DisruptionTarget", "DeletionByPodGC")
        for item in failed[0]["status"]["conditions"]
        if "reason" in item
    )


async def test_a_node_that_comes_back_soon_keeps_its_pods(world: ControllerCluster) -> None:
    async with world.running():
        lost = await node_of(world)
        uid = world.get("pods", "cart-0")["metadata"]["uid"]
        world.cluster.remove("nodes", lost)
        await world.settle(20)
        world.cluster.put(a_node(lost))
        await world.settle(120)
    assert world.get("pods", "cart-0")["metadata"]["uid"] == uid


async def test_a_node_out_of_service_gives_up_the_pods_that_are_to_stop(world: ControllerCluster) -> None:
    async with world.running():
        off = await node_of(world)
        world.kubelets.stop *= 1000
        world.kubelets.nodes.remove(off)
        await world.delete(PODS, "cart-0")
        await world.settle(120)
        assert world.get("pods", "cart-0")["spec"]["nodeName"] == off
        taint = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
        await world.client.patch(NODES, off, merge_patch({"spec": {"taints": [taint]}}))
        await world.settle()
    assert world.get("pods", "cart-0")["spec"]["nodeName"] != off
