"""What becomes of objects whose owners go, and of owners that wait for that."""

from datetime import timedelta

import pytest

from haulout.core.clock import Clock
from haulout.kube.objects import RawObject
from haulout.sandbox.controllers import Deployments, Garbage, ReplicaSets
from haulout.sandbox.controllers.objects import CONFIG_MAPS, DEPLOYMENTS, REPLICA_SETS
from support.builders import SHOP, a_config_map, a_workload
from support.workloads import World


@pytest.fixture
def world(clock: Clock) -> World:
    return World(clock, kinds=(Deployments, ReplicaSets, Garbage))


def a_map(world: World, name: str, *, owners: tuple[str, ...] = (), blocking: bool = True) -> RawObject:
    """Put a config map that belongs to others."""
    made = a_config_map(name)
    references = []
    for owner in owners:
        uid = (
            world.get("configmaps", owner)["metadata"]["uid"] if owner in world.names("configmaps") else f"uid-{owner}"
        )
        references.append(
            {"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid, "blockOwnerDeletion": blocking}
        )
    made["metadata"] |= {"namespace": SHOP, "ownerReferences": references}
    return world.cluster.put(made)


async def test_all_that_a_deployment_made_goes_with_it(world: World) -> None:
    async with world.running():
        await world.client.create(DEPLOYMENTS, a_workload("Deployment", replicas=3), namespace=SHOP)
        await world.settle()
        await world.delete(DEPLOYMENTS, "cart", propagation="Background")
        await world.settle()
    assert world.names("replicasets") == []
    assert world.all_pods() == []


async def test_in_the_foreground_the_owner_goes_last(world: World) -> None:
    async with world.running():
        await world.client.create(DEPLOYMENTS, a_workload("Deployment", replicas=2), namespace=SHOP)
        await world.settle()
        await world.delete(DEPLOYMENTS, "cart", propagation="Foreground")
        await world.settle(1)
        assert world.names("deployments") == ["cart"]
        assert len(world.all_pods()) == 2
        await world.settle()
    gone = [write.kind.plural for write in world.cluster.history if write.after is None]
    assert gone == ["pods", "pods", "replicasets", "deployments"]


async def test_orphans_stay_and_have_no_owner_left(world: World) -> None:
    async with world.running():
        await world.client.create(DEPLOYMENTS, a_workload("Deployment", replicas=2), namespace=SHOP)
        await world.settle()
        await world.delete(DEPLOYMENTS, "cart", propagation="Orphan")
        await world.settle()
    assert world.names("deployments") == []
    (replica_set,) = world.cluster.objects("replicasets", namespace=SHOP)
    assert "ownerReferences" not in replica_set["metadata"]
    assert len(world.pods()) == 2


async def test_a_deployment_takes_its_orphans_back(world: World) -> None:
    async with world.running():
        await world.client.create(DEPLOYMENTS, a_workload("Deployment", replicas=2), namespace=SHOP)
        await world.settle()
        await world.delete(DEPLOYMENTS, "cart", propagation="Orphan")
        await world.settle()
        await world.client.create(DEPLOYMENTS, a_workload("Deployment", replicas=2), namespace=SHOP)
        await world.settle()
    assert len(world.created_pods()) == 2
    assert len(world.names("replicasets")) == 1


async def test_what_has_another_owner_left_only_forgets_the_one_that_is_gone(world: World) -> None:
    a_map(world, "one")
    a_map(world, "other")
    a_map(world, "both", owners=("one", "other"))
    async with world.running():
        await world.settle(1)
        await world.delete(CONFIG_MAPS, "one")
        await world.settle()
    assert [it["name"] for it in world.get("configmaps", "both")["metadata"]["ownerReferences"]] == ["other"]


async def test_what_was_orphaned_while_nobody_looked_is_found(world: World) -> None:
    a_map(world, "lost", owners=("never-there",))
    async with world.running():
        await world.settle()
    assert world.names("configmaps") == []


async def test_another_object_of_the_owners_name_is_not_the_owner(world: World) -> None:
    a_map(world, "child", owners=("parent",))
    a_map(world, "parent")
    async with world.running():
        await world.settle()
    assert world.names("configmaps") == ["parent"]


async def test_owners_of_kinds_that_are_not_followed_are_believed(world: World) -> None:
    child = a_config_map("child")
    owner = {"apiVersion": "example.com/v1", "kind": "Odd", "name": "x", "uid": "u"}
    child["metadata"] |= {"namespace": SHOP, "ownerReferences": [owner]}
    world.cluster.put(child)
    async with world.running():
        await world.settle()
    assert world.names("configmaps") == ["child"]


async def test_a_cache_that_is_behind_is_no_proof_that_an_owner_is_gone(world: World) -> None:
    async with world.running():
        await world.settle(1)
        late = world.transport.faults.late(timedelta(minutes=2), path="replicasets")
        await world.client.create(REPLICA_SETS, a_workload("ReplicaSet", replicas=0), namespace=SHOP)
        uid = world.get("replicasets", "cart")["metadata"]["uid"]
        child = a_config_map("child")
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "cart", "uid": uid}
        child["metadata"] |= {"namespace": SHOP, "ownerReferences": [owner]}
        world.cluster.put(child)
        await world.settle(60)
    assert late.hits == 1
    assert world.names("configmaps") == ["child"]


async def test_dependents_that_do_not_block_are_not_waited_for(world: World) -> None:
    a_map(world, "owner")
    a_map(world, "child", owners=("owner",), blocking=False)
    async with world.running():
        await world.settle(1)
        await world.delete(CONFIG_MAPS, "owner", propagation="Foreground")
        await world.settle()
    gone = [write.key for write in world.cluster.history if write.after is None]
    assert sorted(gone) == [f"{SHOP}/child", f"{SHOP}/owner"]


async def test_a_chain_goes_to_its_end_also_across_crashes(world: World) -> None:
    a_map(world, "m0")
    for number in range(1, 8):
        a_map(world, f"m{number}", owners=(f"m{number - 1}",))
    async with world.running():
        await world.settle(1)
        await world.delete(CONFIG_MAPS, "m0")
        for _ in range(5):
            await world.settle(0.003)
            await world.crash()
        await world.settle()
    assert world.names("configmaps") == []
