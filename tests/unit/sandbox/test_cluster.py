"""The whole cluster in one piece: its components work together, and each can be paused."""

from datetime import timedelta

import pytest

from haulout.core.clock import Clock
from haulout_sandbox.cluster import Cluster
from haulout_sandbox.event_loops.virtual_time import VirtualClock, run_virtual
from haulout_sandbox.nodes import Machine
from support.builders.objects import SHOP, a_workload

TWO_MINUTES = timedelta(minutes=2)


def a_cluster(clock: Clock, *, nodes: int = 3) -> Cluster:
    cluster = Cluster(clock, seed=3)
    for number in range(nodes):
        cluster.kubelets.add(Machine(name=f"n{number}", zone=f"z{number % 3}"))
    return cluster


def phases(cluster: Cluster) -> list[str]:
    return [pod["status"]["phase"] for pod in cluster.api.objects("pods", namespace=SHOP)]


async def test_a_deployment_comes_to_life(clock: Clock) -> None:
    cluster = a_cluster(clock)
    async with cluster.running():
        cluster.api.put(a_workload("Deployment", "shop/cart", replicas=4))
        await clock.sleep(TWO_MINUTES)
        assert phases(cluster) == ["Running"] * 4
        assert {pod["spec"]["nodeName"] for pod in cluster.api.objects("pods")} == {"n0", "n1", "n2"}
        assert cluster.api.get("deployments", "cart", SHOP)["status"]["availableReplicas"] == 4


async def test_what_is_paused_does_nothing_and_catches_up_when_it_is_resumed(clock: Clock) -> None:
    cluster = a_cluster(clock)
    async with cluster.running():
        cluster.pause("scheduler")
        cluster.api.put(a_workload("Deployment", "shop/cart", replicas=4))
        await clock.sleep(TWO_MINUTES)
        assert phases(cluster) == ["Pending"] * 4
        cluster.resume("scheduler")
        await clock.sleep(TWO_MINUTES)
        assert phases(cluster) == ["Running"] * 4


async def test_each_component_survives_a_pause_of_no_length(clock: Clock) -> None:
    cluster = a_cluster(clock)
    async with cluster.running():
        cluster.pause(*cluster.components)
        cluster.resume(*cluster.components)
        cluster.api.put(a_workload("StatefulSet", "shop/cart", replicas=2))
        await clock.sleep(TWO_MINUTES)
        assert phases(cluster) == ["Running"] * 2


async def test_a_component_that_does_not_exist_is_named_together_with_those_that_do(clock: Clock) -> None:
    with pytest.raises(KeyError, match=r"no component schedulr; there are kubelets, scheduler"):
        Cluster(clock).pause("schedulr")


def test_the_same_seed_gives_the_same_history() -> None:
    async def story() -> list[tuple[object, ...]]:
        clock = VirtualClock()
        cluster = a_cluster(clock)
        async with cluster.running():
            cluster.api.put(a_workload("Deployment", "shop/cart", replicas=3))
            await clock.sleep(TWO_MINUTES)
        return [
            (write.written_at, write.username, write.verb, write.path, write.after) for write in cluster.api.history
        ]

    first, second = run_virtual(story()), run_virtual(story())
    assert len(first) > 30
    assert first == second


async def test_components_record_events(clock: Clock) -> None:
    cluster = a_cluster(clock)
    async with cluster.running():
        cluster.api.put(a_workload("Deployment", "shop/cart", replicas=1))
        await clock.sleep(TWO_MINUTES)
    reported = {(event["reportingComponent"], event["reason"]) for event in cluster.api.objects("events")}
    assert reported >= {
        ("deployment-controller", "ScalingReplicaSet"),
        ("replicaset-controller", "SuccessfulCreate"),
        ("default-scheduler", "Scheduled"),
        ("kubelet", "Started"),
        ("node-controller", "RegisteredNode"),
    }
