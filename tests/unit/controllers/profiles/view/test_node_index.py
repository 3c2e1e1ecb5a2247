"""The node index: the newest of watch events and write responses."""

import json
from typing import Any

import msgspec
import pytest

from haulout.api.objects import Condition, Node, NodeSpec, NodeStatus
from haulout.controllers.profiles.machine import data_annotation, transitions
from haulout.controllers.profiles.machine.transitions import PendingTransition
from haulout.controllers.profiles.plugin import DATA_ANNOTATION, PROFILE_LABEL, STATE_LABEL, State
from haulout.controllers.profiles.view import topics
from haulout.controllers.profiles.view.node_index import NodeIndex
from haulout.controllers.profiles.view.topics import TopicSubscriptions
from support.builders.objects import a_node
from support.fakes.cluster_view import NOW

OPERATIONAL, REQUIRED, MAINTAINED = State
ON_ITS_WAY = {
    transitions.PENDING_ANNOTATION: transitions.encode_pending(
        {"os": PendingTransition(next=MAINTAINED, check="c", since=NOW)}
    )
    or ""
}


class RecordedChanges(list[tuple[str, frozenset[str], bool]]):
    """Records the published changes."""

    def record(self, node: str, about: frozenset[str], by_us: bool) -> None:  # noqa: FBT001 - a callback
        """Record a change."""
        self.append((node, about, by_us))

    @property
    def topics(self) -> frozenset[str]:
        """The topics of the last change."""
        return self[-1][1]


def node_index() -> tuple[NodeIndex, RecordedChanges]:
    changes = RecordedChanges()
    return NodeIndex(data_annotation.statuses_of, on_change=changes.record), changes


def node(version: int, *, uid: str = "u1", annotations: dict[str, str] | None = None, **labels: str) -> Node:
    made = a_node("n1", labels=labels)
    made = made.annotated(annotations or {})
    made["metadata"] = {**made["metadata"], "uid": uid, "resourceVersion": str(version)}
    return msgspec.convert(made, Node)


def in_state(state: State, version: int = 1, **labels: str) -> Node:
    return node(version, annotations={}, **{STATE_LABEL: str(state)}, **labels)


def test_newer_of_two_node_versions_counts_whatever_its_source() -> None:
    cluster, changes = node_index()
    cluster.on_watch_event(None, node(1))
    cluster.record_write(node(3, a="new"))
    cluster.on_watch_event(node(1), node(2, a="old"))
    cluster.on_watch_event(node(2), node(3, a="new"))
    found = cluster.get("n1")
    assert found is not None
    assert found.node.metadata.labels == {"a": "new"}
    assert [(event[0], event[2]) for event in changes] == [("n1", False), ("n1", True)]


def test_late_write_response_does_not_restore_a_deleted_node() -> None:
    cluster, _ = node_index()
    cluster.on_watch_event(None, in_state(MAINTAINED))
    cluster.on_watch_event(in_state(MAINTAINED), None)
    cluster.record_write(in_state(MAINTAINED, 2))
    assert (list(cluster.all()), list(cluster.in_state(MAINTAINED))) == ([], [])


def test_deletion_of_a_node_does_not_remove_a_recreated_one() -> None:
    cluster, changes = node_index()
    cluster.on_watch_event(None, node(1))
    cluster.on_watch_event(None, node(5, uid="u2"))
    assert topics.NODE_COUNT in changes.topics
    cluster.on_watch_event(node(1), None)
    assert [observed.node.uid for observed in cluster.all()] == ["u2"]


def test_node_with_a_pending_transition_counts_as_in_maintenance() -> None:
    cluster, _ = node_index()
    cluster.on_watch_event(None, node(1, annotations=ON_ITS_WAY))
    assert [item.node.name for item in cluster.in_state(MAINTAINED)] == ["n1"]
    cluster.record_write(node(2))
    assert list(cluster.in_state(MAINTAINED)) == []


@pytest.mark.parametrize(
    ("before", "after", "is_published"),
    [
        (in_state(MAINTAINED), in_state(OPERATIONAL, 2), True),
        (in_state(MAINTAINED), in_state(MAINTAINED, 2, zone="b"), True),
        (in_state(MAINTAINED), None, True),
        (in_state(MAINTAINED), in_state(MAINTAINED, 2), False),
        (node(1, annotations=ON_ITS_WAY), node(2), True),
        (node(1, annotations=ON_ITS_WAY), in_state(MAINTAINED, 2), True),
        (in_state(REQUIRED), in_state(OPERATIONAL, 2), False),
    ],
)
def test_slot_topic_is_published_when_a_counted_node_may_count_no_longer(
    before: Node, after: Node | None, *, is_published: bool
) -> None:
    cluster, changes = node_index()
    cluster.on_watch_event(None, before)
    cluster.on_watch_event(before, after)
    assert (topics.MAINTENANCE_ROOM in changes.topics) == is_published


def test_label_topics_are_those_of_the_changed_labels() -> None:
    cluster, changes = node_index()
    cluster.on_watch_event(None, node(1, a="1", b="1"))
    cluster.on_watch_event(None, node(2, a="2", b="1", c="1"))
    assert changes.topics == {topics.label("a"), topics.label("c")}
    cluster.on_watch_event(None, node(3, a="2", b="1"))
    assert changes.topics == {topics.label("c")}
    cluster.on_watch_event(None, node(4, annotations={"whatever": "it says"}, a="2", b="1"))
    assert changes.topics == frozenset()


def test_unchanged_node_is_stored_without_a_topic() -> None:
    cluster, changes = node_index()
    cluster.on_watch_event(None, node(1, a="1"))
    cluster.on_watch_event(None, node(2, a="1"))
    assert len(changes) == 1
    found = cluster.get("n1")
    assert found is not None
    assert found.node.resource_version == "2"


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"status": NodeStatus(conditions=(Condition(type="Ready", status="False"),))}, id="not ready"),
        pytest.param({"spec": NodeSpec(unschedulable=True)}, id="cordoned"),
    ],
)
def test_change_of_any_read_field_is_published(changed: dict[str, Any]) -> None:
    cluster, changes = node_index()
    cluster.on_watch_event(None, node(1))
    cluster.on_watch_event(None, msgspec.structs.replace(node(2), **changed))
    assert len(changes) == 2


@pytest.mark.parametrize(
    ("before", "after", "is_published"),
    [
        (None, "True", True),
        ("False", "True", True),
        ("True", "Unknown", True),
        (None, "False", False),
        ("False", "Unknown", False),
    ],
)
def test_capacity_topic_is_published_when_readiness_changes(
    before: str | None, after: str, *, is_published: bool
) -> None:
    def being(version: int, ready: str | None) -> Node:
        conditions = () if ready is None else (Condition(type="Ready", status=ready),)
        return msgspec.structs.replace(node(version), status=NodeStatus(conditions=conditions))

    cluster, changes = node_index()
    cluster.on_watch_event(None, being(1, before))
    cluster.on_watch_event(None, being(2, after))
    assert (topics.CAPACITY in changes.topics) == is_published


def test_data_change_publishes_the_states_topic() -> None:
    cluster, changes = node_index()
    cluster.on_watch_event(None, node(1))
    entry = {"Transition": "2024-05-01T10:00:00Z", "Current": REQUIRED, "Previous": REQUIRED}
    text = json.dumps({"Profiles": {"os": entry}})
    cluster.on_watch_event(None, node(2, annotations={DATA_ANNOTATION: text}))
    assert changes.topics == {topics.STATES}
    cluster.on_watch_event(None, node(3, annotations={DATA_ANNOTATION: text}, **{PROFILE_LABEL: "os"}))
    assert changes.topics == {topics.STATES, topics.label(PROFILE_LABEL)}


def test_unreadable_data_is_reported_with_the_node() -> None:
    cluster, _ = node_index()
    cluster.on_watch_event(None, node(1, annotations={DATA_ANNOTATION: "{"}))
    found = cluster.get("n1")
    assert found is not None
    assert (found.statuses, found.problem[:13]) == ({}, "expected JSON")
    cluster.on_watch_event(None, node(2, annotations={DATA_ANNOTATION: "{}"}))
    found = cluster.get("n1")
    assert found is not None
    assert found.problem == ""


def test_label_index_follows_changes() -> None:
    cluster, _ = node_index()
    cluster.on_watch_event(None, node(1, a="1"))
    assert len(cluster.with_label("a")) == 1
    cluster.on_watch_event(None, node(2))
    assert len(cluster.with_label("a")) == 0
    cluster.on_watch_event(None, node(3, a="2"))
    assert [item.node.resource_version for item in cluster.with_label("a")] == ["3"]
    cluster.on_watch_event(node(3, a="2"), None)
    assert len(cluster.with_label("a")) == 0


# Topic subscriptions


def test_subscribers_of_a_topic_are_returned_once() -> None:
    waiting = TopicSubscriptions()
    waiting.set("n1", frozenset({"a", "b"}))
    waiting.set("n2", frozenset({"b"}))
    waiting.set("n3", frozenset({"c"}))
    assert waiting.subscribers({"a", "b"}) == ["n1", "n2"]
    waiting.set("n1", frozenset({"c"}))
    assert (waiting.subscribers({"a"}), waiting.subscribers({"c"})) == ([], ["n3", "n1"])
    waiting.forget("n1")
    waiting.forget("n1")
    assert waiting.subscribers({"a", "b", "c"}) == ["n2", "n3"]


def test_watch_event_of_an_own_write_replaces_it_without_a_topic() -> None:
    """Both are the same version; the watch's object is shared with its cache and needs no extra memory."""
    cluster, changes = node_index()
    cluster.on_watch_event(None, node(1, zone="a"))
    assert len(cluster.with_label("zone")) == 1
    cluster.record_write(node(2, zone="a"))
    watched = node(2, zone="a")
    before = len(changes)
    cluster.on_watch_event(None, watched)
    assert len(changes) == before
    for found in (cluster.get("n1"), *cluster.all(), *cluster.with_label("zone")):
        assert found is not None
        assert found.node is watched
