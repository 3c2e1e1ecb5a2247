"""What is shown and told of a Machine that waits for its node, whatever for: deletion and maintenance alike. Pure."""

from dataclasses import replace
from datetime import datetime

from haulout.api.clusterapi import TRUE
from haulout.api.objects import Node
from haulout.controllers.clusterapi import messages
from haulout.controllers.clusterapi.node_request import NodeRequest
from haulout.controllers.clusterapi.observation import Observation, PartialDecision, PendingEvent
from haulout.controllers.clusterapi.status import MachineRequestStatus, RequestType


def is_requested(node: Node, request: NodeRequest | None, *, label: str, annotation: str) -> bool:
    """Tell whether a node says what is asked of it; without a note, a hub that knew no notes has asked."""
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
    """Return how it stands with a Machine."""
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
    """Return that a Machine waits as is `status`, which takes too long some time after `since`; None: it never does."""
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
    """Return the same, of which people hear once what it waits for; if that is bad, on the node, too."""
    note = "" if part.status is None else part.status.reason
    return replace(
        part,
        status_events=(
            PendingEvent(reason=reason, note=note, is_warning=is_warning, on_node=is_warning),
            *part.status_events,
        ),
    )
