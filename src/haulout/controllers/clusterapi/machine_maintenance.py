"""Maintenance of a Machine that stays: requested by a label, approved by the node's profile, ended by its owner. Pure.

A new request after an approval gets a new approval: the old request is withdrawn from the node first, so that the
profile sees its end, removes its approval, and prepares the node again.
"""

from dataclasses import replace
from datetime import datetime

from haulout.api.clusterapi import APPROVE_MAINTENANCE, APPROVED, MACHINE_MAINTENANCE, MAINTENANCE, REQUESTED, TRUE
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
    APPROVED_REQUEST,
    MAINTENANCE_REQUEST,
    DesiredValues,
    NodeRequest,
    Observation,
    PartialDecision,
    PendingEvent,
    request_for,
)
from haulout.controllers.clusterapi.settings import OldApprovals
from haulout.controllers.clusterapi.status import RequestType

_REQUEST_LABEL: DesiredValues = {MACHINE_MAINTENANCE: TRUE}
_NO_REQUEST_LABEL: DesiredValues = {MACHINE_MAINTENANCE: None}
_NO_REQUEST_ANNOTATION: DesiredValues = {MAINTENANCE_REQUEST: None}


def decide_maintenance(observation: Observation, node: Node) -> PartialDecision:
    """Return the decision while the node is managed."""
    requested_state = observation.machine.metadata.labels.get(MAINTENANCE)
    if requested_state not in (REQUESTED, APPROVED):
        return PartialDecision(
            node_labels=_NO_REQUEST_LABEL,
            node_annotations=_NO_REQUEST_ANNOTATION,
            machine_annotations={APPROVED_REQUEST: None},
        )
    is_approved = node.metadata.labels.get(APPROVE_MAINTENANCE) == TRUE
    # For a migration from the predecessor only: it cannot tell an approval of an earlier request from one of this
    # request.
    if observation.settings.old_approvals is OldApprovals.HONOUR:
        return _decide_like_predecessor(observation, node, requested_state, is_approved=is_approved)
    request = request_for(node, MAINTENANCE_REQUEST, observation.machine)
    # Approved already: nothing is waited for. The request stays on the node until the owner of the Machine removes
    # the label, because the profile holds the node in maintenance as long as it sees the request.
    if requested_state == APPROVED:
        request = request or NodeRequest(machine=observation.machine.uid, since=observation.now)
        return replace(
            _approved(observation, node, request),
            node_labels=_REQUEST_LABEL,
            node_annotations={MAINTENANCE_REQUEST: request.annotation_value},
        )
    # The owner asks again although this request was approved: withdraw it, so that the profile goes through a full
    # cycle. The next reconcile, without a request on the node, writes a new one.
    if request is not None and observation.machine.metadata.annotations.get(APPROVED_REQUEST) == request.identity:
        return _withdraw(observation, node)
    if is_requested(node, request, label=MACHINE_MAINTENANCE, annotation=MAINTENANCE_REQUEST):
        request = request or NodeRequest(machine=observation.machine.uid, since=observation.now)
        return _requested(observation, node, request, is_approved=is_approved)
    return _not_requested(observation, node, is_approved=is_approved)


def _decide_like_predecessor(
    observation: Observation, node: Node, requested_state: str, *, is_approved: bool
) -> PartialDecision:
    """Behave like the runtime-extension-maintenance-controller: an approval counts whenever it was given."""
    requested = node.metadata.labels.get(MACHINE_MAINTENANCE) == TRUE
    no_approval_annotation: DesiredValues = {APPROVED_REQUEST: None}
    if requested_state == REQUESTED and not is_approved and observation.refusal and not requested:
        return replace(
            refused(observation, _wait(observation, observation.refusal)),
            machine_annotations=no_approval_annotation,
        )
    if requested_state == APPROVED or is_approved:
        part = _approved(observation, node, None)
        labels: DesiredValues = {} if requested_state == APPROVED else {MAINTENANCE: APPROVED}
        part = replace(part, machine_labels=labels, events=_approval_events(node) if labels else ())
    else:
        part = _wait(observation, messages.waiting_for_approval(node, APPROVE_MAINTENANCE))
    is_new = not requested and requested_state == REQUESTED and not is_approved
    new_events = (_request_event(observation, node),) if is_new else ()
    return replace(
        part,
        node_labels=_REQUEST_LABEL,
        node_annotations=_NO_REQUEST_ANNOTATION,
        machine_annotations=no_approval_annotation,
        is_new_request=is_new,
        is_active=True,
        events=(*part.events, *new_events),
    )


def _approved(observation: Observation, node: Node, request: NodeRequest | None) -> PartialDecision:
    since = None if request is None else request.since
    status = request_status(
        observation, RequestType.MAINTENANCE, messages.maintenance_approved(node), since=since, is_approved=True
    )
    return PartialDecision(is_active=True, status=status)


def _requested(observation: Observation, node: Node, request: NodeRequest, *, is_approved: bool) -> PartialDecision:
    annotations: DesiredValues = {MAINTENANCE_REQUEST: request.annotation_value}
    if not is_approved:
        reason = messages.waiting_for_approval(node, APPROVE_MAINTENANCE)
        return replace(_wait(observation, reason, since=request.since), node_annotations=annotations, is_active=True)
    return replace(
        _approved(observation, node, request),
        node_annotations=annotations,
        machine_labels={MAINTENANCE: APPROVED},
        machine_annotations={APPROVED_REQUEST: request.identity},
        events=_approval_events(node),
    )


def _withdraw(observation: Observation, node: Node) -> PartialDecision:
    return replace(
        _wait(observation, messages.maintenance_requested_again(node)),
        node_labels=_NO_REQUEST_LABEL,
        node_annotations=_NO_REQUEST_ANNOTATION,
        events=(
            PendingEvent(
                reason=HubEventReason.MAINTENANCE_REQUESTED_AGAIN,
                note=messages.maintenance_requested_again(node),
                on_node=True,
            ),
        ),
    )


def _not_requested(observation: Observation, node: Node, *, is_approved: bool) -> PartialDecision:
    clears_old_approval = observation.settings.old_approvals is OldApprovals.CLEAR
    # The label is there although nobody asked. It may be left over, and says nothing about the pods that run there
    # now.
    if is_approved and not clears_old_approval:
        reason = messages.old_approval(node, APPROVE_MAINTENANCE)
        part = with_status_event(_wait(observation, reason), HubEventReason.STALE_APPROVAL, is_warning=True)
        return replace(part, node_labels=_NO_REQUEST_LABEL, node_annotations=_NO_REQUEST_ANNOTATION)
    if observation.refusal:
        return refused(observation, _wait(observation, observation.refusal))
    request = NodeRequest(machine=observation.machine.uid, since=observation.now)
    # Both in one patch: between two patches the old approval would count for the new request.
    labels: DesiredValues = {APPROVE_MAINTENANCE: None, **_REQUEST_LABEL} if is_approved else _REQUEST_LABEL
    return replace(
        _wait(observation, messages.waiting_for_approval(node, APPROVE_MAINTENANCE), since=observation.now),
        node_labels=labels,
        node_annotations={MAINTENANCE_REQUEST: request.annotation_value},
        is_new_request=True,
        is_active=True,
        events=(_request_event(observation, node),),
    )


def _request_event(observation: Observation, node: Node) -> PendingEvent:
    return PendingEvent(
        reason=HubEventReason.MAINTENANCE_REQUESTED,
        note=messages.maintenance_requested(observation, node),
        on_node=True,
    )


def _approval_events(node: Node) -> tuple[PendingEvent, ...]:
    return (PendingEvent(reason=HubEventReason.MAINTENANCE_APPROVED, note=messages.maintenance_approved(node)),)


def _wait(observation: Observation, reason: str, *, since: datetime | None = None) -> PartialDecision:
    return pending_decision(
        observation, request_status(observation, RequestType.MAINTENANCE, reason, since=since), since=since
    )
