"""A node's conditions tell how its maintenance stands, and those of others are left alone."""

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
STAGES = st.sampled_from(list(LifecycleState))


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


@pytest.mark.parametrize("stage", LifecycleState)
def test_each_stage_has_its_conditions(stage: LifecycleState) -> None:
    node = apply_change(a_node(), conditions_patch(a_node(), stage, "NodeMaintenance patch", now=NOW))
    assert true_conditions(node) == TRUE_AT[stage]
    assert {it.type for it in node.status.conditions} == TRUE_AT[stage], "what is not true need not be told"
    assert all("NodeMaintenance patch" in it.message for it in node.status.conditions)
    assert all(it.last_transition_time == NOW for it in node.status.conditions)


@given(stages=st.lists(STAGES, max_size=6))
def test_whatever_the_way_the_conditions_are_those_of_the_stage(stages: list[LifecycleState]) -> None:
    node = a_node()
    for stage in stages:
        node = apply_change(node, conditions_patch(node, stage, "x", now=NOW))
        assert true_conditions(node) == TRUE_AT[stage]
        assert conditions_patch(node, stage, "another reason", now=LATER) is None, "nothing is written again"


@pytest.mark.parametrize("kind", NodeConditionType)
@pytest.mark.parametrize("status", ["True", "False", "Unknown"])
@pytest.mark.parametrize("message", ["", "drained by kubectl", "haulout: not really"])
def test_what_somebody_else_has_written_is_left_alone(kind: str, status: str, message: str) -> None:
    theirs = {"type": kind, "status": status, "reason": "Theirs", "message": message}
    node = a_node(theirs, {"type": "Ready", "status": "True"})
    for stage in LifecycleState:
        change = conditions_patch(node, stage, "x", now=NOW)
        told = [] if change is None else [it["type"] for it in change["status"]["conditions"]]
        assert kind not in told
        assert "Ready" not in told


def test_a_change_says_when_and_why() -> None:
    node = apply_change(a_node(), conditions_patch(a_node(), LifecycleState.DRAINING, "x", now=NOW))
    change = conditions_patch(node, LifecycleState.DRAINED, "x", now=LATER)
    assert change is not None
    told = {it["type"]: (it["status"], it["reason"], it["lastTransitionTime"]) for it in change["status"]["conditions"]}
    at = "2026-01-05T09:05:00Z"
    assert told == {"DrainInProgress": ("False", "DrainCompleted", at), "Drained": ("True", "DrainCompleted", at)}
