"""Messages for users: in events, in the log, and in the status of a Machine. Pure.

It also builds the status and the events of a Machine that waits for its node, which deletion and maintenance share.
"""

from dataclasses import replace
from datetime import datetime

from haulout.api.clusterapi import ENABLED, MAINTENANCE, MAINTENANCE_STATE, PAUSED, TRUE
from haulout.api.objects import Node
from haulout.api.reasons import HubEventReason
from haulout.controllers.clusterapi.observation import (
    NodeRequest,
    Observation,
    PartialDecision,
    PendingEvent,
    ReleaseReason,
)
from haulout.controllers.clusterapi.status import MachineRequestStatus, RequestType
from haulout.core import duration

OPTED_OUT = f"label {ENABLED} is not true: its deletion is no longer held"


def waiting_for_approval(node: Node, label: str) -> str:
    return f"waiting for label {label}=true on node {node.name}, which a maintenance profile of its cluster sets"


def old_approval(node: Node, label: str) -> str:
    """Return why no request is written yet."""
    premise = f"node {node.name} had label {label} before it was requested, which does not count"
    return f"{premise}: remove the label, or let the profile that set it do so; then the node is prepared"


def overdue_message(reason: str, since: datetime) -> str:
    return f"{reason}; it was requested at {since:%Y-%m-%d %H:%M} UTC"


def deletion_requested(observation: Observation, node: Node) -> str:
    return f"Machine {observation.machine.key} is being deleted: node {node.name} must be prepared first"


def maintenance_requested(observation: Observation, node: Node) -> str:
    return f"Machine {observation.machine.key} asks for maintenance: node {node.name} must be prepared first"


def maintenance_approved(node: Node) -> str:
    return f"node {node.name} is ready: maintenance may begin, and ends when label {MAINTENANCE} is removed"


def maintenance_requested_again(node: Node) -> str:
    return f"maintenance is requested again: the earlier request to node {node.name} is withdrawn"


def node_unknown(observation: Observation) -> str:
    """Return why nothing is written for a Machine whose node is not known."""
    if observation.unreachable_since is None:
        return f"connecting to cluster {observation.machine.cluster}"
    verb = "read" if observation.is_unreadable else "reached"
    return (
        f"cluster {observation.machine.cluster} cannot be {verb} "
        f"since {observation.unreachable_since:%Y-%m-%d %H:%M} UTC"
    )


def paused(observation: Observation) -> str:
    if observation.is_cluster_paused:
        return f"Cluster {observation.machine.cluster} is paused: nothing is requested until it is resumed"
    return f"Machine {observation.machine.key} has annotation {PAUSED}: nothing is requested until that is removed"


def machine_gone(node: Node) -> str:
    """Return why a request is withdrawn: its Machine was deleted, its node was not."""
    return f"the Machine of node {node.name} is gone, but the node still exists: its maintenance request is withdrawn"


def released(release: str, observation: Observation) -> str:
    """Return why a deletion is not held; `release` may be a value of another version, from an annotation."""
    node, limit = observation.machine.node, observation.settings.approval_timeout
    within = f"within {duration.format_short(limit)}" if limit else "in time"
    gone = f"node {node} is gone" if node else "it has no node"
    texts = {
        ReleaseReason.APPROVED: f"node {node} is ready: Cluster API may drain and remove it",
        ReleaseReason.TIMED_OUT: f"the deletion of node {node} was not approved {within}: it is no longer held",
        ReleaseReason.CLUSTER_DELETED: (
            f"cluster {observation.machine.cluster} is being deleted: no approval is needed"
        ),
        ReleaseReason.UNREACHABLE: f"{node_unknown(observation)}: its deletion is no longer held",
        ReleaseReason.NO_NODE: f"{gone}: no approval is needed",
        ReleaseReason.NOT_MANAGED: f"node {node} has no label {MAINTENANCE_STATE}: no profile would prepare it",
    }
    return next((text for candidate, text in texts.items() if candidate == release), "its deletion is no longer held")


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
            PendingEvent(
                reason=HubEventReason.APPROVAL_OVERDUE, note=overdue_message(status.reason, since), is_warning=True
            ),
        ),
    )


def refused(observation: Observation, part: PartialDecision) -> PartialDecision:
    """Return the decision that waits because of `observation.refusal`."""
    hold = observation.hold
    if hold is None:
        return with_status_event(part, HubEventReason.CLUSTER_BUDGET_EXHAUSTED)
    requeue_at = min(filter(None, (part.requeue_at, hold.until)), default=None)
    return replace(with_status_event(part, HubEventReason.FROZEN), requeue_at=requeue_at)


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
