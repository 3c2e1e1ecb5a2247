"""The status of a NodeMaintenance: a function of the observation, the decision and the previous status.

The fields of the Node Maintenance Operator keep their meaning. `lastError` is emptied when the error is over;
`drainProgress` stays within 0 and 100; `totalpods` and `evictionPods` are counted once. The conditions contain the same
in more detail, and `blockers` what blocks the maintenance.

Ready, Reconciling and Stalled are for tools that wait for objects of any kind by the rules of kstatus
(sigs.k8s.io/cli-utils, pkg/kstatus). Ready is True when the node is drained. Before that exactly one of Reconciling and
Stalled is True: Stalled if a person must act. Absent means False. They change together with the other conditions. Only
a drain that becomes stalled may cost a write of its own, one per drain.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from haulout.api.hold import HELD
from haulout.api.nodemaintenance import (
    NO_OBSERVED_GENERATION,
    BlockerStatus,
    DrainStatus,
    NodeMaintenance,
    NodeMaintenanceConditionType,
    NodeMaintenancePhase,
    NodeMaintenanceStatus,
    PhaseTransition,
    PodReference,
)
from haulout.api.objects import RawObject, StatusCondition
from haulout.api.reasons import NodeMaintenanceConditionReason
from haulout.controllers.nodemaintenance import node_lease
from haulout.controllers.nodemaintenance.decision import LEASE_LOST_REASON
from haulout.controllers.nodemaintenance.node_cordon import (
    is_adoptable,
    is_cordon_annotation_lost,
    node_before,
    owner_name,
)
from haulout.controllers.nodemaintenance.observation import NodeMaintenanceDecision, Observation
from haulout.core.text import format_list
from haulout.drain import cordon
from haulout.drain.blockers import blocker_fields
from haulout.drain.cordon import InvalidCordonAnnotation
from haulout.drain.progress import (
    BLOCKED_AFTER,
    STALLED_AFTER,
    ActiveBlocker,
    DrainProgress,
    PodDrainState,
    PodProgress,
)
from haulout.kube.patches import difference
from haulout.kube.responses import AdmissionFailure

RETRYING_REASON = NodeMaintenanceConditionReason.RETRYING  # reason of condition Drained after an error
BUDGET_EXHAUSTED_REASON = NodeMaintenanceConditionReason.BUDGET_EXHAUSTED  # reason of condition WithinBudget
_NO_RECOVERY = """'{"spec":{"recovery":null}}'"""
_MAX_BLOCKERS = 50
_MAX_TRANSITIONS = 10
_MINUTE = timedelta(minutes=1)
_ENDING_STATES = (PodDrainState.LEAVING, PodDrainState.FINISHING)


@dataclass(frozen=True, slots=True)
class StatusUpdate:
    """A status, and when it changes by the passing of time alone."""

    status: NodeMaintenanceStatus
    requeue_at: datetime | None


def build_status(
    observation: Observation,
    decision: NodeMaintenanceDecision,
    *,
    error: str = "",
    admission: AdmissionFailure | None = None,
    error_reason: str = RETRYING_REASON,
    lease_namespace: str = node_lease.NAMESPACE,
) -> StatusUpdate:
    """Return the status.

    `error` is what failed in this reconcile, `error_reason` the condition reason for it, and `admission` the policy or
    webhook that refused a write.
    """
    reported = observation.maintenance.status
    progress = (
        observation.drain.progress if observation.drain is not None and observation.drain.progress.is_known else None
    )
    phase = _phase(observation, decision)
    pending = (
        reported.pending_pods_refs if progress is None else tuple(_pod_reference(pod.pod) for pod in progress.pods)
    )
    active_blockers = () if progress is None else tuple(sorted(progress.blockers, key=lambda item: item.since))
    admission_blockers = tuple(_admission_blocker(observation, admission, error_reason))
    blockers = (
        *admission_blockers,
        *_hold_blocker(observation, decision),
        *_budget_blocker(observation, decision),
        *_recovery_blocker(observation, decision),
        *map(_blocker_status, active_blockers[:_MAX_BLOCKERS]),
    )
    is_adopted_later = _is_to_be_adopted(observation, decision)
    stalled = _is_stalled(observation, decision, admission_blockers)
    status = NodeMaintenanceStatus(
        phase=phase,
        drain_progress=100
        if phase is NodeMaintenancePhase.SUCCEEDED
        else reported.drain_progress
        if progress is None
        else progress.percent,
        last_update=reported.last_update,
        last_error=_last_error(observation, decision, error, active_blockers),
        pending_pods=tuple(item.name for item in pending),
        pending_pods_refs=pending,
        total_pods=reported.total_pods or (observation.drain.pods_on_node if observation.drain else 0),
        eviction_pods=reported.eviction_pods or (progress.total if progress else 0),
        error_on_lease_count=decision.lease_failures or _kept_lease_failures(observation, decision),
        observed_generation=NO_OBSERVED_GENERATION if is_adopted_later else observation.maintenance.metadata.generation,
        next_reconcile=_next_reconcile(observation, decision, progress),
        conditions=()
        if is_adopted_later
        else tuple(_conditions(observation, decision, phase, (error_reason, error), lease_namespace, stalled=stalled)),
        waiting_for=_waits_for(blockers, progress),
        blockers=blockers,
        drain=reported.drain if progress is None else _drain_status(observation, phase, progress),
        phase_transitions=phase_transitions(reported, phase, now=observation.now),
        node_before=node_before(observation),
        recovery=reported.recovery,
    )
    requeue_times = _requeue_times(observation, progress, active_blockers, status)
    return StatusUpdate(status, min((item for item in requeue_times if item > observation.now), default=None))


def _requeue_times(
    observation: Observation,
    progress: DrainProgress | None,
    active_blockers: tuple[ActiveBlocker, ...],
    status: NodeMaintenanceStatus,
) -> Iterator[datetime]:
    """Yield when the status can change without an event."""
    yield from (item.since + BLOCKED_AFTER for item in active_blockers if not item.blocker.is_progress)
    if observation.drain is not None and observation.drain.progress.stale_reason:
        yield observation.drain.progress.started + BLOCKED_AFTER
    for pod in () if progress is None else progress.pods:
        if stall_time := _stall_time(pod, was_stalled=False):
            yield stall_time
    if status.next_reconcile:
        yield status.next_reconcile


def status_patch(maintenance: NodeMaintenance, status: NodeMaintenanceStatus, *, now: datetime) -> RawObject | None:
    """Return the merge patch that updates the status of `maintenance`; None if it is up to date."""
    if is_up_to_date(maintenance, status):
        return None
    desired = msgspec.structs.replace(status, last_update=_truncate_to_seconds(now))
    change = difference(msgspec.to_builtins(maintenance.status), msgspec.to_builtins(desired))
    return {"metadata": maintenance.preconditions, "status": change}


def is_up_to_date(maintenance: NodeMaintenance, status: NodeMaintenanceStatus) -> bool:
    """Return whether the status of `maintenance` is up to date, apart from `lastUpdate`."""
    reported = maintenance.status
    # A CustomResourceDefinition of an older version drops phaseTransitions and waitingFor. Both change only together
    # with other fields.
    ignored_fields = {
        "last_update": reported.last_update,
        "phase_transitions": reported.phase_transitions,
        "waiting_for": reported.waiting_for,
    }
    return msgspec.structs.replace(status, **ignored_fields) == reported


def phase_transitions(reported: NodeMaintenanceStatus, phase: str, *, now: datetime) -> tuple[PhaseTransition, ...]:
    """Return the last phase transitions, including that to `phase` if it differs. An empty `phase` marks a restart."""
    known = reported.phase_transitions
    if phase == reported.phase:
        return known
    number = known[-1].number + 1 if known else 1
    return (*known, PhaseTransition(number=number, phase=phase, time=_truncate_to_seconds(now)))[-_MAX_TRANSITIONS:]


def _truncate_to_seconds(instant: datetime) -> datetime:
    """Return an instant with the precision of the API server, so that what it returns equals what was sent."""
    return instant.replace(microsecond=0)


# Fields of the Node Maintenance Operator


def _phase(observation: Observation, decision: NodeMaintenanceDecision) -> NodeMaintenancePhase:
    if decision.failure is not None:
        return NodeMaintenancePhase.FAILED
    drain, reported_phase = observation.drain, observation.maintenance.status.phase
    if drain is not None and drain.outcome is not None and drain.outcome.is_drained:
        return NodeMaintenancePhase.SUCCEEDED
    # A new leader has not listed the pods yet. Until then the previous phase holds.
    has_pods = drain is not None and bool(drain.progress.pods) and not drain.is_waiting
    return (
        NodeMaintenancePhase.SUCCEEDED
        if reported_phase == NodeMaintenancePhase.SUCCEEDED and not has_pods
        else NodeMaintenancePhase.RUNNING
    )


def _last_error(
    observation: Observation, decision: NodeMaintenanceDecision, error: str, active_blockers: Iterable[ActiveBlocker]
) -> str:
    if error or decision.failure or decision.problem:
        return error or (decision.failure.message if decision.failure else decision.problem)
    if observation.drain is not None and observation.drain.progress.stale_reason:
        return observation.drain.progress.stale_reason
    long_blocked = (
        active
        for active in active_blockers
        if not active.blocker.is_progress and active.since + BLOCKED_AFTER <= observation.now
    )
    return next((str(active.blocker) for active in long_blocked), "")


def _kept_lease_failures(observation: Observation, decision: NodeMaintenanceDecision) -> int:
    """Return the number of lease failures that the status of a failed maintenance keeps."""
    is_lost = decision.failure is not None and decision.failure.reason is NodeMaintenanceConditionReason.LEASE_LOST
    return observation.maintenance.status.error_on_lease_count if is_lost else 0


def _pod_reference(pod: str) -> PodReference:
    namespace, _, name = pod.rpartition("/")
    return PodReference(namespace=namespace, name=name)


# Fields of Haulout


def _next_reconcile(
    observation: Observation, decision: NodeMaintenanceDecision, progress: DrainProgress | None
) -> datetime | None:
    """Return when the next reconcile is due, in whole minutes, or the status would change with each reconcile.

    The previous value stays as long as it is true: a reconcile is due by then, and not much earlier.
    """
    candidates = [decision.requeue_at] if decision.requeue_at else []
    candidates += (
        [instant for pod in progress.pods if (instant := _next_eviction_attempt(pod, observation.now))]
        if progress
        else []
    )
    candidates += [progress.volumes_until] if progress and progress.volumes_until else []
    later = [instant for instant in candidates if instant >= observation.now]
    if not later:
        return None
    earliest = min(later)
    rounded_up = earliest.replace(second=0, microsecond=0) + _MINUTE
    reported = observation.maintenance.status.next_reconcile
    return reported if reported is not None and earliest <= reported <= rounded_up else rounded_up


def _next_eviction_attempt(pod: PodProgress, now: datetime) -> datetime | None:
    """Return when the next attempt for a pod is due: now, if one is in flight."""
    return now if pod.next_at is None and pod.state in (PodDrainState.EVICTING, PodDrainState.BLOCKED) else pod.next_at


def _blocker_status(active: ActiveBlocker) -> BlockerStatus:
    return BlockerStatus(**blocker_fields(active.blocker), since=_truncate_to_seconds(active.since))


def _waits_for(blockers: Sequence[BlockerStatus], progress: DrainProgress | None) -> str:
    if blockers:
        return blockers[0].object
    ending = [] if progress is None else [pod.pod for pod in progress.pods if pod.state in _ENDING_STATES]
    return f"pod {ending[0]} to end" if len(ending) == 1 else f"{len(ending)} pods to end" if ending else ""


def _budget_blocker(observation: Observation, decision: NodeMaintenanceDecision) -> Iterable[BlockerStatus]:
    """Yield the blocker of the whole maintenance if the budget is exhausted."""
    exhausted = decision.budget_exhausted
    if exhausted is None:
        return
    condition = observation.maintenance.status.condition(NodeMaintenanceConditionType.WITHIN_BUDGET)
    is_reported = condition is not None and condition.status == "False"
    yield BlockerStatus(
        kind="Budget",
        object=f"budget: {format_list(exhausted.unavailable)}" if exhausted.unavailable else "budget",
        reason=str(exhausted),
        remedy="it begins automatically when the budget has a free slot",
        since=condition.last_transition_time if condition is not None and is_reported else observation.now,
    )


def _admission_blocker(
    observation: Observation, admission: AdmissionFailure | None, kind: str
) -> Iterable[BlockerStatus]:
    """Yield the blocker of an admission policy or webhook that refuses our writes."""
    if admission is None:
        return
    before = next((blocker for blocker in observation.maintenance.status.blockers if blocker.kind == kind), None)
    yield BlockerStatus(
        kind=kind,
        object=admission.object,
        reason=admission.message,
        remedy=admission.advice,
        since=_truncate_to_seconds(observation.now) if before is None else before.since,
    )


def _hold_blocker(observation: Observation, decision: NodeMaintenanceDecision) -> Iterable[BlockerStatus]:
    """Yield the blocker of the whole maintenance if the node has a hold or a freeze."""
    if decision.hold is None:
        return
    before = next((blocker for blocker in observation.maintenance.status.blockers if blocker.kind == HELD), None)
    yield BlockerStatus(
        kind=HELD,
        object=decision.hold.source,
        reason=str(decision.hold),
        remedy=f"to let the maintenance begin: {decision.hold.release_command(observation.maintenance.node)}",
        since=_truncate_to_seconds(observation.now) if before is None else before.since,
    )


def _recovery_blocker(observation: Observation, decision: NodeMaintenanceDecision) -> Iterable[BlockerStatus]:
    """Yield the blocker of a deleted maintenance that waits for recovery."""
    if not decision.is_recovering:
        return
    recovery = observation.maintenance.status.recovery
    yield BlockerStatus(
        kind="Recovery",
        object=decision.waits_for,
        reason=decision.problem,
        remedy=f"to end it at once: kubectl patch nm {observation.maintenance.name} --type merge -p {_NO_RECOVERY}",
        since=None if recovery is None else recovery.start_time,
    )


def _drain_status(observation: Observation, phase: NodeMaintenancePhase, progress: DrainProgress) -> DrainStatus:
    reported = observation.maintenance.status.drain or DrainStatus()
    if observation.drain is None or observation.drain.is_waiting:
        return msgspec.structs.replace(reported, warning=progress.warning)
    checkpoint = progress.checkpoint
    is_done = phase is NodeMaintenancePhase.SUCCEEDED and reported.start_time is not None
    return DrainStatus(
        start_time=reported.start_time if is_done else _truncate_to_seconds(checkpoint.started),
        deadline=None
        if phase is NodeMaintenancePhase.SUCCEEDED or progress.deadline is None
        else _truncate_to_seconds(progress.deadline),
        removed=progress.gone,
        terminating=progress.leaving,
        returning=progress.returning,
        warning=progress.warning,
        pod_start_times={uid: _truncate_to_seconds(since) for uid, since in checkpoint.since.items()},
    )


def _is_to_be_adopted(observation: Observation, decision: NodeMaintenanceDecision) -> bool:
    """Return whether the Node Maintenance Operator may still hold the node for this maintenance.

    The absence of conditions identifies its status, so ours get conditions only after that is decided.
    """
    reported = observation.maintenance.status
    if not reported.phase or reported.conditions:
        return False
    if observation.node is None:
        return decision.failure is None  # the node could not be read
    return is_adoptable(observation.maintenance, observation.node)


def _conditions(
    observation: Observation,
    decision: NodeMaintenanceDecision,
    phase: NodeMaintenancePhase,
    error: tuple[str, str],
    lease_namespace: str,
    *,
    stalled: bool,
) -> Iterable[StatusCondition]:
    failure = decision.failure
    drained = _drained_condition(observation, decision, phase, error)
    yield _condition(
        observation,
        NodeMaintenanceConditionType.LEASED,
        *_leased_condition(observation, decision, lease_namespace),
        at=decision.lease_lost_since,
    )
    yield _condition(observation, NodeMaintenanceConditionType.CORDONED, *_cordoned_condition(observation))
    yield _condition(observation, NodeMaintenanceConditionType.DRAINED, *drained)
    if failure is not None:
        yield _condition(observation, NodeMaintenanceConditionType.FAILED, True, failure.reason, failure.message)
    elif observation.maintenance.status.condition(NodeMaintenanceConditionType.FAILED) is not None:
        yield _condition(
            observation,
            NodeMaintenanceConditionType.FAILED,
            False,
            NodeMaintenanceConditionReason.RESUMED,
            "the cause of the failure is gone, or the object was edited",
        )
    yield from _within_budget(observation, decision)
    yield from _kstatus_conditions(observation, decision, drained, stalled=stalled)


def _kstatus_conditions(
    observation: Observation, decision: NodeMaintenanceDecision, drained: tuple[bool, str, str], *, stalled: bool
) -> Iterable[StatusCondition]:
    """Yield the conditions for kstatus: Ready and, if it is False, either Reconciling or Stalled."""
    is_ready, reason, message = drained
    if decision.budget_exhausted is not None and not is_ready:
        reason, message = BUDGET_EXHAUSTED_REASON, str(decision.budget_exhausted)
    yield _condition(observation, NodeMaintenanceConditionType.READY, is_ready, reason, message)
    if not is_ready:
        condition_type = NodeMaintenanceConditionType.STALLED if stalled else NodeMaintenanceConditionType.RECONCILING
        yield _condition(observation, condition_type, True, reason, message)


def _is_stalled(
    observation: Observation, decision: NodeMaintenanceDecision, admission_blockers: Iterable[BlockerStatus]
) -> bool:
    """Return whether a person must act: the maintenance has failed, or has been blocked for STALLED_AFTER."""
    if decision.failure is not None or any(
        item.since and item.since + STALLED_AFTER <= observation.now for item in admission_blockers
    ):
        return True
    drain, was_stalled = observation.drain, _was_stalled(observation)
    if drain is None or drain.is_waiting or decision.problem:
        return False
    if not drain.progress.is_known:
        return was_stalled
    stall_times = (_stall_time(pod, was_stalled=was_stalled) for pod in drain.progress.pods)
    return any(item is not None and item <= observation.now for item in stall_times)


def _was_stalled(observation: Observation) -> bool:
    condition = observation.maintenance.status.condition(NodeMaintenanceConditionType.STALLED)
    return (
        condition is not None
        and condition.status == "True"
        and observation.maintenance.status.phase == NodeMaintenancePhase.RUNNING
    )


def _stall_time(pod: PodProgress, *, was_stalled: bool) -> datetime | None:
    """Return from when on a pod counts as stalled; None if it does not.

    The time counts from the pod's turn, which a successor knows. The successor does not know since when the pod is
    blocked, nor whether it is before the first attempt. So a stalled pod stays stalled until then.
    """
    active = pod.active_blocker
    if active is not None and (pod.turn_since is None or pod.state is PodDrainState.OVERDUE):
        return None if active.blocker.is_progress else active.since + STALLED_AFTER
    if pod.turn_since is None or (active is not None and active.blocker.is_progress):
        return None
    stalls_at = pod.turn_since + STALLED_AFTER
    if was_stalled:
        return stalls_at if pod.state in (PodDrainState.EVICTING, PodDrainState.BLOCKED) else None
    return None if active is None else max(stalls_at, active.since + BLOCKED_AFTER)


def _within_budget(observation: Observation, decision: NodeMaintenanceDecision) -> Iterable[StatusCondition]:
    """Yield condition WithinBudget if there is a budget, or if the maintenance has waited for one."""
    condition_type = NodeMaintenanceConditionType.WITHIN_BUDGET
    if decision.budget_exhausted is not None:
        yield _condition(observation, condition_type, False, BUDGET_EXHAUSTED_REASON, str(decision.budget_exhausted))
    elif observation.maintenance.status.condition(condition_type) is not None or (
        observation.has_budget and _cordoned_condition(observation)[0]
    ):
        yield _condition(
            observation,
            condition_type,
            True,
            NodeMaintenanceConditionReason.ADMITTED,
            "the budget allows this node to be out of service",
        )


def _condition(
    observation: Observation,
    condition_type: NodeMaintenanceConditionType,
    is_true: bool,  # noqa: FBT001 - the status of the condition
    reason: str,
    message: str,
    *,
    at: datetime | None = None,
) -> StatusCondition:
    reported = observation.maintenance.status.condition(condition_type)
    status = str(is_true)
    since = (
        reported.last_transition_time
        if reported is not None and reported.status == status
        else _truncate_to_seconds(at or observation.now)
    )
    return StatusCondition(
        type=condition_type,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=since,
        observed_generation=observation.maintenance.metadata.generation,
    )


def _leased_condition(
    observation: Observation, decision: NodeMaintenanceDecision, namespace: str
) -> tuple[bool, str, str]:
    key = node_lease.lease_key(observation.maintenance.node, namespace=namespace)
    lease_state = observation.lease_state
    if lease_state.is_held_by_us:
        return True, NodeMaintenanceConditionReason.ACQUIRED, f"holds lease {key}"
    if lease_state.is_held_by_other:
        reason = LEASE_LOST_REASON if decision.lease_lost_since else NodeMaintenanceConditionReason.HELD_BY_OTHER
        return False, reason, f"lease {key} is held by {lease_state.holder}"
    return False, NodeMaintenanceConditionReason.NOT_ACQUIRED, f"lease {key} is not acquired yet"


def _cordoned_condition(observation: Observation) -> tuple[bool, str, str]:
    node = observation.node
    if node is None:
        return False, NodeMaintenanceConditionReason.NODE_MISSING, "the node does not exist"
    if is_cordon_annotation_lost(observation.maintenance, node):
        return (
            True,
            NodeMaintenanceConditionReason.CORDON_ANNOTATION_LOST,
            f"node {node.name} is cordoned; {cordon.describe_annotation_damage(node)}, and is being restored",
        )
    try:
        found = cordon.cordon_of(node)
    except InvalidCordonAnnotation as error:
        return False, NodeMaintenanceConditionReason.CORDON_ANNOTATION_INVALID, str(error)
    owner = owner_name(observation.maintenance)
    if found is None or owner not in found.owners:
        return (
            False,
            NodeMaintenanceConditionReason.CORDON_NOT_HELD,
            f"node {node.name} is not cordoned by this maintenance",
        )
    others = [other for other in found.owners if other != owner]
    shared_text = f", also by {', '.join(others)}" if others else ""
    return True, NodeMaintenanceConditionReason.CORDONED, f"node {node.name} is cordoned{shared_text}"


def _drained_condition(
    observation: Observation, decision: NodeMaintenanceDecision, phase: NodeMaintenancePhase, error: tuple[str, str]
) -> tuple[bool, str, str]:
    drain = observation.drain
    if decision.failure is not None:
        return False, decision.failure.reason, decision.failure.message
    if phase is NodeMaintenancePhase.SUCCEEDED:
        message = drain.outcome.message if drain is not None and drain.outcome is not None else ""
        condition = observation.maintenance.status.condition(NodeMaintenanceConditionType.DRAINED)
        return (
            True,
            NodeMaintenanceConditionReason.DRAIN_COMPLETED,
            message or (condition.message if condition else "no pods are left to evict"),
        )
    error_reason, problem = error
    if problem:
        return False, error_reason, f"retrying: {problem}"
    if decision.hold is not None:
        return False, HELD, decision.problem
    if decision.problem or drain is None or drain.is_waiting:
        return (
            False,
            NodeMaintenanceConditionReason.WAITING,
            f"waiting for {decision.waits_for or 'the drain to begin'}",
        )
    progress = drain.progress
    blocked = [active for active in progress.blockers if not active.blocker.is_progress]
    return (
        False,
        NodeMaintenanceConditionReason.BLOCKED if blocked else NodeMaintenanceConditionReason.DRAIN_IN_PROGRESS,
        _progress_message(progress, blocked),
    )


def _progress_message(progress: DrainProgress, blocked: list[ActiveBlocker]) -> str:
    text = f"{progress.gone} of {progress.total} pods have left"
    if progress.leaving:
        text += f", {progress.leaving} terminating"
    if blocked:
        blocking_objects = dict.fromkeys(active.blocker.object or active.blocker.reason for active in blocked)
        text += f", {len(blocked)} blocked by {', '.join(blocking_objects)}"
    return text
