"""What is counted about profiles."""

import math
from typing import Any

import pytest

from haulout.kube.objects import RawObject
from haulout.profiles.tallies import Moved, OwnerUnknown, Tallies, moved


def owned(kind: str, name: str) -> RawObject:
    return {"metadata": {"name": "p", "namespace": "shop", "ownerReferences": [{"kind": kind, "name": name}]}}


def an_owner(name: str, *, owners: tuple[tuple[str, str], ...] = (), **parts: Any) -> RawObject:
    references = [{"kind": kind, "name": owner} for kind, owner in owners]
    return {"metadata": {"name": name, "namespace": "shop", "ownerReferences": references}, **parts}


OWNERS = {
    ("DaemonSet", "log"): an_owner("log", status={"numberReady": 4}),
    ("DaemonSet", "new"): an_owner("new"),
    ("StatefulSet", "db"): an_owner("db", spec={"replicas": 5}),
    ("ReplicaSet", "alone"): an_owner("alone", spec={}),
    ("ReplicaSet", "web-1"): an_owner("web-1", owners=(("Deployment", "web"),), spec={"replicas": 9}),
    ("Deployment", "web"): an_owner("web", spec={"replicas": 2}),
    ("ReplicaSet", "roll-1"): an_owner("roll-1", owners=(("Rollout", "roll"),)),
}


def find(namespace: str, kind: str, name: str) -> RawObject | None:
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
    ],
)
def test_a_pod_counts_for_its_owner_by_how_many_that_has(kind: str, name: str, expected: Moved) -> None:
    assert moved([owned(kind, name)], find) == (expected,)


def test_pods_of_others_and_of_nobody_do_not_count() -> None:
    assert moved([owned("Job", "backup"), {"metadata": {"name": "bare"}}], find) == ()


@pytest.mark.parametrize(("kind", "name"), [("ReplicaSet", "roll-1"), ("StatefulSet", "gone")])
def test_nothing_counts_if_one_owner_cannot_be_told(kind: str, name: str) -> None:
    with pytest.raises(OwnerUnknown, match=name):
        moved([owned("StatefulSet", "db"), owned(kind, name)], find)


def test_shuffles_add_up_by_owner_and_profile() -> None:
    tallies = Tallies()
    pods = [owned("ReplicaSet", "web-1"), owned("ReplicaSet", "web-1"), owned("StatefulSet", "db")]
    tallies.touch(moved(pods, find), profile="os")
    assert tallies.shuffles.values == {("deployment_web", "os"): 0, ("stateful_set_db", "os"): 0}
    tallies.record_shuffle(moved(pods, find), profile="os")
    assert tallies.shuffles.values == {("deployment_web", "os"): 2, ("stateful_set_db", "os"): 1}
    assert tallies.shuffles_per_replica.values == {("deployment_web", "os"): 1, ("stateful_set_db", "os"): 0.2}
