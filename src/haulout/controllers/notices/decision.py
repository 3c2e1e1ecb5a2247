"""The decision of the notices controller: the notice's new status, and the events since the last reconcile. Pure.

Events include Auto Scaling terminations whose lifecycle hooks nothing completes. The agent on a node sees that Auto
Scaling terminates its instance, but has no AWS permissions. If the operator has none either, or does not listen to AWS
at all, a lifecycle hook runs to its heartbeat timeout: the instance terminates later than it could, or before its node
is empty. The notice says so in one event.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from haulout.api.maintenancenotice import (
    DEFAULT_LEAD,
    EarlyStartAnswer,
    MaintenanceNotice,
    MaintenanceNoticeStatus,
    NoticeCondition,
    NoticeHistoryEntry,
    NoticePhase,
    NoticeStage,
    PhaseStatus,
    drain_at,
    early_start_of,
    phase_at,
)
from haulout.api.notice_reports import NoticeReport
from haulout.api.objects import StatusCondition
from haulout.api.reasons import NoticeConditionReason, NoticeEventReason, OnTimeReason
from haulout.controllers.notices.conditions import (
    Observation,
    Readiness,
    Timeliness,
    emptied_condition,
    evaluate_on_time,
    readiness,
)
from haulout.controllers.notices.drain_prediction import PENDING, DrainPrediction
from haulout.controllers.notices.events import HAULOUT, NoticeEvent
from haulout.controllers.notices.node_lookup import NodeLookupResult
from haulout.controllers.notices.remaining_pods import RemainingPods
from haulout.core import duration
from haulout.providers.aws.instance_events import SOURCE, EventType
from haulout.runtime.freezes import Freezes

MAX_HISTORY = 50

EVENT_REASON = NoticeEventReason.LIFECYCLE_HOOK_NOT_COMPLETED
_GRACE_PERIOD = timedelta(minutes=1)  # time for the operator, if it has permissions, to find the hook
_MESSAGE = (
    "Auto Scaling terminates the instance, and nothing completes its lifecycle hooks: if it has any, they run to"
    " their heartbeat timeout, whether the node is empty or not"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeOptions:
    """Options of the notices controller."""

    lead_time: timedelta = DEFAULT_LEAD  # how long before its start a maintenance becomes due
    is_handled: bool = True  # a profile empties nodes for announced maintenance
    retention: timedelta = timedelta(days=7)  # how long notices are kept after they are over


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeDecision:
    """The outcome of one reconcile."""

    status: MaintenanceNoticeStatus
    events: tuple[NoticeEvent, ...] = ()
    requeue_at: datetime | None = None
    is_expired: bool = False  # retention has passed: delete the object
    end_report: NoticeReport | None = None  # ends a notice that nothing else will end


def observe(
    notice: MaintenanceNotice,
    lookup: NodeLookupResult,
    *,
    now: datetime,
    options: NoticeOptions,
    latest_prediction: DrainPrediction | None = None,
    freezes: Freezes | None = None,
) -> tuple[PhaseStatus, Observation]:
    """Return the phase of a notice, and the observation that `decide` needs.

    `latest_prediction` is the predicted duration of the node's drain.
    """
    previous = notice.status
    prediction = _effective_prediction(notice, latest_prediction)
    lead_time = max(options.lead_time, prediction.with_margin) if prediction is not None else options.lead_time
    state = phase_at(notice.spec, now=now, lead=lead_time)
    is_known = bool(previous.phase) and previous.start == notice.spec.start
    known_at = (previous.start_known_at or notice.metadata.creation_timestamp) if is_known else None
    observation = Observation(
        notice=notice,
        node=lookup.node,
        phase=state.phase,
        now=now,
        lead_time=lead_time,
        start_known_at=known_at or now,
        prediction=prediction,
        is_handled=options.is_handled,
        freezes=freezes or Freezes(),
    )
    return state, observation


def decide(
    lookup: NodeLookupResult,
    state: PhaseStatus,
    observation: Observation,
    *,
    options: NoticeOptions,
    remaining: RemainingPods | None = None,
) -> NoticeDecision:
    """Return the new status and events of a notice; `remaining` are the pods left on its node."""
    notice, now, phase = observation.notice, observation.now, state.phase
    timeliness = evaluate_on_time(observation, remaining)
    ended_at = (notice.status.ended_at or now) if phase.is_over else None
    conditions = _conditions(lookup, state, observation, timeliness)
    events = (
        *_events(lookup, state, observation, options=options),
        *_late_events(observation, timeliness),
        *_early_start_events(notice),
        *uncompleted_events(notice, now=now),
    )
    status = msgspec.structs.replace(
        notice.status,
        phase=phase,
        node_name=lookup.gone_node if lookup.node is None else lookup.node.name,
        provider_id=_provider_id(notice, lookup),
        start=notice.spec.start,
        start_known_at=observation.start_known_at,
        empty_since=_empty_since(notice, timeliness, now=now),
        drain_at=drain_at(notice.spec, lead=observation.lead_time)
        if observation.is_handled and not phase.is_over
        else None,
        predicted_drain_seconds=0
        if observation.prediction is None
        else round(observation.prediction.with_margin.total_seconds()),
        observed_generation=notice.metadata.generation,
        ended_at=ended_at,
        conditions=conditions,
        history=append_history(notice, events, now=now),
    )
    expires_at = None if ended_at is None else ended_at + options.retention
    uncompleted_from = uncompleted_at(notice)
    requeue_times = (
        state.until,
        expires_at,
        None if timeliness is None else timeliness.requeue_at,
        uncompleted_from if uncompleted_from is not None and uncompleted_from > now else None,
    )
    return NoticeDecision(
        status=status,
        events=events,
        requeue_at=min((instant for instant in requeue_times if instant is not None), default=None),
        is_expired=expires_at is not None and now >= expires_at,
    )


def append_history(
    notice: MaintenanceNotice, events: tuple[NoticeEvent, ...], *, now: datetime
) -> tuple[NoticeHistoryEntry, ...]:
    """Return the history with the new events appended, limited to `MAX_HISTORY` entries."""
    entries = (NoticeHistoryEntry(time=now, reporter=event.actor, message=event.message) for event in events)
    return (*notice.status.history, *entries)[-MAX_HISTORY:]


def with_condition(
    status: MaintenanceNoticeStatus, condition: StatusCondition, *, now: datetime
) -> tuple[StatusCondition, ...]:
    """Return the conditions including this one; its transition time changes only with its status."""
    previous = next((existing for existing in status.conditions if existing.type == condition.type), None)
    since = previous.last_transition_time if previous is not None and previous.status == condition.status else now
    kept = [existing for existing in status.conditions if existing.type != condition.type]
    kept.append(msgspec.structs.replace(condition, last_transition_time=since))
    return tuple(sorted(kept, key=lambda existing: existing.type))  # a stable order, whoever writes the conditions


def _effective_prediction(notice: MaintenanceNotice, latest: DrainPrediction | None) -> DrainPrediction | None:
    """Return the prediction in effect: once a maintenance is due by a prediction, that prediction no longer changes."""
    previous = notice.status
    recorded = timedelta(seconds=previous.predicted_drain_seconds)
    is_due = previous.phase in (NoticePhase.DUE, NoticePhase.ACTIVE) and previous.start == notice.spec.start
    if latest is PENDING or (is_due and recorded):
        reason = (
            latest.reason
            if latest not in (None, PENDING)
            else f"the drain is expected to take {duration.format_short(recorded)}"
        )
        return DrainPrediction(recorded, reason) if recorded else None
    return latest


def _events(
    lookup: NodeLookupResult, state: PhaseStatus, observation: Observation, *, options: NoticeOptions
) -> Iterator[NoticeEvent]:
    spec, previous, lead_time = observation.notice.spec, observation.notice.status, observation.lead_time
    actor = spec.source or HAULOUT
    description = f"{spec.kind} ({spec.reason})" if spec.reason else spec.kind
    if not previous.phase:
        yield NoticeEvent(
            NoticeEventReason.MAINTENANCE_ANNOUNCED, f"{description} is announced, {_when(spec.start)}", actor
        )
    elif spec.start != previous.start:
        yield NoticeEvent(
            NoticeEventReason.MAINTENANCE_RESCHEDULED,
            f"{description} is moved: it was {_when(previous.start)}, now {_when(spec.start)}",
            actor,
        )
    node_found = previous.condition(NoticeCondition.NODE_FOUND)
    was_found = node_found is not None and node_found.status == "True"
    if lookup.node is not None and (lookup.node.name != previous.node_name or not was_found):
        yield NoticeEvent(NoticeEventReason.NODE_FOUND, f"the notice is for node {lookup.node.name}: {lookup.reason}")
    elif lookup.node is None and was_found:
        yield NoticeEvent(
            NoticeEventReason.NODE_GONE, f"node {previous.node_name} is gone: {lookup.reason}", is_warning=True
        )
    if _starts_earlier(observation, options) and previous.drain_at != drain_at(spec, lead=lead_time):
        reason = "" if observation.prediction is None else observation.prediction.reason
        message = (
            f"the drain begins {duration.format_short(lead_time)} before the maintenance, "
            f"instead of {duration.format_short(options.lead_time)}: {reason}"
        )
        yield NoticeEvent(NoticeEventReason.DRAIN_STARTS_EARLIER, message)
    if state.phase != previous.phase and (previous.phase or state.phase is not NoticePhase.PLANNED):
        is_warning = state.phase is NoticePhase.MISSED
        yield NoticeEvent(
            NoticeEventReason(f"Maintenance{state.phase}"), f"{state.phase}: {state.message}", is_warning=is_warning
        )


def _provider_id(notice: MaintenanceNotice, lookup: NodeLookupResult) -> str:
    """Return the provider ID of the named node, so that a new node of the same name is not mistaken for it."""
    if lookup.node is not None:
        return lookup.node.spec.provider_id if notice.spec.node_name else ""
    return notice.status.provider_id if lookup.gone_node else ""


def _starts_earlier(observation: Observation, options: NoticeOptions) -> bool:
    usual_start = drain_at(observation.notice.spec, lead=options.lead_time)
    is_pending = observation.phase in (NoticePhase.PLANNED, NoticePhase.DUE)
    return (
        is_pending
        and observation.lead_time > options.lead_time
        and usual_start is not None
        and observation.now < usual_start
    )


def _late_events(observation: Observation, timeliness: Timeliness | None) -> Iterator[NoticeEvent]:
    if timeliness is None or timeliness.is_on_time is not False:
        return
    if timeliness.reason is OnTimeReason.OCCUPIED:
        yield NoticeEvent(
            NoticeEventReason.MAINTENANCE_STARTED_ON_OCCUPIED_NODE,
            f"the node was not empty in time: {timeliness.message}",
            is_warning=True,
        )
    elif observation.previous_condition is None or observation.previous_condition.status != "False":
        yield NoticeEvent(
            NoticeEventReason.MAINTENANCE_WILL_BE_LATE,
            f"the node will not be empty in time: {timeliness.message}",
            is_warning=True,
        )


def _empty_since(notice: MaintenanceNotice, timeliness: Timeliness | None, *, now: datetime) -> datetime | None:
    if timeliness is None or timeliness.reason is OnTimeReason.PODS_UNKNOWN:
        return notice.status.empty_since
    return (notice.status.empty_since or now) if timeliness.reason is OnTimeReason.EMPTY else None


def _early_start_events(notice: MaintenanceNotice) -> Iterator[NoticeEvent]:
    record, condition = early_start_of(notice), notice.status.condition(NoticeCondition.EARLY_START)
    if record is None or (
        condition is not None and (condition.reason, condition.message) == (record.answer, record.message)
    ):
        return
    is_answer = record.answer is not EarlyStartAnswer.REQUESTED
    actor = notice.spec.source if is_answer else HAULOUT
    yield NoticeEvent(
        NoticeEventReason(f"EarlyStart{record.answer}"),
        record.message,
        actor,
        is_warning=record.answer is EarlyStartAnswer.REFUSED,
    )


def _conditions(
    lookup: NodeLookupResult, state: PhaseStatus, observation: Observation, timeliness: Timeliness | None
) -> tuple[StatusCondition, ...]:
    changed = (
        _on_time(timeliness),
        emptied_condition(observation, timeliness),
        _early_start(observation.notice),
        _node_found(lookup),
    )
    notice, now = observation.notice, observation.now
    status = _with_conditions(notice, notice.status, changed, now=now)
    summary = readiness(notice, lookup, state, status.condition(NoticeCondition.ON_TIME))
    return _with_readiness(notice, status, summary, now=now).conditions


def failed_status(notice: MaintenanceNotice, *, reason: str, message: str, now: datetime) -> MaintenanceNoticeStatus:
    """Return the status after a failed reconcile, which is tried again: only its summary changes."""
    return _with_readiness(notice, notice.status, Readiness(NoticeCondition.RECONCILING, reason, message), now=now)


def _with_readiness(
    notice: MaintenanceNotice, status: MaintenanceNoticeStatus, summary: Readiness, *, now: datetime
) -> MaintenanceNoticeStatus:
    conditions = summary.conditions()
    others = {NoticeCondition.RECONCILING, NoticeCondition.STALLED} - {condition.type for condition in conditions}
    kept = tuple(condition for condition in status.conditions if condition.type not in others)
    return _with_conditions(notice, msgspec.structs.replace(status, conditions=kept), conditions, now=now)


def _with_conditions(
    notice: MaintenanceNotice,
    status: MaintenanceNoticeStatus,
    conditions: Iterable[StatusCondition | None],
    *,
    now: datetime,
) -> MaintenanceNoticeStatus:
    for condition in conditions:
        if condition is not None:
            updated = msgspec.structs.replace(condition, observed_generation=notice.metadata.generation)
            status = msgspec.structs.replace(status, conditions=with_condition(status, updated, now=now))
    return status


def _on_time(timeliness: Timeliness | None) -> StatusCondition | None:
    if timeliness is None:
        return None
    return StatusCondition(
        type=NoticeCondition.ON_TIME, status=timeliness.status, reason=timeliness.reason, message=timeliness.message
    )


def _early_start(notice: MaintenanceNotice) -> StatusCondition | None:
    record = early_start_of(notice)
    if record is None:
        return None
    condition_status = {EarlyStartAnswer.ACCEPTED: "True", EarlyStartAnswer.REFUSED: "False"}.get(
        record.answer, "Unknown"
    )
    return StatusCondition(
        type=NoticeCondition.EARLY_START, status=condition_status, reason=record.answer, message=record.message
    )


def _node_found(lookup: NodeLookupResult) -> StatusCondition:
    return StatusCondition(
        type=NoticeCondition.NODE_FOUND,
        status=str(lookup.node is not None),
        reason=NoticeConditionReason.FOUND if lookup.node is not None else NoticeConditionReason.NOT_FOUND,
        message=lookup.reason,
    )


def _when(start: datetime | None) -> str:
    return "at any moment" if start is None else f"not before {start:%Y-%m-%d %H:%M} UTC"


def uncompleted_at(notice: MaintenanceNotice) -> datetime | None:
    """Return when to record the event; None if it does not apply or was recorded already."""
    spec, annotations = notice.spec, notice.metadata.annotations
    is_waiting = spec.source == SOURCE and spec.stage == NoticeStage.SCHEDULED and spec.reported_at is not None
    if not is_waiting or EventType.TARGET_LIFECYCLE_STATE not in annotations or EventType.LIFECYCLE in annotations:
        return None
    if spec.reported_at is None or any(entry.message == _MESSAGE for entry in notice.status.history):
        return None
    return spec.reported_at + _GRACE_PERIOD


def uncompleted_events(notice: MaintenanceNotice, *, now: datetime) -> Iterator[NoticeEvent]:
    """Yield the event that nothing completes the hooks, once it is due."""
    at = uncompleted_at(notice)
    if at is not None and now >= at:
        yield NoticeEvent(EVENT_REASON, _MESSAGE, is_warning=True)
