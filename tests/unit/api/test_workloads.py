"""The record of workloads before a drain: its content, and the validation of what is read."""

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


def test_encoded_workload_record_decodes_to_the_same_value() -> None:
    record = workloads.record_workloads([ControlledPod("a", REPLICAS), ControlledPod("b", REPLICAS)], KNOWN.get)
    assert workloads.decode_annotation(a_node(workloads.encode_annotation(record))) == record
    assert [(it.reference, it.available, len(it.pods)) for it in record.workloads] == [(CART, 2, 2)]


def test_only_workloads_that_lost_a_pod_were_evicted() -> None:
    record = workloads.record_workloads([ControlledPod("a", REPLICAS), ControlledPod("b", REPLICAS)], KNOWN.get)
    assert list(workloads.evicted_workloads(record, present=["a", "b", "c"], find=KNOWN.get)) == []
    (lost,) = workloads.evicted_workloads(record, present=["b"], find=KNOWN.get)
    assert str(lost) == "Deployment shop/cart (2 of 2)"
    assert not lost.is_degraded


def test_deleted_workload_is_not_awaited() -> None:
    record = workloads.record_workloads([ControlledPod("a", REPLICAS)], KNOWN.get)
    assert list(workloads.evicted_workloads(record, present=[], find=lambda _: None)) == []


def test_pods_without_a_workload_are_not_recorded() -> None:
    pods = [ControlledPod("a", None), ControlledPod("b", WorkloadReference("Job", "shop/report"))]
    assert workloads.record_workloads(pods, KNOWN.get).workloads == ()


def test_missing_annotation_is_no_workload_record() -> None:
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
def test_malformed_workload_record_is_an_error_with_advice(text: str) -> None:
    with pytest.raises(
        InvalidWorkloadRecord,
        match=f"{WORKLOADS_ANNOTATION} is invalid .* remove it to continue without waiting for them",
    ):
        workloads.decode_annotation(a_node(text))


def test_workload_record_is_bounded_and_counts_omitted_workloads() -> None:
    names = [WorkloadReference("StatefulSet", f"shop/{number:04}-{'x' * 240}") for number in range(400)]
    known = {it: a_workload(it.key.partition("/")[2], available=1) for it in names}
    text = workloads.encode_annotation(
        workloads.record_workloads([ControlledPod(str(it), it) for it in names], known.get)
    )
    assert MAX_BYTES - 1000 < len(text) <= MAX_BYTES
    with pytest.raises(InvalidWorkloadRecord, match=r"it omits \d+ workloads that did not fit"):
        workloads.decode_annotation(a_node(text))


def test_replica_set_with_an_unknown_deployment_is_recorded_itself() -> None:
    stray = a_workload("cart-1", available=1)
    record = workloads.record_workloads([ControlledPod("a", REPLICAS)], {REPLICAS: stray}.get)
    assert [it.reference for it in record.workloads] == [REPLICAS]
