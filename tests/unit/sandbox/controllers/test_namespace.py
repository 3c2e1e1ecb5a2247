"""A namespace that is deleted takes everything in it along, and goes last."""

import pytest

from haulout.core.clock import Clock
from haulout_sandbox.controllers.deployment.controller import DeploymentController
from haulout_sandbox.controllers.namespace import NamespaceController
from haulout_sandbox.controllers.objects import CONFIG_MAPS, DEPLOYMENTS, NAMESPACES
from haulout_sandbox.controllers.replicaset import ReplicaSetController
from support.builders.objects import SHOP, a_config_map, a_workload
from support.clusters.controller_cluster import ControllerCluster
from support.expectations.objects import condition_status


@pytest.fixture
def world(clock: Clock) -> ControllerCluster:
    return ControllerCluster(clock, kinds=(DeploymentController, ReplicaSetController, NamespaceController))


async def delete_namespace(world: ControllerCluster) -> None:
    await world.client.delete(NAMESPACES, SHOP)


async def test_everything_in_it_goes_first(world: ControllerCluster) -> None:
    async with world.running():
        await world.client.create(CONFIG_MAPS, a_config_map("settings"), namespace=SHOP)
        await world.client.create(CONFIG_MAPS, a_config_map("settings"), namespace="default")
        await world.client.create(DEPLOYMENTS, a_workload("Deployment", replicas=2), namespace=SHOP)
        await world.settle()
        await delete_namespace(world)
        await world.settle(1)
        assert world.cluster.has("namespaces", SHOP)
        await world.settle(100)
    assert not world.cluster.has("namespaces", SHOP)
    for plural in ("pods", "configmaps", "deployments", "replicasets"):
        assert world.object_names(plural) == []
    assert world.cluster.has("configmaps", "settings", "default")
    assert world.cluster.history[-1].kind.plural == "namespaces"


async def test_something_that_does_not_go_is_waited_for(world: ControllerCluster) -> None:
    stubborn = a_config_map("stubborn")
    stubborn["metadata"] |= {"namespace": SHOP, "finalizers": ["example.com/wait"]}
    world.cluster.put(stubborn)
    async with world.running():
        await delete_namespace(world)
        await world.settle(300)
        shop = world.cluster.get("namespaces", SHOP)
        assert shop["status"]["phase"] == "Terminating"
        assert condition_status(shop, "NamespaceContentRemaining") == ("True", "SomeResourcesRemain")
        assert "example.com/wait in 1 resource instances" in str(shop["status"]["conditions"])
        await world.patch(CONFIG_MAPS, "stubborn", metadata={"finalizers": None})
        await world.settle(20)
    assert not world.cluster.has("namespaces", SHOP)


async def test_a_namespace_that_is_not_deleted_keeps_its_objects(world: ControllerCluster) -> None:
    async with world.running():
        await world.client.create(CONFIG_MAPS, a_config_map("settings"), namespace=SHOP)
        await world.settle(100)
    assert world.object_names("configmaps") == ["settings"]


async def test_a_crash_in_the_middle_leaves_nothing_behind(world: ControllerCluster) -> None:
    async with world.running():
        for number in range(5):
            await world.client.create(CONFIG_MAPS, a_config_map(f"m{number}"), namespace=SHOP)
        await delete_namespace(world)
        for _ in range(4):
            await world.settle(0.004)
            await world.crash()
        await world.settle(60)
    assert not world.cluster.has("namespaces", SHOP)
    assert world.object_names("configmaps") == []
