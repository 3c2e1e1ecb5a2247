"""Maintenance of a Machine that stays: asked for by a label, approved by the profile of its node, ended by its owner.

Who asks anew after an approval gets a new one: what was asked of the node is withdrawn first, so that its profile sees
that it is over, takes its approval back and prepares the node again. Pure.
"""

from dataclasses import replace
from datetime import datetime

from haulout.hub import words
from haulout.hub.asks import APPROVED_ASK, MAINTENANCE_ASK, Ask, ask_on
from haulout.hub.outcome import Part, Seen, Telling, Wanted
from haulout.hub.settings import OldApprovals
from haulout.hub.standing import Why
from haulout.hub.waiting import is_asked, remarked, standing, waiting
from haulout.kinds.clusterapi import (
    APPROVE_MAINTENANCE,
    APPROVED,
    MACHINE_MAINTENANCE,
    MAINTENANCE,
    REQUESTED,
    TRUE,
)
from haulout.kube.objects import Node

_ASKED: Wanted = {MACHINE_MAINTENANCE: TRUE}
_NOT_ASKED: Wanted = {MACHINE_MAINTENANCE: None}
_NOT_NOTED: Wanted = {MAINTENANCE_ASK: None}


def of_maintenance(seen: Seen, node: Node) -> Part:
    """Return what should be so while the node is managed."""
    wish = seen.machine.metadata.labels.get(MAINTENANCE)
    if wish not in (REQUESTED, APPROVED):
        return Part(node_labels=_NOT_ASKED, node_annotations=_NOT_NOTED, machine_annotations={APPROVED_ASK: None})
    is_approved = node.metadata.labels.get(APPROVE_MAINTENANCE) == TRUE
    if seen.settings.old_approvals is OldApprovals.HONOUR:
        return _as_before(seen, node, wish, is_approved=is_approved)
    ask = ask_on(node, MAINTENANCE_ASK, seen.machine)
    if wish == APPROVED:
        ask = ask or Ask(machine=seen.machine.uid, since=seen.now)
        return replace(_approved(seen, node, ask), node_labels=_ASKED, node_annotations={MAINTENANCE_ASK: ask.written})
    if ask is not None and seen.machine.metadata.annotations.get(APPROVED_ASK) == ask.instant:
        return _withdrawn(seen, node)
    if is_asked(node, ask, label=MACHINE_MAINTENANCE, note=MAINTENANCE_ASK):
        ask = ask or Ask(machine=seen.machine.uid, since=seen.now)
        return _asked(seen, node, ask, is_approved=is_approved)
    return _unasked(seen, node, is_approved=is_approved)


def _as_before(seen: Seen, node: Node, wish: str, *, is_approved: bool) -> Part:
    """Do as the runtime-extension-maintenance-controller: an approval counts whenever it was given."""
    stands = node.metadata.labels.get(MACHINE_MAINTENANCE) == TRUE
    unnoted: Wanted = {APPROVED_ASK: None}
    if wish == REQUESTED and not is_approved and seen.barred and not stands:
        return replace(remarked(_waiting(seen, seen.barred), "WaitsForBudget"), machine_annotations=unnoted)
    if wish == APPROVED or is_approved:
        part = _approved(seen, node, None)
        labels: Wanted = {} if wish == APPROVED else {MAINTENANCE: APPROVED}
        part = replace(part, machine_labels=labels, tellings=_told_approval(node) if labels else ())
    else:
        part = _waiting(seen, words.unapproved(node, APPROVE_MAINTENANCE))
    begins = not stands and wish == REQUESTED and not is_approved
    told = (_told_ask(seen, node),) if begins else ()
    return replace(
        part,
        node_labels=_ASKED,
        node_annotations=_NOT_NOTED,
        machine_annotations=unnoted,
        begins=begins,
        is_active=True,
        tellings=(*part.tellings, *told),
    )


def _approved(seen: Seen, node: Node, ask: Ask | None) -> Part:
    since = None if ask is None else ask.since
    shown = standing(seen, Why.MAINTENANCE, words.maintenance_approved(node), since=since, is_approved=True)
    return Part(is_active=True, standing=shown)


def _asked(seen: Seen, node: Node, ask: Ask, *, is_approved: bool) -> Part:
    noted: Wanted = {MAINTENANCE_ASK: ask.written}
    if not is_approved:
        reason = words.unapproved(node, APPROVE_MAINTENANCE)
        return replace(_waiting(seen, reason, since=ask.since), node_annotations=noted, is_active=True)
    return replace(
        _approved(seen, node, ask),
        node_annotations=noted,
        machine_labels={MAINTENANCE: APPROVED},
        machine_annotations={APPROVED_ASK: ask.instant},
        tellings=_told_approval(node),
    )


def _withdrawn(seen: Seen, node: Node) -> Part:
    return replace(
        _waiting(seen, words.withdrawn(node)),
        node_labels=_NOT_ASKED,
        node_annotations=_NOT_NOTED,
        tellings=(Telling(reason="MaintenanceRequestedAnew", note=words.withdrawn(node), of_node=True),),
    )


def _unasked(seen: Seen, node: Node, *, is_approved: bool) -> Part:
    clears = seen.settings.old_approvals is OldApprovals.CLEAR
    if is_approved and not clears:
        reason = words.old_approval(node, APPROVE_MAINTENANCE)
        part = remarked(_waiting(seen, reason), "OldApproval", is_bad=True)
        return replace(part, node_labels=_NOT_ASKED, node_annotations=_NOT_NOTED)
    if seen.barred:
        return remarked(_waiting(seen, seen.barred), "WaitsForBudget")
    ask = Ask(machine=seen.machine.uid, since=seen.now)
    labels: Wanted = {APPROVE_MAINTENANCE: None, **_ASKED} if is_approved else _ASKED
    return replace(
        _waiting(seen, words.unapproved(node, APPROVE_MAINTENANCE), since=seen.now),
        node_labels=labels,
        node_annotations={MAINTENANCE_ASK: ask.written},
        begins=True,
        is_active=True,
        tellings=(_told_ask(seen, node),),
    )


def _told_ask(seen: Seen, node: Node) -> Telling:
    return Telling(reason="MaintenanceRequested", note=words.maintenance_asked(seen, node), of_node=True)


def _told_approval(node: Node) -> tuple[Telling, ...]:
    return (Telling(reason="MaintenanceApproved", note=words.maintenance_approved(node)),)


def _waiting(seen: Seen, reason: str, *, since: datetime | None = None) -> Part:
    return waiting(seen, standing(seen, Why.MAINTENANCE, reason, since=since), since=since)
