"""What to do next about a NodeMaintenance: a decision from what was seen of it, its node, its lease and its drain.

    decision = decide(seen)
    decision.step        the one thing to do now; then look and decide again
    decision.wakes_at    without a step: when to look again if nothing happens before

It does no input or output. Each step can be repeated, and none depends on one before it having been made by the same
process: whoever takes over sees what there is and decides the same. In this order:

    finalizer → look at the pods → first status → hold → budget → lease → cordon, taints, label → conditions → drain

and back, once the object is deleted: stop the drain → give back what is ours on the node → wait for recovery, where
that is asked for → lease → finalizer.

Before the node is changed for the first time, the status says how it is.
"""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from haulout.budget import away
from haulout.drain import cordon, document, machine_rules
from haulout.drain.cordon import BadMark
from haulout.drain.keeper import Kept
from haulout.drain.lifecycle import Stage
from haulout.drain.memory import Checkpoint
from haulout.drain.policy import Policy
from haulout.drain.progress import Ending
from haulout.drain.workloads import Record
from haulout.errors import PolicyError
from haulout.kinds.hold import holding
from haulout.kube.locks import Standing
from haulout.kube.objects import Node, RawObject
from haulout.maintenance import recovery
from haulout.maintenance.holding import (
    WISHES,
    adopted,
    counts_copy,
    is_adoptable,
    is_mark_lost,
    is_ours_to_release,
    is_wanted_by,
    kept_before,
    let_go,
    let_go_of_strays,
    node_before,
    owner_name,
    owners,
    publish,
)
from haulout.maintenance.recovery import RecoverySeen
from haulout.maintenance.resource import FINALIZER, ConditionType, NodeMaintenance, Phase, RecoveryStatus
from haulout.maintenance.seen import Cause, Decision, Failure, Seen
from haulout.maintenance.steps import (
    Accept,
    AddFinalizer,
    BeginDrain,
    BeginRecovery,
    ChangePolicy,
    EndRecovery,
    Hold,
    RecordNode,
    RecordWorkloads,
    ReleaseLease,
    RemoveFinalizer,
    StartDrain,
    StartOver,
    StopDrain,
    TakeLease,
)

LEASE_LOST_FOR = timedelta(minutes=1)  # to somebody else, until the maintenance is given up
LEASE_LOOKED_AT_EVERY = timedelta(seconds=10)  # meanwhile
LEASE_TAKEN_AT_MOST_EVERY = timedelta(seconds=10)
_USUAL = Policy.like_nmo()
NEVER = datetime.max.replace(tzinfo=UTC)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
RESTORED_AT_MOST_EVERY = timedelta(seconds=10)
OBJECTION_LOOKED_AT_EVERY = timedelta(seconds=30)
LOOKED_AT_EVERY = timedelta(minutes=10)  # what waits for others, though we are told when they act
FIRST_LOOK_WITHIN = timedelta(seconds=5)  # at the pods, before a first status is written without them
_FAR = timedelta(days=365)  # as good as for ever: until then it is looked at again anyway
_A_MOMENT = timedelta(seconds=1)  # a lease is in force up to and with the last instant of its time
_MOST_UNFINISHED = 99  # percent
LEASE_LOST = "Lost"  # the reason of the condition Leased
_LOST_BEFORE = "maintenance failed: lease could not be extended"


# These are left only by an edit of the object; the others as soon as what they say is no longer so.
_DRAIN_ENDED = {Ending.TIMED_OUT: Cause.DRAIN_TIMED_OUT, Ending.REFUSED: Cause.DRAIN_REFUSED}
_STICKY = (Cause.LEASE_LOST, *_DRAIN_ENDED.values())


def decide(seen: Seen) -> Decision:
    """Return what to do next."""
    try:
        decision = _end(seen) if seen.maintenance.is_leaving else _begin(seen)
    except BadMark as error:
        decision = Decision(problem=str(error), waits_for="a person who repairs the annotation")
    if decision.problem and decision.wakes_at is None:
        return replace(decision, wakes_at=_next_round(seen.now))
    return decision


def policy_of(maintenance: NodeMaintenance) -> Policy:
    """Return how the node is to be emptied; raise `PolicyError` if what the object says about it makes no sense."""
    wanted = maintenance.spec.drain
    return _USUAL if wanted is None else document.read(wanted, base=_USUAL, path="spec.drain")


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
    policy, problem = _policy(seen)
    if FINALIZER not in maintenance.metadata.finalizers:
        return _about_the_first_look(seen, policy) or Decision(step=AddFinalizer())
    if decision := _about_another_node(seen):
        return decision
    if not maintenance.status.phase:
        return _about_the_first_status(seen, policy)
    if not maintenance.node:
        return _failed(seen, Cause.NODE_UNNAMED, "spec.nodeName is empty, expected the name of a node")
    if seen.node is None:
        return _failed(seen, Cause.NODE_MISSING, f'nodes "{maintenance.node}" not found')
    failure = failure_that_stays(maintenance) or (Failure(Cause.POLICY_INVALID, problem) if problem else None)
    return _go_on(seen, seen.node, policy, failure)


def _about_another_node(seen: Seen) -> Decision | None:
    """Begin anew if the object has named another node before, and give that back."""
    if seen.strays and seen.maintenance.status.phase:
        return Decision(step=StartOver())
    return let_go_of_strays(seen)


def _policy(seen: Seen) -> tuple[Policy, str]:
    """Return the policy for this node; if it makes no sense, one that nobody uses, and what is wrong with it."""
    try:
        policy = policy_of(seen.maintenance)
    except PolicyError as error:
        return _USUAL, str(error)
    return policy if seen.node is None else machine_rules.honoured(policy, seen.node), ""


def may_delete_pods(maintenance: NodeMaintenance) -> bool:
    """Tell whether the drain policy of a maintenance may delete pods."""
    try:
        return policy_of(maintenance).may_delete
    except PolicyError:
        return False


def _about_the_first_look(seen: Seen, policy: Policy) -> Decision | None:
    """Look at the pods of a node, and touch none, while all else is got ready: that takes a connection of its own."""
    is_new = not seen.maintenance.status.phase and seen.node is not None and seen.maintenance.node
    return Decision(step=StartDrain(policy, None)) if is_new and seen.drain is None else None


def _about_the_first_status(seen: Seen, policy: Policy) -> Decision:
    """Tell with the first status which pods are there: they are counted before any of them leaves."""
    if decision := _about_the_first_look(seen, policy):
        return decision
    drain = seen.drain
    if seen.node is None or drain is None:
        return Decision(step=Accept())
    until = drain.progress.started + FIRST_LOOK_WITHIN
    if not drain.progress.is_known and not drain.progress.trouble and seen.now < until:
        return Decision(wakes_at=until)
    return Decision(step=Accept())


def _go_on(seen: Seen, node: Node, policy: Policy, failure: Failure | None) -> Decision:
    if is_adoptable(seen.maintenance, node):
        return adopted(seen, node)
    if failure is not None and failure.cause is Cause.LEASE_LOST:
        stopped = None if seen.drain is None else Decision(step=StopDrain())
        return stopped or let_go(seen, node) or Decision(failure=failure)
    if is_mark_lost(seen.maintenance, node) and _first_rival(seen) is None:
        return _about_a_lost_mark(seen, node)
    if failure is not None and failure.cause is Cause.POLICY_INVALID:
        if seen.drain is not None:
            return Decision(step=StopDrain())
        if owner_name(seen.maintenance) not in owners(node):
            return Decision(failure=failure)
    return (
        _about_the_drain(seen, node, policy, failure)
        or _about_others(seen, node)
        or _about_a_hold(seen, node)
        or _about_the_budget(seen, node)
        or _about_the_lease(seen, node)
        or _about_the_node(seen, node)
        or publish(seen, node, _stage(seen, failure))
        or _about_the_pods(seen, failure)
    )


def _about_the_drain(seen: Seen, node: Node, policy: Policy, failure: Failure | None) -> Decision | None:
    """See to it that a drain looks at the pods of this very node, by the policy that holds now."""
    if seen.drain is None:
        return None if failure else Decision(step=StartDrain(policy, _checkpoint(seen)))
    is_tried_again = seen.maintenance.status.phase == Phase.FAILED and failure is None
    if seen.drain.node_uid != node.uid or (is_tried_again and not _is_running(seen.drain)):
        return Decision(step=StopDrain())
    if seen.drain.policy != policy:
        return Decision(step=ChangePolicy(policy) if _is_running(seen.drain) else StopDrain())
    return None


def _about_others(seen: Seen, node: Node) -> Decision | None:
    """Wait while an older maintenance of the same node is there; hold the node with it, so that none gives it back."""
    first = _first_rival(seen)
    if first is None:
        return None
    if _is_under_way(seen.drain):
        return Decision(step=StopDrain())
    holders = owners(node)
    if owner_name(first) in holders:
        change = cordon.acquire(node, owner_name(seen.maintenance), WISHES, now=seen.now)
        if change is not None and owner_name(seen.maintenance) in holders:
            return Decision(step=Hold(change, is_first=False, tampering=_tampering(node)))
        if change is not None:
            return _taken(seen, change)
    # One that has failed counts as well: it may hold the node, and goes on as soon as somebody edits it.
    how = ", which has failed" if first.status.phase == Phase.FAILED else ""
    problem = f"node {node.name} is already in maintenance by NodeMaintenance {first.name}{how}"
    return Decision(
        problem=f"{problem}: this one goes on when that is deleted", waits_for=f"NodeMaintenance {first.name}"
    )


def _about_a_hold(seen: Seen, node: Node) -> Decision | None:
    """Wait, without a hand on the node, its lease or the budget, while a person keeps maintenance off it."""
    hold = holding(node, now=seen.now)
    if hold is None or owner_name(seen.maintenance) in owners(node):
        return None
    if _is_under_way(seen.drain):
        return Decision(step=StopDrain())
    if seen.lease is not None and seen.tenure.is_ours:
        return Decision(step=ReleaseLease(seen.lease))
    whom = f"{hold.by}, who holds node {node.name}" if hold.by else f"whoever holds node {node.name}"
    ends_soon = hold.until is not None and hold.until - seen.now < _FAR
    return Decision(
        problem=f"node {node.name} is {hold}", waits_for=whom, wakes_at=hold.until if ends_soon else None, hold=hold
    )


def _about_the_budget(seen: Seen, node: Node) -> Decision | None:
    """Wait, without a hand on the node or its lease, while too many others are out of service."""
    crowded = seen.crowded
    if crowded is None or owner_name(seen.maintenance) in owners(node):
        return None
    if _is_under_way(seen.drain):
        return Decision(step=StopDrain())
    is_settled = crowded.again_at is None
    if is_settled and seen.lease is not None and seen.tenure.is_ours:
        return Decision(step=ReleaseLease(seen.lease))
    whom = "the budget" if not crowded.users else f"one of {', '.join(crowded.users)} to be back in service"
    return Decision(problem=str(crowded), waits_for=whom, wakes_at=crowded.again_at, crowded=crowded)


def _about_the_lease(seen: Seen, node: Node) -> Decision | None:
    tenure = seen.tenure
    if not tenure.is_others:
        return _about_our_lease(seen, node)
    held = f"can't update or invalidate the lease because it is held by different owner: {tenure.holder}"
    whom = f"{tenure.holder}, who holds the lease of node {node.name}"
    if not _was_ours(seen, node):
        count = seen.maintenance.status.error_on_lease_count
        text = f"failed to obtain a lease that is not owned by us : {held} errorOnLeaseCount {count}"
        free_at = None if tenure.claim.until is None else tenure.claim.until + _A_MOMENT
        waiting = Decision(problem=text, waits_for=whom, wakes_at=free_at)
        return publish(seen, node, Stage.PLANNED) or waiting
    if _is_under_way(seen.drain):
        return Decision(step=StopDrain())
    since = _lost_since(seen)
    lost_for = seen.now - since
    looks = lost_for // LEASE_LOOKED_AT_EVERY
    count = looks + 1
    if lost_for >= LEASE_LOST_FOR:
        text = f"{_LOST_BEFORE} after {count} attempts"
        failed = Decision(failure=Failure(Cause.LEASE_LOST, text), lease_lost_since=since, lease_failures=count)
        return let_go(seen, node) or failed
    text = f"failed to extend a lease that used to be owned by us, incrementing error on lease count: {held}"
    return Decision(
        problem=f"{text}, errorOnLeaseCount: {count}",
        waits_for=whom,
        wakes_at=since + (looks + 1) * LEASE_LOOKED_AT_EVERY,
        lease_lost_since=since,
        lease_failures=count,
    )


def _about_our_lease(seen: Seen, node: Node) -> Decision | None:
    """Take or renew the lease when it is time; without one, nothing goes on."""
    renews_at = _renews_at(seen)
    if renews_at <= seen.now:
        return Decision(step=TakeLease())
    if seen.tenure.claim.standing is Standing.OURS:
        return None
    problem = f"the lease of node {node.name} was deleted right after it was taken"
    return Decision(problem=problem, waits_for="whoever does that", wakes_at=renews_at)


def _renews_at(seen: Seen) -> datetime:
    """Return when to renew the lease; not at once if we did just now, for somebody whose clock is wrong undoes it."""
    due_at, leased_at = seen.tenure.renew_at, seen.leased_at
    if leased_at is None or leased_at > seen.now:
        return due_at
    return max(due_at, leased_at + LEASE_TAKEN_AT_MOST_EVERY)


def _about_the_node(seen: Seen, node: Node) -> Decision | None:
    owner = owner_name(seen.maintenance)
    is_first = owner not in owners(node)
    if is_first and (problem := seen.objection or seen.lacking):
        again_at = seen.now + OBJECTION_LOOKED_AT_EVERY
        for_whom = "the control plane" if seen.objection else "whoever grants permissions"
        waiting = Decision(problem=problem, waits_for=for_whom, wakes_at=again_at)
        return publish(seen, node, Stage.PLANNED) or waiting
    before = kept_before(seen.maintenance) if counts_copy(seen.maintenance, node) else None
    change = cordon.acquire(node, owner, WISHES, now=seen.now, before=before)
    if change is None:
        return None
    return _taken(seen, change) if is_first else _taken_again(seen, node, change)


def _about_a_lost_mark(seen: Seen, node: Node) -> Decision:
    """Hold a node again from whose mark somebody has removed us, and restore how it was before from the status."""
    before = kept_before(seen.maintenance)
    change = cordon.acquire(node, owner_name(seen.maintenance), WISHES, now=seen.now, before=before)
    if change is None:
        raise RuntimeError(f"node {node.name} has lost its mark, and has it")
    return _taken_again(seen, node, change)


def _taken(seen: Seen, change: RawObject) -> Decision:
    """Hold a node for the first time, once the status says how it was: the mark may be removed right after."""
    before = node_before(seen)
    if before is not None and before != seen.maintenance.status.node_before:
        return Decision(step=RecordNode(before))
    return Decision(step=Hold(change, is_first=True))


def _taken_again(seen: Seen, node: Node, change: RawObject) -> Decision:
    """Hold a node again, but not again and again."""
    if seen.restored_at is not None:
        again_at = seen.restored_at + RESTORED_AT_MOST_EVERY
        if seen.restored_at <= seen.now < again_at:  # what was later than now was by a clock that was set since
            problem = f"somebody keeps undoing what this maintenance did to node {node.name}"
            return Decision(problem=problem, waits_for="whoever does that", wakes_at=again_at)
    return Decision(step=Hold(change, is_first=False, tampering=_tampering(node)))


def _tampering(node: Node) -> str:
    return ", ".join(cordon.tampering(node, WISHES))


def _about_the_pods(seen: Seen, failure: Failure | None) -> Decision:
    renew_at = _renews_at(seen)
    if failure is not None or seen.drain is None:
        return Decision(failure=failure, wakes_at=renew_at)
    if seen.drain.is_waiting:
        return _about_the_record(seen) or Decision(step=BeginDrain())
    outcome = seen.drain.outcome
    if outcome is not None and outcome.ending in _DRAIN_ENDED:
        return Decision(failure=Failure(_DRAIN_ENDED[outcome.ending], outcome.why), wakes_at=renew_at)
    return Decision(wakes_at=renew_at)


def _about_the_record(seen: Seen) -> Decision | None:
    """Write down the workloads on the node before the first of their pods leaves, where recovery is asked for."""
    if seen.maintenance.spec.recovery is None or seen.maintenance.status.recovery is not None:
        return None
    found = seen.recovery or RecoverySeen(problem="they are not followed")
    record = found.record or Record()
    return Decision(
        step=RecordWorkloads(RecoveryStatus(workloads=record.workloads, omitted=record.omitted, problem=found.problem))
    )


def _stage(seen: Seen, failure: Failure | None) -> Stage:
    if failure is not None or seen.drain is None:
        return Stage.STUCK
    outcome = seen.drain.outcome
    if outcome is None:
        was_empty = seen.maintenance.status.phase == Phase.SUCCEEDED and not seen.drain.progress.pods
        return Stage.DRAINED if was_empty else Stage.DRAINING
    return Stage.DRAINED if outcome.is_drained else Stage.STUCK


def _is_under_way(drain: Kept | None) -> bool:
    return drain is not None and not drain.is_waiting


def _is_running(drain: Kept) -> bool:
    return drain.outcome is None or drain.outcome.is_drained


def _checkpoint(seen: Seen) -> Checkpoint | None:
    """Return where a predecessor stood; of one that was done, whose time does not count, only what it had achieved."""
    status = seen.maintenance.status
    drain = status.drain
    if drain is None or drain.start_time is None or status.phase == Phase.FAILED:
        return None
    percent = min(status.drain_progress, _MOST_UNFINISHED)
    if status.phase == Phase.SUCCEEDED:
        return Checkpoint(started=seen.now, gone=drain.gone, percent=percent, is_drained=True)
    return Checkpoint(started=drain.start_time, since=drain.turns, gone=drain.gone, percent=percent)


def _was_ours(seen: Seen, node: Node) -> bool:
    """Tell whether we have held the lease before: then the node may be in our hands."""
    status = seen.maintenance.status
    leased = status.condition(ConditionType.LEASED)
    if leased is not None and (leased.status == "True" or leased.reason == LEASE_LOST):
        return True
    return owner_name(seen.maintenance) in owners(node)


def _lost_since(seen: Seen) -> datetime:
    leased = seen.maintenance.status.condition(ConditionType.LEASED)
    if leased is None or leased.status == "True" or leased.last_transition_time is None:
        return seen.now
    return min(leased.last_transition_time, seen.now)


# Out of maintenance


def _end(seen: Seen) -> Decision:
    maintenance = seen.maintenance
    if seen.drain is not None:
        return Decision(step=StopDrain())
    if FINALIZER not in maintenance.metadata.finalizers:
        return Decision()
    if decision := let_go_of_strays(seen):
        return decision
    if seen.node is not None and (decision := _given_back(seen, seen.node) or _about_recovery(seen, seen.node)):
        return decision
    if not is_wanted_by(seen.rivals) and seen.lease is not None and is_ours_to_release(seen.lease):
        return Decision(step=ReleaseLease(seen.lease))
    return Decision(step=RemoveFinalizer())


def _given_back(seen: Seen, node: Node) -> Decision | None:
    maintenance = seen.maintenance
    if is_adoptable(maintenance, node):
        return adopted(seen, node)
    is_held = maintenance.name in away.orders_of(node) or is_mark_lost(maintenance, node)
    if not is_held or not recovery.is_wanted(maintenance) or is_wanted_by(seen.rivals):
        return let_go(seen, node)
    if recovery.until(maintenance, seen.now) is None:
        return Decision(step=BeginRecovery())
    return let_go(seen, node, recovering=True)


def _about_recovery(seen: Seen, node: Node) -> Decision | None:
    """Wait until the workloads that were evicted have recovered; for whoever wants the node now, nobody waits."""
    maintenance = seen.maintenance
    if maintenance.name not in away.recovering_of(node):
        return None
    change, until = recovery.unmarked(node, maintenance.name), recovery.until(maintenance, seen.now)
    said = maintenance.status.recovery
    if maintenance.spec.recovery is None or said is None or until is None or is_wanted_by(seen.rivals):
        return Decision(step=EndRecovery(node.name, change))
    missing = recovery.missing(node, said, seen.recovery)
    if not missing or seen.now >= until:
        return Decision(step=EndRecovery(node.name, change, is_recovered=not missing, missing=missing))
    return Decision(
        problem=f"{missing}; the maintenance ends by {until:%Y-%m-%d %H:%M:%S} UTC without",
        waits_for=f"node {node.name} to recover",
        wakes_at=until,
        is_recovering=True,
    )


def _failed(seen: Seen, cause: Cause, text: str) -> Decision:
    if seen.drain is not None:
        return Decision(step=StopDrain())
    return Decision(failure=Failure(cause, text))


def _first_rival(seen: Seen) -> NodeMaintenance | None:
    """Return the oldest of the maintenances of the same node that come before this one."""
    return min((it for it in seen.rivals if _is_before(it, seen.maintenance)), default=None, key=_age)


def _is_before(other: NodeMaintenance, maintenance: NodeMaintenance) -> bool:
    return not other.is_leaving and _age(other) < _age(maintenance)


def _next_round(now: datetime) -> datetime:
    """Return when to look again, the same for all looks within some minutes, so that no status changes with each."""
    rounds = (now - _EPOCH) // LOOKED_AT_EVERY
    return _EPOCH + (rounds + 1) * LOOKED_AT_EVERY


def _age(maintenance: NodeMaintenance) -> tuple[datetime, str]:
    return maintenance.metadata.creation_timestamp or NEVER, maintenance.name
