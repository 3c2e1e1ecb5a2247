"""All details of a node, for its page. Pure: the caller reads the history."""

from collections.abc import Iterable, Iterator

from haulout.api.maintenancerecord import Entry as Recorded
from haulout.api.nodemaintenance import NodeMaintenance, NodeMaintenanceConditionType, NodeMaintenancePhase
from haulout.controllers.profiles.config.model import Configuration, Profile, StateTransition
from haulout.controllers.profiles.explain.explanation import remedies_for
from haulout.controllers.profiles.explain.remedies import format_remedy
from haulout.controllers.profiles.observation import CheckReport, ProfileReport, TransitionReport
from haulout.controllers.profiles.plugin import ProfileStatus, State
from haulout.controllers.profiles.status import json_safe
from haulout.controllers.profiles.view import topics
from haulout.dashboard.api.nodes.commands import commands_for
from haulout.dashboard.api.nodes.informers import NodeSnapshot
from haulout.dashboard.api.nodes.summary import summarize_node
from haulout.dashboard.api.notices import notice_to_api as told_notice
from haulout.dashboard.api.types import (
    Blocker,
    Check,
    DrainSummary,
    HistoryEntry,
    MaintenanceSummary,
    NodeCondition,
    NodeDetail,
    ProfileState,
    Transition,
)
from haulout.drain.manager import DrainSnapshot

_MAX_PODS = 500


def detail_of(
    observation: NodeSnapshot,
    *,
    configuration: Configuration | None,
    kubelet: str = "",
    history: Iterable[Recorded] = (),
    history_problem: str = "",
) -> NodeDetail:
    """Return the details; `history` has the oldest entry first, as records do."""
    tile, _ = summarize_node(observation)
    node, info = observation.node, observation.info
    drains = drains_of(observation)
    return NodeDetail(
        summary=tile,
        uid=node.uid,
        provider_id=node.spec.provider_id,
        kubelet=kubelet,
        created=node.metadata.creation_timestamp,
        labels=node.metadata.labels,
        taints=tuple(_taint(item.key, item.value, item.effect) for item in node.spec.taints),
        conditions=tuple(
            NodeCondition(
                type=item.type,
                status=item.status,
                reason=item.reason,
                message=item.message,
                since=item.last_transition_time,
            )
            for item in node.status.conditions
        ),
        profiles=tuple(_profiles(observation, configuration)),
        problem=observation.data_problem or ("" if info is None else info.problem),
        next_reconcile=None if info is None else info.next_reconcile,
        requeue_on=() if info is None else tuple(map(topics.describe, sorted(info.topics))),
        drains=drains,
        maintenances=tuple(_order(item, observation) for item in observation.orders),
        notices=tuple(told_notice(item, now=observation.now) for item in observation.notices),
        history=tuple(happening(item) for item in reversed(tuple(history))),
        history_problem=history_problem,
        commands=commands_for(observation, state=tile.state, drains=drains, configuration=configuration),
    )


def _taint(key: str, value: str, effect: str) -> str:
    return f"{key}={value}:{effect}" if value else f"{key}:{effect}"


# Profiles


def _profiles(observation: NodeSnapshot, configuration: Configuration | None) -> Iterator[ProfileState]:
    reports = {} if observation.info is None else {report.name: report for report in observation.info.reports}
    for name in dict.fromkeys((*reports, *observation.entries)):
        profile = None if configuration is None else configuration.profiles.get(name)
        yield _profile(name, observation.entries.get(name), reports.get(name), profile)


def _profile(
    name: str, entry: ProfileStatus | None, report: ProfileReport | None, profile: Profile | None
) -> ProfileState:
    state = entry.current if entry is not None else report.state if report is not None else ""
    is_known_state = profile is not None and state in tuple(State)
    return ProfileState(
        name=name,
        state=state,
        since=None if entry is None else entry.transition,
        waiting_for="" if report is None else report.waits_for,
        error=(report.error if report is not None else "")
        or ("" if profile else "the configuration has no such profile"),
        notifications=tuple(notification.name for notification in profile.states[State(state)].notify)
        if profile and is_known_state
        else (),
        transitions=() if profile is None else tuple(_transitions(profile, state, report)),
    )


def _transitions(profile: Profile, state: str, report: ProfileReport | None) -> Iterator[Transition]:
    """Yield all transitions of a profile; only those out of the current state have a report."""
    for source, config in profile.states.items():
        reported = report.transitions if report is not None and report.state == source == state else ()
        transition_reports = reported if len(reported) == len(config.transitions) else (None,) * len(config.transitions)
        for transition, transition_report in zip(config.transitions, transition_reports, strict=True):
            yield _transition(source, transition, transition_report, is_current=source == state)


def _transition(
    source: State, transition: StateTransition, report: TransitionReport | None, *, is_current: bool
) -> Transition:
    members = {item.name: Check(name=item.name, type=item.plugin.type) for item in transition.check.members}
    triggers = tuple(item.name for item in transition.trigger)
    if report is None:
        return Transition(
            source=source,
            target=transition.next,
            expression=transition.check.text,
            triggers=triggers,
            is_current=is_current,
            checks=tuple(members.values()),
        )
    values = {name: item.result.passed for name, item in report.checks.items()}
    return Transition(
        source=source,
        target=transition.next,
        expression=transition.check.text,
        triggers=triggers,
        is_current=is_current,
        passed=report.passed,
        veto=report.veto,
        error=report.error,
        checks=tuple(_check(name, item) for name, item in report.checks.items()),
        remedies=tuple(map(format_remedy, remedies_for(report.expression, values))),
    )


def _check(name: str, report: CheckReport) -> Check:
    result = report.result
    return Check(
        name=name,
        type=report.type,
        passed=result.passed,
        reason=result.reason,
        error=result.error,
        changes_at=result.requeue_at,
        info=json_safe(result.info),
    )


# Drains


def drains_of(observation: NodeSnapshot) -> tuple[DrainSummary, ...]:
    """Return the drains of a node, of all initiators."""
    return (*map(_drain_of_order, filter(_has_drain, observation.orders)), *_drains_of_profiles(observation))


def _drains_of_profiles(observation: NodeSnapshot) -> Iterator[DrainSummary]:
    reports = (
        {}
        if observation.info is None
        else {profile_report.name: profile_report for profile_report in observation.info.reports}
    )
    for name, drain in observation.drains.items():
        report = reports.get(name)
        yield _drain_of_profile(name, drain, message="" if report is None else report.waits_for)


def _drain_of_profile(name: str, drain: DrainSnapshot, *, message: str) -> DrainSummary:
    progress, outcome = drain.progress, drain.outcome
    return DrainSummary(
        owner=f"profile/{name}",
        started=progress.started,
        deadline=progress.deadline,
        total=progress.total,
        removed=progress.gone,
        terminating=progress.leaving,
        is_done=outcome is not None and outcome.is_drained,
        message=outcome.message if outcome is not None else progress.stale_reason or message,
        pending_pods=tuple(item.pod for item in progress.pods[:_MAX_PODS]),
        blockers=tuple(
            Blocker(
                kind=item.blocker.kind,
                pod=item.blocker.pod,
                object=item.blocker.object,
                workload=item.blocker.workload,
                reason=item.blocker.reason,
                remedy=item.blocker.remedy,
                since=item.since,
            )
            for item in progress.blockers[:_MAX_PODS]
        ),
    )


def _has_drain(order: NodeMaintenance) -> bool:
    return bool(order.status.drain or order.status.eviction_pods or order.status.pending_pods)


def _drain_of_order(order: NodeMaintenance) -> DrainSummary:
    status, drain = order.status, order.status.drain
    total, pending = status.eviction_pods, tuple(_name(item.namespace, item.name) for item in status.pending_pods_refs)
    return DrainSummary(
        owner=f"NodeMaintenance/{order.name}",
        started=None if drain is None else drain.start_time,
        deadline=None if drain is None else drain.deadline,
        total=total,
        removed=max(total - len(pending), 0) if drain is None else drain.removed,
        terminating=0 if drain is None else drain.terminating,
        is_done=status.phase == NodeMaintenancePhase.SUCCEEDED,
        message=status.last_error or _drained_message(order),
        pending_pods=(pending or status.pending_pods)[:_MAX_PODS],
        blockers=tuple(
            Blocker(
                kind=item.kind,
                pod=item.pod,
                object=item.object,
                workload=item.workload,
                reason=item.reason,
                remedy=item.remedy,
                since=item.since,
            )
            for item in status.blockers
        ),
    )


def _drained_message(order: NodeMaintenance) -> str:
    drained = order.status.condition(NodeMaintenanceConditionType.DRAINED)
    return "" if drained is None else drained.message


def _name(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name


def _order(order: NodeMaintenance, observation: NodeSnapshot) -> MaintenanceSummary:
    return MaintenanceSummary(
        name=order.name,
        node=order.node,
        reason=order.spec.reason,
        phase=order.status.phase,
        requested_by=next(
            (
                managed_field.manager
                for managed_field in order.metadata.managed_fields
                if managed_field.manager and not managed_field.subresource
            ),
            "",
        ),
        created=order.metadata.creation_timestamp,
        is_deleting=order.is_being_deleted,
        error=order.status.last_error,
        queue_position=observation.waiting_positions.get(order.name, 0),
    )


# History


def happening(entry: Recorded) -> HistoryEntry:
    """Return an entry of a record as an API value."""
    return HistoryEntry(
        time=entry.time,
        object=entry.object,
        requested_by=entry.requested_by,
        from_=entry.from_,
        to=entry.to,
        since=entry.since,
        reason=entry.reason,
        result=entry.result,
        drain_seconds=None if entry.drain is None else entry.drain.seconds,
        drain_pods=None if entry.drain is None else entry.drain.pods,
    )
