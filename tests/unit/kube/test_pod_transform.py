"""The fields that a pod summary keeps of a pod."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from haulout.api.objects import Pod
from haulout.kube import responses, transforms
from haulout.kube.transforms import Owner, PodSummary, summarize_pods

Json = Mapping[str, Any]


def a_summary(*, metadata: Json | None = None, spec: Json | None = None, status: Json | None = None) -> PodSummary:
    """Return the summary of a pod as decoded from a response."""
    named = {"name": "cart-0", "namespace": "shop", **(metadata or {})}
    body = json.dumps({"metadata": named, "spec": spec or {}, "status": status or {}}).encode()
    return summarize_pods()(responses.decode(Pod, body, doing="test"))


def test_pod_summary_has_the_controller_as_owner_and_no_other_owner() -> None:
    node = {"kind": "Node", "name": "n1", "uid": "u1"}
    controller = {"kind": "ReplicaSet", "name": "cart", "uid": "u2", "controller": True}
    assert a_summary(metadata={"ownerReferences": [node, controller]}).owner == Owner("ReplicaSet", "cart", "u2")
    assert a_summary(metadata={"ownerReferences": [node]}).owner is None


@pytest.mark.parametrize(("status", "ready"), [("True", True), ("False", False), ("Unknown", False)])
def test_pod_summary_is_ready_when_the_ready_condition_is_true(status: str, ready: bool) -> None:  # noqa: FBT001 - a parameter
    conditions = [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": status}]
    assert a_summary(status={"conditions": conditions}).is_ready is ready


def test_pod_summary_keeps_mirror_annotation_local_storage_grace_period_and_priority() -> None:
    row = a_summary(
        metadata={
            "annotations": {"kubernetes.io/config.mirror": "x"},
            "deletionTimestamp": "2026-01-05T09:00:00Z",
        },
        spec={"volumes": [{"name": "data", "emptyDir": {}}], "terminationGracePeriodSeconds": 7, "priority": 5},
        status={"phase": "Running"},
    )
    assert (row.is_mirror_pod, row.has_local_storage, row.grace_seconds, row.priority, row.phase) == (
        True,
        True,
        7,
        5,
        "Running",
    )
    assert (row.deleted_at, row.name) == (datetime(2026, 1, 5, 9, tzinfo=UTC), "cart-0")


def test_pod_summary_of_a_plain_pod_has_no_local_storage_and_the_default_grace_period() -> None:
    row = a_summary(spec={"volumes": [{"name": "config", "configMap": {"name": "c"}}]})
    assert (row.is_mirror_pod, row.has_local_storage, row.deleted_at, row.grace_seconds) == (False, False, None, 30)


def test_interner_keeps_a_bounded_number_of_strings() -> None:
    shared = transforms.Interner(limit=3)
    for number in range(100):
        shared(str(number))
    assert len(shared._known) <= 3
