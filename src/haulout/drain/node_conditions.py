"""How a node's maintenance stands, as conditions of the node that everybody can read (KEP-5683).

    change = published(node, Stage.DRAINING, "NodeMaintenance patch-n1", now=now)

returns a strategic merge patch for the status of the node, or None if it says so already. Other controllers,
autoscalers and people learn from it that a node is going to be emptied, is being emptied, is empty, is worked on.

Any writer may write these conditions, and there is no lock. So what somebody else has written is left alone: ours begin
with a word that tells them apart.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from haulout.api.objects import Condition, Node, RawObject
from haulout.kube.timestamps import whole_seconds

MESSAGE_PREFIX = "Haulout: "


class NodeConditionType(StrEnum):
    """The types; `kubernetes/api/core/v1` has them from 1.37 on."""

    PLANNED = "MaintenancePlanned"
    DRAINING = "DrainInProgress"
    DRAINED = "Drained"
    IN_PROGRESS = "MaintenanceInProgress"


class LifecycleState(StrEnum):
    """How far a maintenance is."""

    PLANNED = "planned"
    DRAINING = "draining"
    DRAINED = "drained"
    STUCK = "stuck"  # the drain was given up, and the node is still held
    OVER = "over"


_TRUE_CONDITIONS: Mapping[LifecycleState, tuple[NodeConditionType, ...]] = {
    LifecycleState.PLANNED: (NodeConditionType.PLANNED,),
    LifecycleState.DRAINING: (NodeConditionType.DRAINING, NodeConditionType.IN_PROGRESS),
    LifecycleState.DRAINED: (NodeConditionType.DRAINED, NodeConditionType.IN_PROGRESS),
    LifecycleState.STUCK: (NodeConditionType.IN_PROGRESS,),
    LifecycleState.OVER: (),
}
_REASONS = {
    LifecycleState.PLANNED: "AdminRequested",
    LifecycleState.DRAINING: "AdminRequested",
    LifecycleState.DRAINED: "DrainCompleted",
    LifecycleState.STUCK: "DrainGivenUp",
    LifecycleState.OVER: "MaintenanceEnded",
}


def conditions_patch(node: Node, state: LifecycleState, message: str, *, now: datetime) -> RawObject | None:
    """Return the change that makes the node's conditions say that `message` is at `state`; None if they do."""
    found = {condition.type: condition for condition in node.status.conditions}
    changed = [
        _condition(condition_type, state, message, now)
        for condition_type in NodeConditionType
        if _needs_update(found.get(condition_type), is_true=condition_type in _TRUE_CONDITIONS[state])
    ]
    if not changed:
        return None
    metadata = {"uid": node.uid, "resourceVersion": node.resource_version}
    return {"metadata": metadata, "status": {"conditions": changed}}


def _needs_update(found: Condition | None, *, is_true: bool) -> bool:
    if found is None:
        return is_true
    return found.message.startswith(MESSAGE_PREFIX) and found.status != str(is_true)


def _condition(condition_type: NodeConditionType, state: LifecycleState, message: str, now: datetime) -> RawObject:
    return {
        "type": str(condition_type),
        "status": str(condition_type in _TRUE_CONDITIONS[state]),
        "reason": _REASONS[state],
        "message": f"{MESSAGE_PREFIX}{message}",
        "lastTransitionTime": whole_seconds(now),
    }
