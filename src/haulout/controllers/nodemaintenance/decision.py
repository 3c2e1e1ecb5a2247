"""What to do next about a NodeMaintenance: a pure function of the maintenance, its node, lease and drain.

    decision = decide(observation)
    decision.action       the one action to execute now; then observe and decide again
    decision.requeue_at   without an action: when to decide again if nothing changes before

This module does no I/O. Every action is idempotent, and none relies on an earlier one by the same process: a new leader
observes the same state and decides the same. The order is:

    finalizer → list pods → first status → hold → budget → lease → cordon, taints, label → conditions → drain

After the object is deleted, the order is:

    stop the drain → release the node → wait for recovery (if requested) → release the lease → remove the finalizer

The status records the state of the node before the node is changed for the first time.
"""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from haulout.api.nodemaintenance import (
    FINALIZER,
    NodeMaintenance,
    NodeMaintenanceConditionType,
    NodeMaintenancePhase,
    RecoveryStatus,
)
from haulout.api.objects import Node, RawObject
from haulout.api.reasons import NodeMaintenanceConditionReason
from haulout.api.workloads import WorkloadRecord
from haulout.budget import unavailable_nodes
from haulout.controllers.nodemaintenance import recovery
from haulout.controllers.nodemaintenance.actions import (
    AcquireLease,
    AddFinalizer,
    ChangePolicy,
    CordonNode,
    EndRecovery,
    PrepareDrain,
    RecordNodeState,
    RecordWorkloads,
    ReleaseLease,
    RemoveFinalizer,
    ResetStatus,
    StartEvictions,
    StartRecovery,
    StopDrain,
    WriteInitialStatus,
)
from haulout.controllers.nodemaintenance.node_cordon import (
    CORDON_REQUEST,
    adopt,
    cordon_owners,
    is_adoptable,
    is_cordon_annotation_lost,
    is_needed_by_rival,
    may_release_lease,
    node_before,
    owner_name,
    publish_conditions,
    release_node,
    release_stray_nodes,
    state_before_from_status,
    uses_status_copy,
)
from haulout.controllers.nodemaintenance.observation import Failure, NodeMaintenanceDecision, Observation
from haulout.controllers.nodemaintenance.recovery import RecoveryObservation
from haulout.drain import cordon, machine_drain_rules, policy_parser
from haulout.drain.cordon import InvalidCordonAnnotation
from haulout.drain.manager import DrainSnapshot
from haulout.drain.node_conditions import LifecycleState
from haulout.drain.policy import DrainPolicy
from haulout.drain.progress import OutcomeResult
from haulout.drain.state import Checkpoint
from haulout.errors import PolicyError
from haulout.kube.leases import LockState

LEASE_LOST_TIMEOUT = timedelta(minutes=1)  # since another holder has the lease, until the maintenance fails
LEASE_CHECK_INTERVAL = timedelta(seconds=10)  # while another holder has the lease
MIN_LEASE_RENEWAL_INTERVAL = timedelta(seconds=10)
_DEFAULT_POLICY = DrainPolicy.like_nmo()
NEVER = datetime.max.replace(tzinfo=UTC)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MIN_RESTORE_INTERVAL = timedelta(seconds=10)
PRECONDITION_CHECK_INTERVAL = timedelta(seconds=30)
RESYNC_INTERVAL = timedelta(minutes=10)  # for waits that end with an event, in case the event is missed
FIRST_POD_LIST_TIMEOUT = timedelta(seconds=5)  # for the pod list, until the first status is written without it
_FAR_FUTURE = timedelta(days=365)  # no requeue for instants beyond this: resyncs cover them
_A_MOMENT = timedelta(seconds=1)  # a lease is valid including the last instant of its duration
_MAX_UNFINISHED_PERCENT = 99
LEASE_LOST_REASON = NodeMaintenanceConditionReason.LOST  # reason of condition Leased
_LEASE_LOST_MESSAGE = "maintenance failed: lease could not be extended"


# These failures end only when the object is edited. The others end as soon as their cause is gone.
_DRAIN_FAILURE_REASONS = {
    OutcomeResult.TIMED_OUT: NodeMaintenanceConditionReason.DRAIN_TIMED_OUT,
    OutcomeResult.REFUSED: NodeMaintenanceConditionReason.DRAIN_REFUSED,
}
_PERMANENT_FAILURE_REASONS = (NodeMaintenanceConditionReason.LEASE_LOST, *_DRAIN_FAILURE_REASONS.values())


def decide(observation: Observation) -> NodeMaintenanceDecision:
    """Return the next action, or the requeue time if there is none.

    With an invalid cordon annotation, wait until a user repairs it.
    """
    try:
        decision = (
            _decide_end(observation) if observation.maintenance.is_being_deleted else _decide_maintenance(observation)
        )
    except InvalidCordonAnnotation as error:
        decision = NodeMaintenanceDecision(problem=str(error), waits_for="someone to repair the cordon annotation")
    if decision.problem and decision.requeue_at is None:
        return replace(decision, requeue_at=_next_resync(observation.now))
    return decision


def policy_of(maintenance: NodeMaintenance) -> DrainPolicy:
    """Return the drain policy of the maintenance; raise `PolicyError` if `spec.drain` is invalid."""
    wanted = maintenance.spec.drain
    return (
        _DEFAULT_POLICY
        if wanted is None
        else policy_parser.parse_policy(wanted, base=_DEFAULT_POLICY, path="spec.drain")
    )


def permanent_failure(maintenance: NodeMaintenance) -> Failure | None:
    """Return the failure that only an edit of the object ends; None if there is none."""
    status = maintenance.status
    if status.phase != NodeMaintenancePhase.FAILED:
        return None
    condition = status.condition(NodeMaintenanceConditionType.FAILED)
    if condition is None:  # written by the Node Maintenance Operator, which never leaves phase Failed
        given_up = status.last_error.startswith(_LEASE_LOST_MESSAGE) and not status.conditions
        return Failure(NodeMaintenanceConditionReason.LEASE_LOST, status.last_error) if given_up else None
    if condition.status != "True" or condition.reason not in _PERMANENT_FAILURE_REASONS:
        return None
    if condition.observed_generation != maintenance.metadata.generation:
        return None
    return Failure(NodeMaintenanceConditionReason(condition.reason), condition.message)


# Into maintenance


def _decide_maintenance(observation: Observation) -> NodeMaintenanceDecision:
    maintenance = observation.maintenance
    policy, problem = _policy_or_problem(observation)
    # Before the node is changed: the object then stays until the node is released. Once it is being deleted, the API
    # server accepts no new finalizer (ValidateNoNewFinalizers in
    # staging/src/k8s.io/apimachinery/pkg/api/validation/objectmeta.go).
    if FINALIZER not in maintenance.metadata.finalizers:
        return _decide_first_pod_list(observation, policy) or NodeMaintenanceDecision(action=AddFinalizer())
    if decision := _decide_node_change(observation):
        return decision
    if not maintenance.status.phase:
        return _decide_first_status(observation, policy)
    if not maintenance.node:
        return _failed(
            observation,
            NodeMaintenanceConditionReason.NODE_UNNAMED,
            "spec.nodeName is empty, expected the name of a node",
        )
    if observation.node is None:
        return _failed(
            observation, NodeMaintenanceConditionReason.NODE_MISSING, f'nodes "{maintenance.node}" not found'
        )
    failure = permanent_failure(maintenance) or (
        Failure(NodeMaintenanceConditionReason.POLICY_INVALID, problem) if problem else None
    )
    return _decide_next_phase(observation, observation.node, policy, failure)


def _decide_node_change(observation: Observation) -> NodeMaintenanceDecision | None:
    """Reset the status and release the previous node if `spec.nodeName` changed."""
    if observation.stray_nodes and observation.maintenance.status.phase:
        return NodeMaintenanceDecision(action=ResetStatus())
    return release_stray_nodes(observation)


def _policy_or_problem(observation: Observation) -> tuple[DrainPolicy, str]:
    """Return the drain policy for the node.

    If it is invalid, return the default, which is never applied, and the error.
    """
    try:
        policy = policy_of(observation.maintenance)
    except PolicyError as error:
        return _DEFAULT_POLICY, str(error)
    return policy if observation.node is None else machine_drain_rules.with_machine_drain_rules(
        policy, observation.node
    ), ""


def may_delete_pods(maintenance: NodeMaintenance) -> bool:
    """Return whether the drain policy may delete pods. False if the policy is invalid."""
    try:
        return policy_of(maintenance).may_delete
    except PolicyError:
        return False


def _decide_first_pod_list(observation: Observation, policy: DrainPolicy) -> NodeMaintenanceDecision | None:
    """Start listing the node's pods without evicting any.

    The other preparations run meanwhile, since the watch takes time to open.
    """
    is_new = not observation.maintenance.status.phase and observation.node is not None and observation.maintenance.node
    return NodeMaintenanceDecision(action=PrepareDrain(policy, None)) if is_new and observation.drain is None else None


def _decide_first_status(observation: Observation, policy: DrainPolicy) -> NodeMaintenanceDecision:
    """Write the first status with the pods of the node, counted before the first eviction.

    Wait at most `FIRST_POD_LIST_TIMEOUT` for the pod list.
    """
    if decision := _decide_first_pod_list(observation, policy):
        return decision
    drain = observation.drain
    if observation.node is None or drain is None:
        return NodeMaintenanceDecision(action=WriteInitialStatus())
    until = drain.progress.started + FIRST_POD_LIST_TIMEOUT
    if not drain.progress.is_known and not drain.progress.stale_reason and observation.now < until:
        return NodeMaintenanceDecision(requeue_at=until)
    return NodeMaintenanceDecision(action=WriteInitialStatus())


def _decide_next_phase(
    observation: Observation, node: Node, policy: DrainPolicy, failure: Failure | None
) -> NodeMaintenanceDecision:
    if is_adoptable(observation.maintenance, node):
        return adopt(observation, node)
    if failure is not None and failure.reason is NodeMaintenanceConditionReason.LEASE_LOST:
        stopped = None if observation.drain is None else NodeMaintenanceDecision(action=StopDrain())
        return stopped or release_node(observation, node) or NodeMaintenanceDecision(failure=failure)
    if is_cordon_annotation_lost(observation.maintenance, node) and _first_rival(observation) is None:
        return _decide_lost_annotation(observation, node)
    if failure is not None and failure.reason is NodeMaintenanceConditionReason.POLICY_INVALID:
        if observation.drain is not None:
            return NodeMaintenanceDecision(action=StopDrain())
        if owner_name(observation.maintenance) not in cordon_owners(node):
            return NodeMaintenanceDecision(failure=failure)
    return (
        _decide_drain(observation, node, policy, failure)
        or _decide_rival(observation, node)
        or _decide_hold(observation, node)
        or _decide_budget(observation, node)
        or _decide_lease(observation, node)
        or _decide_cordon(observation, node)
        or publish_conditions(observation, node, _lifecycle_state(observation, failure))
        or _decide_evictions(observation, failure)
    )


def _decide_drain(
    observation: Observation, node: Node, policy: DrainPolicy, failure: Failure | None
) -> NodeMaintenanceDecision | None:
    """Keep a drain for this node, by UID, with the current policy."""
    if observation.drain is None:
        return None if failure else NodeMaintenanceDecision(action=PrepareDrain(policy, _checkpoint(observation)))
    is_retry = observation.maintenance.status.phase == NodeMaintenancePhase.FAILED and failure is None
    if observation.drain.node_uid != node.uid or (is_retry and not _is_running(observation.drain)):
        return NodeMaintenanceDecision(action=StopDrain())
    if observation.drain.policy != policy:
        return NodeMaintenanceDecision(action=ChangePolicy(policy) if _is_running(observation.drain) else StopDrain())
    return None


def _decide_rival(observation: Observation, node: Node) -> NodeMaintenanceDecision | None:
    """Wait for an older maintenance of the same node. Co-own its cordon, so that its end does not uncordon the node."""
    rival = _first_rival(observation)
    if rival is None:
        return None
    if _is_evicting(observation.drain):
        return NodeMaintenanceDecision(action=StopDrain())
    owner_names = cordon_owners(node)
    if owner_name(rival) in owner_names:
        change = cordon.acquire(node, owner_name(observation.maintenance), CORDON_REQUEST, now=observation.now)
        if change is not None and owner_name(observation.maintenance) in owner_names:
            return NodeMaintenanceDecision(action=CordonNode(change, is_first=False, tampering=_tampering(node)))
        if change is not None:
            return _cordon_first_time(observation, change)
    # A failed rival counts, too: it may hold the node, and it continues as soon as its object is edited.
    failed_text = ", which has failed" if rival.status.phase == NodeMaintenancePhase.FAILED else ""
    problem = f"node {node.name} is already in maintenance by NodeMaintenance {rival.name}{failed_text}"
    return NodeMaintenanceDecision(
        problem=f"{problem}: this one continues when that one is deleted", waits_for=f"NodeMaintenance {rival.name}"
    )


def _decide_hold(observation: Observation, node: Node) -> NodeMaintenanceDecision | None:
    """If the node has a hold or a freeze: stop the drain, release the lease, take no budget slot, and wait."""
    hold = observation.freezes.hold_on(node, now=observation.now)
    if hold is None or owner_name(observation.maintenance) in cordon_owners(node):
        return None
    if _is_evicting(observation.drain):
        return NodeMaintenanceDecision(action=StopDrain())
    if observation.lease is not None and observation.lease_state.is_held_by_us:
        return NodeMaintenanceDecision(action=ReleaseLease(observation.lease))
    if hold.freeze:
        waits_for = f"{hold.source} to end"
    else:
        waits_for = (
            f"{hold.by} to release node {node.name}" if hold.by else f"the hold on node {node.name} to be released"
        )
    ends_soon = hold.until is not None and hold.until - observation.now < _FAR_FUTURE
    return NodeMaintenanceDecision(
        problem=f"node {node.name} is {hold}",
        waits_for=waits_for,
        requeue_at=hold.until if ends_soon else None,
        hold=hold,
    )


def _decide_budget(observation: Observation, node: Node) -> NodeMaintenanceDecision | None:
    """If the budget has no slot: stop the drain, release the lease, and wait."""
    exhausted = observation.budget_exhausted
    if exhausted is None or owner_name(observation.maintenance) in cordon_owners(node):
        return None
    if _is_evicting(observation.drain):
        return NodeMaintenanceDecision(action=StopDrain())
    is_settled = exhausted.requeue_at is None
    if is_settled and observation.lease is not None and observation.lease_state.is_held_by_us:
        return NodeMaintenanceDecision(action=ReleaseLease(observation.lease))
    waits_for = (
        "the budget"
        if not exhausted.unavailable
        else f"one of {', '.join(exhausted.unavailable)} to be back in service"
    )
    return NodeMaintenanceDecision(
        problem=str(exhausted), waits_for=waits_for, requeue_at=exhausted.requeue_at, budget_exhausted=exhausted
    )


def _decide_lease(observation: Observation, node: Node) -> NodeMaintenanceDecision | None:
    lease_state = observation.lease_state
    if not lease_state.is_held_by_other:
        return _decide_own_lease(observation, node)
    held_text = f"can't update or invalidate the lease because it is held by different owner: {lease_state.holder}"
    waits_for = f"{lease_state.holder} to release the lease of node {node.name}"
    if not _has_held_lease(observation, node):
        count = observation.maintenance.status.error_on_lease_count
        text = f"failed to obtain a lease that is not owned by us : {held_text} errorOnLeaseCount {count}"
        free_at = None if lease_state.claim.until is None else lease_state.claim.until + _A_MOMENT
        waiting = NodeMaintenanceDecision(problem=text, waits_for=waits_for, requeue_at=free_at)
        return publish_conditions(observation, node, LifecycleState.PLANNED) or waiting
    if _is_evicting(observation.drain):
        return NodeMaintenanceDecision(action=StopDrain())
    since = _lease_lost_since(observation)
    lost_for = observation.now - since
    checks = lost_for // LEASE_CHECK_INTERVAL
    count = checks + 1
    if lost_for >= LEASE_LOST_TIMEOUT:
        text = f"{_LEASE_LOST_MESSAGE} after {count} attempts"
        failed = NodeMaintenanceDecision(
            failure=Failure(NodeMaintenanceConditionReason.LEASE_LOST, text),
            lease_lost_since=since,
            lease_failures=count,
        )
        return release_node(observation, node) or failed
    text = f"failed to extend a lease that used to be owned by us, incrementing error on lease count: {held_text}"
    return NodeMaintenanceDecision(
        problem=f"{text}, errorOnLeaseCount: {count}",
        waits_for=waits_for,
        requeue_at=since + (checks + 1) * LEASE_CHECK_INTERVAL,
        lease_lost_since=since,
        lease_failures=count,
    )


def _decide_own_lease(observation: Observation, node: Node) -> NodeMaintenanceDecision | None:
    """Acquire the lease, or renew it when due. Do not continue without it."""
    renews_at = _lease_renewal_time(observation)
    if renews_at <= observation.now:
        return NodeMaintenanceDecision(action=AcquireLease())
    if observation.lease_state.claim.state is LockState.OURS:
        return None
    problem = f"the lease of node {node.name} was deleted right after the operator acquired it"
    return NodeMaintenanceDecision(
        problem=problem, waits_for=f"the lease of node {node.name} to remain", requeue_at=renews_at
    )


def _lease_renewal_time(observation: Observation) -> datetime:
    """Return when to renew the lease.

    At least `MIN_LEASE_RENEWAL_INTERVAL` after our last renewal, even if the lease looks expired: a client with a wrong
    clock may keep overwriting it.
    """
    due_at, leased_at = observation.lease_state.renew_at, observation.leased_at
    if leased_at is None or leased_at > observation.now:
        return due_at
    return max(due_at, leased_at + MIN_LEASE_RENEWAL_INTERVAL)


def _decide_cordon(observation: Observation, node: Node) -> NodeMaintenanceDecision | None:
    owner = owner_name(observation.maintenance)
    is_first = owner not in cordon_owners(node)
    if is_first and (problem := observation.quorum_problem or observation.missing_permission):
        again_at = observation.now + PRECONDITION_CHECK_INTERVAL
        waits_for = "the etcd quorum" if observation.quorum_problem else "permission to delete pods"
        waiting = NodeMaintenanceDecision(problem=problem, waits_for=waits_for, requeue_at=again_at)
        return publish_conditions(observation, node, LifecycleState.PLANNED) or waiting
    before = (
        state_before_from_status(observation.maintenance) if uses_status_copy(observation.maintenance, node) else None
    )
    change = cordon.acquire(node, owner, CORDON_REQUEST, now=observation.now, before=before)
    if change is None:
        return None
    return _cordon_first_time(observation, change) if is_first else _cordon_again(observation, node, change)


def _decide_lost_annotation(observation: Observation, node: Node) -> NodeMaintenanceDecision:
    """Cordon the node again after its annotation lost our entry.

    The status supplies the node's state before maintenance.
    """
    before = state_before_from_status(observation.maintenance)
    change = cordon.acquire(
        node, owner_name(observation.maintenance), CORDON_REQUEST, now=observation.now, before=before
    )
    if change is None:
        raise RuntimeError(f"node {node.name} lost its cordon annotation, but nothing is left to restore")
    return _cordon_again(observation, node, change)


def _cordon_first_time(observation: Observation, change: RawObject) -> NodeMaintenanceDecision:
    """Record the node's state in the status, then cordon the node.

    The annotation may be removed right after the cordon.
    """
    before = node_before(observation)
    if before is not None and before != observation.maintenance.status.node_before:
        return NodeMaintenanceDecision(action=RecordNodeState(before))
    return NodeMaintenanceDecision(action=CordonNode(change, is_first=True))


def _cordon_again(observation: Observation, node: Node, change: RawObject) -> NodeMaintenanceDecision:
    """Restore the cordon, at most once per `MIN_RESTORE_INTERVAL`."""
    if observation.restored_at is not None:
        again_at = observation.restored_at + MIN_RESTORE_INTERVAL
        if (
            observation.restored_at <= observation.now < again_at
        ):  # restored_at is in the future if the wall clock was set back
            problem = f"another client keeps undoing the cordon, taints or labels of node {node.name}"
            return NodeMaintenanceDecision(problem=problem, waits_for="that client to stop", requeue_at=again_at)
    return NodeMaintenanceDecision(action=CordonNode(change, is_first=False, tampering=_tampering(node)))


def _tampering(node: Node) -> str:
    return ", ".join(cordon.describe_tampering(node, CORDON_REQUEST))


def _decide_evictions(observation: Observation, failure: Failure | None) -> NodeMaintenanceDecision:
    renew_at = _lease_renewal_time(observation)
    if failure is not None or observation.drain is None:
        return NodeMaintenanceDecision(failure=failure, requeue_at=renew_at)
    if observation.drain.is_waiting:
        return _decide_workload_record(observation) or NodeMaintenanceDecision(action=StartEvictions())
    outcome = observation.drain.outcome
    if outcome is not None and outcome.result in _DRAIN_FAILURE_REASONS:
        return NodeMaintenanceDecision(
            failure=Failure(_DRAIN_FAILURE_REASONS[outcome.result], outcome.message), requeue_at=renew_at
        )
    return NodeMaintenanceDecision(requeue_at=renew_at)


def _decide_workload_record(observation: Observation) -> NodeMaintenanceDecision | None:
    """Record the node's workloads in the status before the first eviction, if recovery is requested."""
    if observation.maintenance.spec.recovery is None or observation.maintenance.status.recovery is not None:
        return None
    found = observation.recovery or RecoveryObservation(problem="they are not watched")
    record = found.record or WorkloadRecord()
    return NodeMaintenanceDecision(
        action=RecordWorkloads(
            RecoveryStatus(workloads=record.workloads, omitted=record.omitted, problem=found.problem)
        )
    )


def _lifecycle_state(observation: Observation, failure: Failure | None) -> LifecycleState:
    if failure is not None or observation.drain is None:
        return LifecycleState.STUCK
    outcome = observation.drain.outcome
    if outcome is None:
        was_empty = (
            observation.maintenance.status.phase == NodeMaintenancePhase.SUCCEEDED
            and not observation.drain.progress.pods
        )
        return LifecycleState.DRAINED if was_empty else LifecycleState.DRAINING
    return LifecycleState.DRAINED if outcome.is_drained else LifecycleState.STUCK


def _is_evicting(drain: DrainSnapshot | None) -> bool:
    return drain is not None and not drain.is_waiting


def _is_running(drain: DrainSnapshot) -> bool:
    return drain.outcome is None or drain.outcome.is_drained


def _checkpoint(observation: Observation) -> Checkpoint | None:
    """Return where a predecessor's drain continues.

    After a successful drain, only the pod count carries over, and the timeout starts anew. None after a failure.
    """
    status = observation.maintenance.status
    drain = status.drain
    if drain is None or drain.start_time is None or status.phase == NodeMaintenancePhase.FAILED:
        return None
    percent = min(status.drain_progress, _MAX_UNFINISHED_PERCENT)
    if status.phase == NodeMaintenancePhase.SUCCEEDED:
        return Checkpoint(started=observation.now, gone=drain.removed, percent=percent, is_drained=True)
    return Checkpoint(started=drain.start_time, since=drain.pod_start_times, gone=drain.removed, percent=percent)


def _has_held_lease(observation: Observation, node: Node) -> bool:
    """Return whether we held the lease before. The node may be cordoned by us then."""
    status = observation.maintenance.status
    leased = status.condition(NodeMaintenanceConditionType.LEASED)
    if leased is not None and (leased.status == "True" or leased.reason == LEASE_LOST_REASON):
        return True
    return owner_name(observation.maintenance) in cordon_owners(node)


def _lease_lost_since(observation: Observation) -> datetime:
    leased = observation.maintenance.status.condition(NodeMaintenanceConditionType.LEASED)
    if leased is None or leased.status == "True" or leased.last_transition_time is None:
        return observation.now
    return min(leased.last_transition_time, observation.now)


# Out of maintenance


def _decide_end(observation: Observation) -> NodeMaintenanceDecision:
    maintenance = observation.maintenance
    if observation.drain is not None:
        return NodeMaintenanceDecision(action=StopDrain())
    if FINALIZER not in maintenance.metadata.finalizers:
        return NodeMaintenanceDecision()
    if decision := release_stray_nodes(observation):
        return decision
    if observation.node is not None and (
        decision := _decide_release(observation, observation.node) or _decide_recovery(observation, observation.node)
    ):
        return decision
    if (
        not is_needed_by_rival(observation.rivals)
        and observation.lease is not None
        and may_release_lease(observation.lease)
    ):
        return NodeMaintenanceDecision(action=ReleaseLease(observation.lease))
    return NodeMaintenanceDecision(action=RemoveFinalizer())


def _decide_release(observation: Observation, node: Node) -> NodeMaintenanceDecision | None:
    maintenance = observation.maintenance
    if is_adoptable(maintenance, node):
        return adopt(observation, node)
    is_held = maintenance.name in unavailable_nodes.node_maintenances_of(node) or is_cordon_annotation_lost(
        maintenance, node
    )
    if not is_held or not recovery.waits_for_recovery(maintenance) or is_needed_by_rival(observation.rivals):
        return release_node(observation, node)
    if recovery.recovery_deadline(maintenance, observation.now) is None:
        return NodeMaintenanceDecision(action=StartRecovery())
    return release_node(observation, node, recovering=True)


def _decide_recovery(observation: Observation, node: Node) -> NodeMaintenanceDecision | None:
    """Wait until the evicted workloads have recovered or the deadline passes.

    Do not wait if another maintenance wants the node.
    """
    maintenance = observation.maintenance
    if maintenance.name not in unavailable_nodes.recovering_node_maintenances_of(node):
        return None
    change, until = (
        recovery.remove_recovering_patch(node, maintenance.name),
        recovery.recovery_deadline(maintenance, observation.now),
    )
    reported = maintenance.status.recovery
    if maintenance.spec.recovery is None or reported is None or until is None or is_needed_by_rival(observation.rivals):
        return NodeMaintenanceDecision(action=EndRecovery(node.name, change))
    missing = recovery.missing_for_recovery(node, reported, observation.recovery)
    if not missing or observation.now >= until:
        return NodeMaintenanceDecision(action=EndRecovery(node.name, change, is_recovered=not missing, missing=missing))
    return NodeMaintenanceDecision(
        problem=f"{missing}; the maintenance ends at {until:%Y-%m-%d %H:%M:%S} UTC at the latest",
        waits_for=f"node {node.name} to recover",
        requeue_at=until,
        is_recovering=True,
    )


def _failed(observation: Observation, reason: NodeMaintenanceConditionReason, text: str) -> NodeMaintenanceDecision:
    if observation.drain is not None:
        return NodeMaintenanceDecision(action=StopDrain())
    return NodeMaintenanceDecision(failure=Failure(reason, text))


def _first_rival(observation: Observation) -> NodeMaintenance | None:
    """Return the oldest maintenance of the same node that is older than this one."""
    return min(
        (rival for rival in observation.rivals if _is_before(rival, observation.maintenance)), default=None, key=_age
    )


def _is_before(other: NodeMaintenance, maintenance: NodeMaintenance) -> bool:
    return not other.is_being_deleted and _age(other) < _age(maintenance)


def _next_resync(now: datetime) -> datetime:
    """Return the next resync time.

    It is a multiple of `RESYNC_INTERVAL`, so that the status does not change with each reconcile.
    """
    rounds = (now - _EPOCH) // RESYNC_INTERVAL
    return _EPOCH + (rounds + 1) * RESYNC_INTERVAL


def _age(maintenance: NodeMaintenance) -> tuple[datetime, str]:
    return maintenance.metadata.creation_timestamp or NEVER, maintenance.name
