"""What a disruption budget's status promises: evictions never take more than it allows."""

from datetime import timedelta
from typing import Any

import pytest

from haulout.core.clock import Clock
from haulout.errors import TooManyRequests
from haulout_sandbox.controllers.deployment.controller import DeploymentController
from haulout_sandbox.controllers.disruption import DisruptionController
from haulout_sandbox.controllers.objects import DEPLOYMENTS, POD_DISRUPTION_BUDGETS, PODS, STATEFUL_SETS
from haulout_sandbox.controllers.replicaset import ReplicaSetController
from haulout_sandbox.controllers.statefulset import StatefulSetController
from support.builders.objects import SHOP, a_pdb, a_pod, a_workload
from support.clusters.controller_cluster import ControllerCluster
from support.expectations.objects import condition_status, count_ready_pods


@pytest.fixture
def world(clock: Clock) -> ControllerCluster:
    return ControllerCluster(
        clock, kinds=(DeploymentController, ReplicaSetController, StatefulSetController, DisruptionController)
    )


async def create(world: ControllerCluster, *, replicas: int = 10, **budget: Any) -> None:
    await world.client.create(DEPLOYMENTS, a_workload("Deployment", replicas=replicas), namespace=SHOP)
    await world.client.create(POD_DISRUPTION_BUDGETS, a_pdb(**budget), namespace=SHOP)


def counts(world: ControllerCluster, name: str = "cart") -> tuple[int, int, int, int]:
    """Return what is allowed, healthy, desired and expected."""
    status = world.status("poddisruptionbudgets", name)
    return (
        status["disruptionsAllowed"],
        status["currentHealthy"],
        status["desiredHealthy"],
        status["expectedPods"],
    )


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        ({"minAvailable": 7}, (3, 10, 7, 10)),
        ({"minAvailable": "75%"}, (2, 10, 8, 10)),
        ({"maxUnavailable": 3}, (3, 10, 7, 10)),
        ({"maxUnavailable": "25%"}, (3, 10, 7, 10)),
        ({"minAvailable": "100%"}, (0, 10, 10, 10)),
        ({"maxUnavailable": 0}, (0, 10, 10, 10)),
        ({"minAvailable": 20}, (0, 10, 20, 10)),
        ({"maxUnavailable": "100%"}, (10, 10, 0, 10)),
    ],
)
async def test_what_is_allowed_follows_from_what_is_healthy(
    world: ControllerCluster, budget: dict[str, Any], expected: tuple[int, int, int, int]
) -> None:
    async with world.running():
        await create(world, **budget)
        await world.settle()
    assert counts(world) == expected
    status = world.status("poddisruptionbudgets", "cart")
    assert status["observedGeneration"] == 1
    reason = "SufficientPods" if expected[0] else "InsufficientPods"
    assert condition_status(status, "DisruptionAllowed") == (str(expected[0] > 0), reason)


async def test_pods_that_are_not_ready_are_not_healthy(world: ControllerCluster) -> None:
    world.kubelets.ready = lambda pod: pod.spec.node_name != "n1"
    async with world.running():
        await create(world, replicas=9, maxUnavailable=4)
        await world.settle()
        assert counts(world) == (1, 6, 5, 9)
        world.kubelets.ready = lambda _: True
        world.kubelets.enqueue_all()
        await world.settle()
        assert counts(world) == (4, 9, 5, 9)


async def test_a_budget_whose_selector_changes_follows_the_pods_that_it_selects_now(world: ControllerCluster) -> None:
    async with world.running():
        await create(world, replicas=9, maxUnavailable=4)
        await world.patch(POD_DISRUPTION_BUDGETS, "cart", spec={"selector": {"matchLabels": {"app": "another"}}})
        await world.settle()
        assert counts(world) == (0, 0, 0, 0)
        await world.patch(POD_DISRUPTION_BUDGETS, "cart", spec={"selector": {"matchLabels": {"app": "cart"}}})
        await world.settle()
        world.kubelets.ready = lambda pod: pod.spec.node_name != "n1"
        world.kubelets.enqueue_all()
        await world.settle()
        assert counts(world) == (1, 6, 5, 9)


async def test_the_size_of_the_owner_is_what_a_percentage_is_of(world: ControllerCluster) -> None:
    """A deployment of ten with five pods up must not be taken for one of five."""
    async with world.running():
        await create(world, minAvailable="50%")
        await world.settle()
        world.kubelets.nodes = []
        for pod in world.pods()[:5]:
            await world.delete(PODS, pod["metadata"]["name"])
        await world.settle()
        assert counts(world) == (0, 5, 5, 10)
        await world.patch(DEPLOYMENTS, "cart", spec={"replicas": 6})
        await world.settle()
        assert counts(world)[2:] == (3, 6)


async def test_evictions_never_take_more_than_is_allowed(world: ControllerCluster) -> None:
    async with world.running():
        await create(world, maxUnavailable=2)
        await world.settle()
        since = world.cluster.revision
        refused = 0
        for _ in range(60):
            for pod in world.pods():
                try:
                    await world.client.evict(pod["metadata"]["name"], namespace=SHOP)
                except TooManyRequests:
                    refused += 1
            await world.settle(0.5)
        await world.settle()
    assert refused > 0
    assert world.min_over_history(count_ready_pods, since=since) == 8
    assert len(world.created_pods()) > 30
    assert counts(world) == (2, 10, 8, 10)
    assert "disruptedPods" not in world.status("poddisruptionbudgets", "cart")


async def test_evictions_while_watches_are_late_do_not_take_more_either(world: ControllerCluster) -> None:
    async with world.running():
        await create(world, maxUnavailable=2)
        await world.settle()
        since = world.cluster.revision
        world.transport.faults.delay_event(timedelta(seconds=20), path="poddisruptionbudgets", times=3)
        world.transport.faults.delay_event(timedelta(seconds=20), path="pods", times=3)
        for _ in range(100):
            for pod in world.pods():
                try:
                    await world.client.evict(pod["metadata"]["name"], namespace=SHOP)
                except TooManyRequests:
                    break
            await world.settle(1)
        await world.settle(60)
    assert world.min_over_history(count_ready_pods, since=since) >= 8
    assert counts(world) == (2, 10, 8, 10)


async def test_a_status_that_rests_on_an_older_one_never_takes_an_eviction_back(world: ControllerCluster) -> None:
    async with world.running():
        await create(world, maxUnavailable=2)
        await world.settle()
        for path in ("poddisruptionbudgets", "api/v1/pods"):
            world.transport.faults.delay_event(timedelta(minutes=1), path=path)
        one, other, third, *_ = (pod["metadata"]["name"] for pod in world.pods())
        await world.client.evict(one, namespace=SHOP)
        await world.client.evict(other, namespace=SHOP)
        await world.patch(DEPLOYMENTS, "cart", spec={"replicas": 11})
        await world.settle(10)
        with pytest.raises(TooManyRequests):
            await world.client.evict(third, namespace=SHOP)


async def test_an_evicted_pod_that_stays_counts_as_deleted_for_two_minutes(world: ControllerCluster) -> None:
    async with world.running():
        await create(world, replicas=3, minAvailable=1)
        await world.settle()
        name = world.pods()[0]["metadata"]["name"]
        budget = world.get("poddisruptionbudgets", "cart")
        budget["status"] |= {"disruptedPods": {name: "2026-01-05T09:00:30Z"}, "disruptionsAllowed": 1}
        world.cluster.put(budget)
        await world.settle(60)
        assert counts(world) == (1, 2, 1, 3)
        await world.settle(61)
        assert counts(world) == (2, 3, 1, 3)
        assert "disruptedPods" not in world.status("poddisruptionbudgets", "cart")


async def test_stateful_sets_have_a_size_too(world: ControllerCluster) -> None:
    async with world.running():
        await world.client.create(STATEFUL_SETS, a_workload("StatefulSet", "db", replicas=3), namespace=SHOP)
        await world.client.create(POD_DISRUPTION_BUDGETS, a_pdb("db", app="db", maxUnavailable=1), namespace=SHOP)
        await world.settle()
    assert counts(world, "db") == (1, 3, 2, 3)


async def test_bare_pods_count_only_for_a_number(world: ControllerCluster) -> None:
    for name in ("a", "b"):
        pod = a_pod(name, labels={"app": "bare"})
        pod["metadata"]["namespace"] = SHOP
        pod["status"] = {"phase": "Pending"}
        world.cluster.put(pod)
    async with world.running():
        await world.client.create(POD_DISRUPTION_BUDGETS, a_pdb("number", app="bare", minAvailable=1), namespace=SHOP)
        await world.client.create(
            POD_DISRUPTION_BUDGETS, a_pdb("percent", app="bare", minAvailable="50%"), namespace=SHOP
        )
        await world.settle()
    assert counts(world, "number") == (1, 2, 1, 2)
    assert counts(world, "percent") == (0, 2, 0, 0)


async def test_an_owner_that_is_not_known_allows_nothing(world: ControllerCluster) -> None:
    pod = a_pod("a", labels={"app": "odd"})
    owner = {"apiVersion": "example.com/v1", "kind": "Odd", "name": "x", "uid": "u", "controller": True}
    pod["metadata"] |= {"namespace": SHOP, "ownerReferences": [owner]}
    pod["status"] = {"phase": "Pending"}
    world.cluster.put(pod)
    async with world.running():
        await world.client.create(POD_DISRUPTION_BUDGETS, a_pdb("odd", app="odd", maxUnavailable=1), namespace=SHOP)
        await world.settle()
    status = world.status("poddisruptionbudgets", "odd")
    assert status["disruptionsAllowed"] == 0
    assert condition_status(status, "DisruptionAllowed") == ("False", "SyncFailed")


async def test_a_budget_without_pods_allows_nothing(world: ControllerCluster) -> None:
    async with world.running():
        await world.client.create(POD_DISRUPTION_BUDGETS, a_pdb(minAvailable=0), namespace=SHOP)
        await world.settle()
    assert counts(world) == (0, 0, 0, 0)
