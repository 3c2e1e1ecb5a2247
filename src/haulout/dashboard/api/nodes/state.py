"""The state of a node on the dashboard, and the reason in one line. Pure.

    assessment = assess_node(observation)
    assessment.state, assessment.why, assessment.since, assessment.at

Several objects may affect a node: NodeMaintenances, profiles, notices, and leftovers. Each yields an assessment, and
the most important one wins: blocked, draining, in maintenance, recovering, planned.

A pod that cannot be evicted for a moment needs no attention: once other pods have started, it can. So a drain is
blocked only after a blocker has existed for `BLOCKED_AFTER`, as in the status of NodeMaintenances.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache

from haulout.api.maintenancenotice import MaintenanceNotice, phase_at
from haulout.api.maintenancerecord import truncate
from haulout.api.nodemaintenance import (
    BlockerStatus,
    NodeMaintenance,
    NodeMaintenanceConditionType,
    NodeMaintenancePhase,
)
from haulout.api.objects import Node
from haulout.budget.unavailable_nodes import NODE_MAINTENANCE_OWNER_PREFIX, node_maintenances_of
from haulout.compat import booleans
from haulout.compat.booleans import BooleanError
from haulout.controllers.profiles.explain.explanation import remedies_for
from haulout.controllers.profiles.machine.transitions import PENDING_ANNOTATION, PendingTransition, read_pending
from haulout.controllers.profiles.observation import ProfileReport, TransitionReport
from haulout.controllers.profiles.plugin import DATA_ANNOTATION, ProfileStatus, State
from haulout.controllers.profiles.plugins.checks.recovered import Recovered
from haulout.core.text import format_list
from haulout.dashboard.api.nodes.informers import NodeSnapshot
from haulout.dashboard.api.types import NodeState
from haulout.drain.blockers import BlockerKind
from haulout.drain.cordon import Cordon, InvalidCordonAnnotation, cordon_of
from haulout.drain.manager import DrainSnapshot
from haulout.drain.progress import BLOCKED_AFTER

PROFILE_PREFIX = "profile/"

_MAX_LENGTH = 300
_PRIORITIES = {
    state: rank
    for rank, state in enumerate(
        (
            NodeState.IDLE,
            NodeState.PLANNED,
            NodeState.RECOVERING,
            NodeState.IN_MAINTENANCE,
            NodeState.DRAINING,
            NodeState.BLOCKED,
        )
    )
}
_PROGRESS_KINDS = frozenset(
    {BlockerKind.MIGRATION, BlockerKind.THROTTLING, BlockerKind.COMPLETION, BlockerKind.RESPONDER}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAssessment:
    """The assessment of a node."""

    state: NodeState
    why: str = ""
    since: datetime | None = None
    at: datetime | None = None  # the next relevant instant
    progress: int | None = None  # of a drain, in percent
    changes_at: datetime | None = None  # the assessment may change then without an event


def assess_node(observation: NodeSnapshot) -> NodeAssessment:
    """Return the most important assessment of a node."""
    assessments = [
        *_assess_data(observation),
        *(_assess_maintenance(item, observation) for item in observation.orders),
        *_assess_profiles(observation),
        *_assess_leftovers(observation),
        *(_assess_notice(item, observation) for item in observation.notices),
        *_assess_hold(observation),
    ]
    foremost = max(assessments, key=lambda item: _PRIORITIES[item.state], default=None)
    foremost = (
        foremost
        if foremost is not None and foremost.state is not NodeState.IDLE
        else _assess_idle(observation, foremost)
    )
    change_times = [
        item.changes_at for item in assessments if item.changes_at is not None and item.changes_at > observation.now
    ]
    if not change_times and not foremost.why and foremost.changes_at is None:
        return foremost  # the case of most nodes
    return replace(foremost, why=truncate(foremost.why, _MAX_LENGTH), changes_at=min(change_times, default=None))


# Unreadable data


def _assess_data(observation: NodeSnapshot) -> Iterator[NodeAssessment]:
    if observation.data_problem:
        why = f"Haulout does not manage this node: {observation.data_problem}"
        yield NodeAssessment(state=NodeState.BLOCKED, why=why)


# NodeMaintenances


def _assess_maintenance(order: NodeMaintenance, observation: NodeSnapshot) -> NodeAssessment:
    title, status, created = f"NodeMaintenance {order.name}", order.status, order.metadata.creation_timestamp
    if order.is_being_deleted:
        return NodeAssessment(
            state=NodeState.RECOVERING,
            why=f"{title} was deleted and is uncordoning the node",
            since=order.metadata.deletion_timestamp,
        )
    if status.phase == NodeMaintenancePhase.FAILED:
        failed = status.condition(NodeMaintenanceConditionType.FAILED)
        since = status.last_update if failed is None else failed.last_transition_time
        return NodeAssessment(state=NodeState.BLOCKED, why=f"{title} failed: {status.last_error}", since=since)
    if status.phase == NodeMaintenancePhase.SUCCEEDED:
        drained = status.condition(NodeMaintenanceConditionType.DRAINED)
        since = created if drained is None else drained.last_transition_time
        reason = f": {order.spec.reason}" if order.spec.reason else ""
        return NodeAssessment(state=NodeState.IN_MAINTENANCE, why=f"{title}{reason}", since=since, progress=100)
    if not _has_started(order, observation.node):
        return NodeAssessment(
            state=NodeState.PLANNED,
            why=f"{title} {_waiting_text(order, observation)}",
            since=created,
            at=status.next_reconcile,
        )
    return _assess_drain_of_maintenance(order, observation, title)


def _has_started(order: NodeMaintenance, node: Node) -> bool:
    """Return whether a NodeMaintenance has its node; the node shows that a little earlier than the status.

    Objects that the Node Maintenance Operator wrote have no conditions.
    """
    if order.name in node_maintenances_of(node):
        return True
    cordoned = order.status.condition(NodeMaintenanceConditionType.CORDONED)
    if cordoned is None:
        return order.status.phase == NodeMaintenancePhase.RUNNING
    return cordoned.status == "True"


def _waiting_text(order: NodeMaintenance, observation: NodeSnapshot) -> str:
    within_budget = order.status.condition(NodeMaintenanceConditionType.WITHIN_BUDGET)
    if within_budget is not None and within_budget.status == "False":
        position = observation.waiting_positions.get(order.name, 0)
        others_first = f" (position {position} in the queue)" if position > 1 else ""
        return f"waits for a budget slot{others_first}: {within_budget.message}"
    return (
        f"waits: {order.status.last_error}" if order.status.last_error else "has not been processed by the operator yet"
    )


def _assess_drain_of_maintenance(order: NodeMaintenance, observation: NodeSnapshot, title: str) -> NodeAssessment:
    status, drain = order.status, order.status.drain
    blockers = [
        blocker for blocker in status.blockers if blocker.kind not in _PROGRESS_KINDS and blocker.since is not None
    ]
    first = min(blockers, key=lambda blocker: blocker.since or observation.now, default=None)
    assessment = NodeAssessment(
        state=NodeState.DRAINING,
        why=f"{title}: {len(status.pending_pods)} of {status.eviction_pods} pods have not left",
        since=drain.start_time if drain is not None else order.metadata.creation_timestamp,
        at=(drain.deadline if drain is not None else None) or status.next_reconcile,
        progress=status.drain_progress,
    )
    if first is not None and first.since is not None:
        is_blocked = first.since + BLOCKED_AFTER <= observation.now
        state = NodeState.BLOCKED if is_blocked else NodeState.DRAINING
        since = first.since if is_blocked else assessment.since
        blocked_at = first.since + BLOCKED_AFTER
        return replace(assessment, state=state, why=_blocker_text(first), since=since, changes_at=blocked_at)
    if status.last_error:
        return replace(
            assessment, state=NodeState.BLOCKED, why=f"{title}: {status.last_error}", since=status.last_update
        )
    return assessment


def _blocker_text(blocker: BlockerStatus) -> str:
    whose = f"{blocker.pod}: " if blocker.pod else ""
    return whose + blocker.reason + (f"; {blocker.remedy}" if blocker.remedy else "")


# Profiles


def _assess_profiles(observation: NodeSnapshot) -> Iterator[NodeAssessment]:
    pending = read_pending(observation.node) if PENDING_ANNOTATION in observation.node.metadata.annotations else {}
    reports = (
        {}
        if observation.info is None
        else {profile_report.name: profile_report for profile_report in observation.info.reports}
    )
    for name, entry in observation.entries.items():
        pending_transition = pending.get(name)
        report = reports.get(name) or ProfileReport(name=name, state=entry.current, next=entry.current)
        is_pending = pending_transition is not None and pending_transition.belongs_to(entry)
        yield _assess_profile(
            _ProfileObservation(name, entry, report, pending_transition if is_pending else None, name in reports),
            observation,
        )


@dataclass(frozen=True, slots=True)
class _ProfileObservation:
    """A profile of a node."""

    name: str
    entry: ProfileStatus
    report: ProfileReport
    pending_transition: PendingTransition | None
    is_decided: bool  # the report is that of a decision, not a default


def _assess_profile(profile: _ProfileObservation, observation: NodeSnapshot) -> NodeAssessment:
    drain = observation.drains.get(profile.name)
    if drain is not None and not (drain.outcome is not None and drain.outcome.is_drained):
        return _assess_drain_of_profile(profile, drain, observation)
    assessment = _assess_profile_state(profile)
    if profile.report.error and assessment.state is not NodeState.IDLE:
        is_started = assessment.state is not NodeState.PLANNED or profile.pending_transition is not None
        state = NodeState.BLOCKED if is_started else NodeState.PLANNED
        return replace(assessment, state=state, why=f"{profile.name}: {profile.report.error}")
    return assessment


def _assess_drain_of_profile(
    profile: _ProfileObservation, drain: DrainSnapshot, observation: NodeSnapshot
) -> NodeAssessment:
    progress, outcome = drain.progress, drain.outcome
    assessment = NodeAssessment(
        state=NodeState.DRAINING,
        why=f"{profile.name}: {profile.report.waits_for or f'{progress.gone} of {progress.total} pods have left'}",
        since=progress.started,
        at=progress.deadline,
        progress=progress.percent,
    )
    if outcome is not None:
        return replace(assessment, state=NodeState.BLOCKED, why=f"{profile.name}: {outcome.message}")
    blockers = [blocked_pod for blocked_pod in progress.blockers if not blocked_pod.blocker.is_progress]
    first = min(blockers, key=lambda blocked_pod: blocked_pod.since, default=None)
    if first is None:
        return (
            replace(assessment, state=NodeState.BLOCKED, why=progress.stale_reason)
            if progress.stale_reason
            else assessment
        )
    blocked_at = first.since + BLOCKED_AFTER
    if blocked_at <= observation.now:
        return replace(assessment, state=NodeState.BLOCKED, why=str(first.blocker), since=first.since)
    return replace(assessment, why=str(first.blocker), changes_at=blocked_at)


def _assess_profile_state(profile: _ProfileObservation) -> NodeAssessment:
    entry, since = profile.entry, profile.entry.transition
    if entry.current not in _NODE_STATES:
        why = (
            f"{profile.name}: annotation {DATA_ANNOTATION} says that it is in the unknown state "
            f"{entry.current!r}, expected one of {', '.join(State)}"
        )
        return NodeAssessment(state=NodeState.BLOCKED, why=why, since=since)
    if profile.pending_transition is not None and profile.pending_transition.next != entry.current:
        return NodeAssessment(
            state=_TRANSITION_STATES.get((entry.current, profile.pending_transition.next), NodeState.PLANNED),
            why=_transition_text(profile),
            since=since,
        )
    if entry.current != State.OPERATIONAL:
        is_recovering = entry.current == State.IN_MAINTENANCE and _only_recovers(profile.report.transitions)
        state = NodeState.RECOVERING if is_recovering else _NODE_STATES[State(entry.current)]
        return NodeAssessment(state=state, why=_waiting_reason(profile), since=since, at=_next_change(profile.report))
    if entry.previous == State.IN_MAINTENANCE and profile.report.waits_for:
        return NodeAssessment(state=NodeState.RECOVERING, why=_transition_text(profile), since=since)
    if veto := next(
        (transition.veto for transition in profile.report.transitions if transition.chain_passed and transition.veto),
        "",
    ):
        return NodeAssessment(state=NodeState.PLANNED, why=f"{profile.name}: {veto}", since=since)
    return NodeAssessment(
        state=NodeState.IDLE, why=f"{profile.name}: {profile.report.error}" if profile.report.error else ""
    )


_NODE_STATES = {
    State.OPERATIONAL: NodeState.IDLE,
    State.REQUIRED: NodeState.PLANNED,
    State.IN_MAINTENANCE: NodeState.IN_MAINTENANCE,
}
_TRANSITION_STATES: Mapping[tuple[str, str], NodeState] = {
    (State.OPERATIONAL, State.IN_MAINTENANCE): NodeState.DRAINING,
    (State.REQUIRED, State.IN_MAINTENANCE): NodeState.DRAINING,
    (State.IN_MAINTENANCE, State.OPERATIONAL): NodeState.RECOVERING,
    (State.IN_MAINTENANCE, State.REQUIRED): NodeState.RECOVERING,
}


def _transition_text(profile: _ProfileObservation) -> str:
    return f"{profile.name}: {profile.report.waits_for or 'the transition is in progress'}"


def _waiting_reason(profile: _ProfileObservation) -> str:
    """Return what a profile waits for: the blocking reasons of the nearest transition."""
    if profile.report.waits_for:
        return f"{profile.name}: {profile.report.waits_for}"
    blocking = [reasons for transition in profile.report.transitions if (reasons := _blocking_reasons(transition))]
    reasons = min(blocking, key=len, default=[])
    if not reasons and profile.is_decided and not profile.report.transitions:
        return f"{profile.name}: no transition leads out of {profile.entry.current}"
    return f"{profile.name}: {format_list(reasons, max_names=2) or profile.entry.current}"


def _blocking_reasons(report: TransitionReport) -> list[str]:
    """Return why a transition is blocked: the smallest set of checks that would have to change, with their reasons."""
    if report.veto:
        return [report.veto]
    results = {name: item.result for name, item in report.checks.items()}
    remedy = next(iter(remedies_for(report.expression, {name: item.passed for name, item in results.items()})), ())
    texts = (
        results[item.name].error or results[item.name].reason or f"waiting for check {item.name}" for item in remedy
    )
    return list(dict.fromkeys(texts))


def _next_change(report: ProfileReport) -> datetime | None:
    """Return when a check that does not pass may change without an event."""
    results = (item.result for transition in report.transitions for item in transition.checks.values())
    return min(
        (item.requeue_at for item in results if item.requeue_at is not None and item.passed is not True), default=None
    )


def _only_recovers(transitions: Iterable[TransitionReport]) -> bool:
    """Return whether a transition out of maintenance waits only for the recovery of the node."""
    for transition in transitions:
        values = {name: check.result.passed for name, check in transition.checks.items()}
        recovered = {name: True for name, check in transition.checks.items() if check.type == Recovered.type}
        is_unrecovered = not transition.passed and any(values[name] is not True for name in recovered)
        if is_unrecovered and _evaluate(transition.expression, {**values, **recovered}) is True:
            return True
    return False


def _evaluate(expression: str, values: Mapping[str, bool | None]) -> bool | None:
    try:
        return _parse(expression).evaluate(values)
    except (BooleanError, KeyError):
        return None


_parse = lru_cache(maxsize=256)(booleans.parse)


# Leftovers


def _assess_leftovers(observation: NodeSnapshot) -> Iterator[NodeAssessment]:
    try:
        mark = cordon_of(observation.node)
    except InvalidCordonAnnotation as error:
        yield NodeAssessment(state=NodeState.BLOCKED, why=str(error))
        return
    if mark is None:
        return
    for owner in orphaned_owners(mark, observation):
        why = f"it is kept cordoned for {owner.replace('/', ' ', 1)}, which no longer exists"
        yield NodeAssessment(state=NodeState.BLOCKED, why=why, since=mark.owners[owner].since)


def orphaned_owners(mark: Cordon, observation: NodeSnapshot) -> list[str]:
    """Return the owners of a cordon that no longer exist."""
    orders = {maintenance.name for maintenance in observation.orders}
    return [owner for owner in mark.owners if _is_owner_gone(owner, orders, observation)]


def _is_owner_gone(owner: str, orders: set[str], observation: NodeSnapshot) -> bool:
    if owner.startswith(NODE_MAINTENANCE_OWNER_PREFIX):
        return observation.knows_orders and owner.removeprefix(NODE_MAINTENANCE_OWNER_PREFIX) not in orders
    if owner.startswith(PROFILE_PREFIX):
        return not observation.data_problem and owner.removeprefix(PROFILE_PREFIX) not in observation.entries
    return False


# Notices


def _assess_notice(notice: MaintenanceNotice, observation: NodeSnapshot) -> NodeAssessment:
    spec, notice_state = notice.spec, phase_at(notice.spec, now=observation.now)
    about = f"{spec.kind} ({spec.reason})" if spec.reason else spec.kind
    announced_by = f" by {spec.source}" if spec.source else ""
    return NodeAssessment(
        state=NodeState.PLANNED,
        why=f"{about} announced{announced_by}: {notice_state.message}",
        since=notice.metadata.creation_timestamp,
        at=notice.status.drain_at if (notice.status.drain_at or observation.now) > observation.now else spec.start,
        changes_at=notice_state.until,
    )


# Holds and idle nodes


def _assess_hold(observation: NodeSnapshot) -> Iterator[NodeAssessment]:
    """Yield the end of a hold or freeze; until then it does not change the state."""
    held = observation.hold
    if held is not None:
        yield NodeAssessment(state=NodeState.IDLE, changes_at=held.until)


def _assess_idle(observation: NodeSnapshot, assessment: NodeAssessment | None) -> NodeAssessment:
    if assessment is not None and assessment.why:
        return assessment
    if observation.info is not None and observation.info.problem:
        return NodeAssessment(state=NodeState.IDLE, why=observation.info.problem)
    ready = observation.node.condition("Ready")
    if ready is not None and not observation.node.is_ready:
        message = ready.message or ready.reason
        return NodeAssessment(
            state=NodeState.IDLE,
            why=f"not ready: {message}" if message else "not ready",
            since=ready.last_transition_time,
        )
    if observation.node.spec.unschedulable:
        return NodeAssessment(state=NodeState.IDLE, why="cordoned by hand, not by Haulout")
    return NodeAssessment(state=NodeState.IDLE)
