"""What the hub says to people: in events, in the log and wherever the standing of a Machine is shown."""

from datetime import datetime

from haulout.api.clusterapi import ENABLED, MAINTENANCE, MAINTENANCE_STATE, PAUSED
from haulout.api.objects import Node
from haulout.controllers.clusterapi.observation import Observation, ReleaseReason
from haulout.core import duration

OPTED_OUT = f"label {ENABLED} is not true: its deletion is not held any more"


def waiting_for_approval(node: Node, label: str) -> str:
    """Return what a Machine waits for that its node's profile has to do."""
    return f"waiting for label {label}=true on node {node.name}, which a maintenance profile of its cluster sets"


def old_approval(node: Node, label: str) -> str:
    """Return why nothing is asked for yet."""
    premise = f"node {node.name} had label {label} before it was asked for, which does not count"
    return f"{premise}: the profile that set it, or you, should remove it; then the node is prepared"


def overdue(reason: str, since: datetime) -> str:
    """Return that something takes long."""
    return f"{reason}; it was asked for at {since:%Y-%m-%d %H:%M} UTC"


def deletion_requested(observation: Observation, node: Node) -> str:
    """Return that a node is to be prepared for its end."""
    return f"Machine {observation.machine.key} is being deleted: node {node.name} is to be prepared for that"


def maintenance_requested(observation: Observation, node: Node) -> str:
    """Return that a node is to be prepared."""
    return f"Machine {observation.machine.key} asks for maintenance: node {node.name} is to be prepared for that"


def maintenance_approved(node: Node) -> str:
    """Return that a node is prepared."""
    return f"node {node.name} is ready: maintenance may begin, and ends when label {MAINTENANCE} is removed"


def maintenance_requested_again(node: Node) -> str:
    """Return that maintenance begins once more."""
    return f"maintenance is asked for anew: what was asked of node {node.name} before is withdrawn"


def node_unknown(observation: Observation) -> str:
    """Return why nothing is done about a Machine whose node is not known."""
    if observation.unreachable_since is None:
        return f"cluster {observation.machine.cluster} is being connected to"
    verb = "read" if observation.is_unreadable else "reached"
    return (
        f"cluster {observation.machine.cluster} cannot be {verb} "
        f"since {observation.unreachable_since:%Y-%m-%d %H:%M} UTC"
    )


def paused(observation: Observation) -> str:
    """Return why nothing is written about a Machine and its node."""
    if observation.is_cluster_paused:
        return f"Cluster {observation.machine.cluster} is paused: nothing is requested until it is resumed"
    return f"Machine {observation.machine.key} has annotation {PAUSED}: nothing is requested until that is removed"


def machine_gone(node: Node) -> str:
    """Return why a request is withdrawn."""
    return f"the Machine of node {node.name} is gone, and the node is not: what was requested of it is withdrawn"


def released(release: str, observation: Observation) -> str:
    """Return why a deletion is not held."""
    node, limit = observation.machine.node, observation.settings.approval_timeout
    within = f"within {duration.format_short(limit)}" if limit else "in time"
    gone = f"node {node} is gone" if node else "it has no node"
    texts = {
        ReleaseReason.APPROVED: f"node {node} is ready: Cluster API may drain and remove it",
        ReleaseReason.TIMED_OUT: f"nobody approved the deletion of node {node} {within}: it is not held any longer",
        ReleaseReason.CLUSTER_DELETED: (
            f"cluster {observation.machine.cluster} is being deleted as a whole: nobody has to approve"
        ),
        ReleaseReason.UNREACHABLE: f"{node_unknown(observation)}: its deletion is not held any longer",
        ReleaseReason.NO_NODE: f"{gone}: nobody has to approve",
        ReleaseReason.NOT_MANAGED: f"node {node} has no label {MAINTENANCE_STATE}: nobody would prepare it",
    }
    return next(
        (text for candidate, text in texts.items() if candidate == release), "its deletion is not held any more"
    )
