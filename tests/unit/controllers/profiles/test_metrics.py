"""Metrics of profiles."""

import math
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from haulout.api.objects import Object
from haulout.controllers.profiles import metrics as module
from haulout.controllers.profiles.metrics import Owner, ProfileMetrics, RescheduledPod, rescheduled_pods
from haulout.core.metrics import OVERFLOW_LABEL
from haulout.errors import HauloutError
from haulout.kube.workqueue import CompletedRun

SECOND = timedelta(seconds=1)


def owned(kind: str, name: str) -> Object:
    reference = {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": f"uid-of-{name}"}
    return msgspec.convert(
        {"metadata": {"name": "p", "namespace": "shop", "ownerReferences": [reference]}}, Object, strict=False
    )


def an_owner(name: str, *, owners: tuple[tuple[str, str], ...] = (), **parts: Any) -> Owner:
    references = [{"kind": kind, "name": owner} for kind, owner in owners]
    raw = {"metadata": {"name": name, "namespace": "shop", "ownerReferences": references}, **parts}
    return msgspec.convert(raw, Owner, strict=False)


OWNERS = {
    ("DaemonSet", "log"): an_owner("log", status={"numberReady": 4}),
    ("DaemonSet", "new"): an_owner("new"),
    ("StatefulSet", "db"): an_owner("db", spec={"replicas": 5}),
    ("ReplicaSet", "alone"): an_owner("alone", spec={}),
    ("ReplicaSet", "web-1"): an_owner("web-1", owners=(("Deployment", "web"),), spec={"replicas": 9}),
    ("Deployment", "web"): an_owner("web", spec={"replicas": 2}),
    ("ReplicaSet", "roll-1"): an_owner("roll-1", owners=(("Rollout", "roll"),), spec={"replicas": 4}),
    ("ReplicaSet", "lost-1"): an_owner("lost-1", owners=(("Deployment", "lost"),)),
}


def find(namespace: str, kind: str, name: str) -> Owner | None:
    assert namespace == "shop"
    return OWNERS.get((kind, name))


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        ("DaemonSet", "log", RescheduledPod("daemon_set_log", 0.25)),
        ("DaemonSet", "new", RescheduledPod("daemon_set_new", math.inf)),
        ("StatefulSet", "db", RescheduledPod("stateful_set_db", 0.2)),
        ("ReplicaSet", "alone", RescheduledPod("replica_set_alone", 1)),
        ("ReplicaSet", "web-1", RescheduledPod("deployment_web", 0.5)),
        ("ReplicaSet", "roll-1", RescheduledPod("replica_set_roll-1", 0.25)),
    ],
)
def test_rescheduled_pod_counts_for_its_owner_relative_to_its_replicas(
    kind: str, name: str, expected: RescheduledPod
) -> None:
    assert rescheduled_pods([owned(kind, name)], find) == (expected,)


def test_pods_without_a_known_controller_do_not_count() -> None:
    assert rescheduled_pods([owned("Job", "backup"), Object()], find) == ()


@pytest.mark.parametrize(("kind", "name"), [("ReplicaSet", "lost-1"), ("StatefulSet", "gone")])
def test_pod_with_an_unknown_owner_does_not_affect_others(kind: str, name: str) -> None:
    assert rescheduled_pods([owned("StatefulSet", "db"), owned(kind, name)], find) == (
        RescheduledPod("stateful_set_db", 0.2),
    )


def test_rescheduled_pods_are_summed_up_by_owner_and_profile() -> None:
    metrics = ProfileMetrics()
    pods = [owned("ReplicaSet", "web-1"), owned("ReplicaSet", "web-1"), owned("StatefulSet", "db")]
    metrics.initialize_rescheduled(
        [*rescheduled_pods(pods, find), RescheduledPod("daemon_set_new", math.inf)], profile="os"
    )
    assert set(metrics.rescheduled_per_replica.values.values()) == {0}
    assert metrics.rescheduled.values == {
        ("deployment_web", "os"): 0,
        ("stateful_set_db", "os"): 0,
        ("daemon_set_new", "os"): 0,
    }
    metrics.record_rescheduled(rescheduled_pods(pods, find), profile="os")
    assert metrics.rescheduled.values[("deployment_web", "os")] == 2
    assert metrics.rescheduled_per_replica.values[("deployment_web", "os")] == 1
    assert metrics.rescheduled_per_replica.values[("stateful_set_db", "os")] == 0.2


def test_number_of_metric_series_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_SERIES", 2)
    metrics = ProfileMetrics()
    for name in ("a", "b", "c", "d", "a"):
        metrics.record_rescheduled([RescheduledPod(name, 1)], profile="os")
    assert metrics.rescheduled.values == {("a", "os"): 2, ("b", "os"): 1, (OVERFLOW_LABEL, "os"): 2}


def test_reconciles_are_counted_with_queue_and_run_time() -> None:
    metrics = ProfileMetrics()
    metrics.initialize_series(["os"])
    assert metrics.failures.values == {("os",): 0}
    metrics.record_reconcile(CompletedRun("n1", lag=2 * SECOND, took=SECOND, attempt=1, error=None))
    metrics.record_reconcile(CompletedRun("n1", lag=SECOND, took=SECOND, attempt=1, error=HauloutError("no")))
    assert metrics.reconciles.values == {("node", "success"): 1, ("node", "error"): 1}
    assert metrics.reconcile_errors.values == {("node",): 1}
    assert (metrics.queue_seconds.values, metrics.reconcile_seconds.values) == ({(): 3}, {(): 2})
