"""The transitions of nodes on ESX hosts, for the journal: Events, log lines and entries of the history."""

import logging

from haulout.api.maintenancerecord import NewEntry
from haulout.api.objects import Node
from haulout.api.resources import NODES
from haulout.controllers.esx.decision import BEGIN_REASON, END_REASON, Decision
from haulout.history.cordon_history import CordonHistory
from haulout.kube.recorder import object_reference
from haulout.runtime.journal import Journal, NodeEntry, Transition

log = logging.getLogger(__name__)

WARNING = "warning"  # topic of the journal

_ACTION = "RunEsx"


def record(journal: Journal, history: CordonHistory, previous: Node, node: Node, decision: Decision) -> None:
    """Record an action on a node; `previous` is the node before it."""
    if not decision.reason:
        if decision.message:
            log.info("node %s: %s", node.name, decision.message)
        return
    entry = _entry(history, previous, node, decision)
    on = previous if decision.reason == END_REASON else node
    journal.record(transition(node, decision, () if entry is None else (NodeEntry(node=on, entry=entry),)))


def transition(node: Node, decision: Decision, history: tuple[NodeEntry, ...] = ()) -> Transition:
    """Return the transition that a decision describes."""
    return Transition(
        regarding=(object_reference(NODES, node),),
        subject=f"node {node.name}",
        reason=decision.reason,
        message=decision.message,
        action=_ACTION,
        is_warning=decision.is_warning,
        history=history,
        log_fields={"node": node.name},
    )


def _entry(history: CordonHistory, previous: Node, node: Node, decision: Decision) -> NewEntry | None:
    if decision.reason == BEGIN_REASON:
        return history.start_entry(node, decision.message)
    if decision.reason == END_REASON:
        return history.end_entry(previous, decision.message)
    return history.action_entry(decision.reason, decision.message)
