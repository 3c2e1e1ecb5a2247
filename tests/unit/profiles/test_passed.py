"""States that were passed and are not written down yet, as a node carries them."""

from datetime import timedelta

import pytest

from haulout.kube.objects import Metadata, Node
from haulout.profiles import passed
from haulout.profiles.passed import Passed
from haulout_sandbox.event_loops.virtual import EPOCH


def a_node(text: str | None) -> Node:
    return Node(metadata=Metadata(annotations={} if text is None else {passed.ANNOTATION: text}))


def test_what_was_written_is_read() -> None:
    states = {"os": (Passed(to="maintenance-required", at=EPOCH), Passed(to="in-maintenance", at=EPOCH))}
    assert passed.read(a_node(passed.write(states))) == states


def test_nothing_to_carry_is_no_annotation() -> None:
    assert passed.write({}) is None
    assert passed.write({"os": []}) is None
    assert passed.read(a_node(None)) == {}


def test_it_does_not_grow_without_end() -> None:
    many = [Passed(to="operational", at=EPOCH + timedelta(seconds=it)) for it in range(500)]
    assert passed.read(a_node(passed.write({"os": many})))["os"] == tuple(many[-20:])


@pytest.mark.parametrize("text", ["", "{", "[]", '{"os": 1}', '{"os": [{"to": 1}]}', "null", '{"os": [{"at": "x"}]}'])
def test_what_somebody_else_wrote_there_counts_for_nothing(text: str) -> None:
    assert passed.read(a_node(text)) == {}
