"""The annotation with passed states that are not in the history yet."""

from datetime import timedelta

import pytest

from haulout.api.objects import Node, ObjectMeta
from haulout.controllers.profiles.machine import transitions
from haulout.controllers.profiles.machine.transitions import UnrecordedState
from haulout_sandbox.event_loops.virtual_time import EPOCH


def a_node(text: str | None) -> Node:
    return Node(metadata=ObjectMeta(annotations={} if text is None else {transitions.PASSED_ANNOTATION: text}))


def test_unrecorded_states_round_trip() -> None:
    states = {
        "os": (UnrecordedState(to="maintenance-required", at=EPOCH), UnrecordedState(to="in-maintenance", at=EPOCH))
    }
    assert transitions.read_unrecorded(a_node(transitions.encode_unrecorded(states))) == states


def test_empty_states_yield_no_annotation() -> None:
    assert transitions.encode_unrecorded({}) is None
    assert transitions.encode_unrecorded({"os": []}) is None
    assert transitions.read_unrecorded(a_node(None)) == {}


def test_number_of_unrecorded_states_is_limited() -> None:
    many = [UnrecordedState(to="operational", at=EPOCH + timedelta(seconds=item)) for item in range(500)]
    assert transitions.read_unrecorded(a_node(transitions.encode_unrecorded({"os": many})))["os"] == tuple(many[-20:])


@pytest.mark.parametrize("text", ["", "{", "[]", '{"os": 1}', '{"os": [{"to": 1}]}', "null", '{"os": [{"at": "x"}]}'])
def test_invalid_annotation_is_ignored(text: str) -> None:
    assert transitions.read_unrecorded(a_node(text)) == {}
