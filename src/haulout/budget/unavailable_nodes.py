"""Which nodes are out of service, by what stands on them: whoever took one has left its mark there.

- A profile has it in maintenance, or is on its way: its state label, and the annotation of transitions that have begun.
- A person's order (NodeMaintenance) holds it: by our mark, or by the taint of the Node Maintenance Operator.
- A person's order is over, and the workloads that it evicted recover: by our annotation.
- It is to be deleted, by the label of Kubernikus: by our mark.
- It is on an ESX host in maintenance, and is shut down: by our mark.
- It is down: not ready for longer than `DOWN_AFTER`. A kubelet that restarts, or one heartbeat too late, is nothing to
  stop others for. A node that has never been ready is not down but joining: nobody misses it yet.

What a controller writes and what others must know is defined here, below all of them: they do not know each other.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal

import msgspec

from haulout.api.objects import Condition, Node
from haulout.drain import cordon
from haulout.drain.cordon import InvalidCordonAnnotation

STATE_LABEL = "cloud.sap/maintenance-state"
IN_MAINTENANCE: Literal["in-maintenance"] = "in-maintenance"
TRANSITIONS_ANNOTATION = "haulout.dev/transitions"  # an annotation: what a profile has begun
RECOVERING_ANNOTATION = (
    "haulout.dev/recovering"  # an annotation: names of orders that are over, and whose workloads recover
)
NODE_MAINTENANCE_OWNER_PREFIX = "NodeMaintenance/"  # of owners of a cordon
PROFILE_OWNER_PREFIX = "profile/"  # the same
DELETE_NODE_OWNER = "Kubernikus/delete-node"  # the owner of a cordon
ESX_OWNER = "ESX"  # the owner of a cordon
DRAIN_TAINT = cordon.DRAIN_TAINT

DOWN_AFTER = timedelta(minutes=1)
_JOIN_TIME = timedelta(seconds=10)  # of its creation, a kubelet says for the first time that it is not ready
_NEVER_UPDATED = "NodeStatusNeverUpdated"  # pkg/controller/nodelifecycle of Kubernetes


class MaintenanceCause(StrEnum):
    """Who takes nodes out of service."""

    PROFILES = "profiles"
    NODE_MAINTENANCES = "NodeMaintenance"


def may_be_unavailable(node: Node) -> bool:
    """Tell whether a node is out of service, or may be before anything about it changes."""
    return is_under_maintenance(node) or not _is_ready(node)


def is_unavailable(node: Node, now: datetime) -> bool:
    """Tell whether a node is out of service."""
    return is_under_maintenance(node) or down_since(node, now) is not None


def is_under_maintenance(node: Node) -> bool:
    """Tell whether somebody has taken a node out of service."""
    has_owner = (
        bool(node_maintenances_of(node) or recovering_node_maintenances_of(node))
        or is_to_be_deleted(node)
        or is_shut_down(node)
    )
    return is_in_profile_maintenance(node) or has_owner or cordon.has_drain_taint(node)


def is_under_maintenance_by(cause: MaintenanceCause, node: Node) -> bool:
    """Tell whether a node is in the hands of one of these, or on its way: then a slot for it is in use."""
    if cause is MaintenanceCause.PROFILES:
        return (
            node.metadata.labels.get(STATE_LABEL) == IN_MAINTENANCE
            or TRANSITIONS_ANNOTATION in node.metadata.annotations
        )
    # A mark that cannot be read may be anybody's.
    return (
        bool(node_maintenances_of(node) or recovering_node_maintenances_of(node))
        or cordon.has_drain_taint(node)
        or _has_bad_mark(node)
    )


def is_in_profile_maintenance(node: Node) -> bool:
    """Tell whether a profile has a node in maintenance, or is on its way there."""
    if node.metadata.labels.get(STATE_LABEL) == IN_MAINTENANCE:
        return True
    raw = node.metadata.annotations.get(TRANSITIONS_ANNOTATION)
    return raw is not None and any(transition.next == IN_MAINTENANCE for transition in _transitions(raw))


def node_maintenances_of(node: Node) -> tuple[str, ...]:
    """Return the names of the orders that keep a node cordoned, as far as that can be read."""
    return tuple(
        owner.removeprefix(NODE_MAINTENANCE_OWNER_PREFIX)
        for owner in _cordon_owners(node)
        if owner.startswith(NODE_MAINTENANCE_OWNER_PREFIX)
    )


def recovering_node_maintenances_of(node: Node) -> tuple[str, ...]:
    """Return the names of the orders that have given a node back, and wait until their workloads have recovered."""
    raw = node.metadata.annotations.get(RECOVERING_ANNOTATION, "")
    return tuple(name for name in raw.split(",") if name)


def is_to_be_deleted(node: Node) -> bool:
    """Tell whether a node is being emptied because its server is to be deleted."""
    return DELETE_NODE_OWNER in _cordon_owners(node)


def is_shut_down(node: Node) -> bool:
    """Tell whether a node is emptied and shut down because its ESX host needs maintenance."""
    return ESX_OWNER in _cordon_owners(node)


def _cordon_owners(node: Node) -> tuple[str, ...]:
    try:
        mark = cordon.cordon_of(node)
    except InvalidCordonAnnotation:
        return ()
    return () if mark is None else tuple(mark.owners)


def has_become_not_ready(node: Node) -> bool:
    """Tell whether a node is not ready, and has been: it is down if that lasts."""
    ready = _ready_condition(node)
    return ready is not None and ready.status != "True" and not _is_joining(node, ready)


def ready_transition_time(node: Node) -> datetime | None:
    """Return since when a node is as ready or not as it is, if it says so."""
    ready = _ready_condition(node)
    return None if ready is None else ready.last_transition_time


def down_since(node: Node, now: datetime) -> datetime | None:
    """Return since when a node is down, if it is and nobody can hope for a slip any more.

    What is far in the future was long ago: it is our clock that is wrong.
    """
    if not has_become_not_ready(node):
        return None
    since = ready_transition_time(node)
    if since is None:
        return node.metadata.creation_timestamp or now
    return None if abs(now - since) < DOWN_AFTER else since


def _is_joining(node: Node, ready: Condition) -> bool:
    """Tell whether a node has never been ready since it was created."""
    created, since = node.metadata.creation_timestamp, ready.last_transition_time
    if ready.reason == _NEVER_UPDATED:
        return True
    return ready.status == "False" and created is not None and since is not None and since <= created + _JOIN_TIME


def unavailability_reason(node: Node, now: datetime) -> str:
    """Return for people who or what keeps a node out of service."""
    reasons = [f"NodeMaintenance {name}" for name in node_maintenances_of(node)]
    reasons += [f"workloads recover from NodeMaintenance {name}" for name in recovering_node_maintenances_of(node)]
    if is_in_profile_maintenance(node):
        reasons.append("in maintenance by a profile")
    if is_to_be_deleted(node):
        reasons.append("to be deleted, by label cloud.sap/delete-node")
    if is_shut_down(node):
        reasons.append("shut down for its ESX host")
    if not reasons and cordon.has_drain_taint(node):
        reasons.append(f"taint {DRAIN_TAINT.key}")
    if since := down_since(node, now):
        reasons.append(f"down since {since:%Y-%m-%d %H:%M:%S} UTC")
    return ", ".join(reasons)


def may_be_available_again(old: Node, new: Node | None) -> bool:
    """Tell whether a change may have brought a node back into service; one that is gone is not missed."""
    return may_be_unavailable(old) and (new is None or _availability_inputs(old) != _availability_inputs(new))


def _availability_inputs(node: Node) -> object:
    """Return what decides whether a node counts."""
    annotations = node.metadata.annotations
    marks = tuple(
        map(
            annotations.get,
            (cordon.CORDON_ANNOTATION, cordon.CORDON_BACKUP_ANNOTATION, TRANSITIONS_ANNOTATION, RECOVERING_ANNOTATION),
        )
    )
    state = node.metadata.labels.get(STATE_LABEL)
    return node.uid, marks, state, node.spec.unschedulable, cordon.has_drain_taint(node), _is_ready(node)


def _is_ready(node: Node) -> bool:
    ready = _ready_condition(node)
    return ready is not None and ready.status == "True"


def _ready_condition(node: Node) -> Condition | None:
    return next((condition for condition in node.status.conditions if condition.type == "Ready"), None)


def _has_bad_mark(node: Node) -> bool:
    try:
        cordon.cordon_of(node)
    except InvalidCordonAnnotation:
        return True
    return False


class _Transition(msgspec.Struct, frozen=True):
    next: str = ""


def _transitions(raw: str) -> Iterator[_Transition]:
    try:
        yield from msgspec.json.decode(raw, type=dict[str, _Transition]).values()
    except (msgspec.ValidationError, msgspec.DecodeError):
        return
