"""What a stateful set promises: identity, order, and never two pods of one name."""

from datetime import timedelta
from typing import Any

import pytest

from haulout.core.clock import Clock
from haulout.kube.patches import merge_patch
from haulout_sandbox.controllers.objects import PODS, STATEFUL_SETS
from haulout_sandbox.controllers.statefulset import (
    POD_INDEX_LABEL,
    POD_NAME_LABEL,
    REVISION_LABEL,
    StatefulSetController,
)
from support.builders.objects import SHOP, a_template, a_workload
from support.clusters.controller_cluster import ControllerCluster
from support.expectations.objects import count_ready_pods, count_staying_pods, is_ready


@pytest.fixture
def world(clock: Clock) -> ControllerCluster:
    return ControllerCluster(clock, kinds=(StatefulSetController,))


async def create(world: ControllerCluster, **spec: Any) -> None:
    await world.client.create(STATEFUL_SETS, a_workload("StatefulSet", serviceName="carts", **spec), namespace=SHOP)


async def update(world: ControllerCluster, image: str) -> None:
    await world.patch(STATEFUL_SETS, "cart", spec={"template": a_template({"app": "cart"}, image=image)})


def images(world: ControllerCluster) -> list[str]:
    return [pod["spec"]["containers"][0]["image"].partition(":")[2] for pod in world.pods()]


def pod_changes(world: ControllerCluster, *, of: str) -> list[str]:
    """Return the pods that were created, or told to stop, in that order."""
    changes = []
    for write in world.cluster.history:
        if write.kind.plural != "pods":
            continue
        stops = write.after is not None and "deletionTimestamp" in write.after["metadata"]
        stopped = write.before is not None and "deletionTimestamp" in write.before["metadata"]
        if (of == "creation" and write.type == "ADDED") or (of == "deletion" and stops and not stopped):
            changes.append(write.key.removeprefix(f"{SHOP}/"))
    return changes


async def test_pods_have_a_name_that_stays_and_the_labels_of_their_identity(world: ControllerCluster) -> None:
    async with world.running():
        await create(world, replicas=2)
        await world.settle()
        first = world.get("pods", "cart-0")
        await world.delete(PODS, "cart-0")
        await world.settle()
    again = world.get("pods", "cart-0")
    assert world.object_names() == ["cart-0", "cart-1"]
    assert again["metadata"]["uid"] != first["metadata"]["uid"]
    revision = world.status("statefulsets", "cart")["updateRevision"]
    assert again["metadata"]["labels"] == {
        "app": "cart",
        POD_NAME_LABEL: "cart-0",
        POD_INDEX_LABEL: "0",
        REVISION_LABEL: revision,
    }
    assert (again["spec"]["hostname"], again["spec"]["subdomain"]) == ("cart-0", "carts")
    assert world.object_names("controllerrevisions") == [revision]


async def test_the_status_counts_pods(world: ControllerCluster) -> None:
    async with world.running():
        await create(world, replicas=3)
        await world.settle()
    revision = world.status("statefulsets", "cart")["updateRevision"]
    assert world.status("statefulsets", "cart") == {
        "observedGeneration": 1,
        "replicas": 3,
        "readyReplicas": 3,
        "availableReplicas": 3,
        "currentReplicas": 3,
        "updatedReplicas": 3,
        "currentRevision": revision,
        "updateRevision": revision,
        "collisionCount": 0,
    }


async def test_each_pod_waits_until_those_before_it_are_ready(world: ControllerCluster) -> None:
    world.kubelets.ready = lambda pod: pod.name != "cart-1"
    async with world.running():
        await create(world, replicas=3)
        await world.settle(300)
        assert world.object_names() == ["cart-0", "cart-1"]
        world.kubelets.ready = lambda _: True
        world.kubelets.enqueue_all()
        await world.settle()
    assert pod_changes(world, of="creation") == ["cart-0", "cart-1", "cart-2"]


async def test_pods_go_from_the_highest_down_one_at_a_time(world: ControllerCluster) -> None:
    async with world.running():
        await create(world, replicas=4)
        await world.settle()
        since = world.cluster.revision
        await world.patch(STATEFUL_SETS, "cart", spec={"replicas": 1})
        await world.settle()
    assert pod_changes(world, of="deletion") == ["cart-3", "cart-2", "cart-1"]
    assert world.object_names() == ["cart-0"]

    def leaving(pods: Any) -> int:
        return len(pods) - count_staying_pods(pods)

    assert world.max_over_history(leaving) == 1
    assert world.min_over_history(count_ready_pods, since=since) == 1


async def test_parallel_pods_do_not_wait_for_each_other(world: ControllerCluster) -> None:
    world.kubelets.ready = lambda _: False
    async with world.running():
        await create(world, replicas=3, podManagementPolicy="Parallel")
        await world.settle()
        assert world.object_names() == ["cart-0", "cart-1", "cart-2"]
        await world.patch(STATEFUL_SETS, "cart", spec={"replicas": 0})
        await world.settle()
    assert world.object_names() == []


@pytest.mark.parametrize("policy", ["OrderedReady", "Parallel"])
async def test_an_update_replaces_one_pod_after_the_other_from_the_highest_down(
    world: ControllerCluster, policy: str
) -> None:
    async with world.running():
        await create(world, replicas=3, podManagementPolicy=policy)
        await world.settle()
        since = world.cluster.revision
        await update(world, "example/main:2")
        await world.settle(120)
    assert images(world) == ["2", "2", "2"]
    assert pod_changes(world, of="deletion") == ["cart-2", "cart-1", "cart-0"]
    assert world.min_over_history(count_ready_pods, since=since) == 2
    status = world.status("statefulsets", "cart")
    assert status["currentRevision"] == status["updateRevision"]
    assert status["currentReplicas"] == status["updatedReplicas"] == 3


async def test_below_the_partition_pods_keep_their_revision_also_when_they_are_replaced(
    world: ControllerCluster,
) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    async with world.running():
        await create(world, replicas=3, updateStrategy=strategy)
        await world.settle()
        await update(world, "example/main:2")
        await world.settle(60)
        assert images(world) == ["1", "1", "2"]
        await world.delete(PODS, "cart-0")
        await world.settle(60)
        assert images(world) == ["1", "1", "2"]
        status = world.status("statefulsets", "cart")
        assert (status["currentReplicas"], status["updatedReplicas"]) == (2, 1)
        assert status["currentRevision"] != status["updateRevision"]
        await world.patch(STATEFUL_SETS, "cart", spec={"updateStrategy": {"rollingUpdate": {"partition": 0}}})
        await world.settle(60)
    assert images(world) == ["2", "2", "2"]


async def test_with_on_delete_a_pod_is_updated_when_it_is_deleted(world: ControllerCluster) -> None:
    async with world.running():
        await create(world, replicas=2, updateStrategy={"type": "OnDelete"})
        await world.settle()
        await update(world, "example/main:2")
        await world.settle()
        assert images(world) == ["1", "1"]
        await world.delete(PODS, "cart-1")
        await world.settle()
    assert images(world) == ["1", "2"]


async def test_a_pod_is_made_only_when_the_one_of_its_name_is_really_gone(world: ControllerCluster) -> None:
    async with world.running():
        await create(world, replicas=2)
        await world.settle()
        world.kubelets.stop = timedelta(minutes=10)
        await world.client.evict("cart-1", namespace=SHOP)
        await world.settle(540)
        assert "deletionTimestamp" in world.get("pods", "cart-1")["metadata"]
        assert pod_changes(world, of="creation") == ["cart-0", "cart-1"]
        await world.settle(120)
        assert is_ready(world.get("pods", "cart-1"))
    assert pod_changes(world, of="creation") == ["cart-0", "cart-1", "cart-1"]


async def test_a_finished_pod_is_deleted_and_recreated(world: ControllerCluster) -> None:
    async with world.running():
        await create(world, replicas=1)
        await world.settle()
        uid = world.get("pods", "cart-0")["metadata"]["uid"]
        failed = merge_patch({"status": {"phase": "Failed"}})
        await world.client.patch(PODS, "cart-0", failed, namespace=SHOP, subresource="status")
        await world.settle()
    assert is_ready(world.get("pods", "cart-0"))
    assert world.get("pods", "cart-0")["metadata"]["uid"] != uid


async def test_going_back_uses_the_old_revision_again(world: ControllerCluster) -> None:
    async with world.running():
        await create(world, replicas=1)
        await world.settle()
        first = world.status("statefulsets", "cart")["currentRevision"]
        await update(world, "example/main:2")
        await world.settle()
        await update(world, "example/main:1")
        await world.settle()
    assert world.status("statefulsets", "cart")["currentRevision"] == first
    assert world.get("controllerrevisions", first)["revision"] == 3
    assert len(world.object_names("controllerrevisions")) == 2


async def test_only_as_many_revisions_are_kept_as_asked_for(world: ControllerCluster) -> None:
    async with world.running():
        await create(world, replicas=1, revisionHistoryLimit=1)
        for number in range(2, 6):
            await world.settle()
            await update(world, f"example/main:{number}")
        await world.settle(60)
    kept = sorted(
        controllerrevision["revision"]
        for controllerrevision in world.cluster.objects("controllerrevisions", namespace=SHOP)
    )
    assert kept == [4, 5]


async def test_each_pod_has_its_own_claims_which_outlive_it(world: ControllerCluster) -> None:
    asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claims = [{"metadata": {"name": "data"}, "spec": asked}]
    async with world.running():
        await create(world, replicas=2, volumeClaimTemplates=claims)
        await world.settle()
        await world.patch(STATEFUL_SETS, "cart", spec={"replicas": 1})
        await world.settle()
    assert world.object_names("persistentvolumeclaims") == ["data-cart-0", "data-cart-1"]
    (volume,) = world.get("pods", "cart-0")["spec"]["volumes"]
    assert volume == {"name": "data", "persistentVolumeClaim": {"claimName": "data-cart-0"}}


async def test_an_update_survives_crashes(world: ControllerCluster) -> None:
    async with world.running():
        await create(world, replicas=3)
        await world.settle()
        since = world.cluster.revision
        await update(world, "example/main:2")
        for step in range(12):
            world.transport.faults.fail_after_effect(response=500, method=("POST", "PATCH", "DELETE")[step % 3])
            await world.settle(0.7)
            await world.crash()
        await world.settle(60)
    assert images(world) == ["2", "2", "2"]
    assert world.min_over_history(count_ready_pods, since=since) == 2
    assert len(world.object_names("controllerrevisions")) == 2
