"""The annotation with passed states that are not in the history yet."""

from datetime import timedelta

import pytest

from haulout.api.objects import Node, ObjectMeta
from haulout.controllers.profiles.machine import transitions
from haulout.controllers.profiles.machine.transitions import PassedState
from haulout_sandbox.event_loops.virtual_time import EPOCH


def a_node(text: str | None) -> Node:
    return Node(metadata=ObjectMeta(annotations={} if text is None else {transitions.PASSED_ANNOTATION: text}))


def test_passed_states_round_trip() -> None:
    states = {"os": (PassedState(to="maintenance-required", at=EPOCH), PassedState(to="in-maintenance", at=EPOCH))}
    assert transitions.read_passed(a_node(transitions.encode_passed(states))) == states


def test_empty_states_yield_no_annotation() -> None:
    assert transitions.encode_passed({}) is None
    assert transitions.encode_passed({"os": []}) is None
    assert transitions.read_passed(a_node(None)) == {}


def test_number_of_passed_states_is_limited() -> None:
    many = [PassedState(to="operational", at=EPOCH + timedelta(seconds=item)) for item in range(500)]
    assert transitions.read_passed(a_node(transitions.encode_passed({"os": many})))["os"] == tuple(many[-20:])


@pytest.mark.parametrize("text", ["", "{", "[]", '{"os": 1}', '{"os": [{"to": 1}]}', "null", '{"os": [{"at": "x"}]}'])
def test_invalid_annotation_is_ignored(text: str) -> None:
    assert transitions.read_passed(a_node(text)) == {}
