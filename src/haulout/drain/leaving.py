"""What is told of a pod that a drain makes leave, by an event about it.

Reasons and notes of the first and the last are the SAP maintenance-controller's. It deletes no pod that its budget
keeps.

A successor of a killed process asks the same pods again. Each event is therefore recorded once per pod and cordon of
the node: the instant at which the node was cordoned, which the node itself carries, is part of the event's name.
"""

from typing import NamedTuple

from haulout.drain.cordon import BadMark, cordon_of
from haulout.drain.ladder import Rung
from haulout.kube.events import EventRecorder, EventType, reference
from haulout.kube.objects import Node, Pod
from haulout.kube.resources import NODES, PODS


class _Leaving(NamedTuple):
    type: EventType
    reason: str
    note: str


_LEAVING = {
    Rung.EVICT: _Leaving("Normal", "Evicting", "Evicting pod during node drain"),
    Rung.DELETE: _Leaving("Warning", "Deleting", "Deleting pod during node drain, whatever its disruption budget says"),
    Rung.KILL: _Leaving("Normal", "ForceDeleting", "Force deleting pod that exceeded grace period during node drain"),
}


def tell(events: EventRecorder, node: Node, pod: Pod, rung: Rung) -> None:
    """Tell that a pod is made to leave a node."""
    said = _LEAVING[rung]
    events.record(
        reference(PODS, pod),
        type=said.type,
        reason=said.reason,
        note=said.note,
        action="Drain",
        related=reference(NODES, node),
        once_per=_cordoned_at(node),
    )


def _cordoned_at(node: Node) -> str:
    """Return when the first owner of the cordon came, which tells one maintenance from the next; empty if unknown."""
    try:
        cordon = cordon_of(node)
    except BadMark:
        return ""
    if cordon is None or not cordon.owners:
        return ""
    return min(hold.since for hold in cordon.owners.values()).isoformat()
