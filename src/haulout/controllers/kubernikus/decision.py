"""What is to be done about a node that somebody ordered to be deleted, and why not yet. Pure.

    while (decision := decide(seen)).step: perform it, look again
    tell decision.reason and decision.why; look again at decision.wakes_at, or when something changes

The way of an order: cordon (with our mark), drain, find the server, note down which it is, delete it. The cloud's own
controller removes the Node then. Without the label, what was done is undone: our cordon goes, and only ours.

The order is somebody's decision, so neither budgets nor windows are asked; the nodes in its way count as out of service
for all others. Who wants a node kept holds it (`haulout.api.hold`): then nothing begins.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.api.hold import HELD, active_hold
from haulout.api.objects import Node, RawObject
from haulout.controllers.kubernikus.labels import CORDON_OWNER, SERVER_ANNOTATION, is_deletion_ordered
from haulout.controllers.kubernikus.nova import Server, ServerMismatch, find_server, is_outside_openstack
from haulout.controllers.kubernikus.settings import KubernikusSettings
from haulout.drain import cordon, stall_detection
from haulout.drain.cordon import CordonRequest, InvalidCordonAnnotation
from haulout.drain.machine_drain_rules import with_machine_drain_rules
from haulout.drain.manager import DrainSnapshot
from haulout.drain.policy import DrainPolicy
from haulout.drain.progress import DrainProgress, OutcomeResult

RECORDON_INTERVAL = timedelta(seconds=10)  # whoever undoes it again and again


@dataclass(frozen=True, slots=True)
class CordonNode:
    """Cordon the node, with our mark; `is_first`: an order begins with it; `tampering`: what somebody has undone."""

    change: RawObject
    is_first: bool
    tampering: str = ""


@dataclass(frozen=True, slots=True)
class ReleaseNode:
    """Take from the node what we put there."""

    change: RawObject


@dataclass(frozen=True, slots=True)
class StartDrain:
    """Drain the node."""

    policy: DrainPolicy


@dataclass(frozen=True, slots=True)
class ChangeDrainPolicy:
    """Drain it by another policy."""

    policy: DrainPolicy


@dataclass(frozen=True, slots=True)
class StopDrain:
    """Let no further pod leave."""


@dataclass(frozen=True, slots=True)
class FindServers:
    """Ask Nova for the node's server."""


@dataclass(frozen=True, slots=True)
class RecordServer:
    """Write down on the node which server is deleted: if that fails, the order is not what it was."""

    change: RawObject


@dataclass(frozen=True, slots=True)
class DeleteServer:
    """Delete the server."""

    server: str


Action = (
    CordonNode | ReleaseNode | StartDrain | ChangeDrainPolicy | StopDrain | FindServers | RecordServer | DeleteServer
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLookup:
    """What Nova said in this look."""

    servers: tuple[Server, ...] = ()
    problem: str = ""  # why it said nothing
    retry_at: datetime | None = None  # when to ask again, then


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What is known of a node."""

    node: Node
    now: datetime
    settings: KubernikusSettings
    drain: DrainSnapshot | None = None
    lookup: ServerLookup | None = None  # None: not asked yet
    deleted_server: str = ""  # the server that was told to go, not longer ago than the interval
    cordoned_at: datetime | None = None  # by us, last
    cordon_copy: cordon.Cordon | None = None  # of the mark on the node, kept outside the node


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do; or, without a step, how it stands: a word and a sentence for people, and when to look again."""

    action: Action | None = None
    reason: str = ""  # empty: there is nothing to tell
    message: str = ""
    is_warning: bool = False  # somebody should look after it
    requeue_at: datetime | None = None


NO_ACTION = Decision()


def decide(observation: Observation) -> Decision:
    """Return what is to be done next."""
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
        unreadable = Decision(reason="CordonUnreadable", message=f"it is to be deleted, but {error}", is_warning=True)
        return _stop_drain_first(observation, unreadable if ordered else NO_ACTION)


def _decide_ordered(observation: Observation) -> Decision:
    node = observation.node
    if node.metadata.deletion_timestamp is not None:
        return _stop_drain_first(observation, Decision(reason="NodeLeaves", message="the node is being removed"))
    if is_outside_openstack(node):
        message = (
            f"nothing is done: the node is no server of OpenStack, by its providerID {node.spec.provider_id!r:.120}"
        )
        return _stop_drain_first(observation, Decision(reason="NoServerOfOpenStack", message=message, is_warning=True))
    mark = cordon.cordon_of(node)
    is_ours = mark is not None and CORDON_OWNER in mark.owners
    hold = None if is_ours else active_hold(node, now=observation.now)
    if hold is not None:
        message = f"it is to be deleted, and {hold}"
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
        message = "somebody uncordons the node again and again, though it is to be deleted"
        return Decision(reason="CordonUndone", message=message, is_warning=True, requeue_at=requeue_at)
    tampering = "" if is_first else ", ".join(cordon.describe_tampering(observation.node, CordonRequest()))
    return Decision(action=CordonNode(change, is_first, tampering))


def _drain(observation: Observation) -> Decision:
    drain, policy = observation.drain, with_machine_drain_rules(observation.settings.policy, observation.node)
    if drain is None:
        return Decision(action=StartDrain(policy))
    is_cancelled = drain.outcome is not None and drain.outcome.result is OutcomeResult.CANCELLED
    if is_cancelled or drain.node_uid != observation.node.uid:  # of another node of this name
        return Decision(action=StopDrain())
    if drain.policy != policy:
        return Decision(action=ChangeDrainPolicy(policy))
    if drain.outcome is None:
        return _draining(observation, drain.progress)
    if not drain.outcome.is_drained:
        requeue_at = observation.now + observation.settings.interval
        return Decision(reason="DrainFailed", message=drain.outcome.message, is_warning=True, requeue_at=requeue_at)
    return _delete(observation)


def _draining(observation: Observation, progress: DrainProgress) -> Decision:
    blocker, requeue_at = stall_detection.describe_long_blocked(progress, now=observation.now)
    if blocker:
        return Decision(
            reason="DrainBlocked", message=f"it is to be deleted, and its drain waits: {blocker}", is_warning=True
        )
    message = "its pods leave, for its server is to be deleted"
    return Decision(reason="Draining", message=message, requeue_at=requeue_at)


def _delete(observation: Observation) -> Decision:
    """Have the server of a drained node deleted."""
    requeue_at = observation.now + observation.settings.interval
    if observation.deleted_server:
        message = f"the node is drained, and its server {observation.deleted_server} was told to go"
        return Decision(reason="ServerDeleted", message=message, requeue_at=requeue_at)
    if observation.lookup is None:
        return Decision(action=FindServers())
    if observation.lookup.problem:
        message = f"its server cannot be deleted now: {observation.lookup.problem}"
        return Decision(
            reason="CloudSaysNo", message=message, is_warning=True, requeue_at=observation.lookup.retry_at or requeue_at
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
        message = f"nothing is deleted: the node's server {recorded_id} is gone, and {server.id} has its name since"
        return Decision(reason="ServerReplaced", message=message, is_warning=True, requeue_at=requeue_at)
    if not recorded_id:
        preconditions = {"uid": node.uid, "resourceVersion": node.resource_version}
        return Decision(
            action=RecordServer({"metadata": {**preconditions, "annotations": {SERVER_ANNOTATION: server.id}}})
        )
    if server.is_being_deleted:
        return Decision(
            reason="ServerLeaves", message=f"its server {server.id} is being deleted", requeue_at=requeue_at
        )
    return Decision(action=DeleteServer(server.id))


def _without_server(recorded_id: str | None, requeue_at: datetime) -> Decision:
    if recorded_id:
        message = f"its server {recorded_id} is gone: the cloud's controller removes the node"
        return Decision(reason="ServerGone", message=message, requeue_at=requeue_at)
    message = "nothing is deleted: the project has no server with exactly the node's name"
    return Decision(reason="ServerNotFound", message=message, is_warning=True, requeue_at=requeue_at)


def _decide_withdrawn(observation: Observation) -> Decision:
    """Undo what was done for an order that is no more."""
    node = observation.node
    change = cordon.release(node, CORDON_OWNER)
    if SERVER_ANNOTATION in node.metadata.annotations:
        change = change or {"metadata": {"uid": node.uid, "resourceVersion": node.resource_version}}
        change["metadata"]["annotations"] = {**change["metadata"].get("annotations", {}), SERVER_ANNOTATION: None}
    return _stop_drain_first(observation, NO_ACTION if change is None else Decision(action=ReleaseNode(change)))


def _stop_drain_first(observation: Observation, then: Decision) -> Decision:
    """Stop the drain before anything else."""
    return then if observation.drain is None else Decision(action=StopDrain())
