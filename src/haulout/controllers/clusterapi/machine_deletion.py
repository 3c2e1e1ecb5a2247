"""The deletion of a Machine: held by the pre-drain hook until its node is prepared. Pure.

The deletion is held as long as an approval is possible, and no longer than the optional timeout. Once released it is
never held again: Cluster API may be in the middle of its drain.
"""

from dataclasses import replace
from datetime import datetime

from haulout.api.clusterapi import APPROVE_DELETION, MACHINE_DELETED, PRE_DRAIN_HOOK, PRE_DRAIN_HOOK_OWNER, TRUE
from haulout.api.objects import Node
from haulout.api.reasons import HubEventReason
from haulout.controllers.clusterapi import messages
from haulout.controllers.clusterapi.messages import (
    is_requested,
    pending_decision,
    refused,
    request_status,
    with_status_event,
)
from haulout.controllers.clusterapi.observation import (
    DELETION_RELEASED,
    DELETION_REQUEST,
    DesiredValues,
    NodeRequest,
    Observation,
    PartialDecision,
    PendingEvent,
    ReleaseReason,
    request_for,
)
from haulout.controllers.clusterapi.settings import OldApprovals
from haulout.controllers.clusterapi.status import RequestType

_NO_REQUEST_LABEL: DesiredValues = {MACHINE_DELETED: None}
_NO_REQUEST_ANNOTATION: DesiredValues = {DELETION_REQUEST: None}
_HOOK_SET: DesiredValues = {PRE_DRAIN_HOOK: PRE_DRAIN_HOOK_OWNER}


def decide_deletion(observation: Observation, node: Node) -> PartialDecision:
    """Return the decision while the node is managed."""
    is_approved = node.metadata.labels.get(APPROVE_DELETION) == TRUE
    honours_old_approvals = observation.settings.old_approvals is OldApprovals.HONOUR
    if not observation.machine.is_being_deleted:
        # Set while the Machine lives, not when its deletion is observed: Cluster API checks the hook as soon as the
        # Machine has a deletion timestamp, and would drain first.
        hook = {PRE_DRAIN_HOOK: None} if honours_old_approvals and is_approved else _HOOK_SET
        return PartialDecision(
            node_labels=_NO_REQUEST_LABEL, node_annotations=_NO_REQUEST_ANNOTATION, machine_annotations=hook
        )
    request = request_for(node, DELETION_REQUEST, observation.machine)
    requested = is_requested(node, request, label=MACHINE_DELETED, annotation=DELETION_REQUEST)
    if DELETION_RELEASED in observation.machine.metadata.annotations:
        return replace(_release(observation, None), is_active=requested)
    if honours_old_approvals:
        return _decide_like_predecessor(observation, node, is_approved=is_approved)
    if requested:
        request = request or NodeRequest(machine=observation.machine.uid, since=observation.now)
        return _requested(observation, node, request, is_approved=is_approved)
    return _not_requested(observation, node, is_approved=is_approved)


def decide_without_node(observation: Observation) -> PartialDecision:
    """Return the decision for a deletion if there is no node, or if the node is not known."""
    release = _release_without_approval(observation, since=observation.machine.metadata.deletion_timestamp)
    if release is not None:
        return _release(observation, release)
    return _hold(observation, messages.node_unknown(observation), since=observation.machine.metadata.deletion_timestamp)


def decide_unmanaged(observation: Observation) -> PartialDecision:
    """Return the decision for a deletion if no profile would prepare the node."""
    return _release(observation, ReleaseReason.NOT_MANAGED)


def _decide_like_predecessor(observation: Observation, node: Node, *, is_approved: bool) -> PartialDecision:
    """Behave like the runtime-extension-maintenance-controller: an approval counts whenever it was given."""
    since = observation.machine.metadata.deletion_timestamp
    requested = node.metadata.labels.get(MACHINE_DELETED) == TRUE
    release = (
        ReleaseReason.APPROVED
        if is_approved
        else _release_without_approval(observation, since=since if requested else None)
    )
    if release is not None:
        part = _release(observation, release)
    elif observation.refusal and not requested:
        return refused(observation, _hold(observation, observation.refusal))
    else:
        part = _hold(observation, messages.waiting_for_approval(node, APPROVE_DELETION), since=since)
    is_new = not requested and release is None
    new_events = (_request_event(observation, node),) if is_new else ()
    return replace(
        part,
        node_labels={MACHINE_DELETED: TRUE},
        node_annotations=_NO_REQUEST_ANNOTATION,
        is_new_request=is_new,
        is_active=True,
        events=(*part.events, *new_events),
    )


def _requested(observation: Observation, node: Node, request: NodeRequest, *, is_approved: bool) -> PartialDecision:
    release = ReleaseReason.APPROVED if is_approved else _release_without_approval(observation, since=request.since)
    if release is not None:
        part = _release(observation, release)
    else:
        part = _hold(observation, messages.waiting_for_approval(node, APPROVE_DELETION), since=request.since)
    return replace(part, node_annotations={DELETION_REQUEST: request.annotation_value}, is_active=True)


def _not_requested(observation: Observation, node: Node, *, is_approved: bool) -> PartialDecision:
    is_old_approval = is_approved and observation.settings.old_approvals is not OldApprovals.CLEAR
    # The timeout runs from the request, or from when it could have been written but for an old approval; not while the
    # budget is exhausted.
    since = observation.machine.metadata.deletion_timestamp if is_old_approval else None
    release = _release_without_approval(observation, since=since)
    if release is not None:
        return _release(observation, release)
    if is_old_approval:
        reason = messages.old_approval(node, APPROVE_DELETION)
        part = with_status_event(
            _hold(observation, reason, since=since), HubEventReason.STALE_APPROVAL, is_warning=True
        )
        return replace(part, node_labels=_NO_REQUEST_LABEL, node_annotations=_NO_REQUEST_ANNOTATION)
    if observation.refusal:
        return refused(observation, _hold(observation, observation.refusal))
    request = NodeRequest(machine=observation.machine.uid, since=observation.now)
    labels: dict[str, str | None] = {MACHINE_DELETED: TRUE} | ({APPROVE_DELETION: None} if is_approved else {})
    return replace(
        _hold(observation, messages.waiting_for_approval(node, APPROVE_DELETION), since=observation.now),
        node_labels=labels,
        node_annotations={DELETION_REQUEST: request.annotation_value},
        is_new_request=True,
        is_active=True,
        events=(_request_event(observation, node),),
    )


def _request_event(observation: Observation, node: Node) -> PendingEvent:
    return PendingEvent(
        reason=HubEventReason.DELETION_REQUESTED, note=messages.deletion_requested(observation, node), on_node=True
    )


def _release_without_approval(observation: Observation, *, since: datetime | None) -> ReleaseReason | None:
    """Return why a deletion is released without approval; `since` is when the wait for the approval began."""
    if observation.node is None and (observation.is_node_known or not observation.machine.node):
        return ReleaseReason.NO_NODE
    if observation.is_cluster_being_deleted:
        return ReleaseReason.CLUSTER_DELETED
    for deadline, release in (
        (_unreachable_deadline(observation), ReleaseReason.UNREACHABLE),
        (_approval_deadline(observation, since), ReleaseReason.TIMED_OUT),
    ):
        if deadline is not None and deadline <= observation.now:
            return release
    return None


def _unreachable_deadline(observation: Observation) -> datetime | None:
    after, since = observation.settings.unreachable_after, observation.unreachable_since
    return None if after is None or since is None or observation.is_node_known else since + after


def _approval_deadline(observation: Observation, since: datetime | None) -> datetime | None:
    after = observation.settings.approval_timeout
    return None if after is None or since is None else since + after


def _release(observation: Observation, release: ReleaseReason | None) -> PartialDecision:
    """Return the decision that releases the deletion; `release` is None if it was released before."""
    machine = observation.machine
    has_hook = PRE_DRAIN_HOOK in machine.metadata.annotations
    hook_returns = observation.settings.old_approvals is OldApprovals.HONOUR and release in _HOOK_RETURNS_AFTER
    annotations: DesiredValues = {DELETION_RELEASED: str(release)} if has_hook and release and not hook_returns else {}
    reason = messages.released(release or machine.metadata.annotations.get(DELETION_RELEASED, ""), observation)
    event = PendingEvent(reason=str(release), note=reason, is_warning=release.is_warning) if release else None
    return PartialDecision(
        machine_annotations={PRE_DRAIN_HOOK: None, **annotations},
        status=request_status(
            observation, RequestType.DELETION, reason, since=machine.metadata.deletion_timestamp, is_approved=True
        ),
        events=(event,) if event and has_hook else (),
    )


_HOOK_RETURNS_AFTER = (
    ReleaseReason.APPROVED,
    ReleaseReason.NOT_MANAGED,
)  # with OldApprovals.HONOUR the hook is set again, like the predecessor does


def _hold(observation: Observation, reason: str, *, since: datetime | None = None) -> PartialDecision:
    """Return the decision that holds the deletion; the approval timeout runs from `since`."""
    deadlines = [
        deadline
        for deadline in (_unreachable_deadline(observation), _approval_deadline(observation, since))
        if deadline is not None
    ]
    requested_at, until = observation.machine.metadata.deletion_timestamp, min(deadlines, default=None)
    part = pending_decision(
        observation,
        request_status(observation, RequestType.DELETION, reason, since=requested_at, until=until),
        since=since,
    )
    return replace(part, machine_annotations=_HOOK_SET if observation.node is not None else {})
