"""The deletion of a Machine: held by a hook until its node was prepared, or until nobody can be expected to do that.

A deletion is held for as long as somebody can approve it and, if there is a limit, no longer than that. Once released
it is never held again: Cluster API may be in the middle of its drain. Pure.
"""

from dataclasses import replace
from datetime import datetime

from haulout.hub import words
from haulout.hub.asks import DELETION_ASK, RELEASED, Ask, ask_on
from haulout.hub.outcome import Part, Release, Seen, Telling, Wanted
from haulout.hub.settings import OldApprovals
from haulout.hub.standing import Why
from haulout.hub.waiting import is_asked, remarked, standing, waiting
from haulout.kinds.clusterapi import APPROVE_DELETION, HOOK, HOOK_OWNER, MACHINE_DELETED, TRUE
from haulout.kube.objects import Node

_NOT_ASKED: Wanted = {MACHINE_DELETED: None}
_NOT_NOTED: Wanted = {DELETION_ASK: None}
_HELD: Wanted = {HOOK: HOOK_OWNER}


def of_deletion(seen: Seen, node: Node) -> Part:
    """Return what should be so while the node is managed."""
    is_approved = node.metadata.labels.get(APPROVE_DELETION) == TRUE
    honours = seen.settings.old_approvals is OldApprovals.HONOUR
    if not seen.machine.is_leaving:
        hook = {HOOK: None} if honours and is_approved else _HELD
        return Part(node_labels=_NOT_ASKED, node_annotations=_NOT_NOTED, machine_annotations=hook)
    ask = ask_on(node, DELETION_ASK, seen.machine)
    stands = is_asked(node, ask, label=MACHINE_DELETED, note=DELETION_ASK)
    if RELEASED in seen.machine.metadata.annotations:
        return replace(_released(seen, None), is_active=stands)
    if honours:
        return _as_before(seen, node, is_approved=is_approved)
    if stands:
        ask = ask or Ask(machine=seen.machine.uid, since=seen.now)
        return _asked(seen, node, ask, is_approved=is_approved)
    return _unasked(seen, node, is_approved=is_approved)


def without_node(seen: Seen) -> Part:
    """Return what should be so of a deletion if there is no node, or if it is not known."""
    why = _without_approval(seen, since=seen.machine.metadata.deletion_timestamp)
    if why is not None:
        return _released(seen, why)
    return _waiting(seen, words.unseen(seen), since=seen.machine.metadata.deletion_timestamp)


def unmanaged(seen: Seen) -> Part:
    """Return what should be so of a deletion if nobody would prepare the node."""
    return _released(seen, Release.NOT_MANAGED)


def _as_before(seen: Seen, node: Node, *, is_approved: bool) -> Part:
    """Do as the runtime-extension-maintenance-controller: an approval counts whenever it was given."""
    since = seen.machine.metadata.deletion_timestamp
    stands = node.metadata.labels.get(MACHINE_DELETED) == TRUE
    why = Release.APPROVED if is_approved else _without_approval(seen, since=since if stands else None)
    if why is not None:
        part = _released(seen, why)
    elif seen.barred and not stands:
        return remarked(_waiting(seen, seen.barred), "WaitsForBudget")
    else:
        part = _waiting(seen, words.unapproved(node, APPROVE_DELETION), since=since)
    begins = not stands and why is None
    told = (_told_ask(seen, node),) if begins else ()
    return replace(
        part,
        node_labels={MACHINE_DELETED: TRUE},
        node_annotations=_NOT_NOTED,
        begins=begins,
        is_active=True,
        tellings=(*part.tellings, *told),
    )


def _asked(seen: Seen, node: Node, ask: Ask, *, is_approved: bool) -> Part:
    why = Release.APPROVED if is_approved else _without_approval(seen, since=ask.since)
    if why is not None:
        part = _released(seen, why)
    else:
        part = _waiting(seen, words.unapproved(node, APPROVE_DELETION), since=ask.since)
    return replace(part, node_annotations={DELETION_ASK: ask.written}, is_active=True)


def _unasked(seen: Seen, node: Node, *, is_approved: bool) -> Part:
    is_old = is_approved and seen.settings.old_approvals is not OldApprovals.CLEAR
    # Time runs from when somebody is asked, or could be asked if others did their part: not while a budget says no.
    since = seen.machine.metadata.deletion_timestamp if is_old else None
    why = _without_approval(seen, since=since)
    if why is not None:
        return _released(seen, why)
    if is_old:
        reason = words.old_approval(node, APPROVE_DELETION)
        part = remarked(_waiting(seen, reason, since=since), "OldApproval", is_bad=True)
        return replace(part, node_labels=_NOT_ASKED, node_annotations=_NOT_NOTED)
    if seen.barred:
        return remarked(_waiting(seen, seen.barred), "WaitsForBudget")
    ask = Ask(machine=seen.machine.uid, since=seen.now)
    labels: dict[str, str | None] = {MACHINE_DELETED: TRUE} | ({APPROVE_DELETION: None} if is_approved else {})
    return replace(
        _waiting(seen, words.unapproved(node, APPROVE_DELETION), since=seen.now),
        node_labels=labels,
        node_annotations={DELETION_ASK: ask.written},
        begins=True,
        is_active=True,
        tellings=(_told_ask(seen, node),),
    )


def _told_ask(seen: Seen, node: Node) -> Telling:
    return Telling(reason="DeletionRequested", note=words.deletion_asked(seen, node), of_node=True)


def _without_approval(seen: Seen, *, since: datetime | None) -> Release | None:
    """Return why a deletion is not held though nobody has approved it; `since`: from when on that was waited for."""
    if seen.node is None and (seen.is_node_known or not seen.machine.node):
        return Release.NO_NODE
    if seen.is_cluster_leaving:
        return Release.CLUSTER_LEAVES
    for limit, why in ((_silent_until(seen), Release.UNREACHABLE), (_timeout(seen, since), Release.TIMED_OUT)):
        if limit is not None and limit <= seen.now:
            return why
    return None


def _silent_until(seen: Seen) -> datetime | None:
    after, since = seen.settings.unreachable_after, seen.unreachable_since
    return None if after is None or since is None or seen.is_node_known else since + after


def _timeout(seen: Seen, since: datetime | None) -> datetime | None:
    after = seen.settings.approval_timeout
    return None if after is None or since is None else since + after


def _released(seen: Seen, why: Release | None) -> Part:
    """Return that the deletion is not held; `why` is None if that is not new."""
    machine = seen.machine
    has_hook = HOOK in machine.metadata.annotations
    comes_back = seen.settings.old_approvals is OldApprovals.HONOUR and why in _COME_BACK
    noted: Wanted = {RELEASED: str(why)} if has_hook and why and not comes_back else {}
    reason = words.released(why or machine.metadata.annotations.get(RELEASED, ""), seen)
    told = Telling(reason=str(why), note=reason, is_bad=why.is_bad) if why else None
    return Part(
        machine_annotations={HOOK: None, **noted},
        standing=standing(seen, Why.DELETION, reason, since=machine.metadata.deletion_timestamp, is_approved=True),
        tellings=(told,) if told and has_hook else (),
    )


_COME_BACK = (Release.APPROVED, Release.NOT_MANAGED)  # the hook does, for those who want it as it was


def _waiting(seen: Seen, reason: str, *, since: datetime | None = None) -> Part:
    """Return that the deletion is held, from `since` on if there is a limit to that."""
    limits = [it for it in (_silent_until(seen), _timeout(seen, since)) if it is not None]
    begun, until = seen.machine.metadata.deletion_timestamp, min(limits, default=None)
    part = waiting(seen, standing(seen, Why.DELETION, reason, since=begun, until=until), since=since)
    return replace(part, machine_annotations=_HELD if seen.node is not None else {})
