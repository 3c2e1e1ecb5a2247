"""Status and events of a Machine that waits for its node: what deletion and maintenance share. Pure."""

from dataclasses import replace
from datetime import datetime

from haulout.api.clusterapi import TRUE
from haulout.api.objects import Node
from haulout.controllers.clusterapi import messages
from haulout.controllers.clusterapi.node_request import NodeRequest
from haulout.controllers.clusterapi.observation import Observation, PartialDecision, PendingEvent
from haulout.controllers.clusterapi.status import MachineRequestStatus, RequestType


def is_requested(node: Node, request: NodeRequest | None, *, label: str, annotation: str) -> bool:
    """Return whether a node has a request; without the annotation, a controller without annotations wrote it."""
    return node.metadata.labels.get(label) == TRUE and (
        request is not None or annotation not in node.metadata.annotations
    )


def request_status(
    observation: Observation,
    request_type: RequestType,
    reason: str,
    *,
    since: datetime | None,
    until: datetime | None = None,
    is_approved: bool = False,
) -> MachineRequestStatus:
    return MachineRequestStatus(
        name=observation.machine.name,
        node=observation.machine.node,
        request_type=request_type,
        is_approved=is_approved,
        reason=reason,
        since=since,
        until=until,
    )


def pending_decision(
    observation: Observation, status: MachineRequestStatus, *, since: datetime | None
) -> PartialDecision:
    """Return the decision that waits with this status; it becomes overdue some time after `since`, if given."""
    overdue = None if since is None else since + observation.settings.overdue_after
    requeue_times = [
        instant for instant in (status.until, overdue) if instant is not None and instant > observation.now
    ]
    part = PartialDecision(status=status, requeue_at=min(requeue_times, default=None))
    if since is None or overdue is None or overdue > observation.now:
        return part
    return replace(
        part,
        status_events=(
            PendingEvent(reason="ApprovalOverdue", note=messages.overdue(status.reason, since), is_warning=True),
        ),
    )


def with_status_event(part: PartialDecision, reason: str, *, is_warning: bool = False) -> PartialDecision:
    """Return the decision with an event for its status; a warning is recorded on the node, too."""
    note = "" if part.status is None else part.status.reason
    return replace(
        part,
        status_events=(
            PendingEvent(reason=reason, note=note, is_warning=is_warning, on_node=is_warning),
            *part.status_events,
        ),
    )
