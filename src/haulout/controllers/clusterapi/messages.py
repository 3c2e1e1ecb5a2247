"""Messages for users: in events, in the log, and in the status of a Machine."""

from datetime import datetime

from haulout.api.clusterapi import ENABLED, MAINTENANCE, MAINTENANCE_STATE, PAUSED
from haulout.api.objects import Node
from haulout.controllers.clusterapi.observation import Observation, ReleaseReason
from haulout.core import duration

OPTED_OUT = f"label {ENABLED} is not true: its deletion is no longer held"


def waiting_for_approval(node: Node, label: str) -> str:
    return f"waiting for label {label}=true on node {node.name}, which a maintenance profile of its cluster sets"


def old_approval(node: Node, label: str) -> str:
    """Return why no request is written yet."""
    premise = f"node {node.name} had label {label} before it was requested, which does not count"
    return f"{premise}: remove the label, or let the profile that set it do so; then the node is prepared"


def overdue(reason: str, since: datetime) -> str:
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
