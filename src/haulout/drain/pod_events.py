"""Events about pods that a drain evicts or deletes.

Reasons and notes of the first and the last are those of the SAP maintenance-controller, which never deletes a pod that
its PodDisruptionBudget protects.

The successor of a killed process evicts the same pods again. Each event is therefore recorded once per pod and cordon:
the time of the cordon, which the node's annotation contains, is part of the event's name.
"""

from typing import NamedTuple

from haulout.api.objects import Node, Pod
from haulout.api.reasons import PodEventReason
from haulout.api.resources import NODES, PODS
from haulout.drain.cordon import InvalidCordonAnnotation, cordon_of
from haulout.drain.escalation import EscalationStep
from haulout.kube.recorder import EventRecorder, EventType, object_reference


class _PodEvent(NamedTuple):
    type: EventType
    reason: str
    note: str


_EVENTS = {
    EscalationStep.EVICT: _PodEvent("Normal", PodEventReason.EVICTING, "Evicting pod during node drain"),
    EscalationStep.DELETE: _PodEvent(
        "Warning", PodEventReason.DELETING, "Deleting pod during node drain, bypassing PodDisruptionBudgets"
    ),
    EscalationStep.FORCE_DELETE: _PodEvent(
        "Normal", PodEventReason.FORCE_DELETING, "Force deleting pod that exceeded grace period during node drain"
    ),
}


def record_pod_event(recorder: EventRecorder, node: Node, pod: Pod, step: EscalationStep) -> None:
    event = _EVENTS[step]
    recorder.event(
        object_reference(PODS, pod),
        type=event.type,
        reason=event.reason,
        note=event.note,
        action="Drain",
        related=object_reference(NODES, node),
        dedup_key=_cordoned_at(node),
    )


def _cordoned_at(node: Node) -> str:
    """Return when the first owner cordoned the node, which identifies the cordon; empty if unknown."""
    try:
        cordon = cordon_of(node)
    except InvalidCordonAnnotation:
        return ""
    if cordon is None or not cordon.owners:
        return ""
    # The first owner, because others may come and go during one drain.
    return min(owner.since for owner in cordon.owners.values()).isoformat()
