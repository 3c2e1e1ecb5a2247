"""The transitions of Kubernikus nodes, for the journal: Events, log lines and entries of the history."""

from haulout.api.maintenancerecord import NewEntry
from haulout.api.objects import Node
from haulout.api.resources import NODES
from haulout.controllers.kubernikus.decision import Decision
from haulout.controllers.kubernikus.labels import DELETE_NODE
from haulout.kube.recorder import object_reference
from haulout.runtime.journal import NodeEntry, Transition

ORDER, VERSION = "order", "version"  # topics of the journal

_ACTION = "DeleteNode"


def order_status(node: Node, decision: Decision) -> Transition:
    """Return the status of an order."""
    return _transition(node, decision.reason, decision.message, is_warning=decision.is_warning)


def order_message(*, unavailable: int, total: int) -> str:
    """Return that an order begins, and how many other nodes are unavailable, since no budget applies."""
    others = f"{unavailable} of {total} other nodes are unavailable" if unavailable else "all other nodes are available"
    return f"label {DELETE_NODE} is set: the node is cordoned and drained, and its server deleted; {others}"


def order_started(node: Node, message: str, entry: NewEntry | None) -> Transition:
    """Return that an order begins."""
    return _transition(node, "DeletionOrdered", message, entry=entry)


def cordon_restored(node: Node, tampering: str) -> Transition:
    """Return that a change by others was reverted."""
    message = f"{tampering}, although label {DELETE_NODE} requests the deletion of the node; it is cordoned again"
    return _transition(node, "CordonRestored", message, is_warning=True)


WITHDRAWN = f"label {DELETE_NODE} no longer requests the deletion; the cordon is removed and the drain stopped"


def order_withdrawn(node: Node, entry: NewEntry) -> Transition:
    """Return that an order was withdrawn."""
    return _transition(node, "DeletionWithdrawn", WITHDRAWN, entry=entry)


def version_unknown(node: Node, problem: str) -> Transition:
    """Return that it is unknown whether a kubelet is outdated."""
    return _transition(node, "KubeletVersionUnknown", problem, is_warning=True)


def _transition(
    node: Node, reason: str, message: str, *, is_warning: bool = False, entry: NewEntry | None = None
) -> Transition:
    return Transition(
        regarding=(object_reference(NODES, node),),
        subject=f"node {node.name}",
        reason=reason,
        message=message,
        action=_ACTION,
        is_warning=is_warning,
        history=() if entry is None else (NodeEntry(node=node, entry=entry),),
        log_fields={"node": node.name},
    )
