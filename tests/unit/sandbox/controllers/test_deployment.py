"""What a deployment promises: updates within its limits, a story that kubectl understands, and history."""

from datetime import timedelta
from typing import Any

import pytest

from haulout.api.objects import RawObject
from haulout.core.clock import Clock
from haulout_sandbox.controllers.deployment.controller import (
    POD_TEMPLATE_HASH_LABEL,
    REVISION_ANNOTATION,
    DeploymentController,
)
from haulout_sandbox.controllers.deployment.rollouts import (
    next_rolling_update,
    replica_annotations,
    scaled_replicas,
    surge_and_unavailable,
)
from haulout_sandbox.controllers.objects import (
    DEPLOYMENTS,
    REPLICA_SETS,
    Deployment,
    DeploymentSpec,
    DeploymentStrategy,
    ObjectMeta,
    ReplicaSet,
    ReplicaSetSpec,
    RollingUpdateDeployment,
)
from haulout_sandbox.controllers.replicaset import ReplicaSetController
from support.builders.objects import SHOP, a_template, a_workload
from support.clusters.controller_cluster import ControllerCluster
from support.expectations.objects import condition_status, count_ready_pods, count_staying_pods


@pytest.fixture
def world(clock: Clock) -> ControllerCluster:
    return ControllerCluster(clock, kinds=(DeploymentController, ReplicaSetController))


async def create(world: ControllerCluster, **spec: Any) -> None:
    await world.client.create(DEPLOYMENTS, a_workload("Deployment", **spec), namespace=SHOP)


async def update(world: ControllerCluster, image: str) -> None:
    await world.patch(DEPLOYMENTS, "cart", spec={"template": a_template({"app": "cart"}, image=image)})


def replica_sets_by_size(world: ControllerCluster) -> dict[str, int]:
    sets = world.cluster.objects("replicasets", namespace=SHOP)
    return {item["metadata"]["annotations"][REVISION_ANNOTATION]: item["spec"]["replicas"] for item in sets}


def images(world: ControllerCluster) -> set[str]:
    return {pod["spec"]["containers"][0]["image"] for pod in world.pods()}


async def test_a_deployment_becomes_a_replica_set_named_by_the_hash_of_its_template(world: ControllerCluster) -> None:
    async with world.running():
        await create(world, replicas=3)
        await world.settle()
    (replica_set,) = world.cluster.objects("replicasets", namespace=SHOP)
    hashed = replica_set["metadata"]["labels"][POD_TEMPLATE_HASH_LABEL]
    assert replica_set["metadata"]["name"] == f"cart-{hashed}"
    assert replica_set["spec"]["selector"]["matchLabels"] == {"app": "cart", POD_TEMPLATE_HASH_LABEL: hashed}
    assert [pod["metadata"]["labels"] for pod in world.pods()] == [{"app": "cart", POD_TEMPLATE_HASH_LABEL: hashed}] * 3
    assert world.get("deployments", "cart")["metadata"]["annotations"] == {REVISION_ANNOTATION: "1"}
    status = world.status("deployments", "cart")
    assert {name: value for name, value in status.items() if name != "conditions"} == {
        "observedGeneration": 1,
        "replicas": 3,
        "updatedReplicas": 3,
        "readyReplicas": 3,
        "availableReplicas": 3,
        "terminatingReplicas": 0,
    }
    assert condition_status(status, "Available") == ("True", "MinimumReplicasAvailable")
    assert condition_status(status, "Progressing") == ("True", "NewReplicaSetAvailable")


@pytest.mark.parametrize(
    ("surge", "unavailable", "most", "least"),
    [("25%", "25%", 5, 3), (1, 0, 5, 4), (0, 1, 4, 3), ("100%", "50%", 6, 2), ("30%", 0, 6, 4)],
)
async def test_an_update_stays_within_its_limits(
    world: ControllerCluster, surge: int | str, unavailable: int | str, most: int, least: int
) -> None:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}
    async with world.running():
        await create(world, replicas=4, strategy=strategy)
        await world.settle()
        since = world.cluster.revision
        await update(world, "example/main:2")
        await world.settle(120)
    assert images(world) == {"example/main:2"}
    assert replica_sets_by_size(world) == {"1": 0, "2": 4}
    assert world.max_over_history(count_staying_pods) == most
    assert world.min_over_history(count_ready_pods, since=since) == least
    assert condition_status(world.status("deployments", "cart"), "Progressing") == ("True", "NewReplicaSetAvailable")


async def test_pods_that_never_become_ready_hold_up_an_update(world: ControllerCluster) -> None:
    async with world.running():
        await create(world, replicas=4)
        await world.settle()
        world.kubelets.ready = lambda pod: pod.labels[POD_TEMPLATE_HASH_LABEL] in old
        old = {pod["metadata"]["labels"][POD_TEMPLATE_HASH_LABEL] for pod in world.pods()}
        await update(world, "example/broken:2")
        await world.settle(300)
        assert replica_sets_by_size(world) == {"1": 3, "2": 2}
        assert condition_status(world.status("deployments", "cart"), "Progressing") == ("True", "ReplicaSetUpdated")
        await world.settle(400)
        status = world.status("deployments", "cart")
        assert condition_status(status, "Progressing") == ("False", "ProgressDeadlineExceeded")
        assert condition_status(status, "Available") == ("True", "MinimumReplicasAvailable")
        assert count_ready_pods(world.pods()) == 3
        await update(world, "example/main:1")
        await world.settle()
    assert replica_sets_by_size(world) == {"2": 0, "3": 4}
    assert condition_status(world.status("deployments", "cart"), "Progressing") == ("True", "NewReplicaSetAvailable")


async def test_going_back_uses_the_old_replica_set_under_a_new_revision(world: ControllerCluster) -> None:
    async with world.running():
        await create(world, replicas=1)
        await world.settle()
        await update(world, "example/main:2")
        await world.settle()
        await update(world, "example/main:1")
        await world.settle()
    assert replica_sets_by_size(world) == {"2": 0, "3": 1}
    assert world.get("deployments", "cart")["metadata"]["annotations"][REVISION_ANNOTATION] == "3"


async def test_recreating_never_runs_old_and_new_pods_at_once(world: ControllerCluster) -> None:
    world.kubelets.stop = timedelta(seconds=20)
    async with world.running():
        await create(world, replicas=3, strategy={"type": "Recreate"})
        await world.settle()
        await update(world, "example/main:2")
        await world.settle(120)

    def kinds(pods: Any) -> int:
        return len({pod["spec"]["containers"][0]["image"] for pod in pods})

    assert images(world) == {"example/main:2"}
    assert world.max_over_history(kinds) == 1
    assert replica_sets_by_size(world) == {"1": 0, "2": 3}


async def test_a_restart_replaces_all_pods(world: ControllerCluster) -> None:
    async with world.running():
        await create(world, replicas=3)
        await world.settle()
        old_pods = {pod["metadata"]["uid"] for pod in world.pods()}
        stamp = {"kubectl.kubernetes.io/restartedAt": "2026-01-05T09:00:00Z"}
        await world.patch(DEPLOYMENTS, "cart", spec={"template": {"metadata": {"annotations": stamp}}})
        await world.settle(60)
    assert len(world.pods()) == 3
    assert old_pods.isdisjoint(pod["metadata"]["uid"] for pod in world.pods())


async def test_a_paused_deployment_is_scaled_but_not_updated(world: ControllerCluster) -> None:
    async with world.running():
        await create(world, replicas=2)
        await world.settle()
        await world.patch(DEPLOYMENTS, "cart", spec={"paused": True})
        await update(world, "example/main:2")
        await world.patch(DEPLOYMENTS, "cart", spec={"replicas": 5})
        await world.settle()
        assert images(world) == {"example/main:1"}
        assert len(world.pods()) == 5
        assert condition_status(world.status("deployments", "cart"), "Progressing") == ("Unknown", "DeploymentPaused")
        await world.patch(DEPLOYMENTS, "cart", spec={"paused": None})
        await world.settle(120)
    assert images(world) == {"example/main:2"}
    assert condition_status(world.status("deployments", "cart"), "Progressing") == ("True", "NewReplicaSetAvailable")


async def test_scaling_in_the_middle_of_an_update_is_spread_over_both_sets(world: ControllerCluster) -> None:
    async with world.running():
        await create(world, replicas=10)
        await world.settle()
        old = {pod["metadata"]["labels"][POD_TEMPLATE_HASH_LABEL] for pod in world.pods()}
        world.kubelets.ready = lambda pod: pod.labels[POD_TEMPLATE_HASH_LABEL] in old
        await update(world, "example/main:2")
        await world.settle()
        assert replica_sets_by_size(world) == {"1": 8, "2": 5}
        await world.patch(DEPLOYMENTS, "cart", spec={"replicas": 20})
        await world.settle()
        assert replica_sets_by_size(world) == {"1": 15, "2": 10}


async def test_only_as_much_history_is_kept_as_asked_for(world: ControllerCluster) -> None:
    async with world.running():
        await create(world, replicas=1, revisionHistoryLimit=2)
        for number in range(2, 7):
            await world.settle()
            await update(world, f"example/main:{number}")
        await world.settle(60)
    assert replica_sets_by_size(world) == {"4": 0, "5": 0, "6": 1}


async def test_a_name_that_is_taken_by_a_stranger_is_avoided(world: ControllerCluster) -> None:
    async with world.running():
        await create(world, replicas=1)
        await world.settle()
        (name,) = world.object_names("replicasets")
        await world.delete(DEPLOYMENTS, "cart")
        await world.delete(REPLICA_SETS, name)
        stranger = a_workload("ReplicaSet", name, replicas=0, template=a_template({"app": name}, image="other"))
        world.cluster.put(stranger.in_namespace(SHOP))
        await create(world, replicas=1)
        await world.settle()
    assert len(world.object_names("replicasets")) == 2
    assert world.status("deployments", "cart")["collisionCount"] == 1
    assert world.status("deployments", "cart")["availableReplicas"] == 1


async def test_a_drained_pod_comes_back_elsewhere_without_a_rollout(world: ControllerCluster) -> None:
    async with world.running():
        await create(world, replicas=3)
        await world.settle()
        await world.client.evict(world.pods()[0]["metadata"]["name"], namespace=SHOP)
        await world.settle()
    assert len(world.pods()) == 3
    assert replica_sets_by_size(world) == {"1": 3}


@pytest.mark.parametrize("seed", range(4))
async def test_crashes_conflicts_and_broken_watches_in_the_middle_of_an_update_change_nothing_in_the_end(
    clock: Clock, seed: int
) -> None:
    world = ControllerCluster(clock, kinds=(DeploymentController, ReplicaSetController), seed=seed)
    async with world.running():
        await create(world, replicas=4)
        await world.settle()
        since = world.cluster.revision
        await update(world, "example/main:2")
        for step in range(10):
            world.transport.faults.fail_before_effect(response=409, method="PATCH", skip=step % 3)
            world.transport.faults.fail_after_effect(response=500, method="POST", skip=step % 2)
            world.transport.faults.break_stream(path=("pods", "replicasets")[step % 2])
            await world.settle(0.3 + seed / 10)
            await world.crash()
        await world.settle(120)
    assert images(world) == {"example/main:2"}
    assert replica_sets_by_size(world) == {"1": 0, "2": 4}
    assert world.min_over_history(count_ready_pods, since=since) >= 3


async def test_the_same_seed_gives_the_same_names(clock: Clock) -> None:
    names = []
    for _ in range(2):
        world = ControllerCluster(clock, kinds=(DeploymentController, ReplicaSetController))
        async with world.running():
            await create(world, replicas=3)
            await world.settle()
        names.append(world.created_pods())
    assert names[0] == names[1]


# The arithmetic


def a_deployment(replicas: int, surge: int | str = "25%", unavailable: int | str = "25%") -> Deployment:
    strategy = DeploymentStrategy(rolling_update=RollingUpdateDeployment(max_surge=surge, max_unavailable=unavailable))
    return Deployment(metadata=ObjectMeta(name="cart"), spec=DeploymentSpec(replicas=replicas, strategy=strategy))


def a_replica_set(name: str, replicas: int, available: int, *, of: Deployment) -> ReplicaSet:
    status: RawObject = {"availableReplicas": available}
    metadata = ObjectMeta(name=name, annotations=replica_annotations(of))
    return ReplicaSet(metadata=metadata, spec=ReplicaSetSpec(replicas=replicas), status=status)


@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "expected"),
    [
        (10, "25%", "25%", (3, 2)),
        (1, "25%", "25%", (1, 0)),
        (3, 0, "25%", (0, 1)),
        (2, 0, 5, (0, 2)),
        (0, "25%", "25%", (0, 0)),
        (10, 3, "0%", (3, 0)),
    ],
)
def test_a_surge_is_rounded_up_and_unavailability_down_but_not_both_to_nothing(
    replicas: int, surge: int | str, unavailable: int | str, expected: tuple[int, int]
) -> None:
    assert surge_and_unavailable(a_deployment(replicas, surge, unavailable)) == expected


def test_the_example_in_the_sources_of_kubernetes() -> None:
    """`reconcileOldReplicaSets`: 10 replicas, 2 may be unavailable, 3 too many; the new pods crash."""
    deployment = a_deployment(10, 3, 2)
    old, new = a_replica_set("old", 10, 10, of=deployment), a_replica_set("new", 3, 0, of=deployment)
    assert next_rolling_update(deployment, new, [old]) == {"old": 8}
    old = a_replica_set("old", 8, 8, of=deployment)
    assert next_rolling_update(deployment, new, [old]) == {"new": 5}
    new = a_replica_set("new", 5, 0, of=deployment)
    old = a_replica_set("old", 8, 7, of=deployment)
    assert next_rolling_update(deployment, new, [old]) == {}
    assert next_rolling_update(deployment, old, [new]) == {"new": 1}


def test_pods_that_do_not_work_are_taken_from_old_sets_first() -> None:
    deployment = a_deployment(4, 1, 1)
    broken, working = a_replica_set("broken", 2, 0, of=deployment), a_replica_set("working", 3, 3, of=deployment)
    new = a_replica_set("new", 0, 0, of=deployment)
    assert next_rolling_update(deployment, new, [broken, working]) == {"broken": 0}


def test_scaling_down_takes_from_the_larger_set_in_proportion() -> None:
    annotations = a_deployment(10, 0, 0)
    old, new = a_replica_set("old", 6, 6, of=annotations), a_replica_set("new", 4, 2, of=annotations)
    assert scaled_replicas(a_deployment(5, 0, 0), new, [old]) == {"old": 3, "new": 2}
