"""What a row keeps of a pod."""

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
    """Return the row of a pod, as it comes from a server."""
    named = {"name": "cart-0", "namespace": "shop", **(metadata or {})}
    body = json.dumps({"metadata": named, "spec": spec or {}, "status": status or {}}).encode()
    return summarize_pods()(responses.decode(Pod, body, doing="test"))


def test_a_row_belongs_to_its_controller_and_to_no_other_owner() -> None:
    node = {"kind": "Node", "name": "n1", "uid": "u1"}
    controller = {"kind": "ReplicaSet", "name": "cart", "uid": "u2", "controller": True}
    assert a_summary(metadata={"ownerReferences": [node, controller]}).owner == Owner("ReplicaSet", "cart", "u2")
    assert a_summary(metadata={"ownerReferences": [node]}).owner is None


@pytest.mark.parametrize(("status", "ready"), [("True", True), ("False", False), ("Unknown", False)])
def test_a_row_is_ready_when_its_pod_says_so(status: str, ready: bool) -> None:  # noqa: FBT001 - a parameter
    conditions = [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": status}]
    assert a_summary(status={"conditions": conditions}).is_ready is ready


def test_a_row_knows_what_makes_a_pod_hard_to_move() -> None:
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


def test_a_plain_pod_is_easy_to_move() -> None:
    row = a_summary(spec={"volumes": [{"name": "config", "configMap": {"name": "c"}}]})
    assert (row.is_mirror_pod, row.has_local_storage, row.deleted_at, row.grace_seconds) == (False, False, None, 30)


def test_what_rows_share_is_bounded() -> None:
    shared = transforms.Interner(limit=3)
    for number in range(100):
        shared(str(number))
    assert len(shared._known) <= 3
