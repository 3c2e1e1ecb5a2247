"""The check capacity: whether the pods of a node fit on other nodes."""

from typing import Any

import pytest

from haulout.api.objects import MIRROR_ANNOTATION, RawObject
from haulout.controllers.profiles.plugin import CheckResult
from haulout.controllers.profiles.plugins.checks.capacity import Capacity
from haulout.controllers.profiles.view import topics
from support.builders.objects import NodeObject, PodObject, a_node, a_pod
from support.fakes.cluster_view import FakeClusterView, in_maintenance


def node(name: str, cpu: str = "2", pods: int = 10) -> NodeObject:
    return (
        a_node(name)
        .ready()
        .with_status(
            conditions=[{"type": "Ready", "status": "True"}],
            allocatable={"cpu": cpu, "memory": "4Gi", "pods": str(pods)},
        )
    )


def cart(number: int, *, on: str = "n1", cpu: str = "1", **more: Any) -> PodObject:
    return a_pod(f"shop/cart-{number}", on=on, cpu=cpu, owner="ReplicaSet/cart", **more)


def evaluate(*nodes: RawObject, pods: list[RawObject], **known: Any) -> CheckResult:
    return Capacity().evaluate(FakeClusterView(node("n1"), *nodes, pods=pods, **known).plugin_context())


def test_pods_that_fit_on_other_nodes_pass() -> None:
    result = evaluate(node("n2"), pods=[cart(0), cart(1)])
    assert result.passed
    assert result.reason == "2 pods would fit on 1 other node"
    assert result.info == {"pods": 2, "nodes": 1, "homeless": []}


def test_pods_that_do_not_fit_are_named() -> None:
    result = evaluate(node("n2"), pods=[cart(0), cart(1), cart(2, on="n2")])
    assert result.passed is False
    assert result.reason == (
        "1 of 2 pods do not fit on other nodes: shop/cart-1; shop/cart-1: too little cpu (1 of 1 nodes)"
    )
    assert result.info["homeless"] == ["shop/cart-1"]


def test_empty_node_passes_without_other_nodes() -> None:
    assert evaluate(pods=[]).passed


@pytest.mark.parametrize(
    "other",
    [
        node("n2").cordoned(),
        node("n2").ready("False"),
        in_maintenance(node("n2")),
        node("n2").tainted("gpu"),
        a_node("n2").with_status(allocatable={"cpu": "2", "pods": "9"}),
    ],
)
def test_unschedulable_nodes_offer_no_capacity(other: RawObject) -> None:
    assert evaluate(other, pods=[cart(0)]).passed is False


def test_node_with_a_slot_offers_no_capacity() -> None:
    assert evaluate(node("n2"), pods=[cart(0)], slots=["n2"]).passed is False


@pytest.mark.parametrize(
    "pod",
    [
        a_pod("bare", on="n1"),
        a_pod("agent", on="n1", owner="DaemonSet/agent"),
        a_pod("static", on="n1", owner="Node/n1").annotated({MIRROR_ANNOTATION: "x"}),
        cart(0).with_status(phase="Failed"),
        {**cart(0), "metadata": {**cart(0)["metadata"], "deletionTimestamp": "2024-05-01T10:00:00Z"}},
    ],
)
def test_pods_that_are_not_rescheduled_need_no_capacity(pod: RawObject) -> None:
    assert evaluate(pods=[pod]).info["pods"] == 0


def test_topics_cover_all_changes_that_affect_the_result() -> None:
    assert Capacity().topics("n1") == (topics.pods("n1"), topics.CAPACITY, topics.MAINTENANCE_ROOM)
