"""What is to be done about a node that somebody ordered to be deleted, and why not yet. Pure.

    while (decision := decide(seen)).step: perform it, look again
    tell decision.reason and decision.why; look again at decision.wakes_at, or when something changes

The way of an order: cordon (with our mark), drain, find the server, note down which it is, delete it. The cloud's own
controller removes the Node then. Without the label, what was done is undone: our cordon goes, and only ours.

The order is somebody's decision, so neither budgets nor windows are asked; the nodes in its way count as out of service
for all others. Who wants a node kept holds it (`haulout.kinds.hold`): then nothing begins.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.drain import cordon, lasting
from haulout.drain.cordon import BadMark, Wishes
from haulout.drain.keeper import Kept
from haulout.drain.machine_rules import honoured
from haulout.drain.policy import Policy
from haulout.drain.progress import Ending, Progress
from haulout.kinds.hold import HELD, holding
from haulout.kube.objects import Node, RawObject
from haulout.kubernikus.keys import OWNER, SERVER, is_ordered
from haulout.kubernikus.nova import NotTheServer, Server, is_elsewhere, server_of
from haulout.kubernikus.settings import Settings

CORDONED_AT_MOST_EVERY = timedelta(seconds=10)  # whoever undoes it again and again


@dataclass(frozen=True, slots=True)
class Cordon:
    """Cordon the node, with our mark; `is_first`: an order begins with it; `tampering`: what somebody has undone."""

    change: RawObject
    is_first: bool
    tampering: str = ""


@dataclass(frozen=True, slots=True)
class Release:
    """Take from the node what we put there."""

    change: RawObject


@dataclass(frozen=True, slots=True)
class StartDrain:
    """Drain the node."""

    policy: Policy


@dataclass(frozen=True, slots=True)
class ChangePolicy:
    """Drain it by another policy."""

    policy: Policy


@dataclass(frozen=True, slots=True)
class StopDrain:
    """Let no further pod leave."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask Nova for the node's server."""


@dataclass(frozen=True, slots=True)
class Note:
    """Write down on the node which server is deleted: if that fails, the order is not what it was."""

    change: RawObject


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the server."""

    server: str


Step = Cordon | Release | StartDrain | ChangePolicy | StopDrain | Ask | Note | Delete


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What Nova said in this look."""

    servers: tuple[Server, ...] = ()
    problem: str = ""  # why it said nothing
    again_at: datetime | None = None  # when to ask again, then


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What is known of a node."""

    node: Node
    now: datetime
    settings: Settings
    drain: Kept | None = None
    found: Found | None = None  # None: not asked yet
    deleted: str = ""  # the server that was told to go, not longer ago than the interval
    cordoned_at: datetime | None = None  # by us, last
    cordon_copy: cordon.Cordon | None = None  # of the mark on the node, kept outside the node


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do; or, without a step, how it stands: a word and a sentence for people, and when to look again."""

    step: Step | None = None
    reason: str = ""  # empty: there is nothing to tell
    why: str = ""
    is_bad: bool = False  # somebody should look after it
    wakes_at: datetime | None = None


NOTHING = Decision()


def decide(seen: Seen) -> Decision:
    """Return what is to be done next."""
    ordered = is_ordered(seen.node)
    try:
        restored = None if seen.cordon_copy is None else cordon.repaired(seen.node, (OWNER,), copy=seen.cordon_copy)
        if restored is not None:
            return _cordon(seen, restored, is_first=False) if ordered else Decision(step=Cordon(restored, False))
        return _obey(seen) if ordered else _withdraw(seen)
    except BadMark as error:
        told = Decision(reason="CordonUnreadable", why=f"it is to be deleted, but {error}", is_bad=True)
        return _stop(seen, told if ordered else NOTHING)


def _obey(seen: Seen) -> Decision:
    node = seen.node
    if node.metadata.deletion_timestamp is not None:
        return _stop(seen, Decision(reason="NodeLeaves", why="the node is being removed"))
    if is_elsewhere(node):
        why = f"nothing is done: the node is no server of OpenStack, by its providerID {node.spec.provider_id!r:.120}"
        return _stop(seen, Decision(reason="NoServerOfOpenStack", why=why, is_bad=True))
    mark = cordon.cordon_of(node)
    is_ours = mark is not None and OWNER in mark.owners
    hold = None if is_ours else holding(node, now=seen.now)
    if hold is not None:
        why = f"it is to be deleted, and {hold}"
        return _stop(seen, Decision(reason=HELD, why=why, is_bad=True, wakes_at=hold.until))
    change = cordon.acquire(node, OWNER, Wishes(), now=seen.now)
    if change is not None:
        return _cordon(seen, change, is_first=not is_ours)
    return _drain(seen)


def _cordon(seen: Seen, change: RawObject, *, is_first: bool) -> Decision:
    again_at = None if is_first or seen.cordoned_at is None else seen.cordoned_at + CORDONED_AT_MOST_EVERY
    if again_at is not None and again_at > seen.now:
        why = "somebody uncordons the node again and again, though it is to be deleted"
        return Decision(reason="CordonUndone", why=why, is_bad=True, wakes_at=again_at)
    tampering = "" if is_first else ", ".join(cordon.tampering(seen.node, Wishes()))
    return Decision(step=Cordon(change, is_first, tampering))


def _drain(seen: Seen) -> Decision:
    drain, policy = seen.drain, honoured(seen.settings.policy, seen.node)
    if drain is None:
        return Decision(step=StartDrain(policy))
    is_cancelled = drain.outcome is not None and drain.outcome.ending is Ending.CANCELLED
    if is_cancelled or drain.node_uid != seen.node.uid:  # of another node of this name
        return Decision(step=StopDrain())
    if drain.policy != policy:
        return Decision(step=ChangePolicy(policy))
    if drain.outcome is None:
        return _draining(seen, drain.progress)
    if not drain.outcome.is_drained:
        again_at = seen.now + seen.settings.interval
        return Decision(reason="DrainFailed", why=drain.outcome.why, is_bad=True, wakes_at=again_at)
    return _delete(seen)


def _draining(seen: Seen, progress: Progress) -> Decision:
    what, wakes_at = lasting.blocked(progress, now=seen.now)
    if what:
        return Decision(reason="DrainBlocked", why=f"it is to be deleted, and its drain waits: {what}", is_bad=True)
    why = "its pods leave, for its server is to be deleted"
    return Decision(reason="Draining", why=why, wakes_at=wakes_at)


def _delete(seen: Seen) -> Decision:
    """Have the server of a drained node deleted."""
    again_at = seen.now + seen.settings.interval
    if seen.deleted:
        why = f"the node is drained, and its server {seen.deleted} was told to go"
        return Decision(reason="ServerDeleted", why=why, wakes_at=again_at)
    if seen.found is None:
        return Decision(step=Ask())
    if seen.found.problem:
        why = f"its server cannot be deleted now: {seen.found.problem}"
        return Decision(reason="CloudSaysNo", why=why, is_bad=True, wakes_at=seen.found.again_at or again_at)
    try:
        server = server_of(seen.node, seen.found.servers)
    except NotTheServer as error:
        return Decision(reason=error.reason, why=f"nothing is deleted: {error}", is_bad=True, wakes_at=again_at)
    return _found(seen.node, server, again_at)


def _found(node: Node, server: Server | None, again_at: datetime) -> Decision:
    noted = node.metadata.annotations.get(SERVER)
    if server is None:
        return _without_server(noted, again_at)
    if noted and noted != server.id:
        why = f"nothing is deleted: the node's server {noted} is gone, and {server.id} has its name since"
        return Decision(reason="ServerReplaced", why=why, is_bad=True, wakes_at=again_at)
    if not noted:
        basis = {"uid": node.uid, "resourceVersion": node.resource_version}
        return Decision(step=Note({"metadata": {**basis, "annotations": {SERVER: server.id}}}))
    if server.is_leaving:
        return Decision(reason="ServerLeaves", why=f"its server {server.id} is being deleted", wakes_at=again_at)
    return Decision(step=Delete(server.id))


def _without_server(noted: str | None, again_at: datetime) -> Decision:
    if noted:
        why = f"its server {noted} is gone: the cloud's controller removes the node"
        return Decision(reason="ServerGone", why=why, wakes_at=again_at)
    why = "nothing is deleted: the project has no server with exactly the node's name"
    return Decision(reason="ServerNotFound", why=why, is_bad=True, wakes_at=again_at)


def _withdraw(seen: Seen) -> Decision:
    """Undo what was done for an order that is no more."""
    node = seen.node
    change = cordon.release(node, OWNER)
    if SERVER in node.metadata.annotations:
        change = change or {"metadata": {"uid": node.uid, "resourceVersion": node.resource_version}}
        change["metadata"]["annotations"] = {**change["metadata"].get("annotations", {}), SERVER: None}
    return _stop(seen, NOTHING if change is None else Decision(step=Release(change)))


def _stop(seen: Seen, then: Decision) -> Decision:
    """Stop the drain before anything else."""
    return then if seen.drain is None else Decision(step=StopDrain())
