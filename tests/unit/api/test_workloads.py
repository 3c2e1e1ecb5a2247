"""What is kept of workloads before a drain, and how little of what is read is trusted."""

from typing import Any

import msgspec
import pytest

from haulout.api import workloads
from haulout.api.objects import Node, ObjectMeta
from haulout.api.workloads import (
    MAX_BYTES,
    WORKLOADS_ANNOTATION,
    ControlledPod,
    InvalidWorkloadRecord,
    ScaledWorkload,
    WorkloadReference,
)

CART = WorkloadReference("Deployment", "shop/cart")
REPLICAS = WorkloadReference("ReplicaSet", "shop/cart-1")


def a_workload(name: str, *, available: int, replicas: int = 3, owner: str = "") -> ScaledWorkload:
    above = [{"kind": "Deployment", "name": owner, "controller": True}] if owner else []
    raw: dict[str, Any] = {
        "metadata": {"name": name, "namespace": "shop", "ownerReferences": above},
        "spec": {"replicas": replicas},
        "status": {"availableReplicas": available},
    }
    return msgspec.convert(raw, ScaledWorkload)


def a_node(text: str | None) -> Node:
    return Node(metadata=ObjectMeta(name="n1", annotations={} if text is None else {WORKLOADS_ANNOTATION: text}))


KNOWN = {CART: a_workload("cart", available=2), REPLICAS: a_workload("cart-1", available=2, owner="cart")}


def test_a_record_that_was_written_is_read_by_a_successor() -> None:
    record = workloads.record_workloads([ControlledPod("a", REPLICAS), ControlledPod("b", REPLICAS)], KNOWN.get)
    assert workloads.decode_annotation(a_node(workloads.encode_annotation(record))) == record
    assert [(it.reference, it.available, len(it.pods)) for it in record.workloads] == [(CART, 2, 2)]


def test_only_workloads_that_lost_a_pod_were_evicted() -> None:
    record = workloads.record_workloads([ControlledPod("a", REPLICAS), ControlledPod("b", REPLICAS)], KNOWN.get)
    assert list(workloads.evicted_workloads(record, present=["a", "b", "c"], find=KNOWN.get)) == []
    (lost,) = workloads.evicted_workloads(record, present=["b"], find=KNOWN.get)
    assert str(lost) == "Deployment shop/cart (2 of 2)"
    assert not lost.is_degraded


def test_a_workload_that_is_gone_is_not_waited_for() -> None:
    record = workloads.record_workloads([ControlledPod("a", REPLICAS)], KNOWN.get)
    assert list(workloads.evicted_workloads(record, present=[], find=lambda _: None)) == []


def test_pods_without_a_workload_are_not_recorded() -> None:
    lonely = [ControlledPod("a", None), ControlledPod("b", WorkloadReference("Job", "shop/report"))]
    assert workloads.record_workloads(lonely, KNOWN.get).workloads == ()


def test_nothing_recorded_is_no_record() -> None:
    assert workloads.decode_annotation(a_node(None)) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"workloads": "all"}',
        '{"workloads": [{"kind": "Deployment"}]}',
        '{"workloads": [{"kind": "Node", "namespace": "", "name": "n1", "available": 1, "pods": []}]}',
        '{"workloads": [], "omitted": 3}',
        f'{{"workloads": [], "more": "{"x" * MAX_BYTES}"}}',
    ],
)
def test_a_record_that_cannot_be_used_is_unknown_and_says_what_to_do(text: str) -> None:
    with pytest.raises(
        InvalidWorkloadRecord,
        match=f"{WORKLOADS_ANNOTATION} is invalid .* remove it to continue without waiting for them",
    ):
        workloads.decode_annotation(a_node(text))


def test_a_record_never_grows_beyond_what_is_read_and_says_what_it_leaves_out() -> None:
    names = [WorkloadReference("StatefulSet", f"shop/{number:04}-{'x' * 240}") for number in range(400)]
    known = {it: a_workload(it.key.partition("/")[2], available=1) for it in names}
    text = workloads.encode_annotation(
        workloads.record_workloads([ControlledPod(str(it), it) for it in names], known.get)
    )
    assert MAX_BYTES - 1000 < len(text) <= MAX_BYTES
    with pytest.raises(InvalidWorkloadRecord, match=r"it omits \d+ workloads that did not fit"):
        workloads.decode_annotation(a_node(text))


def test_a_replica_set_whose_deployment_is_unknown_stands_for_itself() -> None:
    stray = a_workload("cart-1", available=1)
    record = workloads.record_workloads([ControlledPod("a", REPLICAS)], {REPLICAS: stray}.get)
    assert [it.reference for it in record.workloads] == [REPLICAS]
