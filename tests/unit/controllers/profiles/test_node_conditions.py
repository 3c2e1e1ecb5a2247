"""Node conditions of profile drains; conditions of others are kept."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from haulout.api.objects import Node
from haulout.controllers.profiles.node_conditions import DrainState, conditions_patch
from haulout.drain import node_conditions
from haulout.drain.cordon import CORDON_ANNOTATION
from haulout.drain.node_conditions import LifecycleState

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
IDLE = DrainState(drains={})
DRAINING = DrainState(drains={"os": False}, pending_profiles=["os"], maintained_profiles=["os"])
DONE = DrainState(drains={"os": True}, pending_profiles=["os"], maintained_profiles=["os"])
THERE = DrainState(drains={}, maintained_profiles=["os"])
WAITING = DrainState(drains={}, pending_profiles=["os"], maintained_profiles=["os"])
OF_PROFILE, ENDED = "Haulout profile os", "Haulout: profile os"


def a_node(*conditions: tuple[str, str, str], holder: str = "profile/os") -> Node:
    mark = msgspec.json.encode({"owners": {holder: {"since": "2026-01-05T09:00:00Z"}}}).decode()
    return msgspec.convert(
        {
            "metadata": {
                "name": "n1",
                "uid": "u",
                "resourceVersion": "1",
                "annotations": {CORDON_ANNOTATION: mark} if holder else {},
            },
            "spec": {"unschedulable": bool(holder)},
            "status": {
                "conditions": [
                    {"type": condition[0], "status": condition[1], "message": condition[2]} for condition in conditions
                ]
            },
        },
        Node,
    )


def conditions_of(change: Any) -> dict[str, tuple[str, str]]:
    found = [] if change is None else change["status"]["conditions"]
    return {item["type"]: (item["status"], item["message"]) for item in found}


DRAIN = ("DrainInProgress", "True", OF_PROFILE)
DRAINED = ("Drained", "True", OF_PROFILE)
NO_DRAIN, NOT_DRAINED = ("DrainInProgress", "False", ENDED), ("Drained", "False", ENDED)


@pytest.mark.parametrize(
    ("node", "state", "expected"),
    [
        (a_node(), IDLE, {}),
        (a_node(), THERE, {}),
        (a_node(), DRAINING, {"DrainInProgress": ("True", OF_PROFILE), "Drained": ("False", ENDED)}),
        (a_node(DRAIN, NOT_DRAINED), DRAINING, {}),
        (a_node(DRAIN), DONE, {"DrainInProgress": ("False", ENDED), "Drained": ("True", OF_PROFILE)}),
        (a_node(DRAIN), THERE, {"DrainInProgress": ("False", ENDED), "Drained": ("True", OF_PROFILE)}),
        (a_node(DRAIN, NOT_DRAINED), WAITING, {}),
        (a_node(NO_DRAIN, DRAINED), THERE, {}),
        (a_node(NO_DRAIN, DRAINED), WAITING, {}),
        (a_node(DRAINED), IDLE, {"Drained": ("False", ENDED)}),
        (a_node(DRAINED, holder=""), THERE, {"Drained": ("False", ENDED)}),
        (a_node(DRAIN, holder="NodeMaintenance/x"), THERE, {"DrainInProgress": ("False", ENDED)}),
        (a_node(NO_DRAIN, NOT_DRAINED), DRAINING, {"DrainInProgress": ("True", OF_PROFILE)}),
    ],
)
def test_conditions_follow_the_drain(node: Node, state: DrainState, expected: dict[str, tuple[str, str]]) -> None:
    """Also after a restart, when only the node is known."""
    change = conditions_patch(node, state, now=NOW)
    assert conditions_of(change) == expected
    if change is not None:
        assert change["metadata"] == {"uid": "u", "resourceVersion": "1"}


@pytest.mark.parametrize("state", [IDLE, DRAINING, DONE, THERE])
@pytest.mark.parametrize(
    ("status", "message"), [("True", "Haulout: NodeMaintenance x"), ("True", "me"), ("False", "me")]
)
def test_conditions_of_others_are_kept(state: DrainState, status: str, message: str) -> None:
    node = a_node(("DrainInProgress", status, message), ("Drained", status, message))
    assert conditions_patch(node, state, now=NOW) is None


@pytest.mark.parametrize("lifecycle_state", LifecycleState)
@pytest.mark.parametrize("condition", [DRAIN, DRAINED])
def test_node_maintenance_keeps_the_conditions_of_a_profile(
    lifecycle_state: LifecycleState, condition: tuple[str, str, str]
) -> None:
    """Otherwise the two controllers would overwrite each other."""
    change = node_conditions.conditions_patch(a_node(condition), lifecycle_state, "NodeMaintenance x", now=NOW)
    assert condition[0] not in conditions_of(change)


def test_condition_names_the_profile_that_drains() -> None:
    node = a_node(("DrainInProgress", "True", "Haulout profile other"), NOT_DRAINED)
    assert conditions_of(conditions_patch(node, DRAINING, now=NOW)) == {"DrainInProgress": ("True", OF_PROFILE)}
