"""What a replica set promises: its number of pods, no more, whatever fails; and the right ones go."""

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from haulout.core.clock import Clock
from haulout_sandbox.controllers.objects import (
    PODS,
    REPLICA_SETS,
    ContainerStatus,
    ObjectMeta,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
)
from haulout_sandbox.controllers.replicaset import ReplicaSetController, pods_to_delete
from support.builders.objects import SHOP, a_workload
from support.clusters.controller_cluster import ControllerCluster
from support.expectations.objects import count_staying_pods

NOW = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)


@pytest.fixture
def world(clock: Clock) -> ControllerCluster:
    return ControllerCluster(clock, kinds=(ReplicaSetController,))


async def create(world: ControllerCluster, **spec: Any) -> None:
    await world.client.create(REPLICA_SETS, a_workload("ReplicaSet", **spec), namespace=SHOP)


async def test_a_change_of_a_pod_that_does_not_count_costs_no_look(world: ControllerCluster) -> None:
    (controller,) = world.controllers.controllers
    async with world.running():
        await create(world, replicas=3)
        await world.settle()
        looks = controller.queue.stats().succeeded
        for name in world.object_names():
            await world.patch(PODS, name, metadata={"annotations": {"seen": "yes"}})
        await world.settle()
        assert controller.queue.stats().succeeded == looks


async def test_what_happens_to_many_pods_at_a_time_is_looked_at_once(world: ControllerCluster) -> None:
    (controller,) = world.controllers.controllers
    async with world.running():
        await create(world, replicas=100)
        await world.settle()
        world.kubelets.ready = lambda _: False
        looks, revision = controller.queue.stats().succeeded, world.cluster.revision
        world.kubelets.enqueue_all()
        await world.settle()
        assert world.status("replicasets", "cart")["replicas"] == 100
        assert "readyReplicas" not in world.status("replicasets", "cart")
        assert world.cluster.revision == revision + 100 + 1, "each pod and, once, the status"
        assert controller.queue.stats().succeeded == looks + 1


async def test_a_pod_that_could_not_be_let_go_of_is_when_anything_about_it_changes(world: ControllerCluster) -> None:
    async with world.running():
        await create(world, replicas=1)
        await world.settle()
        (name,) = world.object_names()
        world.transport.faults.fail_before_effect(method="PATCH", path=f"pods/{name}", response=409)
        await world.patch(PODS, name, metadata={"labels": {"app": "stray"}})
        await world.settle()
        assert "ownerReferences" in world.get("pods", name)["metadata"]
        await world.patch(PODS, name, metadata={"annotations": {"seen": "yes"}})
        await world.settle()
        assert "ownerReferences" not in world.get("pods", name)["metadata"]


async def test_there_are_as_many_pods_as_replicas_and_the_status_counts_them(world: ControllerCluster) -> None:
    async with world.running():
        await create(world, replicas=3)
        await world.settle()
    assert len(world.pods(labels="app=cart")) == 3
    owner = world.pods()[0]["metadata"]["ownerReferences"]
    uid = world.get("replicasets", "cart")["metadata"]["uid"]
    assert owner == [
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "name": "cart",
            "uid": uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert world.status("replicasets", "cart") == {
        "replicas": 3,
        "fullyLabeledReplicas": 3,
        "readyReplicas": 3,
        "availableReplicas": 3,
        "terminatingReplicas": 0,
        "observedGeneration": 1,
    }


async def test_a_pod_that_is_deleted_is_replaced_before_it_is_gone(world: ControllerCluster) -> None:
    async with world.running():
        await create(world, replicas=2)
        await world.settle()
        world.kubelets.stop = timedelta(minutes=5)
        victim = world.pods()[0]["metadata"]["name"]
        await world.delete(PODS, victim)
        await world.settle()
        assert len(world.pods()) == 2
        assert len(world.all_pods()) == 3
        assert world.status("replicasets", "cart")["terminatingReplicas"] == 1


async def test_it_shrinks_and_grows_with_what_is_wanted(world: ControllerCluster) -> None:
    async with world.running():
        await create(world, replicas=5)
        await world.settle()
        await world.patch(REPLICA_SETS, "cart", spec={"replicas": 2})
        await world.settle()
        assert len(world.all_pods()) == 2
        await world.patch(REPLICA_SETS, "cart", spec={"replicas": 0})
        await world.settle()
    assert world.all_pods() == []
    assert world.status("replicasets", "cart") == {"replicas": 0, "terminatingReplicas": 0, "observedGeneration": 3}


async def test_one_that_is_ready_for_too_short_a_time_is_not_available(world: ControllerCluster) -> None:
    async with world.running():
        await create(world, replicas=1, minReadySeconds=60)
        await world.settle(30)
        status = world.status("replicasets", "cart")
        assert (status["readyReplicas"], status.get("availableReplicas")) == (1, None)
        await world.settle(35)
        assert world.status("replicasets", "cart")["availableReplicas"] == 1


async def test_orphans_are_adopted_and_those_that_no_longer_match_are_let_go(world: ControllerCluster) -> None:
    world.cluster.put(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "lonely", "namespace": SHOP, "labels": {"app": "cart"}},
            "spec": {"containers": [{"name": "main", "image": "example/main"}]},
            "status": {"phase": "Pending"},
        }
    )
    async with world.running():
        await create(world, replicas=2)
        await world.settle()
        assert "lonely" in world.object_names()
        assert len(world.created_pods()) == 2
        await world.patch(PODS, "lonely", metadata={"labels": {"app": "other"}})
        await world.settle()
    assert "ownerReferences" not in world.get("pods", "lonely")["metadata"]
    assert len(world.pods(labels="app=cart")) == 2


async def test_pods_of_others_are_left_alone(world: ControllerCluster) -> None:
    owner = {"apiVersion": "v1", "kind": "Other", "name": "x", "uid": "u", "controller": True}
    world.cluster.put(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "foreign", "namespace": SHOP, "labels": {"app": "cart"}, "ownerReferences": [owner]},
            "spec": {"containers": [{"name": "main", "image": "example/main"}]},
            "status": {"phase": "Pending"},
        }
    )
    async with world.running():
        await create(world, replicas=1)
        await world.settle()
    assert world.get("pods", "foreign")["metadata"]["ownerReferences"] == [owner]
    assert len(world.pods()) == 2


async def test_watches_that_are_minutes_late_make_no_pod_too_many(world: ControllerCluster) -> None:
    async with world.running():
        await world.settle(1)
        await create(world, replicas=4)
        late = world.transport.faults.delay_event(timedelta(minutes=2), path="pods")
        await world.settle(60)
        await world.patch(REPLICA_SETS, "cart", spec={"replicas": 6})
        await world.settle(300)
    assert late.hits == 1
    assert len(world.created_pods()) == 6


async def test_watches_that_are_minutes_late_delete_no_pod_too_many(world: ControllerCluster) -> None:
    async with world.running():
        await create(world, replicas=6)
        await world.settle()
        late = world.transport.faults.delay_event(timedelta(minutes=2), path="pods")
        await world.patch(REPLICA_SETS, "cart", spec={"replicas": 4})
        await world.settle(60)
        await world.patch(REPLICA_SETS, "cart", metadata={"annotations": {"look": "again"}})
        await world.settle(300)
    assert late.hits == 1
    assert len(world.created_pods()) == 6
    assert len(world.all_pods()) == 4


async def test_a_creation_without_an_answer_is_not_repeated(world: ControllerCluster) -> None:
    async with world.running():
        await world.settle(1)
        lost = world.transport.faults.fail_after_effect(method="POST", path="pods", times=2)
        late = world.transport.faults.delay_event(timedelta(minutes=2), path="api/v1/pods")
        await create(world, replicas=3)
        await world.settle(300)
    assert (lost.hits, late.hits) == (2, 1)
    assert len(world.created_pods()) == 3


async def test_a_refused_binding_is_reported_and_retried(world: ControllerCluster) -> None:
    world.transport.faults.fail_before_effect(method="POST", path="pods", response=403, times=2)
    async with world.running():
        await create(world, replicas=1)
        await world.settle(0.5)
        failure = world.status("replicasets", "cart")["conditions"][0]
        assert (failure["type"], failure["status"], failure["reason"]) == ("ReplicaFailure", "True", "FailedCreate")
        await world.settle(60)
    assert len(world.pods()) == 1
    assert "conditions" not in world.status("replicasets", "cart")


async def test_a_crash_at_any_moment_makes_no_pod_too_many(world: ControllerCluster) -> None:
    async with world.running():
        await create(world, replicas=5)
        for _ in range(8):
            await world.settle(0.002)
            await world.crash()
        await world.settle()
    assert len(world.pods()) == 5
    assert world.max_over_history(count_staying_pods) <= 6  # one may have been on its way when its maker died


async def test_nothing_is_asked_while_nothing_changes(world: ControllerCluster) -> None:
    async with world.running():
        await create(world, replicas=3)
        await world.settle()
        runs = world.controllers.controllers[0].queue.stats().succeeded
        asked = len(world.transport.requests)
        await world.settle(3600)
        assert [
            request.request.path for request in world.transport.requests[asked:] if request.request.method != "GET"
        ] == []
        assert world.controllers.controllers[0].queue.stats().succeeded == runs


# Which go first


def pod(
    name: str,
    *,
    node: str = "n1",
    phase: str = "Running",
    ready_for: float | None = 600,
    age: float = 3600,
    restarts: int = 0,
    cost: str = "",
) -> Pod:
    conditions: tuple[PodCondition, ...] = ()
    if ready_for is not None:
        since = NOW - timedelta(seconds=ready_for)
        conditions = (PodCondition(type="Ready", status="True", last_transition_time=since),)
    annotations = {"controller.kubernetes.io/pod-deletion-cost": cost} if cost else {}
    return Pod(
        metadata=ObjectMeta(
            name=name,
            uid=name,
            annotations=annotations,
            creation_timestamp=NOW - timedelta(seconds=age),
        ),
        spec=PodSpec(node_name=node),
        status=PodStatus(
            phase=phase, conditions=conditions, container_statuses=(ContainerStatus(restart_count=restarts),)
        ),
    )


@pytest.mark.parametrize(
    ("goes", "stays"),
    [
        (pod("unbound", node="", phase="Pending", ready_for=None), pod("bound", phase="Pending", ready_for=None)),
        (pod("pending", phase="Pending", ready_for=None), pod("running", ready_for=None)),
        (pod("unready", ready_for=None), pod("ready")),
        (pod("cheap", cost="-5"), pod("usual")),
        (pod("ready-for-a-minute", ready_for=60), pod("ready-for-an-hour", ready_for=3600)),
        (pod("restarts", ready_for=600, restarts=3), pod("calm", ready_for=600)),
        (pod("young", age=60, ready_for=None), pod("old", age=6000, ready_for=None)),
    ],
    ids=lambda pod: pod.name,
)
def test_the_pod_that_serves_least_goes_first(goes: Pod, stays: Pod) -> None:
    for order in ([goes, stays], [stays, goes]):
        assert pods_to_delete(order, order, 1, NOW) == [goes]


def test_of_two_alike_the_one_on_the_fuller_node_goes() -> None:
    alone, one, other = pod("alone", node="n2"), pod("one", node="n1"), pod("other", node="n1")
    assert alone not in pods_to_delete([alone, one, other], [alone, one, other], 2, NOW)


def test_the_order_does_not_depend_on_the_order_of_the_pods() -> None:
    pods = [pod(f"p{number}", ready_for=100 + number, restarts=number % 3) for number in range(20)]
    wanted = pods_to_delete(pods, [], 20, NOW)
    for seed in range(10):
        shuffled = list(pods)
        Random(seed).shuffle(shuffled)
        assert pods_to_delete(shuffled, [], 20, NOW) == wanted
