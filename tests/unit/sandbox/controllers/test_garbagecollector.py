"""What becomes of objects whose owners go, and of owners that wait for that."""

from datetime import timedelta
from typing import Any

import pytest

from haulout.api.objects import RawObject
from haulout.api.resources import Resource
from haulout.core.clock import Clock
from haulout_sandbox.controllers.deployment.controller import DeploymentController
from haulout_sandbox.controllers.garbagecollector.controller import GarbageCollector
from haulout_sandbox.controllers.garbagecollector.deletable_resources import CUSTOM_RESOURCE_DEFINITIONS
from haulout_sandbox.controllers.objects import CONFIG_MAPS, DEPLOYMENTS, NODES, REPLICA_SETS, OwnedObject
from haulout_sandbox.controllers.replicaset import ReplicaSetController
from support.builders.crds import STRING, a_crd, object_schema
from support.builders.objects import SHOP, a_config_map, a_node, a_workload
from support.clusters.controller_cluster import ControllerCluster

GROUP_VERSION = "garbage.haulout.dev/v1"
WIDGET = Resource("garbage.haulout.dev", "v1", "widgets", "Widget", namespaced=True, model=OwnedObject)
WIDGETS = a_crd("widgets", "Widget", object_schema(color=STRING), group="garbage.haulout.dev", name="v1")


@pytest.fixture
def world(clock: Clock) -> ControllerCluster:
    return ControllerCluster(clock, kinds=(DeploymentController, ReplicaSetController, GarbageCollector))


def create_config_map(
    world: ControllerCluster, name: str, *, owners: tuple[str, ...] = (), blocking: bool = True
) -> RawObject:
    """Put a config map that belongs to others."""
    config_map = a_config_map(name)
    references = []
    for owner in owners:
        uid = (
            world.get("configmaps", owner)["metadata"]["uid"]
            if owner in world.object_names("configmaps")
            else f"uid-{owner}"
        )
        references.append(
            {"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid, "blockOwnerDeletion": blocking}
        )
    config_map["metadata"] |= {"namespace": SHOP, "ownerReferences": references}
    return world.cluster.put(config_map)


def a_lease(node: str, *, owner: str) -> RawObject:
    reference = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": owner}
    metadata = {"name": node, "namespace": "kube-node-lease", "ownerReferences": [reference]}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": {}}


def owned_by_a_config_map(world: ControllerCluster, api_version: str, kind: str) -> RawObject:
    uid = world.get("configmaps", "owner")["metadata"]["uid"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid, "blockOwnerDeletion": True}
    metadata = {"name": "owned", "namespace": SHOP, "ownerReferences": [reference]}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def a_widget(name: str) -> RawObject:
    return {"apiVersion": GROUP_VERSION, "kind": "Widget", "metadata": {"name": name, "namespace": SHOP}}


async def test_all_that_a_deployment_made_goes_with_it(world: ControllerCluster) -> None:
    async with world.running():
        await world.client.create(DEPLOYMENTS, a_workload("Deployment", replicas=3), namespace=SHOP)
        await world.settle()
        await world.delete(DEPLOYMENTS, "cart", propagation="Background")
        await world.settle()
    assert world.object_names("replicasets") == []
    assert world.all_pods() == []


async def test_in_the_foreground_the_owner_goes_last(world: ControllerCluster) -> None:
    async with world.running():
        await world.client.create(DEPLOYMENTS, a_workload("Deployment", replicas=2), namespace=SHOP)
        await world.settle()
        await world.delete(DEPLOYMENTS, "cart", propagation="Foreground")
        await world.settle(1)
        assert world.object_names("deployments") == ["cart"]
        assert len(world.all_pods()) == 2
        await world.settle()
    gone = [write.kind.plural for write in world.cluster.history if write.after is None]
    assert gone == ["pods", "pods", "replicasets", "deployments"]


async def test_orphans_stay_and_have_no_owner_left(world: ControllerCluster) -> None:
    async with world.running():
        await world.client.create(DEPLOYMENTS, a_workload("Deployment", replicas=2), namespace=SHOP)
        await world.settle()
        await world.delete(DEPLOYMENTS, "cart", propagation="Orphan")
        await world.settle()
    assert world.object_names("deployments") == []
    (replica_set,) = world.cluster.objects("replicasets", namespace=SHOP)
    assert "ownerReferences" not in replica_set["metadata"]
    assert len(world.pods()) == 2


async def test_a_deployment_takes_its_orphans_back(world: ControllerCluster) -> None:
    async with world.running():
        await world.client.create(DEPLOYMENTS, a_workload("Deployment", replicas=2), namespace=SHOP)
        await world.settle()
        await world.delete(DEPLOYMENTS, "cart", propagation="Orphan")
        await world.settle()
        await world.client.create(DEPLOYMENTS, a_workload("Deployment", replicas=2), namespace=SHOP)
        await world.settle()
    assert len(world.created_pods()) == 2
    assert len(world.object_names("replicasets")) == 1


async def test_what_has_another_owner_left_only_forgets_the_one_that_is_gone(world: ControllerCluster) -> None:
    create_config_map(world, "one")
    create_config_map(world, "other")
    create_config_map(world, "both", owners=("one", "other"))
    async with world.running():
        await world.settle(1)
        await world.delete(CONFIG_MAPS, "one")
        await world.settle()
    assert [
        owner_reference["name"] for owner_reference in world.get("configmaps", "both")["metadata"]["ownerReferences"]
    ] == ["other"]


async def test_objects_orphaned_during_an_outage_are_found(world: ControllerCluster) -> None:
    create_config_map(world, "lost", owners=("never-there",))
    async with world.running():
        await world.settle()
    assert world.object_names("configmaps") == []


async def test_another_object_of_the_owners_name_is_not_the_owner(world: ControllerCluster) -> None:
    create_config_map(world, "child", owners=("parent",))
    create_config_map(world, "parent")
    async with world.running():
        await world.settle()
    assert world.object_names("configmaps") == ["parent"]


async def test_owners_of_kinds_that_are_not_followed_are_believed(world: ControllerCluster) -> None:
    child = a_config_map("child")
    owner = {"apiVersion": "example.com/v1", "kind": "Odd", "name": "x", "uid": "u"}
    child["metadata"] |= {"namespace": SHOP, "ownerReferences": [owner]}
    world.cluster.put(child)
    async with world.running():
        await world.settle()
    assert world.object_names("configmaps") == ["child"]


async def test_a_cache_that_is_behind_is_no_proof_that_an_owner_is_gone(world: ControllerCluster) -> None:
    async with world.running():
        await world.settle(1)
        late = world.transport.faults.delay_event(timedelta(minutes=2), path="replicasets")
        await world.client.create(REPLICA_SETS, a_workload("ReplicaSet", replicas=0), namespace=SHOP)
        uid = world.get("replicasets", "cart")["metadata"]["uid"]
        child = a_config_map("child")
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "cart", "uid": uid}
        child["metadata"] |= {"namespace": SHOP, "ownerReferences": [owner]}
        world.cluster.put(child)
        await world.settle(60)
    assert late.hits == 1
    assert world.object_names("configmaps") == ["child"]


async def test_dependents_that_do_not_block_are_not_waited_for(world: ControllerCluster) -> None:
    create_config_map(world, "owner")
    create_config_map(world, "child", owners=("owner",), blocking=False)
    async with world.running():
        await world.settle(1)
        await world.delete(CONFIG_MAPS, "owner", propagation="Foreground")
        await world.settle()
    gone = [write.key for write in world.cluster.history if write.after is None]
    assert sorted(gone) == [f"{SHOP}/child", f"{SHOP}/owner"]


async def test_the_lease_of_a_node_goes_with_it(world: ControllerCluster) -> None:
    for name in ("n1", "n2"):
        node = world.cluster.put(a_node(name))
        world.cluster.put(a_lease(name, owner=node["metadata"]["uid"]))
    async with world.running():
        await world.settle(1)
        await world.client.delete(NODES, "n1")
        await world.settle(1)
    assert [lease["metadata"]["name"] for lease in world.cluster.objects("leases")] == ["n2"]


async def test_a_lease_whose_node_was_deleted_during_an_outage_is_deleted(world: ControllerCluster) -> None:
    world.cluster.put(a_lease("n1", owner="uid-of-a-node-that-is-gone"))
    async with world.running():
        await world.settle(1)
    assert world.cluster.objects("leases") == []


async def test_every_built_in_kind_is_collected(world: ControllerCluster) -> None:
    create_config_map(world, "owner")
    for api_version, kind in (("v1", "Secret"), ("v1", "Service"), ("networking.k8s.io/v1", "NetworkPolicy")):
        world.cluster.put(owned_by_a_config_map(world, api_version, kind))
    async with world.running():
        await world.settle(1)
        assert len(world.object_names("networkpolicies")) == 1
        await world.delete(CONFIG_MAPS, "owner", propagation="Foreground")
        await world.settle(2)
    assert [world.object_names(plural) for plural in ("configmaps", "secrets", "services", "networkpolicies")] == [
        []
    ] * 4


async def test_an_owner_is_not_let_go_before_all_that_it_owns_is_known(world: ControllerCluster) -> None:
    owner = create_config_map(world, "owner")
    world.cluster.put(owned_by_a_config_map(world, "v1", "Secret"))
    await world.delete(CONFIG_MAPS, "owner", propagation="Orphan")
    world.transport.faults.delay(timedelta(seconds=20), path="secrets")
    async with world.running():
        await world.settle(10)
        assert world.get("configmaps", "owner")["metadata"]["uid"] == owner["metadata"]["uid"]
        await world.settle(60)
    assert world.object_names("configmaps") == []
    assert "ownerReferences" not in world.get("secrets", "owned")["metadata"]


async def test_custom_resources_own_and_are_owned(world: ControllerCluster) -> None:
    async with world.running():
        await world.client.create(CUSTOM_RESOURCE_DEFINITIONS.with_model(dict[str, Any]), WIDGETS)
        await world.settle(1)
        owner = world.cluster.put(a_widget("owner"))
        for name in ("kept", "lost"):
            child = a_widget(name) if name == "lost" else a_config_map(name)
            reference = {
                "apiVersion": GROUP_VERSION,
                "kind": "Widget",
                "name": "owner",
                "uid": owner["metadata"]["uid"],
            }
            child["metadata"] |= {"namespace": SHOP, "ownerReferences": [reference]}
            world.cluster.put(child)
        await world.settle(1)
        await world.delete(WIDGET, "owner", propagation="Orphan")
        await world.settle(3)
        assert world.object_names("widgets") == ["lost"]
        assert "ownerReferences" not in world.get("configmaps", "kept")["metadata"]


async def test_the_kinds_of_a_definition_that_goes_are_let_go(world: ControllerCluster) -> None:
    async with world.running():
        for _ in range(2):
            await world.client.create(CUSTOM_RESOURCE_DEFINITIONS.with_model(dict[str, Any]), WIDGETS)
            await world.settle(1)
            world.cluster.put(a_widget("w"))
            await world.delete(WIDGET, "w", propagation="Foreground")
            await world.settle(3)
            assert world.object_names("widgets") == []
            await world.client.delete(CUSTOM_RESOURCE_DEFINITIONS, WIDGETS["metadata"]["name"])
            await world.settle(3)


async def test_a_chain_goes_to_its_end_also_across_crashes(world: ControllerCluster) -> None:
    create_config_map(world, "m0")
    for number in range(1, 8):
        create_config_map(world, f"m{number}", owners=(f"m{number - 1}",))
    async with world.running():
        await world.settle(1)
        await world.delete(CONFIG_MAPS, "m0")
        for _ in range(5):
            await world.settle(0.003)
            await world.crash()
        await world.settle()
    assert world.object_names("configmaps") == []
