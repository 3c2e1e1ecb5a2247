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

from haulout.kube.objects import Condition, Node, RawObject
from haulout.kube.timestamps import whole_seconds

OURS = "Haulout: "


class NodeCondition(StrEnum):
    """The types; `kubernetes/api/core/v1` has them from 1.37 on."""

    PLANNED = "MaintenancePlanned"
    DRAINING = "DrainInProgress"
    DRAINED = "Drained"
    IN_PROGRESS = "MaintenanceInProgress"


class Stage(StrEnum):
    """How far a maintenance is."""

    PLANNED = "planned"
    DRAINING = "draining"
    DRAINED = "drained"
    STUCK = "stuck"  # the drain was given up, and the node is still held
    OVER = "over"


_TRUE: Mapping[Stage, tuple[NodeCondition, ...]] = {
    Stage.PLANNED: (NodeCondition.PLANNED,),
    Stage.DRAINING: (NodeCondition.DRAINING, NodeCondition.IN_PROGRESS),
    Stage.DRAINED: (NodeCondition.DRAINED, NodeCondition.IN_PROGRESS),
    Stage.STUCK: (NodeCondition.IN_PROGRESS,),
    Stage.OVER: (),
}
_REASONS = {
    Stage.PLANNED: "AdminRequested",
    Stage.DRAINING: "AdminRequested",
    Stage.DRAINED: "DrainCompleted",
    Stage.STUCK: "DrainGivenUp",
    Stage.OVER: "MaintenanceEnded",
}


def published(node: Node, stage: Stage, what: str, *, now: datetime) -> RawObject | None:
    """Return the change that makes the node's conditions say that `what` is at `stage`; None if they do."""
    found = {it.type: it for it in node.status.conditions}
    changed = [
        _condition(kind, stage, what, now)
        for kind in NodeCondition
        if _is_due(found.get(kind), is_true=kind in _TRUE[stage])
    ]
    if not changed:
        return None
    metadata = {"uid": node.uid, "resourceVersion": node.resource_version}
    return {"metadata": metadata, "status": {"conditions": changed}}


def _is_due(found: Condition | None, *, is_true: bool) -> bool:
    if found is None:
        return is_true
    return found.message.startswith(OURS) and found.status != str(is_true)


def _condition(kind: NodeCondition, stage: Stage, what: str, now: datetime) -> RawObject:
    return {
        "type": str(kind),
        "status": str(kind in _TRUE[stage]),
        "reason": _REASONS[stage],
        "message": f"{OURS}{what}",
        "lastTransitionTime": whole_seconds(now),
    }
