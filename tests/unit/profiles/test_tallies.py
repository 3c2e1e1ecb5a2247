"""What is counted about profiles."""

import math
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from haulout.core.metering import OTHERS
from haulout.errors import HauloutError
from haulout.kube.objects import Object
from haulout.kube.queue import Run
from haulout.profiles import tallies as module
from haulout.profiles.tallies import Moved, Owner, Tallies, moved

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
        ("DaemonSet", "log", Moved("daemon_set_log", 0.25)),
        ("DaemonSet", "new", Moved("daemon_set_new", math.inf)),
        ("StatefulSet", "db", Moved("stateful_set_db", 0.2)),
        ("ReplicaSet", "alone", Moved("replica_set_alone", 1)),
        ("ReplicaSet", "web-1", Moved("deployment_web", 0.5)),
        ("ReplicaSet", "roll-1", Moved("replica_set_roll-1", 0.25)),
    ],
)
def test_a_pod_counts_for_its_owner_by_how_many_that_has(kind: str, name: str, expected: Moved) -> None:
    assert moved([owned(kind, name)], find) == (expected,)


def test_pods_of_others_and_of_nobody_do_not_count() -> None:
    assert moved([owned("Job", "backup"), Object()], find) == ()


@pytest.mark.parametrize(("kind", "name"), [("ReplicaSet", "lost-1"), ("StatefulSet", "gone")])
def test_a_pod_whose_owner_cannot_be_told_takes_no_other_along(kind: str, name: str) -> None:
    assert moved([owned("StatefulSet", "db"), owned(kind, name)], find) == (Moved("stateful_set_db", 0.2),)


def test_shuffles_add_up_by_owner_and_profile() -> None:
    tallies = Tallies()
    pods = [owned("ReplicaSet", "web-1"), owned("ReplicaSet", "web-1"), owned("StatefulSet", "db")]
    tallies.touch([*moved(pods, find), Moved("daemon_set_new", math.inf)], profile="os")
    assert set(tallies.shuffles_per_replica.values.values()) == {0}
    assert tallies.shuffles.values == {
        ("deployment_web", "os"): 0,
        ("stateful_set_db", "os"): 0,
        ("daemon_set_new", "os"): 0,
    }
    tallies.record_shuffle(moved(pods, find), profile="os")
    assert tallies.shuffles.values[("deployment_web", "os")] == 2
    assert tallies.shuffles_per_replica.values[("deployment_web", "os")] == 1
    assert tallies.shuffles_per_replica.values[("stateful_set_db", "os")] == 0.2


def test_there_is_an_end_to_new_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_SERIES", 2)
    tallies = Tallies()
    for name in ("a", "b", "c", "d", "a"):
        tallies.record_shuffle([Moved(name, 1)], profile="os")
    assert tallies.shuffles.values == {("a", "os"): 2, ("b", "os"): 1, (OTHERS, "os"): 2}


def test_looks_are_counted_with_how_long_they_waited_and_took() -> None:
    tallies = Tallies()
    tallies.know(["os"])
    assert tallies.failures.values == {("os",): 0}
    tallies.count_look(Run("n1", lag=2 * SECOND, took=SECOND, attempt=1, error=None))
    tallies.count_look(Run("n1", lag=SECOND, took=SECOND, attempt=1, error=HauloutError("no")))
    assert tallies.looks.values == {("node", "success"): 1, ("node", "error"): 1}
    assert tallies.failed_looks.values == {("node",): 1}
    assert (tallies.waited.values, tallies.worked.values) == ({(): 3}, {(): 2})
