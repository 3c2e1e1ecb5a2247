"""What to do next about a NodeMaintenance: a decision from what was seen of it, its node, its lease and its drain.

    decision = decide(seen)
    decision.step        the one thing to do now; then look and decide again
    decision.wakes_at    without a step: when to look again if nothing happens before

It does no input or output. Each step can be repeated, and none depends on one before it having been made by the same
process: whoever takes over sees what there is and decides the same. In this order:

    accept (finalizer, first status) → look at the pods → lease → cordon, taints, label → conditions → drain

and back, once the object is deleted: stop the drain → give back what is ours on the node → lease → finalizer.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from haulout.drain import cordon, document
from haulout.drain.cordon import BadMark, Wishes
from haulout.drain.lifecycle import Stage, published
from haulout.drain.memory import Checkpoint
from haulout.drain.policy import Policy
from haulout.drain.progress import Ending, Outcome, Progress
from haulout.errors import PolicyError
from haulout.kube.objects import Lease, Node, Taint
from haulout.maintenance.lease import Tenure, tenure
from haulout.maintenance.resource import FINALIZER, ConditionType, NodeMaintenance, Phase
from haulout.maintenance.steps import (
    Accept,
    AddFinalizer,
    BeginDrain,
    ChangePolicy,
    Hold,
    Publish,
    Release,
    ReleaseLease,
    RemoveFinalizer,
    StartDrain,
    Step,
    StopDrain,
    TakeLease,
)

OWNER_PREFIX = "NodeMaintenance/"
DRAIN_TAINT = Taint(key="medik8s.io/drain", effect="NoSchedule")
EXCLUDE_LABEL = "remediation.medik8s.io/exclude-from-remediation"
WISHES = Wishes(
    taints=(Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule"), DRAIN_TAINT),
    labels={EXCLUDE_LABEL: "true"},
)
LEASE_LOST_FOR = timedelta(minutes=1)  # to somebody else, until the maintenance is given up
LEASE_LOOKED_AT_EVERY = timedelta(seconds=10)  # meanwhile
_NEVER = datetime.max.replace(tzinfo=UTC)
OBJECTION_LOOKED_AT_EVERY = timedelta(seconds=30)
RESTORED_AT_MOST_EVERY = timedelta(seconds=10)
LEASE_LOST = "Lost"  # the reason of the condition Leased
_LOST_BEFORE = "maintenance failed: lease could not be extended"


class Cause(StrEnum):
    """Why a maintenance failed: the reason of the condition Failed."""

    NODE_MISSING = "NodeMissing"
    NODE_UNNAMED = "NodeUnnamed"
    POLICY_INVALID = "PolicyInvalid"
    LEASE_LOST = "LeaseLost"
    DRAIN_TIMED_OUT = "DrainTimedOut"
    DRAIN_REFUSED = "DrainRefused"


# These are left only by an edit of the object; the others as soon as what they say is no longer so.
_DRAIN_ENDED = {Ending.TIMED_OUT: Cause.DRAIN_TIMED_OUT, Ending.REFUSED: Cause.DRAIN_REFUSED}
_STICKY = (Cause.LEASE_LOST, *_DRAIN_ENDED.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainSeen:
    """How it stands with the drain of a maintenance."""

    node_uid: str
    policy: Policy
    progress: Progress
    outcome: Outcome | None = None  # the node is empty, or the drain has ended
    is_waiting: bool = False
    on_node: int = 0  # all pods


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What is known of a maintenance at one moment."""

    maintenance: NodeMaintenance
    now: datetime
    node: Node | None = None
    lease: Lease | None = None
    drain: DrainSeen | None = None
    rivals: tuple[NodeMaintenance, ...] = ()  # other maintenances of the same node
    objection: str = ""  # why the node may not be taken out of service now
    restored_at: datetime | None = None  # when somebody had undone what we hold, and we did it again

    @property
    def tenure(self) -> Tenure:
        """How it stands with the lease."""
        return tenure(self.lease, now=self.now)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a maintenance failed, and in which words."""

    cause: Cause
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One step; or, when there is nothing to do, how things stand and when to look again."""

    step: Step | None = None
    wakes_at: datetime | None = None
    failure: Failure | None = None
    problem: str = ""  # why it does not go on, if it has not failed: the last error
    waits_for: str = ""  # in words, who or what must act first
    lease_lost_since: datetime | None = None
    lease_failures: int = 0


def decide(seen: Seen) -> Decision:
    """Return what to do next."""
    try:
        return _end(seen) if seen.maintenance.is_leaving else _begin(seen)
    except BadMark as error:
        return Decision(problem=str(error), waits_for="a person who repairs the annotation")


def policy_of(maintenance: NodeMaintenance) -> Policy:
    """Return how the node is to be emptied; raise `PolicyError` if what the object says about it makes no sense."""
    return document.read(maintenance.spec.drain, base=Policy.like_nmo(), path="spec.drain")


def owner_name(maintenance: NodeMaintenance) -> str:
    """Return the name by which a maintenance keeps a node cordoned."""
    return f"{OWNER_PREFIX}{maintenance.name}"


def is_adoptable(maintenance: NodeMaintenance, node: Node) -> bool:
    """Tell whether the Node Maintenance Operator, which leaves no mark, has put this node into this maintenance."""
    status = maintenance.status
    if cordon.cordon_of(node) is not None or not status.phase or status.conditions:
        return False
    return any((it.key, it.effect) == (DRAIN_TAINT.key, DRAIN_TAINT.effect) for it in node.spec.taints)


def failure_that_stays(maintenance: NodeMaintenance) -> Failure | None:
    """Return why a maintenance failed for good: until somebody edits the object."""
    status = maintenance.status
    if status.phase != Phase.FAILED:
        return None
    told = status.condition(ConditionType.FAILED)
    if told is None:  # written by the Node Maintenance Operator, which never leaves this state
        given_up = status.last_error.startswith(_LOST_BEFORE) and not status.conditions
        return Failure(Cause.LEASE_LOST, status.last_error) if given_up else None
    if told.status != "True" or told.reason not in _STICKY:
        return None
    if told.observed_generation != maintenance.metadata.generation:
        return None
    return Failure(Cause(told.reason), told.message)


# Into maintenance


def _begin(seen: Seen) -> Decision:
    maintenance = seen.maintenance
    if FINALIZER not in maintenance.metadata.finalizers:
        return Decision(step=AddFinalizer())
    if not maintenance.status.phase:
        return Decision(step=Accept())
    if not maintenance.node:
        return _failed(seen, Cause.NODE_UNNAMED, "spec.nodeName is empty, expected the name of a node")
    if seen.node is None:
        return _failed(seen, Cause.NODE_MISSING, f'nodes "{maintenance.node}" not found')
    try:
        policy = policy_of(maintenance)
    except PolicyError as error:
        return _failed(seen, Cause.POLICY_INVALID, str(error))
    return _go_on(seen, seen.node, policy)


def _go_on(seen: Seen, node: Node, policy: Policy) -> Decision:
    failure = failure_that_stays(seen.maintenance)
    if failure is not None and failure.cause is Cause.LEASE_LOST:
        return _let_go(seen, node) or Decision(failure=failure)
    return (
        _about_the_drain(seen, node, policy, failure)
        or _about_others(seen, node)
        or _about_the_lease(seen, node)
        or _about_the_node(seen, node)
        or _published(seen, node, _stage(seen, failure))
        or _about_the_pods(seen, failure)
    )


def _about_the_drain(seen: Seen, node: Node, policy: Policy, failure: Failure | None) -> Decision | None:
    """See to it that a drain looks at the pods of this very node, by the policy that holds now."""
    if seen.drain is None:
        return None if failure else Decision(step=StartDrain(policy, _checkpoint(seen.maintenance)))
    is_tried_again = seen.maintenance.status.phase == Phase.FAILED and failure is None
    if seen.drain.node_uid != node.uid or (is_tried_again and not _is_running(seen.drain)):
        return Decision(step=StopDrain())
    if seen.drain.policy != policy:
        return Decision(step=ChangePolicy(policy) if _is_running(seen.drain) else StopDrain())
    return None


def _about_others(seen: Seen, node: Node) -> Decision | None:
    """Wait while an older maintenance of the same node is there; hold the node with it, so that none gives it back."""
    first = min((it for it in seen.rivals if _is_before(it, seen.maintenance)), default=None, key=_age)
    if first is None:
        return None
    if _is_under_way(seen.drain):
        return Decision(step=StopDrain())
    mark = cordon.cordon_of(node)
    if mark is not None and owner_name(first) in mark.owners:
        change = cordon.acquire(node, owner_name(seen.maintenance), WISHES, now=seen.now)
        if change is not None:
            return Decision(step=Hold(change, is_first=owner_name(seen.maintenance) not in mark.owners))
    problem = f"node {node.name} is already in maintenance by NodeMaintenance {first.name}"
    return Decision(
        problem=f"{problem}: this one goes on when that is deleted", waits_for=f"NodeMaintenance {first.name}"
    )


def _about_the_lease(seen: Seen, node: Node) -> Decision | None:
    tenure = seen.tenure
    if not tenure.is_others:
        return Decision(step=TakeLease()) if tenure.renew_at <= seen.now else None
    held = f"can't update or invalidate the lease because it is held by different owner: {tenure.holder}"
    whom = f"{tenure.holder}, who holds the lease of node {node.name}"
    if not _was_ours(seen, node):
        count = seen.maintenance.status.error_on_lease_count
        text = f"failed to obtain a lease that is not owned by us : {held} errorOnLeaseCount {count}"
        waiting = Decision(problem=text, waits_for=whom, wakes_at=tenure.claim.until)
        return _published(seen, node, Stage.PLANNED) or waiting
    if _is_under_way(seen.drain):
        return Decision(step=StopDrain())
    since = _lost_since(seen)
    lost_for = seen.now - since
    looks = lost_for // LEASE_LOOKED_AT_EVERY
    count = looks + 1
    if lost_for >= LEASE_LOST_FOR:
        text = f"{_LOST_BEFORE} after {count} attempts"
        failed = Decision(failure=Failure(Cause.LEASE_LOST, text), lease_lost_since=since, lease_failures=count)
        return _let_go(seen, node) or failed
    text = f"failed to extend a lease that used to be owned by us, incrementing error on lease count: {held}"
    return Decision(
        problem=f"{text}, errorOnLeaseCount: {count}",
        waits_for=whom,
        wakes_at=since + (looks + 1) * LEASE_LOOKED_AT_EVERY,
        lease_lost_since=since,
        lease_failures=count,
    )


def _about_the_node(seen: Seen, node: Node) -> Decision | None:
    owner = owner_name(seen.maintenance)
    mark = cordon.cordon_of(node)
    is_first = mark is None or owner not in mark.owners
    if is_first and seen.objection:
        look_at = seen.now + OBJECTION_LOOKED_AT_EVERY
        waiting = Decision(problem=seen.objection, waits_for="the control plane", wakes_at=look_at)
        return _published(seen, node, Stage.PLANNED) or waiting
    adopting = is_adoptable(seen.maintenance, node)
    change = cordon.acquire(node, owner, WISHES, now=seen.now, adopting=adopting)
    if change is None:
        return None
    if not is_first and seen.restored_at is not None:
        again_at = seen.restored_at + RESTORED_AT_MOST_EVERY
        if seen.now < again_at:
            problem = f"somebody keeps undoing what this maintenance did to node {node.name}"
            return Decision(problem=problem, waits_for="whoever does that", wakes_at=again_at)
    return Decision(step=Hold(change, is_first))


def _about_the_pods(seen: Seen, failure: Failure | None) -> Decision:
    renew_at = seen.tenure.renew_at
    if failure is not None or seen.drain is None:
        return Decision(failure=failure, wakes_at=renew_at)
    if seen.drain.is_waiting:
        return Decision(step=BeginDrain())
    outcome = seen.drain.outcome
    if outcome is not None and outcome.ending in _DRAIN_ENDED:
        return Decision(failure=Failure(_DRAIN_ENDED[outcome.ending], outcome.why), wakes_at=renew_at)
    return Decision(wakes_at=renew_at)


def _stage(seen: Seen, failure: Failure | None) -> Stage:
    if failure is not None or seen.drain is None:
        return Stage.STUCK
    outcome = seen.drain.outcome
    if outcome is None:
        was_empty = seen.maintenance.status.phase == Phase.SUCCEEDED and not seen.drain.progress.pods
        return Stage.DRAINED if was_empty else Stage.DRAINING
    return Stage.DRAINED if outcome.is_drained else Stage.STUCK


def _published(seen: Seen, node: Node, stage: Stage) -> Decision | None:
    what = owner_name(seen.maintenance).replace("/", " ")
    reason = " ".join(seen.maintenance.spec.reason.split())
    change = published(node, stage, f"{what}: {reason}" if reason else what, now=seen.now)
    return None if change is None else Decision(step=Publish(change))


def _is_under_way(drain: DrainSeen | None) -> bool:
    return drain is not None and not drain.is_waiting


def _is_running(drain: DrainSeen) -> bool:
    return drain.outcome is None or drain.outcome.is_drained


def _checkpoint(maintenance: NodeMaintenance) -> Checkpoint | None:
    """Return where a predecessor stood, if it was draining."""
    status = maintenance.status
    drain = status.drain
    if drain is None or drain.start_time is None or status.phase != Phase.RUNNING:
        return None
    return Checkpoint(started=drain.start_time, since=drain.turns, gone=drain.gone, percent=status.drain_progress)


def _was_ours(seen: Seen, node: Node) -> bool:
    """Tell whether we have held the lease before: then the node may be in our hands."""
    status = seen.maintenance.status
    leased = status.condition(ConditionType.LEASED)
    if leased is not None and (leased.status == "True" or leased.reason == LEASE_LOST):
        return True
    mark = cordon.cordon_of(node)
    if mark is not None and owner_name(seen.maintenance) in mark.owners:
        return True
    return not status.conditions and status.drain_progress > 0


def _lost_since(seen: Seen) -> datetime:
    leased = seen.maintenance.status.condition(ConditionType.LEASED)
    if leased is None or leased.status == "True" or leased.last_transition_time is None:
        return seen.now
    return leased.last_transition_time


# Out of maintenance


def _end(seen: Seen) -> Decision:
    maintenance = seen.maintenance
    if seen.drain is not None:
        return Decision(step=StopDrain())
    if FINALIZER not in maintenance.metadata.finalizers:
        return Decision()
    if seen.node is not None and (decision := _given_back(seen, seen.node)):
        return decision
    if not _staying(seen.rivals) and seen.lease is not None and not seen.tenure.is_others:
        return Decision(step=ReleaseLease(seen.lease))
    return Decision(step=RemoveFinalizer())


def _given_back(seen: Seen, node: Node) -> Decision | None:
    if is_adoptable(seen.maintenance, node):
        change = cordon.acquire(node, owner_name(seen.maintenance), WISHES, now=seen.now, adopting=True)
        if change is not None:
            return Decision(step=Hold(change, is_first=True))
    return _let_go(seen, node)


def _let_go(seen: Seen, node: Node) -> Decision | None:
    """Return the next step on the way to a node that is not ours any more; None if there is none left."""
    change = cordon.release(node, owner_name(seen.maintenance))
    if change is not None:
        return Decision(step=Release(change))
    if cordon.cordon_of(node) is not None or _staying(seen.rivals):
        return None  # others hold it still
    return _published(seen, node, Stage.OVER)


def _failed(seen: Seen, cause: Cause, text: str) -> Decision:
    if seen.drain is not None:
        return Decision(step=StopDrain())
    return Decision(failure=Failure(cause, text))


def _staying(rivals: Iterable[NodeMaintenance]) -> bool:
    return any(not it.is_leaving for it in rivals)


def _is_before(other: NodeMaintenance, maintenance: NodeMaintenance) -> bool:
    return not other.is_leaving and _age(other) < _age(maintenance)


def _age(maintenance: NodeMaintenance) -> tuple[datetime, str]:
    return maintenance.metadata.creation_timestamp or _NEVER, maintenance.name
