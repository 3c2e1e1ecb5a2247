"""What the hub says to people: in events, in the log and wherever the standing of a Machine is shown."""

from datetime import datetime

from haulout.core import duration
from haulout.hub.outcome import Release, Seen
from haulout.kinds.clusterapi import ENABLED, MAINTENANCE, MANAGED, PAUSED
from haulout.kube.objects import Node

OPTED_OUT = f"label {ENABLED} is not true: its deletion is not held any more"


def unapproved(node: Node, label: str) -> str:
    """Return what a Machine waits for that its node's profile has to do."""
    return f"waiting for label {label}=true on node {node.name}, which a maintenance profile of its cluster sets"


def old_approval(node: Node, label: str) -> str:
    """Return why nothing is asked for yet."""
    was = f"node {node.name} had label {label} before it was asked for, which does not count"
    return f"{was}: the profile that set it, or you, should remove it; then the node is prepared"


def overdue(reason: str, since: datetime) -> str:
    """Return that something takes long."""
    return f"{reason}; it was asked for at {since:%Y-%m-%d %H:%M} UTC"


def deletion_asked(seen: Seen, node: Node) -> str:
    """Return that a node is to be prepared for its end."""
    return f"Machine {seen.machine.key} is being deleted: node {node.name} is to be prepared for that"


def maintenance_asked(seen: Seen, node: Node) -> str:
    """Return that a node is to be prepared."""
    return f"Machine {seen.machine.key} asks for maintenance: node {node.name} is to be prepared for that"


def maintenance_approved(node: Node) -> str:
    """Return that a node is prepared."""
    return f"node {node.name} is ready: maintenance may begin, and ends when label {MAINTENANCE} is removed"


def withdrawn(node: Node) -> str:
    """Return that maintenance begins once more."""
    return f"maintenance is asked for anew: what was asked of node {node.name} before is withdrawn"


def unseen(seen: Seen) -> str:
    """Return why nothing is done about a Machine whose node is not known."""
    if seen.unreachable_since is None:
        return f"cluster {seen.machine.cluster} is being connected to"
    verb = "read" if seen.is_unreadable else "reached"
    return f"cluster {seen.machine.cluster} cannot be {verb} since {seen.unreachable_since:%Y-%m-%d %H:%M} UTC"


def paused(seen: Seen) -> str:
    """Return why nothing is written about a Machine and its node."""
    if seen.is_cluster_paused:
        return f"Cluster {seen.machine.cluster} is paused: nothing is requested until it is resumed"
    return f"Machine {seen.machine.key} has annotation {PAUSED}: nothing is requested until that is removed"


def machine_gone(node: Node) -> str:
    """Return why a request is withdrawn."""
    return f"the Machine of node {node.name} is gone, and the node is not: what was requested of it is withdrawn"


def released(why: str, seen: Seen) -> str:
    """Return why a deletion is not held."""
    node, limit = seen.machine.node, seen.settings.approval_timeout
    within = f"within {duration.short(limit)}" if limit else "in time"
    gone = f"node {node} is gone" if node else "it has no node"
    said = {
        Release.APPROVED: f"node {node} is ready: Cluster API may drain and remove it",
        Release.TIMED_OUT: f"nobody approved the deletion of node {node} {within}: it is not held any longer",
        Release.CLUSTER_LEAVES: f"cluster {seen.machine.cluster} is being deleted as a whole: nobody has to approve",
        Release.UNREACHABLE: f"{unseen(seen)}: its deletion is not held any longer",
        Release.NO_NODE: f"{gone}: nobody has to approve",
        Release.NOT_MANAGED: f"node {node} has no label {MANAGED}: nobody would prepare it",
    }
    return next((text for it, text in said.items() if it == why), "its deletion is not held any more")
