"""What is told of a pod that a drain makes leave, by an event about it.

Reasons and notes of the first and the last are the SAP maintenance-controller's. It deletes no pod that its budget
keeps.

A successor of a killed process asks the same pods again. Each event is therefore recorded once per pod and cordon of
the node: the instant at which the node was cordoned, which the node itself carries, is part of the event's name.
"""

from typing import NamedTuple

from haulout.api.objects import Node, Pod
from haulout.api.resources import NODES, PODS
from haulout.drain.cordon import InvalidCordonAnnotation, cordon_of
from haulout.drain.escalation import EscalationStep
from haulout.kube.recorder import EventRecorder, EventType, object_reference


class _PodEvent(NamedTuple):
    type: EventType
    reason: str
    note: str


_EVENTS = {
    EscalationStep.EVICT: _PodEvent("Normal", "Evicting", "Evicting pod during node drain"),
    EscalationStep.DELETE: _PodEvent(
        "Warning", "Deleting", "Deleting pod during node drain, whatever its disruption budget says"
    ),
    EscalationStep.FORCE_DELETE: _PodEvent(
        "Normal", "ForceDeleting", "Force deleting pod that exceeded grace period during node drain"
    ),
}


def record_pod_event(recorder: EventRecorder, node: Node, pod: Pod, step: EscalationStep) -> None:
    """Tell that a pod is made to leave a node."""
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
    """Return when the first owner of the cordon came, which tells one maintenance from the next; empty if unknown."""
    try:
        cordon = cordon_of(node)
    except InvalidCordonAnnotation:
        return ""
    if cordon is None or not cordon.owners:
        return ""
    return min(owner.since for owner in cordon.owners.values()).isoformat()
