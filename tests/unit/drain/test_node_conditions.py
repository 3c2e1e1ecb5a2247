"""Node conditions show the state of the maintenance; conditions of others are kept."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout.api.objects import Node, NodeConditionType, RawObject
from haulout.drain.node_conditions import LifecycleState, conditions_patch

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
LATER = NOW + timedelta(minutes=5)
TRUE_AT: dict[LifecycleState, set[str]] = {
    LifecycleState.PLANNED: {"MaintenancePlanned"},
    LifecycleState.DRAINING: {"DrainInProgress", "MaintenanceInProgress"},
    LifecycleState.DRAINED: {"Drained", "MaintenanceInProgress"},
    LifecycleState.STUCK: {"MaintenanceInProgress"},
    LifecycleState.OVER: set(),
}
STATES = st.sampled_from(list(LifecycleState))


def a_node(*conditions: RawObject) -> Node:
    metadata = {"name": "n1", "uid": "u1", "resourceVersion": "7"}
    return msgspec.convert({"metadata": metadata, "status": {"conditions": conditions}}, Node)


def apply_change(node: Node, change: RawObject | None) -> Node:
    """Merge conditions by their type, as the server does with such a patch."""
    if change is None:
        return node
    assert change["metadata"] == {"uid": "u1", "resourceVersion": "7"}
    assert set(change) == {"metadata", "status"}
    assert set(change["status"]) == {"conditions"}
    merged = {it.type: msgspec.to_builtins(it) for it in node.status.conditions}
    merged |= {it["type"]: it for it in change["status"]["conditions"]}
    return a_node(*merged.values())


def true_conditions(node: Node) -> set[str]:
    return {it.type for it in node.status.conditions if it.status == "True"}


@pytest.mark.parametrize("state", LifecycleState)
def test_each_lifecycle_state_has_its_conditions(state: LifecycleState) -> None:
    node = apply_change(a_node(), conditions_patch(a_node(), state, "NodeMaintenance patch", now=NOW))
    assert true_conditions(node) == TRUE_AT[state]
    assert {it.type for it in node.status.conditions} == TRUE_AT[state], "conditions that are not true are not added"
    assert all("NodeMaintenance patch" in it.message for it in node.status.conditions)
    assert all(it.last_transition_time == NOW for it in node.status.conditions)


@given(states=st.lists(STATES, max_size=6))
def test_conditions_match_the_lifecycle_state_after_any_sequence(states: list[LifecycleState]) -> None:
    node = a_node()
    for state in states:
        node = apply_change(node, conditions_patch(node, state, "x", now=NOW))
        assert true_conditions(node) == TRUE_AT[state]
        assert conditions_patch(node, state, "another reason", now=LATER) is None, "nothing is written again"


@pytest.mark.parametrize("kind", NodeConditionType)
@pytest.mark.parametrize("status", ["True", "False", "Unknown"])
@pytest.mark.parametrize("message", ["", "drained by kubectl", "haulout: not really"])
def test_conditions_written_by_others_are_kept(kind: str, status: str, message: str) -> None:
    theirs = {"type": kind, "status": status, "reason": "Theirs", "message": message}
    node = a_node(theirs, {"type": "Ready", "status": "True"})
    for state in LifecycleState:
        change = conditions_patch(node, state, "x", now=NOW)
        conditions = [] if change is None else [it["type"] for it in change["status"]["conditions"]]
        assert kind not in conditions
        assert "Ready" not in conditions


def test_changed_condition_has_transition_time_and_reason() -> None:
    node = apply_change(a_node(), conditions_patch(a_node(), LifecycleState.DRAINING, "x", now=NOW))
    change = conditions_patch(node, LifecycleState.DRAINED, "x", now=LATER)
    assert change is not None
    conditions = {
        it["type"]: (it["status"], it["reason"], it["lastTransitionTime"]) for it in change["status"]["conditions"]
    }
    at = "2026-01-05T09:05:00Z"
    assert conditions == {"DrainInProgress": ("False", "DrainCompleted", at), "Drained": ("True", "DrainCompleted", at)}
