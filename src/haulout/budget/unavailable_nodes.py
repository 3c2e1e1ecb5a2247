"""Which nodes are unavailable, decided by the node objects alone.

- In maintenance by a profile, or on the way there: the state label, and the annotation of started transitions.
- Held by a NodeMaintenance: our cordon annotation, or the taint of the Node Maintenance Operator.
- The NodeMaintenance is over, and the evicted workloads recover: our recovering annotation.
- Held by a component without an object of its own: our cordon annotation with its owner.
- Down: not ready for longer than `DOWN_AFTER`, since a kubelet restart or a late heartbeat must not block other nodes.
  A node that has never been ready is joining, not down: it does not count.

Labels and annotations that one controller writes and others read are defined here, because controllers must not import
each other.

`NotReadyTracker` measures on the local monotonic clock how long nodes have been NotReady. A node's lastTransitionTime
comes from another clock. If the local clock is hours ahead, a restarting kubelet looks as if its node had been down for
hours, and the node would be taken although the budget is exhausted. Controllers that watch nodes therefore measure the
time themselves, on a clock that cannot be set.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal

import msgspec

from haulout.api import annotations
from haulout.api.objects import Condition, Node
from haulout.core.clock import Clock
from haulout.drain import cordon
from haulout.drain.cordon import InvalidCordonAnnotation

STATE_LABEL = "cloud.sap/maintenance-state"
IN_MAINTENANCE: Literal["in-maintenance"] = "in-maintenance"
TRANSITIONS_ANNOTATION = annotations.TRANSITIONS  # annotation with the transitions that a profile has begun
# Annotation with the names of ended NodeMaintenances whose workloads recover.
RECOVERING_ANNOTATION = annotations.RECOVERING
NODE_MAINTENANCE_OWNER_PREFIX = "NodeMaintenance/"  # prefix of cordon owners
PROFILE_OWNER_PREFIX = "profile/"  # prefix of cordon owners
DRAIN_TAINT = cordon.DRAIN_TAINT

# A kubelet restart and a late heartbeat end within this time. Without heartbeats, the node lifecycle controller sets
# Ready to Unknown after its --node-monitor-grace-period; the kubelet itself sets it to False at once.
DOWN_AFTER = timedelta(minutes=1)
# Within this time of its creation, a new kubelet reports NotReady for the first time.
_JOIN_TIME = timedelta(seconds=10)
_NEVER_UPDATED = "NodeStatusNeverUpdated"  # pkg/controller/nodelifecycle of Kubernetes


class MaintenanceCause(StrEnum):
    """Which kind of controller makes a node unavailable."""

    PROFILES = "profiles"
    NODE_MAINTENANCES = "NodeMaintenance"


def may_be_unavailable(node: Node) -> bool:
    """Return whether a node is unavailable, or becomes so by the passing of time alone."""
    return is_under_maintenance(node) or not node.is_ready


def is_unavailable(node: Node, now: datetime) -> bool:
    return is_under_maintenance(node) or down_since(node, now) is not None


def is_under_maintenance(node: Node) -> bool:
    """Return whether a controller has made the node unavailable."""
    has_owner = bool(node_maintenances_of(node) or recovering_node_maintenances_of(node) or components_of(node))
    return is_in_profile_maintenance(node) or has_owner or cordon.has_drain_taint(node)


def is_under_maintenance_by(cause: MaintenanceCause, node: Node) -> bool:
    """Return whether the cause holds the node or is about to; a slot for it is in use then."""
    if cause is MaintenanceCause.PROFILES:
        return (
            node.metadata.labels.get(STATE_LABEL) == IN_MAINTENANCE
            or TRANSITIONS_ANNOTATION in node.metadata.annotations
        )
    # An unreadable cordon annotation may belong to any NodeMaintenance.
    return (
        bool(node_maintenances_of(node) or recovering_node_maintenances_of(node))
        or cordon.has_drain_taint(node)
        or _has_bad_mark(node)
    )


def is_in_profile_maintenance(node: Node) -> bool:
    """Return whether a profile has the node in maintenance, or is on the way there."""
    if node.metadata.labels.get(STATE_LABEL) == IN_MAINTENANCE:
        return True
    raw = node.metadata.annotations.get(TRANSITIONS_ANNOTATION)
    return raw is not None and any(transition.next == IN_MAINTENANCE for transition in _transitions(raw))


def node_maintenances_of(node: Node) -> tuple[str, ...]:
    """Return the names of the NodeMaintenances that own the cordon; empty if the annotation cannot be read."""
    return tuple(
        owner.removeprefix(NODE_MAINTENANCE_OWNER_PREFIX)
        for owner in _cordon_owners(node)
        if owner.startswith(NODE_MAINTENANCE_OWNER_PREFIX)
    )


def recovering_node_maintenances_of(node: Node) -> tuple[str, ...]:
    """Return the names of the NodeMaintenances that released the node and wait for workloads to recover."""
    raw = node.metadata.annotations.get(RECOVERING_ANNOTATION, "")
    return tuple(name for name in raw.split(",") if name)


def components_of(node: Node) -> tuple[str, ...]:
    """Return the cordon owners that have no object of their own, and are not profiles: components of the operator.

    A profile's cordon does not count: its state does.
    """
    prefixes = NODE_MAINTENANCE_OWNER_PREFIX, PROFILE_OWNER_PREFIX
    return tuple(owner for owner in _cordon_owners(node) if not owner.startswith(prefixes))


def _cordon_owners(node: Node) -> tuple[str, ...]:
    try:
        mark = cordon.cordon_of(node)
    except InvalidCordonAnnotation:
        return ()
    return () if mark is None else tuple(mark.owners)


def has_become_not_ready(node: Node) -> bool:
    """Return whether a node is not ready and was ready before: it is down if that lasts."""
    ready = node.condition("Ready")
    return ready is not None and ready.status != "True" and not _is_joining(node, ready)


def ready_transition_time(node: Node) -> datetime | None:
    ready = node.condition("Ready")
    return None if ready is None else ready.last_transition_time


def down_since(node: Node, now: datetime) -> datetime | None:
    """Return since when a node is down; None if it is not, or not for `DOWN_AFTER` yet.

    A transition time far in the future counts as long ago: the local clock is wrong then.
    """
    if not has_become_not_ready(node):
        return None
    since = ready_transition_time(node)
    if since is None:
        return node.metadata.creation_timestamp or now
    # `abs`: a time slightly in the future is the clock difference to the API server, not a node that has been down for
    # long.
    return None if abs(now - since) < DOWN_AFTER else since


def _is_joining(node: Node, ready: Condition) -> bool:
    """Return whether a node has never been ready since its creation."""
    created, since = node.metadata.creation_timestamp, ready.last_transition_time
    if ready.reason == _NEVER_UPDATED:
        return True
    return ready.status == "False" and created is not None and since is not None and since <= created + _JOIN_TIME


def unavailability_reason(node: Node, now: datetime) -> str:
    reasons = [f"NodeMaintenance {name}" for name in node_maintenances_of(node)]
    reasons += [
        f"waiting for workloads to recover from NodeMaintenance {name}"
        for name in recovering_node_maintenances_of(node)
    ]
    if is_in_profile_maintenance(node):
        reasons.append("in maintenance by a profile")
    reasons += [f"held by {owner.replace('/', ' ', 1)}" for owner in components_of(node)]
    if not reasons and cordon.has_drain_taint(node):
        reasons.append(f"taint {DRAIN_TAINT.key}")
    if since := down_since(node, now):
        reasons.append(f"down since {since:%Y-%m-%d %H:%M:%S} UTC")
    return ", ".join(reasons)


def may_be_available_again(old: Node, new: Node | None) -> bool:
    """Return whether a change may have made a node available again. A deleted node counts as available."""
    return may_be_unavailable(old) and (new is None or _availability_inputs(old) != _availability_inputs(new))


def _availability_inputs(node: Node) -> object:
    """Return all that decides whether a node counts as unavailable."""
    annotations = node.metadata.annotations
    marks = tuple(
        map(
            annotations.get,
            (cordon.CORDON_ANNOTATION, cordon.CORDON_BACKUP_ANNOTATION, TRANSITIONS_ANNOTATION, RECOVERING_ANNOTATION),
        )
    )
    state = node.metadata.labels.get(STATE_LABEL)
    return node.uid, marks, state, node.spec.unschedulable, cordon.has_drain_taint(node), node.is_ready


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
    # Unreadable: the state label decides alone. A person who damages it must not block the whole budget.
    except (msgspec.ValidationError, msgspec.DecodeError):
        return


class NotReadyTracker:
    """Nodes that are NotReady. Without a clock, for a single look at the cluster, it relies on lastTransitionTime."""

    def __init__(self, clock: Clock | None) -> None:
        self._clock = clock
        # By UID: lastTransitionTime, and the local monotonic time.
        self._not_ready_since: dict[str, tuple[datetime | None, float]] = {}

    def on_node_change(self, old: Node | None, new: Node | None) -> None:
        if self._clock is None:
            return
        if old is not None and (new is None or old.uid != new.uid):
            self._not_ready_since.pop(old.uid, None)
        if new is None:
            return
        if not has_become_not_ready(new):
            self._not_ready_since.pop(new.uid, None)
        # Another transition time: it may have been ready in between, and the informer has missed that.
        elif new.uid not in self._not_ready_since or self._not_ready_since[new.uid][0] != ready_transition_time(new):
            self._not_ready_since[new.uid] = ready_transition_time(new), self._clock.monotonic()

    def time_until_down(self, node: Node, now: datetime) -> timedelta | None:
        """Return the time until a node that stays NotReady is down beyond doubt; zero if it is, None if it is ready."""
        if not has_become_not_ready(node):
            return None
        if self._clock is None:
            return timedelta() if down_since(node, now) else DOWN_AFTER
        monotonic_now = self._clock.monotonic()
        _, since = self._not_ready_since.get(node.uid, (None, monotonic_now))
        return max(DOWN_AFTER - timedelta(seconds=monotonic_now - since), timedelta())
