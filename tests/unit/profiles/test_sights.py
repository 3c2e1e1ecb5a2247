"""What profiles see of nodes: the newest of what a watch told and what our own writes were answered with."""

import json
from typing import Any

import msgspec
import pytest

from haulout.kube.objects import Condition, Node, NodeSpec, NodeStatus
from haulout.profiles import begun, data, topics
from haulout.profiles.begun import Begun
from haulout.profiles.plugin import DATA_ANNOTATION, PROFILE_LABEL, STATE_LABEL, State
from haulout.profiles.sights import NodeSights
from haulout.profiles.waiting import Waiting
from support.builders import a_node
from support.scenes import NOW

OPERATIONAL, REQUIRED, MAINTAINED = State
ON_ITS_WAY = {begun.ANNOTATION: begun.write({"os": Begun(next=MAINTAINED, check="c", since=NOW)}) or ""}


class Told(list[tuple[str, frozenset[str], bool]]):
    """All that was told of changes."""

    def hear(self, node: str, about: frozenset[str], by_us: bool) -> None:  # noqa: FBT001 - a callback
        """Hear of a change."""
        self.append((node, about, by_us))

    @property
    def topics(self) -> frozenset[str]:
        """The topics of the last change."""
        return self[-1][1]


def seeing() -> tuple[NodeSights, Told]:
    told = Told()
    return NodeSights(data.entries_of, changed=told.hear), told


def node(version: int, *, uid: str = "u1", annotations: dict[str, str] | None = None, **labels: str) -> Node:
    made = a_node("n1", labels=labels)
    made = made.annotated(annotations or {})
    made["metadata"] = {**made["metadata"], "uid": uid, "resourceVersion": str(version)}
    return msgspec.convert(made, Node)


def in_state(state: State, version: int = 1, **labels: str) -> Node:
    return node(version, annotations={}, **{STATE_LABEL: str(state)}, **labels)


def test_the_newer_of_two_states_counts_whoever_told_it() -> None:
    sights, told = seeing()
    sights.follow(None, node(1))
    sights.note(node(3, a="new"))
    sights.follow(node(1), node(2, a="old"))
    sights.follow(node(2), node(3, a="new"))
    found = sights.get("n1")
    assert found is not None
    assert found.node.metadata.labels == {"a": "new"}
    assert [(it[0], it[2]) for it in told] == [("n1", False), ("n1", True)]


def test_an_answer_that_comes_late_does_not_bring_a_node_back() -> None:
    sights, _ = seeing()
    sights.follow(None, in_state(MAINTAINED))
    sights.follow(in_state(MAINTAINED), None)
    sights.note(in_state(MAINTAINED, 2))
    assert (list(sights.all()), list(sights.in_state(MAINTAINED))) == ([], [])


def test_the_end_of_a_node_is_not_that_of_the_next_one_of_its_name() -> None:
    sights, told = seeing()
    sights.follow(None, node(1))
    sights.follow(None, node(5, uid="u2"))
    assert topics.NODE_COUNT in told.topics
    sights.follow(node(1), None)
    assert [it.node.uid for it in sights.all()] == ["u2"]


def test_who_is_on_the_way_into_maintenance_is_counted_there() -> None:
    sights, _ = seeing()
    sights.follow(None, node(1, annotations=ON_ITS_WAY))
    assert [it.node.name for it in sights.in_state(MAINTAINED)] == ["n1"]
    sights.note(node(2))
    assert list(sights.in_state(MAINTAINED)) == []


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
    sights, told = seeing()
    sights.follow(None, before)
    sights.follow(before, after)
    assert (topics.ROOM in told.topics) == tells


def test_a_change_is_told_by_the_labels_that_changed() -> None:
    sights, told = seeing()
    sights.follow(None, node(1, a="1", b="1"))
    sights.follow(None, node(2, a="2", b="1", c="1"))
    assert told.topics == {topics.label("a"), topics.label("c")}
    sights.follow(None, node(3, a="2", b="1"))
    assert told.topics == {topics.label("c")}
    sights.follow(None, node(4, annotations={"whatever": "it says"}, a="2", b="1"))
    assert told.topics == frozenset()


def test_a_state_that_differs_in_nothing_is_taken_and_not_told() -> None:
    sights, told = seeing()
    sights.follow(None, node(1, a="1"))
    sights.follow(None, node(2, a="1"))
    assert len(told) == 1
    found = sights.get("n1")
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
    sights, told = seeing()
    sights.follow(None, node(1))
    sights.follow(None, msgspec.structs.replace(node(2), **changed))
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

    sights, told = seeing()
    sights.follow(None, being(1, before))
    sights.follow(None, being(2, after))
    assert (topics.CAPACITY in told.topics) == tells


def test_a_change_of_the_data_is_one_of_states() -> None:
    sights, told = seeing()
    sights.follow(None, node(1))
    entry = {"Transition": "2024-05-01T10:00:00Z", "Current": REQUIRED, "Previous": REQUIRED}
    text = json.dumps({"Profiles": {"os": entry}})
    sights.follow(None, node(2, annotations={DATA_ANNOTATION: text}))
    assert told.topics == {topics.STATES}
    sights.follow(None, node(3, annotations={DATA_ANNOTATION: text}, **{PROFILE_LABEL: "os"}))
    assert told.topics == {topics.STATES, topics.label(PROFILE_LABEL)}


def test_data_that_cannot_be_read_is_told_with_the_node() -> None:
    sights, _ = seeing()
    sights.follow(None, node(1, annotations={DATA_ANNOTATION: "{"}))
    found = sights.get("n1")
    assert found is not None
    assert (found.entries, found.problem[:13]) == ({}, "expected JSON")
    sights.follow(None, node(2, annotations={DATA_ANNOTATION: "{}"}))
    found = sights.get("n1")
    assert found is not None
    assert found.problem == ""


def test_nodes_with_a_label_are_found_also_after_they_changed() -> None:
    sights, _ = seeing()
    sights.follow(None, node(1, a="1"))
    assert len(sights.with_label("a")) == 1
    sights.follow(None, node(2))
    assert len(sights.with_label("a")) == 0
    sights.follow(None, node(3, a="2"))
    assert [it.node.resource_version for it in sights.with_label("a")] == ["3"]
    sights.follow(node(3, a="2"), None)
    assert len(sights.with_label("a")) == 0


# Who waits for what


def test_those_who_named_a_topic_are_woken_once_and_nobody_else() -> None:
    waiting = Waiting()
    waiting.set("n1", frozenset({"a", "b"}))
    waiting.set("n2", frozenset({"b"}))
    waiting.set("n3", frozenset({"c"}))
    assert waiting.for_any({"a", "b"}) == ["n1", "n2"]
    waiting.set("n1", frozenset({"c"}))
    assert (waiting.for_any({"a"}), waiting.for_any({"c"})) == ([], ["n3", "n1"])
    waiting.forget("n1")
    waiting.forget("n1")
    assert waiting.for_any({"a", "b", "c"}) == ["n2", "n3"]


def test_what_the_watch_tells_of_our_own_write_takes_its_place_and_wakes_nobody() -> None:
    """Both are the same state; the watch's is kept by its cache as well, so that it costs nothing."""
    sights, told = seeing()
    sights.follow(None, node(1, zone="a"))
    assert len(sights.with_label("zone")) == 1
    sights.note(node(2, zone="a"))
    watched = node(2, zone="a")
    before = len(told)
    sights.follow(None, watched)
    assert len(told) == before
    for found in (sights.get("n1"), *sights.all(), *sights.with_label("zone")):
        assert found is not None
        assert found.node is watched
