"""The conditions of a MaintenanceNotice: OnTime, Emptied, and the kstatus conditions. Pure.

OnTime says whether the node will be empty when its maintenance begins:

    remaining = await list_remaining_pods(…) if depends_on_pods(observation) else None
    timeliness = evaluate_on_time(observation, remaining)

It becomes False as soon as a delay is foreseeable:

- the drain has not begun, and its predicted duration no longer fits into the remaining time; without a prediction,
  a third of the drain window has passed;
- the drain began too late for its predicted duration;
- a person's hold on the node lasts longer than that;
- the drain is running, pods remain in the last third of the window, and they are not all terminating.

Once OnTime is False, it stays False until the node is empty or the maintenance is moved, so that users are notified
once. When the maintenance begins the reason becomes `Empty` or `Occupied`; that is final, and pods are no longer
listed.

Emptied says whether the node has been emptied for the maintenance. It permits an early start: sources that support it
(`haulout.controllers.notices.early_start`) act on it. It is True only while all of these hold, and False only after it
was True:

- the maintenance is due, and a profile empties the node for it;
- only profiles are cordon owners: a person who ordered maintenance may be working on the node;
- no pods remain that a drain would evict, or the node has the condition Drained.

Ready, Reconciling and Stalled are those of kstatus. Ready is True when there is nothing to do for the notice now: it is
over, it is not due yet, or its node is empty or deleted. Reconciling is True while the node must be drained. Stalled is
True when a person must act: no node is found, the node will not be empty in time, or the source reports that the
maintenance failed. Absent means False. All three follow from the other conditions, so they cost no additional writes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import msgspec

from haulout.api.hold import Hold
from haulout.api.maintenancenotice import (
    MaintenanceKind,
    MaintenanceNotice,
    NoticeCondition,
    NoticePhase,
    NoticeStage,
    PhaseStatus,
    drain_at,
)
from haulout.api.objects import Condition, Node, StatusCondition
from haulout.api.reasons import NoticeConditionReason, OnTimeReason
from haulout.controllers.notices.drain_prediction import DrainPrediction
from haulout.controllers.notices.node_lookup import NodeLookupResult
from haulout.controllers.notices.remaining_pods import RemainingPods, cordoned_since
from haulout.core import duration
from haulout.core.text import format_instant
from haulout.drain.cordon import InvalidCordonAnnotation, cordon_of
from haulout.runtime.freezes import Freezes

_MIN_INTERVAL, _MAX_INTERVAL = timedelta(seconds=10), timedelta(minutes=2)  # between two pod lists
_CHECKS_PER_DRAIN = 10  # pod lists while a node should be drained

_NOT_EMPTY = NoticeConditionReason.NOT_EMPTY
_PROFILE_OWNER_PREFIX = "profile/"  # prefix of profiles among cordon owners

_READY_REASONS = (OnTimeReason.EMPTY, OnTimeReason.NOT_NEEDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What is known about a maintenance and its node, except pods."""

    notice: MaintenanceNotice
    node: Node | None
    phase: NoticePhase
    now: datetime
    lead_time: timedelta
    start_known_at: datetime  # since when the current start is known
    prediction: DrainPrediction | None = None
    is_handled: bool = True  # a profile empties the node for it
    freezes: Freezes = field(default_factory=Freezes)

    @property
    def previous_condition(self) -> Condition | None:
        """The current OnTime condition; None if it is about another start."""
        condition = self.notice.status.condition(NoticeCondition.ON_TIME)
        if condition is None or condition.last_transition_time is None:
            return None
        is_same = self.notice.status.start == self.notice.spec.start
        return condition if is_same else None

    @property
    def start(self) -> datetime | None:
        return self.notice.spec.start

    @property
    def has_started(self) -> bool:
        """Whether the maintenance has begun or may have begun, so that the node should be empty."""
        return self.phase is NoticePhase.ACTIVE or (self.start is not None and self.now >= self.start)

    @property
    def has_final_reason(self) -> bool:
        """Whether the maintenance has begun and OnTime has its final reason, Empty or Occupied."""
        condition = self.previous_condition
        return (
            self.has_started
            and condition is not None
            and condition.reason in (OnTimeReason.EMPTY, OnTimeReason.OCCUPIED)
        )

    @property
    def hold(self) -> Hold | None:
        """The hold or freeze of the node, if it delays the drain; a hold does not stop a drain that has begun."""
        node, start = self.node, self.start
        if node is None or node.spec.unschedulable or not self.is_handled:
            return None
        found = self.freezes.hold_on(node, now=self.now, is_announced=True)
        if found is None or start is None or found.until is None:
            return found
        expected = timedelta() if self.prediction is None else self.prediction.expected
        return found if found.until >= start - expected else None

    @property
    def drain_window(self) -> timedelta:
        """The time available for the drain, from when it could begin until the maintenance starts."""
        drain_start = drain_at(self.notice.spec, lead=self.lead_time)
        if self.start is None or drain_start is None:
            return timedelta()
        return max(self.start - max(drain_start, self.start_known_at), timedelta())


@dataclass(frozen=True, slots=True)
class Timeliness:
    """The result for the condition OnTime, and when to evaluate again."""

    is_on_time: bool | None  # None: unknown
    reason: OnTimeReason
    message: str
    requeue_at: datetime | None = None

    @property
    def status(self) -> str:
        return "Unknown" if self.is_on_time is None else str(self.is_on_time)


def depends_on_pods(observation: Observation) -> bool:
    """Return whether the condition depends on the node's pods."""
    is_due = observation.phase in (NoticePhase.DUE, NoticePhase.ACTIVE)
    return (
        is_due
        and observation.node is not None
        and observation.notice.spec.kind != MaintenanceKind.FREEZE
        and not observation.has_final_reason
    )


def evaluate_on_time(observation: Observation, remaining: RemainingPods | None) -> Timeliness | None:
    """Return the condition's new value; None if it stays as it is."""
    if observation.phase.is_over or observation.has_final_reason:
        return None
    if observation.notice.spec.kind == MaintenanceKind.FREEZE:
        return Timeliness(
            True, OnTimeReason.NOT_NEEDED, "the machine pauses only for seconds: pods may stay on the node"
        )
    if observation.node is None:
        return Timeliness(None, OnTimeReason.NODE_NOT_FOUND, "the node of this notice is not known")
    return (
        _evaluate_planned(observation, observation.node)
        if observation.phase is NoticePhase.PLANNED
        else _evaluate_due(observation, observation.node, remaining)
    )


def _evaluate_due(observation: Observation, node: Node, remaining: RemainingPods | None) -> Timeliness:
    """Return the result for a maintenance that is due or has begun."""
    if remaining is None or remaining.problem:
        reason = "not listed yet" if remaining is None else remaining.problem
        return Timeliness(
            None, OnTimeReason.PODS_UNKNOWN, f"pods of node {node.name}: {reason}", _next_check(observation)
        )
    if not remaining.pod_keys:
        return _evaluate_empty(observation, node, remaining)
    if observation.has_started:
        held = "" if observation.hold is None else f", and is {observation.hold}"
        return Timeliness(
            False, OnTimeReason.OCCUPIED, f"the maintenance has begun, and node {node.name} has {remaining}{held}"
        )
    if observation.start is None:
        held = "" if observation.hold is None else f", and is {observation.hold}"
        message = f"the maintenance may begin at any moment, and node {node.name} has {remaining}{held}"
        return Timeliness(None, OnTimeReason.ANY_MOMENT, message, _next_check(observation))
    return _keep_late(observation, _forecast(observation, node, observation.start, remaining))


def _evaluate_planned(observation: Observation, node: Node) -> Timeliness:
    if not observation.is_handled:
        message = (
            f"no profile of node {node.name} has a check `notice` that matches this maintenance: drain the node by hand"
        )
        return Timeliness(None, OnTimeReason.NO_PROFILE_MATCHES, message)
    if observation.hold is not None:
        message = (
            f"node {node.name} is {observation.hold}; the maintenance begins anyway, "
            f"at {format_instant(observation.start or observation.now)}"
        )
        return Timeliness(False, OnTimeReason.HELD, message, observation.hold.until)
    drain_start = drain_at(observation.notice.spec, lead=observation.lead_time)
    duration_text = (
        ""
        if observation.prediction is None
        else f"; the drain is expected to take {duration.format_short(observation.prediction.with_margin)}"
    )
    return Timeliness(
        True,
        OnTimeReason.PLANNED,
        f"node {node.name} will be drained from {format_instant(drain_start or observation.now)} on{duration_text}",
    )


def _evaluate_empty(observation: Observation, node: Node, remaining: RemainingPods) -> Timeliness:
    since = observation.notice.status.empty_since or remaining.observed_at
    requeue_at = None
    if observation.start is not None and observation.now < observation.start:
        # No pod is scheduled to a cordoned node, so no check is needed before the start.
        requeue_at = observation.start if node.spec.unschedulable else min(_next_check(observation), observation.start)
    return Timeliness(
        True, OnTimeReason.EMPTY, f"node {node.name} has been empty since {format_instant(since)}", requeue_at
    )


def _forecast(observation: Observation, node: Node, start: datetime, remaining: RemainingPods) -> Timeliness:
    if observation.hold is not None:
        message = (
            f"node {node.name} is {observation.hold}, and has {remaining}; "
            f"the maintenance begins anyway, at {format_instant(start)}"
        )
        check_times = (_next_check(observation), start, observation.hold.until or start)
        return Timeliness(False, OnTimeReason.HELD, message, min(check_times))
    since = cordoned_since(node)
    has_started = node.spec.unschedulable or remaining.terminated_by is not None
    late_at, reason, message_part = min(
        _deadlines(observation, node, start, since=since, has_started=has_started), key=lambda deadline: deadline[0]
    )
    pods_text = f"node {node.name} has {remaining}"
    if has_started and remaining.terminated_by is not None and remaining.terminated_by <= start:
        return Timeliness(
            True,
            OnTimeReason.DRAINING,
            f"{pods_text}, all of which are terminating",
            min(_next_check(observation), start),
        )
    if observation.now >= late_at:
        return Timeliness(
            False,
            reason,
            f"{pods_text}, and the maintenance begins at {format_instant(start)}: {message_part}",
            min(_next_check(observation), start),
        )
    requeue_at = min(_next_check(observation), late_at, start)
    if not has_started:
        return Timeliness(None, OnTimeReason.NOT_STARTED, f"{pods_text}, and its drain has not begun yet", requeue_at)
    progress_text = "it is cordoned" if since is None else f"its drain has been running since {format_instant(since)}"
    return Timeliness(True, OnTimeReason.DRAINING, f"{pods_text}; {progress_text}", requeue_at)


def _deadlines(
    observation: Observation, node: Node, start: datetime, *, since: datetime | None, has_started: bool
) -> Iterator[tuple[datetime, OnTimeReason, str]]:
    """Yield the instants from which the drain counts as late, each with reason and message."""
    third = observation.drain_window / 3
    hint = f"`haulout why {node.name}` shows what it waits for"
    expected = None if observation.prediction is None else observation.prediction.expected
    from_history = "" if observation.prediction is None else observation.prediction.reason
    if has_started:
        if expected is not None and since is not None:
            late_at = observation.now if since + expected > start else start
            yield (
                late_at,
                OnTimeReason.STARTED_TOO_LATE,
                f"its drain has been running since {format_instant(since)}, and {from_history}",
            )
        yield start - third, OnTimeReason.BLOCKED, f"the drain does not finish; {hint}"
        return
    not_started_text = f"its drain has not begun; {hint}"
    if expected is not None:
        yield start - expected, OnTimeReason.NOT_STARTED, f"{from_history}, and {not_started_text}"
    yield start - (third if expected is not None else 2 * third), OnTimeReason.NOT_STARTED, not_started_text


def _keep_late(observation: Observation, timeliness: Timeliness) -> Timeliness:
    previous = observation.previous_condition
    if timeliness.is_on_time is False or previous is None or previous.status != "False":
        return timeliness
    return Timeliness(
        False, OnTimeReason.CATCHING_UP, f"{timeliness.message}; it was predicted to be late", timeliness.requeue_at
    )


def _next_check(observation: Observation) -> datetime:
    interval = _MAX_INTERVAL if observation.start is None else observation.drain_window / _CHECKS_PER_DRAIN
    return observation.now + min(max(interval, _MIN_INTERVAL), _MAX_INTERVAL)


def emptied_condition(observation: Observation, timeliness: Timeliness | None) -> StatusCondition | None:
    """Return the condition's new value; None if it stays as it is."""
    previous = observation.notice.status.condition(NoticeCondition.EMPTIED)
    if observation.phase.is_over or (observation.phase is NoticePhase.ACTIVE and previous is not None):
        return None
    reason, message = _blocking_reason(observation, timeliness)
    is_unknown = reason == _NOT_EMPTY and timeliness is None  # pods are no longer listed once the maintenance has begun
    if reason and (previous is None or is_unknown):
        return None
    return StatusCondition(
        type=NoticeCondition.EMPTIED,
        status=str(not reason),
        reason=reason or NoticeConditionReason.EMPTY,
        message=message
        or f"{observation.node.name if observation.node else ''} is cordoned and empty: the maintenance may begin",
    )


def is_emptied(observation: Observation, timeliness: Timeliness | None) -> bool:
    """Return whether the maintenance may begin early."""
    return not _blocking_reason(observation, timeliness)[0]


def _blocking_reason(observation: Observation, timeliness: Timeliness | None) -> tuple[str, str]:
    node = observation.node
    if node is None:
        return NoticeConditionReason.NODE_NOT_FOUND, "the node of this notice is not known"
    if observation.phase is not NoticePhase.DUE or not observation.is_handled:
        return NoticeConditionReason.NOT_DUE, f"{node.name} need not be drained for this notice now"
    owners = cordon_owners(node)
    if not node.spec.unschedulable or not owners:
        return NoticeConditionReason.NOT_CORDONED, f"{node.name} is not cordoned for this notice"
    others = [owner for owner in owners if not owner.startswith(_PROFILE_OWNER_PREFIX)]
    if others:
        return NoticeConditionReason.CORDONED_BY_OTHERS, f"{node.name} is also kept cordoned by {', '.join(others)}"
    if timeliness is None or timeliness.reason is not OnTimeReason.EMPTY:
        return _NOT_EMPTY, f"{node.name} is not empty yet" if timeliness is None else timeliness.message
    return "", ""


def cordon_owners(node: Node) -> tuple[str, ...]:
    """Return the cordon owners of a node; none if the annotation is missing or invalid."""
    try:
        mark = cordon_of(node)
    except InvalidCordonAnnotation:
        return ()
    return () if mark is None else tuple(sorted(mark.owners))


@dataclass(frozen=True, slots=True)
class Readiness:
    """Which of the three conditions is True, and why."""

    condition_type: NoticeCondition
    reason: str
    message: str

    def conditions(self) -> tuple[StatusCondition, ...]:
        """Return the condition Ready, and Reconciling or Stalled if one of them is True."""
        is_ready = self.condition_type is NoticeCondition.READY
        ready = StatusCondition(
            type=NoticeCondition.READY, status=str(is_ready), reason=self.reason, message=self.message
        )
        return (
            (ready,) if is_ready else (ready, msgspec.structs.replace(ready, type=self.condition_type, status="True"))
        )


def readiness(
    notice: MaintenanceNotice, lookup: NodeLookupResult, state: PhaseStatus, on_time: StatusCondition | None
) -> Readiness:
    """Return the readiness of a notice; `on_time` is its new condition OnTime."""
    phase = state.phase
    if phase.is_over:
        return Readiness(NoticeCondition.READY, phase, state.message)
    if notice.spec.stage == NoticeStage.FAILED:
        return Readiness(NoticeCondition.STALLED, NoticeConditionReason.MAINTENANCE_FAILED, state.message)
    if lookup.node is None:
        return _without_node(lookup)
    if on_time is None or (phase is NoticePhase.PLANNED and on_time.status != "False"):
        return Readiness(NoticeCondition.READY, phase, state.message)
    return Readiness(_condition_type(on_time), on_time.reason, on_time.message)


def _without_node(lookup: NodeLookupResult) -> Readiness:
    if lookup.gone_node:
        return Readiness(NoticeCondition.READY, NoticeConditionReason.NODE_GONE, lookup.reason)
    return Readiness(NoticeCondition.STALLED, OnTimeReason.NODE_NOT_FOUND, lookup.reason)


def _condition_type(on_time: StatusCondition) -> NoticeCondition:
    if on_time.status == "False":
        return NoticeCondition.STALLED
    return NoticeCondition.READY if on_time.reason in _READY_REASONS else NoticeCondition.RECONCILING
