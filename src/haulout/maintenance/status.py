"""What the status of a NodeMaintenance says: a function of what was seen and decided, and of what it said before.

The fields of the Node Maintenance Operator keep their meaning. What went wrong goes from `lastError` when it is over;
`drainProgress` stays within 0 and 100; `totalpods` and `evictionPods` are counted once. The conditions say the same in
more words, and `blockers` what stands in the way.

Ready, Reconciling and Stalled are for tools that wait for objects of any kind by the rules of kstatus
(sigs.k8s.io/cli-utils, pkg/kstatus). Ready is True when the node is empty. Before that exactly one of Reconciling and
Stalled is True: Stalled if a person must act. Absent means False. They change with what the other conditions say. Only
that a drain stalls may cost a write of its own, one per drain.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from haulout.drain import cordon
from haulout.drain.blockers import fields_of
from haulout.drain.cordon import BadMark
from haulout.drain.lasting import BLOCKED_AFTER, STALLED_AFTER
from haulout.drain.progress import PodProgress, Progress, Standing, State
from haulout.drain.words import some
from haulout.kinds.hold import HELD
from haulout.kube.admission import Admission
from haulout.kube.objects import RawObject, StatusCondition
from haulout.kube.patches import difference
from haulout.maintenance import lease
from haulout.maintenance.decision import LEASE_LOST
from haulout.maintenance.holding import is_adoptable, is_mark_lost, node_before, owner_name
from haulout.maintenance.resource import (
    UNOBSERVED,
    ConditionType,
    DrainStatus,
    NodeMaintenance,
    Phase,
    PhaseTransition,
    PodReference,
    Status,
    StatusBlocker,
)
from haulout.maintenance.seen import Cause, Decision, Seen

RETRYING = "Retrying"  # the reason of the condition Drained after an error
BUDGET_USED_UP = "BudgetUsedUp"  # the reason of the condition WithinBudget
_NO_RECOVERY = """'{"spec":{"recovery":null}}'"""
_MOST_BLOCKERS = 50
_MOST_TRANSITIONS = 10
_MINUTE = timedelta(minutes=1)
_ENDING = (State.LEAVING, State.FINISHING)


@dataclass(frozen=True, slots=True)
class Report:
    """A status, and when it will say something else though nothing happens."""

    status: Status
    wakes_at: datetime | None


def describe(
    seen: Seen,
    decision: Decision,
    *,
    error: str = "",
    admission: Admission | None = None,
    error_reason: str = RETRYING,
    lease_namespace: str = lease.NAMESPACE,
) -> Report:
    """Return what the status should say.

    `error` is what went wrong on the way, `error_reason` a word for it, and `admission` who refused a write.
    """
    said = seen.maintenance.status
    progress = seen.drain.progress if seen.drain is not None and seen.drain.progress.is_known else None
    phase = _phase(seen, decision)
    pending = said.pending_pods_refs if progress is None else tuple(_reference(pod.pod) for pod in progress.pods)
    standing = () if progress is None else tuple(sorted(progress.blockers, key=lambda it: it.since))
    refusing = tuple(_refusing(seen, admission, error_reason))
    blockers = (
        *refusing,
        *_held(seen, decision),
        *_crowding(seen, decision),
        *_recovering(seen, decision),
        *map(_blocker, standing[:_MOST_BLOCKERS]),
    )
    is_adopted_later = _is_to_be_adopted(seen, decision)
    stalled = _is_stalled(seen, decision, refusing)
    status = Status(
        phase=phase,
        drain_progress=100
        if phase is Phase.SUCCEEDED
        else said.drain_progress
        if progress is None
        else progress.percent,
        last_update=said.last_update,
        last_error=_last_error(seen, decision, error, standing),
        pending_pods=tuple(it.name for it in pending),
        pending_pods_refs=pending,
        total_pods=said.total_pods or (seen.drain.on_node if seen.drain else 0),
        eviction_pods=said.eviction_pods or (progress.total if progress else 0),
        error_on_lease_count=decision.lease_failures or _kept_count(seen, decision),
        observed_generation=UNOBSERVED if is_adopted_later else seen.maintenance.metadata.generation,
        next_look=_next_look(seen, decision, progress),
        conditions=()
        if is_adopted_later
        else tuple(_conditions(seen, decision, phase, (error_reason, error), lease_namespace, stalled=stalled)),
        waits_for=_waits_for(blockers, progress),
        blockers=blockers,
        drain=said.drain if progress is None else _drain(seen, phase, progress),
        phase_transitions=transitions(said, phase, now=seen.now),
        node_before=node_before(seen),
        recovery=said.recovery,
    )
    lasting_since = [it.since for it in standing if not it.blocker.is_progress]
    if seen.drain is not None and seen.drain.progress.trouble:
        lasting_since.append(seen.drain.progress.started)
    wakes = [since + BLOCKED_AFTER for since in lasting_since]
    wakes += [] if progress is None else [it for pod in progress.pods if (it := _stalls_at(pod, was_stalled=False))]
    wakes += [status.next_look] if status.next_look else []
    return Report(status, min((it for it in wakes if it > seen.now), default=None))


def change_of(maintenance: NodeMaintenance, status: Status, *, now: datetime) -> RawObject | None:
    """Return the merge patch that makes the status of `maintenance` say this; None if it does."""
    if is_said(maintenance, status):
        return None
    wanted = msgspec.structs.replace(status, last_update=_whole(now))
    metadata = {"uid": maintenance.uid, "resourceVersion": maintenance.resource_version}
    change = difference(msgspec.to_builtins(maintenance.status), msgspec.to_builtins(wanted))
    return {"metadata": metadata, "status": change}


def is_said(maintenance: NodeMaintenance, status: Status) -> bool:
    """Tell whether the status of `maintenance` says this already, whenever that was written."""
    said = maintenance.status
    # A CustomResourceDefinition of an older version does not keep phaseTransitions and waitsFor. Both change only with
    # other fields.
    unimportant = {
        "last_update": said.last_update,
        "phase_transitions": said.phase_transitions,
        "waits_for": said.waits_for,
    }
    return msgspec.structs.replace(status, **unimportant) == said


def transitions(said: Status, phase: str, *, now: datetime) -> tuple[PhaseTransition, ...]:
    """Return the last changes of the phase, with that to `phase` if it is one; empty: it begins anew."""
    known = said.phase_transitions
    if phase == said.phase:
        return known
    number = known[-1].number + 1 if known else 1
    return (*known, PhaseTransition(number=number, phase=phase, time=_whole(now)))[-_MOST_TRANSITIONS:]


def _whole(instant: datetime) -> datetime:
    """Return an instant as the API server keeps it, so that what it returns equals what was sent."""
    return instant.replace(microsecond=0)


# The old fields


def _phase(seen: Seen, decision: Decision) -> Phase:
    if decision.failure is not None:
        return Phase.FAILED
    drain, said = seen.drain, seen.maintenance.status.phase
    if drain is not None and drain.outcome is not None and drain.outcome.is_drained:
        return Phase.SUCCEEDED
    # Whoever takes over has not looked yet, and until then what was said holds.
    looked = drain is not None and bool(drain.progress.pods) and not drain.is_waiting
    return Phase.SUCCEEDED if said == Phase.SUCCEEDED and not looked else Phase.RUNNING


def _last_error(seen: Seen, decision: Decision, error: str, standing: Iterable[Standing]) -> str:
    if error or decision.failure or decision.problem:
        return error or (decision.failure.text if decision.failure else decision.problem)
    if seen.drain is not None and seen.drain.progress.trouble:
        return seen.drain.progress.trouble
    long = (it for it in standing if not it.blocker.is_progress and it.since + BLOCKED_AFTER <= seen.now)
    return next((str(it.blocker) for it in long), "")


def _kept_count(seen: Seen, decision: Decision) -> int:
    """Return the number of lease failures that a failed maintenance goes on telling."""
    is_lost = decision.failure is not None and decision.failure.cause is Cause.LEASE_LOST
    return seen.maintenance.status.error_on_lease_count if is_lost else 0


def _reference(pod: str) -> PodReference:
    namespace, _, name = pod.rpartition("/")
    return PodReference(namespace=namespace, name=name)


# The new ones


def _next_look(seen: Seen, decision: Decision, progress: Progress | None) -> datetime | None:
    """Return by when things are looked at again; in whole minutes, or the status would change with each look.

    What was said before stands as long as it is kept: there is a look by then, and none was put off until later.
    """
    looks = [decision.wakes_at] if decision.wakes_at else []
    looks += [it for pod in progress.pods if (it := _next_ask(pod, seen.now))] if progress else []
    looks += [progress.volumes_until] if progress and progress.volumes_until else []
    later = [it for it in looks if it >= seen.now]
    if not later:
        return None
    look = min(later)
    by = look.replace(second=0, microsecond=0) + _MINUTE
    said = seen.maintenance.status.next_look
    return said if said is not None and look <= said <= by else by


def _next_ask(pod: PodProgress, now: datetime) -> datetime | None:
    """Return when a pod is asked again: right now, if it is being asked."""
    return now if pod.next_at is None and pod.state in (State.EVICTING, State.BLOCKED) else pod.next_at


def _blocker(standing: Standing) -> StatusBlocker:
    return StatusBlocker(**fields_of(standing.blocker), since=_whole(standing.since))


def _waits_for(blockers: Sequence[StatusBlocker], progress: Progress | None) -> str:
    """Return the object of the first blocker or, without blockers, the pods that are ending."""
    if blockers:
        return blockers[0].object
    ending = [] if progress is None else [it.pod for it in progress.pods if it.state in _ENDING]
    return f"pod {ending[0]} to end" if len(ending) == 1 else f"{len(ending)} pods to end" if ending else ""


def _crowding(seen: Seen, decision: Decision) -> Iterable[StatusBlocker]:
    """Yield what stands in the way of the maintenance as a whole: the budget, and who uses it."""
    crowded = decision.crowded
    if crowded is None:
        return
    told = seen.maintenance.status.condition(ConditionType.WITHIN_BUDGET)
    is_told = told is not None and told.status == "False"
    yield StatusBlocker(
        kind="Budget",
        object=f"budget: {some(crowded.users)}" if crowded.users else "budget",
        reason=str(crowded),
        advice="it begins by itself when there is room",
        since=told.last_transition_time if told is not None and is_told else seen.now,
    )


def _refusing(seen: Seen, admission: Admission | None, kind: str) -> Iterable[StatusBlocker]:
    """Yield the admission policy or webhook that refuses what the maintenance writes."""
    if admission is None:
        return
    before = next((it for it in seen.maintenance.status.blockers if it.kind == kind), None)
    yield StatusBlocker(
        kind=kind,
        object=admission.object,
        reason=admission.says,
        advice=admission.advice,
        since=_whole(seen.now) if before is None else before.since,
    )


def _held(seen: Seen, decision: Decision) -> Iterable[StatusBlocker]:
    """Yield the hold that stands in the way of the maintenance as a whole."""
    if decision.hold is None:
        return
    before = next((it for it in seen.maintenance.status.blockers if it.kind == HELD), None)
    yield StatusBlocker(
        kind=HELD,
        object=f"hold of {decision.hold.by}" if decision.hold.by else "hold",
        reason=str(decision.hold),
        advice=f"to let it begin: haulout release {seen.maintenance.node}",
        since=_whole(seen.now) if before is None else before.since,
    )


def _recovering(seen: Seen, decision: Decision) -> Iterable[StatusBlocker]:
    """Yield what a maintenance that was deleted waits for."""
    if not decision.is_recovering:
        return
    recovery = seen.maintenance.status.recovery
    yield StatusBlocker(
        kind="Recovery",
        object=decision.waits_for,
        reason=decision.problem,
        advice=f"to end it at once: kubectl patch nm {seen.maintenance.name} --type merge -p {_NO_RECOVERY}",
        since=None if recovery is None else recovery.start_time,
    )


def _drain(seen: Seen, phase: Phase, progress: Progress) -> DrainStatus:
    said = seen.maintenance.status.drain or DrainStatus()
    if seen.drain is None or seen.drain.is_waiting:
        return msgspec.structs.replace(said, warning=progress.warning)
    checkpoint = progress.checkpoint
    is_done = phase is Phase.SUCCEEDED and said.start_time is not None
    return DrainStatus(
        start_time=said.start_time if is_done else _whole(checkpoint.started),
        deadline=None if phase is Phase.SUCCEEDED or progress.deadline is None else _whole(progress.deadline),
        gone=progress.gone,
        leaving=progress.leaving,
        returning=progress.returning,
        warning=progress.warning,
        turns={uid: _whole(since) for uid, since in checkpoint.since.items()},
    )


def _is_to_be_adopted(seen: Seen, decision: Decision) -> bool:
    """Tell whether what the Node Maintenance Operator has written may still stand for a node that it has taken.

    It is told from ours by the conditions, which therefore come only when that is settled.
    """
    said = seen.maintenance.status
    if not said.phase or said.conditions:
        return False
    if seen.node is None:
        return decision.failure is None  # it could not be looked at
    return is_adoptable(seen.maintenance, seen.node)


def _conditions(
    seen: Seen, decision: Decision, phase: Phase, error: tuple[str, str], lease_namespace: str, *, stalled: bool
) -> Iterable[StatusCondition]:
    failure = decision.failure
    drained = _drained(seen, decision, phase, error)
    yield _condition(
        seen, ConditionType.LEASED, *_leased(seen, decision, lease_namespace), at=decision.lease_lost_since
    )
    yield _condition(seen, ConditionType.CORDONED, *_cordoned(seen))
    yield _condition(seen, ConditionType.DRAINED, *drained)
    if failure is not None:
        yield _condition(seen, ConditionType.FAILED, True, failure.cause, failure.text)
    elif seen.maintenance.status.condition(ConditionType.FAILED) is not None:
        yield _condition(seen, ConditionType.FAILED, False, "Resumed", "what made it fail is over, or was edited")
    yield from _within_budget(seen, decision)
    yield from _summary(seen, decision, drained, stalled=stalled)


def _summary(
    seen: Seen, decision: Decision, drained: tuple[bool, str, str], *, stalled: bool
) -> Iterable[StatusCondition]:
    """Yield what kstatus reads: Ready, and why not if it is not; of Reconciling and Stalled never both."""
    is_ready, reason, message = drained
    if decision.crowded is not None and not is_ready:
        reason, message = BUDGET_USED_UP, str(decision.crowded)
    yield _condition(seen, ConditionType.READY, is_ready, reason, message)
    if not is_ready:
        kind = ConditionType.STALLED if stalled else ConditionType.RECONCILING
        yield _condition(seen, kind, True, reason, message)


def _is_stalled(seen: Seen, decision: Decision, refusing: Iterable[StatusBlocker]) -> bool:
    """Tell whether a person must act: it has failed, or something has been in the way for STALLED_AFTER."""
    if decision.failure is not None or any(it.since and it.since + STALLED_AFTER <= seen.now for it in refusing):
        return True
    drain, was_stalled = seen.drain, _was_stalled(seen)
    if drain is None or drain.is_waiting or decision.problem:
        return False
    if not drain.progress.is_known:
        return was_stalled
    stalls = (_stalls_at(pod, was_stalled=was_stalled) for pod in drain.progress.pods)
    return any(it is not None and it <= seen.now for it in stalls)


def _was_stalled(seen: Seen) -> bool:
    said = seen.maintenance.status.condition(ConditionType.STALLED)
    return said is not None and said.status == "True" and seen.maintenance.status.phase == Phase.RUNNING


def _stalls_at(pod: PodProgress, *, was_stalled: bool) -> datetime | None:
    """Return from when on a pod is in the way for too long; None: it is not in the way.

    The time counts from the pod's turn to leave, which a successor knows. It does not know since when the pod is
    blocked, nor whether it is before it has asked the pod: so what was stalled stays so until then.
    """
    standing = pod.standing
    if standing is not None and (pod.since is None or pod.state is State.OVERDUE):
        return None if standing.blocker.is_progress else standing.since + STALLED_AFTER
    if pod.since is None or (standing is not None and standing.blocker.is_progress):
        return None
    stalls_at = pod.since + STALLED_AFTER
    if was_stalled:
        return stalls_at if pod.state in (State.EVICTING, State.BLOCKED) else None
    return None if standing is None else max(stalls_at, standing.since + BLOCKED_AFTER)


def _within_budget(seen: Seen, decision: Decision) -> Iterable[StatusCondition]:
    """Yield whether there is room in the budget, where there is one or was when this waited for it."""
    kind = ConditionType.WITHIN_BUDGET
    if decision.crowded is not None:
        yield _condition(seen, kind, False, BUDGET_USED_UP, str(decision.crowded))
    elif seen.maintenance.status.condition(kind) is not None or (seen.has_budget and _cordoned(seen)[0]):
        yield _condition(seen, kind, True, "Admitted", "the node may be out of service")


def _condition(
    seen: Seen,
    kind: ConditionType,
    is_true: bool,  # noqa: FBT001 - the status of the condition
    reason: str,
    message: str,
    *,
    at: datetime | None = None,
) -> StatusCondition:
    said = seen.maintenance.status.condition(kind)
    status = str(is_true)
    since = said.last_transition_time if said is not None and said.status == status else _whole(at or seen.now)
    return StatusCondition(
        type=kind,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=since,
        observed_generation=seen.maintenance.metadata.generation,
    )


def _leased(seen: Seen, decision: Decision, namespace: str) -> tuple[bool, str, str]:
    key = lease.key_of(seen.maintenance.node, namespace=namespace)
    tenure = seen.tenure
    if tenure.is_ours:
        return True, "Acquired", f"holds lease {key}"
    if tenure.is_others:
        reason = LEASE_LOST if decision.lease_lost_since else "HeldByOther"
        return False, reason, f"lease {key} is held by {tenure.holder}"
    return False, "NotAcquired", f"lease {key} is not held yet"


def _cordoned(seen: Seen) -> tuple[bool, str, str]:
    node = seen.node
    if node is None:
        return False, "NodeMissing", "there is no such node"
    if is_mark_lost(seen.maintenance, node):
        return True, "MarkLost", f"node {node.name} takes no new pods; {cordon.damage(node)}, and is written again"
    try:
        mark = cordon.cordon_of(node)
    except BadMark as error:
        return False, "MarkUnreadable", str(error)
    owner = owner_name(seen.maintenance)
    if mark is None or owner not in mark.owners:
        return False, "NotHeld", f"node {node.name} is not held by this maintenance"
    others = [it for it in mark.owners if it != owner]
    with_whom = f", together with {', '.join(others)}" if others else ""
    return True, "Cordoned", f"node {node.name} takes no new pods{with_whom}"


def _drained(seen: Seen, decision: Decision, phase: Phase, error: tuple[str, str]) -> tuple[bool, str, str]:
    drain = seen.drain
    if decision.failure is not None:
        return False, decision.failure.cause, decision.failure.text
    if phase is Phase.SUCCEEDED:
        why = drain.outcome.why if drain is not None and drain.outcome is not None else ""
        said = seen.maintenance.status.condition(ConditionType.DRAINED)
        return True, "DrainCompleted", why or (said.message if said else "no pods are left that were to leave")
    error_reason, problem = error
    if problem:
        return False, error_reason, f"is tried again: {problem}"
    if decision.hold is not None:
        return False, HELD, decision.problem
    if decision.problem or drain is None or drain.is_waiting:
        return False, "Waiting", f"waits for {decision.waits_for or 'its turn'}"
    progress = drain.progress
    blocked = [it for it in progress.blockers if not it.blocker.is_progress]
    return False, "Blocked" if blocked else "DrainInProgress", _sentence(progress, blocked)


def _sentence(progress: Progress, blocked: list[Standing]) -> str:
    text = f"{progress.gone} of {progress.total} pods have left"
    if progress.leaving:
        text += f", {progress.leaving} are leaving"
    if blocked:
        whom = dict.fromkeys(it.blocker.object or it.blocker.reason for it in blocked)
        text += f", {len(blocked)} blocked by {', '.join(whom)}"
    return text
