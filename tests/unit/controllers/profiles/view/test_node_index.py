"""What profiles see of nodes: the newest of what a watch told and what our own writes were answered with."""

import json
from typing import Any

import msgspec
import pytest

from haulout.api.objects import Condition, Node, NodeSpec, NodeStatus
from haulout.controllers.profiles.controller import TopicSubscriptions
from haulout.controllers.profiles.machine import data_annotation, transitions
from haulout.controllers.profiles.machine.transitions import PendingTransition
from haulout.controllers.profiles.plugin import DATA_ANNOTATION, PROFILE_LABEL, STATE_LABEL, State
from haulout.controllers.profiles.view import topics
from haulout.controllers.profiles.view.node_index import NodeIndex
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
    """All that was told of changes."""

    def record(self, node: str, about: frozenset[str], by_us: bool) -> None:  # noqa: FBT001 - a callback
        """Hear of a change."""
        self.append((node, about, by_us))

    @property
    def topics(self) -> frozenset[str]:
        """The topics of the last change."""
        return self[-1][1]


def node_index() -> tuple[NodeIndex, RecordedChanges]:
    told = RecordedChanges()
    return NodeIndex(data_annotation.statuses_of, on_change=told.record), told


def node(version: int, *, uid: str = "u1", annotations: dict[str, str] | None = None, **labels: str) -> Node:
    made = a_node("n1", labels=labels)
    made = made.annotated(annotations or {})
    made["metadata"] = {**made["metadata"], "uid": uid, "resourceVersion": str(version)}
    return msgspec.convert(made, Node)


def in_state(state: State, version: int = 1, **labels: str) -> Node:
    return node(version, annotations={}, **{STATE_LABEL: str(state)}, **labels)


def test_the_newer_of_two_states_counts_whoever_told_it() -> None:
    cluster, told = node_index()
    cluster.on_watch_event(None, node(1))
    cluster.record_write(node(3, a="new"))
    cluster.on_watch_event(node(1), node(2, a="old"))
    cluster.on_watch_event(node(2), node(3, a="new"))
    found = cluster.get("n1")
    assert found is not None
    assert found.node.metadata.labels == {"a": "new"}
    assert [(event[0], event[2]) for event in told] == [("n1", False), ("n1", True)]


def test_an_answer_that_comes_late_does_not_bring_a_node_back() -> None:
    cluster, _ = node_index()
    cluster.on_watch_event(None, in_state(MAINTAINED))
    cluster.on_watch_event(in_state(MAINTAINED), None)
    cluster.record_write(in_state(MAINTAINED, 2))
    assert (list(cluster.all()), list(cluster.in_state(MAINTAINED))) == ([], [])


def test_the_end_of_a_node_is_not_that_of_the_next_one_of_its_name() -> None:
    cluster, told = node_index()
    cluster.on_watch_event(None, node(1))
    cluster.on_watch_event(None, node(5, uid="u2"))
    assert topics.NODE_COUNT in told.topics
    cluster.on_watch_event(node(1), None)
    assert [sight.node.uid for sight in cluster.all()] == ["u2"]


def test_who_is_on_the_way_into_maintenance_is_counted_there() -> None:
    cluster, _ = node_index()
    cluster.on_watch_event(None, node(1, annotations=ON_ITS_WAY))
    assert [item.node.name for item in cluster.in_state(MAINTAINED)] == ["n1"]
    cluster.record_write(node(2))
    assert list(cluster.in_state(MAINTAINED)) == []


@pytest.mark.parametrize(
    ("before", "after", "tells"),
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
def test_there_is_room_when_one_that_counts_may_count_no_more(before: Node, after: Node | None, *, tells: bool) -> None:
    cluster, told = node_index()
    cluster.on_watch_event(None, before)
    cluster.on_watch_event(before, after)
    assert (topics.MAINTENANCE_ROOM in told.topics) == tells


def test_a_change_is_told_by_the_labels_that_changed() -> None:
    cluster, told = node_index()
    cluster.on_watch_event(None, node(1, a="1", b="1"))
    cluster.on_watch_event(None, node(2, a="2", b="1", c="1"))
    assert told.topics == {topics.label("a"), topics.label("c")}
    cluster.on_watch_event(None, node(3, a="2", b="1"))
    assert told.topics == {topics.label("c")}
    cluster.on_watch_event(None, node(4, annotations={"whatever": "it says"}, a="2", b="1"))
    assert told.topics == frozenset()


def test_a_state_that_differs_in_nothing_is_taken_and_not_told() -> None:
    cluster, told = node_index()
    cluster.on_watch_event(None, node(1, a="1"))
    cluster.on_watch_event(None, node(2, a="1"))
    assert len(told) == 1
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
def test_a_change_of_anything_that_is_read_is_told(changed: dict[str, Any]) -> None:
    cluster, told = node_index()
    cluster.on_watch_event(None, node(1))
    cluster.on_watch_event(None, msgspec.structs.replace(node(2), **changed))
    assert len(told) == 2


@pytest.mark.parametrize(
    ("before", "after", "tells"),
    [
        (None, "True", True),
        ("False", "True", True),
        ("True", "Unknown", True),
        (None, "False", False),
        ("False", "Unknown", False),
    ],
)
def test_capacity_changes_when_a_node_becomes_ready_or_is_no_longer(
    before: str | None, after: str, *, tells: bool
) -> None:
    def being(version: int, ready: str | None) -> Node:
        conditions = () if ready is None else (Condition(type="Ready", status=ready),)
        return msgspec.structs.replace(node(version), status=NodeStatus(conditions=conditions))

    cluster, told = node_index()
    cluster.on_watch_event(None, being(1, before))
    cluster.on_watch_event(None, being(2, after))
    assert (topics.CAPACITY in told.topics) == tells


def test_a_change_of_the_data_is_one_of_states() -> None:
    cluster, told = node_index()
    cluster.on_watch_event(None, node(1))
    entry = {"Transition": "2024-05-01T10:00:00Z", "Current": REQUIRED, "Previous": REQUIRED}
    text = json.dumps({"Profiles": {"os": entry}})
    cluster.on_watch_event(None, node(2, annotations={DATA_ANNOTATION: text}))
    assert told.topics == {topics.STATES}
    cluster.on_watch_event(None, node(3, annotations={DATA_ANNOTATION: text}, **{PROFILE_LABEL: "os"}))
    assert told.topics == {topics.STATES, topics.label(PROFILE_LABEL)}


def test_data_that_cannot_be_read_is_told_with_the_node() -> None:
    cluster, _ = node_index()
    cluster.on_watch_event(None, node(1, annotations={DATA_ANNOTATION: "{"}))
    found = cluster.get("n1")
    assert found is not None
    assert (found.statuses, found.problem[:13]) == ({}, "expected JSON")
    cluster.on_watch_event(None, node(2, annotations={DATA_ANNOTATION: "{}"}))
    found = cluster.get("n1")
    assert found is not None
    assert found.problem == ""


def test_nodes_with_a_label_are_found_also_after_they_changed() -> None:
    cluster, _ = node_index()
    cluster.on_watch_event(None, node(1, a="1"))
    assert len(cluster.with_label("a")) == 1
    cluster.on_watch_event(None, node(2))
    assert len(cluster.with_label("a")) == 0
    cluster.on_watch_event(None, node(3, a="2"))
    assert [item.node.resource_version for item in cluster.with_label("a")] == ["3"]
    cluster.on_watch_event(node(3, a="2"), None)
    assert len(cluster.with_label("a")) == 0


# Who waits for what


def test_those_who_named_a_topic_are_woken_once_and_nobody_else() -> None:
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


def test_what_the_watch_tells_of_our_own_write_takes_its_place_and_wakes_nobody() -> None:
    """Both are the same state; the watch's is kept by its cache as well, so that it costs nothing."""
    cluster, told = node_index()
    cluster.on_watch_event(None, node(1, zone="a"))
    assert len(cluster.with_label("zone")) == 1
    cluster.record_write(node(2, zone="a"))
    watched = node(2, zone="a")
    before = len(told)
    cluster.on_watch_event(None, watched)
    assert len(told) == before
    for found in (cluster.get("n1"), *cluster.all(), *cluster.with_label("zone")):
        assert found is not None
        assert found.node is watched
