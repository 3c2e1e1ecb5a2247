"""What a kubelet wrote itself is no news to it, and all else is."""

import msgspec

from haulout.api.objects import RawObject
from haulout_sandbox.nodes import informers
from haulout_sandbox.nodes.informers import PodView
from haulout_sandbox.nodes.kubelet.own_writes import OwnWrites
from support.builders.objects import a_pod
from support.clusters.node_cluster import pod_view


def pod_at(revision: int, *, uid: str = "") -> PodView:
    """Return the pod as it is at a revision."""
    return msgspec.structs.replace(pod_view(a_pod("p"), uid=uid), resource_version=str(revision))


def test_every_event_needs_a_sync_without_own_writes() -> None:
    assert OwnWrites().must_sync(pod_at(1))


def test_nothing_is_news_while_a_write_is_under_way() -> None:
    own = OwnWrites()
    own.begin(pod_at(1).key)
    assert not own.must_sync(pod_at(2))
    own.end(pod_at(1).key)
    assert own.must_sync(pod_at(2))


def test_the_own_write_and_what_was_before_it_is_no_news_but_what_follows_is() -> None:
    own = OwnWrites()
    own.record(pod_at(1), 5, must_sync_again=False)
    assert not own.must_sync(pod_at(3))
    assert not own.must_sync(pod_at(5))
    assert own.must_sync(pod_at(6))


def test_a_newer_state_is_news_also_if_that_of_the_own_write_never_showed() -> None:
    own = OwnWrites()
    own.record(pod_at(1), 5, must_sync_again=False)
    assert own.must_sync(pod_at(6))


def test_an_own_write_needs_a_sync_if_more_is_to_do() -> None:
    own = OwnWrites()
    own.record(pod_at(1), 5, must_sync_again=True)
    assert own.must_sync(pod_at(5))


def test_a_stale_pass_is_repeated_when_the_cache_shows_the_own_write() -> None:
    own = OwnWrites()
    own.record(pod_at(1), 5, must_sync_again=False)
    assert own.has_unobserved_write(pod_at(1))
    assert own.must_sync(pod_at(5))
    assert not own.has_unobserved_write(pod_at(5))


def test_a_recreated_pod_of_the_same_name_needs_a_sync() -> None:
    own = OwnWrites()
    own.record(pod_at(1), 5, must_sync_again=False)
    assert not own.has_unobserved_write(pod_at(4, uid="another"))
    assert own.must_sync(pod_at(4, uid="another"))


def test_a_pod_that_is_gone_is_forgotten() -> None:
    own = OwnWrites()
    own.record(pod_at(1), 5, must_sync_again=False)
    own.forget(pod_at(1).key)
    assert own.must_sync(pod_at(1))


def test_a_view_derived_from_the_previous_one_equals_a_new_one() -> None:
    def read(raw: RawObject, *, known: PodView | None) -> PodView:
        pod = msgspec.json.decode(msgspec.json.encode(raw), type=informers._Pod)
        return informers.pod_view_transform(lambda _: known)(pod)

    raw = a_pod("p", owner="ReplicaSet/r", cpu="1")
    meta = raw["metadata"] | {"uid": "1", "resourceVersion": "1"}
    known = read(raw | {"metadata": meta}, known=None)
    changed_meta = {
        "uid": "2",
        "resourceVersion": "2",
        "generation": 7,
        "labels": {"a": "b"},
        "annotations": {f"{informers.ANNOTATION_PREFIX}hang": "true"},
        "ownerReferences": [],
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "deletionGracePeriodSeconds": 9,
    }
    status = {"phase": "Running", "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}
    for newer in (
        raw | {"metadata": meta | changed_meta},
        raw | {"metadata": meta, "status": status},
        raw | {"metadata": meta, "spec": raw["spec"] | {"nodeName": "n1"}},
    ):
        assert read(newer, known=known) == read(newer, known=None)
