"""The decision for a node: its version label, and if it is ordered to be deleted the next action or why it waits. Pure.

The actions for an order: cordon (with our owner), drain, find the server, record its ID, delete it. The cloud
controller manager then removes the Node. If the label is removed, the actions are undone: our cordon owner is removed,
and no other.

A person ordered the deletion, so neither budgets nor maintenance windows apply; but the node counts as unavailable in
the budgets of others. A hold (`haulout.api.hold`) or a freeze keeps the deletion from beginning.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from haulout.api.hold import HELD
from haulout.api.objects import Node, RawObject
from haulout.api.reasons import KubernikusEventReason
from haulout.controllers.kubernikus.labels import CORDON_OWNER, NEEDS_UPDATE, SERVER_ANNOTATION, is_deletion_ordered
from haulout.controllers.kubernikus.nova import Server, ServerMismatch, find_server, is_outside_openstack
from haulout.controllers.kubernikus.settings import KubernikusSettings
from haulout.drain import cordon
from haulout.drain.cordon import CordonRequest, InvalidCordonAnnotation
from haulout.drain.machine_drain_rules import with_machine_drain_rules
from haulout.drain.manager import DrainSnapshot
from haulout.drain.policy import DrainPolicy
from haulout.drain.progress import DrainProgress, OutcomeResult, describe_long_blocked
from haulout.runtime.freezes import Freezes

RECORDON_INTERVAL = timedelta(seconds=10)  # minimum time between two cordons, if something keeps uncordoning


@dataclass(frozen=True, slots=True)
class LabelNode:
    """Set the label that says whether the kubelet is outdated."""

    change: RawObject


@dataclass(frozen=True, slots=True)
class CordonNode:
    """Cordon the node with our owner.

    `is_first`: the order begins; `tampering`: what was changed by others.
    """

    change: RawObject
    is_first: bool
    tampering: str = ""


@dataclass(frozen=True, slots=True)
class ReleaseNode:
    """Remove our cordon owner and annotations from the node."""

    change: RawObject


@dataclass(frozen=True, slots=True)
class StartDrain:
    """Start the drain."""

    policy: DrainPolicy


@dataclass(frozen=True, slots=True)
class ChangeDrainPolicy:
    """Change the policy of a running drain."""

    policy: DrainPolicy


@dataclass(frozen=True, slots=True)
class StopDrain:
    """Stop the drain: evict no more pods."""


@dataclass(frozen=True, slots=True)
class FindServers:
    """List the servers in Nova that may be the node's."""


@dataclass(frozen=True, slots=True)
class RecordServer:
    """Record on the node which server is deleted; a conflict means that the order may have changed."""

    change: RawObject


@dataclass(frozen=True, slots=True)
class DeleteServer:
    """Delete the server."""

    server: str


Action = (
    LabelNode
    | CordonNode
    | ReleaseNode
    | StartDrain
    | ChangeDrainPolicy
    | StopDrain
    | FindServers
    | RecordServer
    | DeleteServer
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLookup:
    """What Nova returned."""

    servers: tuple[Server, ...] = ()
    problem: str = ""  # why Nova returned nothing
    retry_at: datetime | None = None  # when to retry after a problem


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletVersion:
    """How a node's kubelet compares to the API server."""

    label: str = ""  # the value that its label should have; empty: it stays as it is
    problem: str = ""  # why that is unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What is known about a node."""

    node: Node
    now: datetime
    settings: KubernikusSettings
    kubelet_version: KubeletVersion = KubeletVersion()
    drain: DrainSnapshot | None = None
    lookup: ServerLookup | None = None  # None: not queried within the interval
    deleted_server: str = ""  # the server whose deletion was requested within the interval
    cordoned_at: datetime | None = None  # when we last cordoned it
    cordon_copy: cordon.Cordon | None = None  # of the cordon annotation, stored outside the node
    freezes: Freezes = field(default_factory=Freezes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The next action; or, without an action, the status: reason and message for users, and when to reconcile again."""

    action: Action | None = None
    reason: str = ""  # empty: nothing to report
    message: str = ""
    is_warning: bool = False  # a person should look into it
    requeue_at: datetime | None = None


NO_ACTION = Decision()


def decide(observation: Observation) -> Decision:
    """Return the next action or the status."""
    node, label = observation.node, observation.kubelet_version.label
    if label and node.metadata.labels.get(NEEDS_UPDATE) != label:
        return Decision(action=LabelNode({"metadata": {"uid": node.uid, "labels": {NEEDS_UPDATE: label}}}))
    ordered = is_deletion_ordered(observation.node)
    try:
        restored = (
            None
            if observation.cordon_copy is None
            else cordon.repair(observation.node, (CORDON_OWNER,), copy=observation.cordon_copy)
        )
        if restored is not None:
            return (
                _cordon(observation, restored, is_first=False)
                if ordered
                else Decision(action=CordonNode(restored, False))
            )
        return _decide_ordered(observation) if ordered else _decide_withdrawn(observation)
    except InvalidCordonAnnotation as error:
        unreadable = Decision(
            reason=KubernikusEventReason.CORDON_UNREADABLE,
            message=f"the node is to be deleted, but {error}",
            is_warning=True,
        )
        return _stop_drain_first(observation, unreadable if ordered else NO_ACTION)


def _decide_ordered(observation: Observation) -> Decision:
    node = observation.node
    if node.is_being_deleted:
        return _stop_drain_first(
            observation, Decision(reason=KubernikusEventReason.NODE_DELETING, message="the node is being removed")
        )
    if is_outside_openstack(node):
        message = (
            f"nothing is done: the node is not an OpenStack server: its providerID is {node.spec.provider_id!r:.120}"
        )
        return _stop_drain_first(
            observation,
            Decision(reason=KubernikusEventReason.NOT_AN_OPENSTACK_SERVER, message=message, is_warning=True),
        )
    mark = cordon.cordon_of(node)
    is_ours = mark is not None and CORDON_OWNER in mark.owners
    hold = None if is_ours else observation.freezes.hold_on(node, now=observation.now)
    if hold is not None:
        message = f"the node is to be deleted, but is {hold}"
        return _stop_drain_first(
            observation, Decision(reason=HELD, message=message, is_warning=True, requeue_at=hold.until)
        )
    change = cordon.acquire(node, CORDON_OWNER, CordonRequest(), now=observation.now)
    if change is not None:
        return _cordon(observation, change, is_first=not is_ours)
    return _drain(observation)


def _cordon(observation: Observation, change: RawObject, *, is_first: bool) -> Decision:
    requeue_at = None if is_first or observation.cordoned_at is None else observation.cordoned_at + RECORDON_INTERVAL
    if requeue_at is not None and requeue_at > observation.now:
        message = "another client uncordons the node again and again, although it is to be deleted"
        return Decision(
            reason=KubernikusEventReason.CORDON_REMOVED_REPEATEDLY,
            message=message,
            is_warning=True,
            requeue_at=requeue_at,
        )
    tampering = "" if is_first else ", ".join(cordon.describe_tampering(observation.node, CordonRequest()))
    return Decision(action=CordonNode(change, is_first, tampering))


def _drain(observation: Observation) -> Decision:
    drain, policy = observation.drain, with_machine_drain_rules(observation.settings.policy, observation.node)
    if drain is None:
        return Decision(action=StartDrain(policy))
    is_cancelled = drain.outcome is not None and drain.outcome.result is OutcomeResult.CANCELLED
    if is_cancelled or drain.node_uid != observation.node.uid:  # the drain of a deleted node of the same name
        return Decision(action=StopDrain())
    if drain.policy != policy:
        return Decision(action=ChangeDrainPolicy(policy))
    if drain.outcome is None:
        return _draining(observation, drain.progress)
    if not drain.outcome.is_drained:
        requeue_at = observation.now + observation.settings.interval
        return Decision(
            reason=KubernikusEventReason.DRAIN_FAILED,
            message=drain.outcome.message,
            is_warning=True,
            requeue_at=requeue_at,
        )
    return _delete(observation)


def _draining(observation: Observation, progress: DrainProgress) -> Decision:
    blocker, requeue_at = describe_long_blocked(progress, now=observation.now)
    if blocker:
        return Decision(
            reason=KubernikusEventReason.DRAIN_BLOCKED,
            message=f"the node is to be deleted, but its drain is blocked: {blocker}",
            is_warning=True,
        )
    message = "its pods are being evicted, because its server is to be deleted"
    return Decision(reason=KubernikusEventReason.DRAINING, message=message, requeue_at=requeue_at)


def _delete(observation: Observation) -> Decision:
    """Return the next action to delete the server of a drained node."""
    requeue_at = observation.now + observation.settings.interval
    if observation.deleted_server:
        message = f"the node is drained, and Nova has accepted the deletion of its server {observation.deleted_server}"
        return Decision(reason=KubernikusEventReason.SERVER_DELETED, message=message, requeue_at=requeue_at)
    if observation.lookup is None:
        return Decision(action=FindServers())
    if observation.lookup.problem:
        message = f"its server cannot be deleted now: {observation.lookup.problem}"
        return Decision(
            reason=KubernikusEventReason.CLOUD_REQUEST_FAILED,
            message=message,
            is_warning=True,
            requeue_at=observation.lookup.retry_at or requeue_at,
        )
    try:
        server = find_server(observation.node, observation.lookup.servers)
    except ServerMismatch as error:
        return Decision(
            reason=error.reason, message=f"nothing is deleted: {error}", is_warning=True, requeue_at=requeue_at
        )
    return _decide_server(observation.node, server, requeue_at)


def _decide_server(node: Node, server: Server | None, requeue_at: datetime) -> Decision:
    recorded_id = node.metadata.annotations.get(SERVER_ANNOTATION)
    if server is None:
        return _without_server(recorded_id, requeue_at)
    if recorded_id and recorded_id != server.id:
        message = (
            f"nothing is deleted: the node's server {recorded_id} is gone, and server {server.id} has its name now"
        )
        return Decision(
            reason=KubernikusEventReason.SERVER_REPLACED, message=message, is_warning=True, requeue_at=requeue_at
        )
    if not recorded_id:
        annotations = {SERVER_ANNOTATION: server.id}
        return Decision(action=RecordServer({"metadata": {**node.preconditions, "annotations": annotations}}))
    if server.is_being_deleted:
        return Decision(
            reason=KubernikusEventReason.SERVER_DELETING,
            message=f"its server {server.id} is being deleted",
            requeue_at=requeue_at,
        )
    return Decision(action=DeleteServer(server.id))


def _without_server(recorded_id: str | None, requeue_at: datetime) -> Decision:
    if recorded_id:
        message = f"its server {recorded_id} is gone: the cloud's controller removes the node"
        return Decision(reason=KubernikusEventReason.SERVER_GONE, message=message, requeue_at=requeue_at)
    message = "nothing is deleted: the project has no server with exactly the node's name"
    return Decision(
        reason=KubernikusEventReason.SERVER_NOT_FOUND, message=message, is_warning=True, requeue_at=requeue_at
    )


def _decide_withdrawn(observation: Observation) -> Decision:
    """Undo what was done for a withdrawn order."""
    node = observation.node
    change = cordon.release(node, CORDON_OWNER)
    if SERVER_ANNOTATION in node.metadata.annotations:
        change = change or {"metadata": node.preconditions}
        change["metadata"]["annotations"] = {**change["metadata"].get("annotations", {}), SERVER_ANNOTATION: None}
    return _stop_drain_first(observation, NO_ACTION if change is None else Decision(action=ReleaseNode(change)))


def _stop_drain_first(observation: Observation, then: Decision) -> Decision:
    """Stop the drain, if there is one, before anything else."""
    return then if observation.drain is None else Decision(action=StopDrain())
