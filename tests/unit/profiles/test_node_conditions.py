"""What nodes say about drains of profiles, and that nobody else's conditions are touched."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from haulout.drain import lifecycle
from haulout.drain.cordon import MARK
from haulout.drain.lifecycle import Stage
from haulout.kube.objects import Node
from haulout.profiles.node_conditions import DrainState, published

NOW = datetime(2026, 1, 5, 9, tzinfo=UTC)
IDLE = DrainState(drains={})
DRAINING = DrainState(drains={"os": False}, waiting=["os"], away=["os"])
DONE = DrainState(drains={"os": True}, waiting=["os"], away=["os"])
THERE = DrainState(drains={}, away=["os"])
WAITING = DrainState(drains={}, waiting=["os"], away=["os"])
OF_PROFILE, ENDED = "Haulout profile os", "Haulout: profile os"


def a_node(*conditions: tuple[str, str, str], holder: str = "profile/os") -> Node:
    mark = msgspec.json.encode({"owners": {holder: {"since": "2026-01-05T09:00:00Z"}}}).decode()
    return msgspec.convert(
        {
            "metadata": {
                "name": "n1",
                "uid": "u",
                "resourceVersion": "1",
                "annotations": {MARK: mark} if holder else {},
            },
            "spec": {"unschedulable": bool(holder)},
            "status": {"conditions": [{"type": it[0], "status": it[1], "message": it[2]} for it in conditions]},
        },
        Node,
    )


def told(change: Any) -> dict[str, tuple[str, str]]:
    found = [] if change is None else change["status"]["conditions"]
    return {it["type"]: (it["status"], it["message"]) for it in found}


DRAIN = ("DrainInProgress", "True", OF_PROFILE)
DRAINED = ("Drained", "True", OF_PROFILE)
NO_DRAIN, NOT_DRAINED = ("DrainInProgress", "False", ENDED), ("Drained", "False", ENDED)


@pytest.mark.parametrize(
    ("node", "state", "says"),
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
def test_conditions_follow_the_drain(node: Node, state: DrainState, says: dict[str, tuple[str, str]]) -> None:
    """Also by a successor, which knows no more than what stands on the node."""
    change = published(node, state, now=NOW)
    assert told(change) == says
    if change is not None:
        assert change["metadata"] == {"uid": "u", "resourceVersion": "1"}


@pytest.mark.parametrize("state", [IDLE, DRAINING, DONE, THERE])
@pytest.mark.parametrize(
    ("status", "message"), [("True", "Haulout: NodeMaintenance x"), ("True", "me"), ("False", "me")]
)
def test_what_others_say_is_left_alone(state: DrainState, status: str, message: str) -> None:
    node = a_node(("DrainInProgress", status, message), ("Drained", status, message))
    assert published(node, state, now=NOW) is None


@pytest.mark.parametrize("stage", Stage)
@pytest.mark.parametrize("condition", [DRAIN, DRAINED])
def test_a_maintenance_leaves_alone_what_a_profile_says(stage: Stage, condition: tuple[str, str, str]) -> None:
    """So that the two of them do not change it back and forth."""
    change = lifecycle.published(a_node(condition), stage, "NodeMaintenance x", now=NOW)
    assert condition[0] not in told(change)


def test_another_profile_that_drains_says_its_name() -> None:
    node = a_node(("DrainInProgress", "True", "Haulout profile other"), NOT_DRAINED)
    assert told(published(node, DRAINING, now=NOW)) == {"DrainInProgress": ("True", OF_PROFILE)}
