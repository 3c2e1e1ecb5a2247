"""The state of a node's maintenance as node conditions (KEP-5683).

    change = conditions_patch(node, LifecycleState.DRAINING, "NodeMaintenance patch-n1", now=now)

returns a strategic merge patch for the node's status, or None if it is up to date. Other controllers, autoscalers and
users learn from these conditions that a node will be drained, is being drained, is drained, or is in maintenance.

Any client may write these conditions, and there is no lock. Conditions that others wrote are left alone: ours are
identified by a prefix of the message.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from haulout.api.objects import Condition, Node, NodeConditionType, RawObject
from haulout.core.timestamps import whole_seconds

MESSAGE_PREFIX = "Haulout: "


class LifecycleState(StrEnum):
    """The lifecycle of a maintenance, as the conditions show it."""

    PLANNED = "planned"
    DRAINING = "draining"
    DRAINED = "drained"
    STUCK = "stuck"  # the drain has failed, and the node is still cordoned
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
    """Return the status patch that sets the node's conditions to `state`; None if they are up to date.

    `message` names the maintenance.
    """
    found = {condition.type: condition for condition in node.status.conditions}
    changed = [
        _condition(condition_type, state, message, now)
        for condition_type in NodeConditionType
        if _needs_update(found.get(condition_type), is_true=condition_type in _TRUE_CONDITIONS[state])
    ]
    if not changed:
        return None
    return {"metadata": node.preconditions, "status": {"conditions": changed}}


def _needs_update(found: Condition | None, *, is_true: bool) -> bool:
    # A condition that was never true need not be written as False.
    if found is None:
        return is_true
    # The message is not compared: two maintenances of one node would otherwise overwrite each other for ever.
    return found.message.startswith(MESSAGE_PREFIX) and found.status != str(is_true)


def _condition(condition_type: NodeConditionType, state: LifecycleState, message: str, now: datetime) -> RawObject:
    return {
        "type": str(condition_type),
        "status": str(condition_type in _TRUE_CONDITIONS[state]),
        "reason": _REASONS[state],
        "message": f"{MESSAGE_PREFIX}{message}",
        "lastTransitionTime": whole_seconds(now),
    }
