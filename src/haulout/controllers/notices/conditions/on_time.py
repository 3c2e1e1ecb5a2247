"""Whether a node will be empty when its maintenance begins: the condition OnTime of a notice. Pure.

    if needs_a_look(plan): seen = await occupancy(…)
    found = judged(plan, seen)

It is False as soon as that is foreseen, not when it is too late:

- nobody has begun to empty the node, and what that takes does not fit any more into the time that is left; where
  nobody knows what it takes, a third of the time to do it is gone;
- it is being emptied, and began too late for what it takes;
- a person holds it for longer than that;
- it is being emptied, pods are left in the last third, and they are not just ending.

Once it is False it stays so until the node is empty, or the maintenance is moved: so people are told once. When the
maintenance begins the last word is said, `Empty` or `Occupied`, and nobody looks at pods any more.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from haulout.api.hold import HELD, Hold, active_hold
from haulout.api.maintenancenotice import MaintenanceKind, MaintenanceNotice, NoticeCondition, NoticePhase
from haulout.api.notice_phase import drain_at
from haulout.api.objects import Condition, Node
from haulout.controllers.notices.drain_prediction import DrainPrediction
from haulout.controllers.notices.remaining_pods import RemainingPods, cordoned_since
from haulout.core import duration

_MIN_INTERVAL, _MAX_INTERVAL = timedelta(seconds=10), timedelta(minutes=2)  # between two looks at pods
_CHECKS_PER_DRAIN = 10  # while a node should be emptied


class OnTimeReason(StrEnum):
    """The reasons of the condition."""

    NOT_NEEDED = "NotNeeded"
    NODE_NOT_FOUND = "NodeNotFound"
    PLANNED = "Planned"
    NO_PROFILE_MATCHES = "NobodyMinds"
    PODS_UNKNOWN = "PodsNotSeen"
    ANY_MOMENT = "AnyMoment"  # nobody says when it begins
    EMPTY = "Empty"
    DRAINING = "Draining"
    NOT_STARTED = "NotBegun"
    STARTED_TOO_LATE = "BegunTooLate"
    BLOCKED = "PodsStay"
    CATCHING_UP = "CatchingUp"
    OCCUPIED = "Occupied"
    HELD = HELD  # a person keeps maintenance off the node


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What is known about a maintenance and its node, but not about pods."""

    notice: MaintenanceNotice
    node: Node | None
    phase: NoticePhase
    now: datetime
    lead_time: timedelta
    start_known_at: datetime  # since when its start is known
    prediction: DrainPrediction | None = None
    is_handled: bool = True  # somebody empties the node for it

    @property
    def previous_condition(self) -> Condition | None:
        """What was said the last time, if that was about the same start."""
        condition = self.notice.status.condition(NoticeCondition.ON_TIME)
        if condition is None or condition.last_transition_time is None:
            return None
        is_same = self.notice.status.start == self.notice.spec.start
        return condition if is_same else None

    @property
    def start(self) -> datetime | None:
        """When it begins, by what was announced."""
        return self.notice.spec.start

    @property
    def has_started(self) -> bool:
        """Whether it has begun, or may have: the node should be empty."""
        return self.phase is NoticePhase.ACTIVE or (self.start is not None and self.now >= self.start)

    @property
    def has_final_reason(self) -> bool:
        """Whether it has begun, and is known to have met an empty node, or an occupied one."""
        condition = self.previous_condition
        return (
            self.has_started
            and condition is not None
            and condition.reason in (OnTimeReason.EMPTY, OnTimeReason.OCCUPIED)
        )

    @property
    def hold(self) -> Hold | None:
        """The person who keeps maintenance off the node, if that makes it late: who has begun to empty it goes on."""
        node, start = self.node, self.start
        if node is None or node.spec.unschedulable or not self.is_handled:
            return None
        found = active_hold(node, now=self.now)
        if found is None or start is None or found.until is None:
            return found
        expected = timedelta() if self.prediction is None else self.prediction.expected
        return found if found.until >= start - expected else None

    @property
    def drain_window(self) -> timedelta:
        """How much time there is, or was, to empty the node."""
        drain_start = drain_at(self.notice.spec, lead=self.lead_time)
        if self.start is None or drain_start is None:
            return timedelta()
        return max(self.start - max(drain_start, self.start_known_at), timedelta())


@dataclass(frozen=True, slots=True)
class Timeliness:
    """What to say, and when to look again."""

    is_on_time: bool | None  # None: nobody can tell
    reason: OnTimeReason
    message: str
    requeue_at: datetime | None = None

    @property
    def status(self) -> str:
        """As conditions have it."""
        return "Unknown" if self.is_on_time is None else str(self.is_on_time)


def depends_on_pods(observation: Observation) -> bool:
    """Tell whether it depends on pods."""
    is_due = observation.phase in (NoticePhase.DUE, NoticePhase.ACTIVE)
    return (
        is_due
        and observation.node is not None
        and observation.notice.spec.kind != MaintenanceKind.FREEZE
        and not observation.has_final_reason
    )


def evaluate(observation: Observation, remaining: RemainingPods | None) -> Timeliness | None:
    """Return what to say; None: nothing else than was said before."""
    if observation.phase.is_over or observation.has_final_reason:
        return None
    if observation.notice.spec.kind == MaintenanceKind.FREEZE:
        return Timeliness(True, OnTimeReason.NOT_NEEDED, "the machine stands still for seconds: pods may stay")
    if observation.node is None:
        return Timeliness(None, OnTimeReason.NODE_NOT_FOUND, "which node it is about is not known")
    return (
        _evaluate_planned(observation, observation.node)
        if observation.phase is NoticePhase.PLANNED
        else _evaluate_due(observation, observation.node, remaining)
    )


def _evaluate_due(observation: Observation, node: Node, remaining: RemainingPods | None) -> Timeliness:
    """Return what pods tell about a maintenance that is due, or has begun."""
    if remaining is None or remaining.problem:
        reason = "nobody has looked yet" if remaining is None else remaining.problem
        return Timeliness(None, OnTimeReason.PODS_UNKNOWN, f"pods of {node.name}: {reason}", _next_check(observation))
    if not remaining.pod_keys:
        return _evaluate_empty(observation, node, remaining)
    if observation.has_started:
        held = "" if observation.hold is None else f", and is {observation.hold}"
        return Timeliness(False, OnTimeReason.OCCUPIED, f"it began, and {node.name} has {remaining}{held}")
    if observation.start is None:
        held = "" if observation.hold is None else f", and is {observation.hold}"
        message = f"it may begin at any moment, and {node.name} has {remaining}{held}"
        return Timeliness(None, OnTimeReason.ANY_MOMENT, message, _next_check(observation))
    return _keep_late(observation, _forecast(observation, node, observation.start, remaining))


def _evaluate_planned(observation: Observation, node: Node) -> Timeliness:
    if not observation.is_handled:
        message = f"no profile on {node.name} has a check `notice` for it: somebody else has to empty it"
        return Timeliness(None, OnTimeReason.NO_PROFILE_MATCHES, message)
    if observation.hold is not None:
        message = (
            f"{node.name} is {observation.hold}; it begins nevertheless, "
            f"at {_format_instant(observation.start or observation.now)}"
        )
        return Timeliness(False, OnTimeReason.HELD, message, observation.hold.until)
    drain_start = drain_at(observation.notice.spec, lead=observation.lead_time)
    duration_text = (
        ""
        if observation.prediction is None
        else f", which is expected to take {duration.format_short(observation.prediction.with_margin)}"
    )
    return Timeliness(
        True,
        OnTimeReason.PLANNED,
        f"{node.name} is to be emptied from {_format_instant(drain_start or observation.now)} on{duration_text}",
    )


def _evaluate_empty(observation: Observation, node: Node, remaining: RemainingPods) -> Timeliness:
    since = observation.notice.status.empty_since or remaining.observed_at
    requeue_at = None
    if observation.start is not None and observation.now < observation.start:
        # Nothing new comes to a node that is cordoned.
        requeue_at = observation.start if node.spec.unschedulable else min(_next_check(observation), observation.start)
    return Timeliness(True, OnTimeReason.EMPTY, f"{node.name} is empty since {_format_instant(since)}", requeue_at)


def _forecast(observation: Observation, node: Node, start: datetime, remaining: RemainingPods) -> Timeliness:
    if observation.hold is not None:
        message = (
            f"{node.name} is {observation.hold}, and has {remaining}; "
            f"it begins nevertheless, at {_format_instant(start)}"
        )
        check_times = (_next_check(observation), start, observation.hold.until or start)
        return Timeliness(False, OnTimeReason.HELD, message, min(check_times))
    since = cordoned_since(node)
    has_started = node.spec.unschedulable or remaining.terminated_by is not None
    late_at, reason, message_part = min(
        _deadlines(observation, node, start, since=since, has_started=has_started), key=lambda deadline: deadline[0]
    )
    pods_text = f"{node.name} has {remaining}"
    if has_started and remaining.terminated_by is not None and remaining.terminated_by <= start:
        return Timeliness(
            True, OnTimeReason.DRAINING, f"{pods_text}, all of which are ending", min(_next_check(observation), start)
        )
    if observation.now >= late_at:
        return Timeliness(
            False,
            reason,
            f"{pods_text}, and it begins at {_format_instant(start)}: {message_part}",
            min(_next_check(observation), start),
        )
    requeue_at = min(_next_check(observation), late_at, start)
    if not has_started:
        return Timeliness(None, OnTimeReason.NOT_STARTED, f"{pods_text}, and is not being emptied yet", requeue_at)
    progress_text = "it is cordoned" if since is None else f"it is being emptied since {_format_instant(since)}"
    return Timeliness(True, OnTimeReason.DRAINING, f"{pods_text}; {progress_text}", requeue_at)


def _deadlines(
    observation: Observation, node: Node, start: datetime, *, since: datetime | None, has_started: bool
) -> Iterator[tuple[datetime, OnTimeReason, str]]:
    """Yield from when on it counts as late, and why."""
    third = observation.drain_window / 3
    hint = f"`haulout why {node.name}` tells who waits for what"
    expected = None if observation.prediction is None else observation.prediction.expected
    from_history = "" if observation.prediction is None else observation.prediction.reason
    if has_started:
        if expected is not None and since is not None:
            late_at = observation.now if since + expected > start else start
            yield (
                late_at,
                OnTimeReason.STARTED_TOO_LATE,
                f"it is being emptied since {_format_instant(since)}, and {from_history}",
            )
        yield start - third, OnTimeReason.BLOCKED, f"they do not leave; {hint}"
        return
    not_started_text = f"nobody has begun to empty it; {hint}"
    if expected is not None:
        yield start - expected, OnTimeReason.NOT_STARTED, f"{from_history}, and {not_started_text}"
    yield start - (third if expected is not None else 2 * third), OnTimeReason.NOT_STARTED, not_started_text


def _keep_late(observation: Observation, timeliness: Timeliness) -> Timeliness:
    previous = observation.previous_condition
    if timeliness.is_on_time is False or previous is None or previous.status != "False":
        return timeliness
    return Timeliness(
        False, OnTimeReason.CATCHING_UP, f"{timeliness.message}; it was foreseen to be late", timeliness.requeue_at
    )


def _next_check(observation: Observation) -> datetime:
    interval = _MAX_INTERVAL if observation.start is None else observation.drain_window / _CHECKS_PER_DRAIN
    return observation.now + min(max(interval, _MIN_INTERVAL), _MAX_INTERVAL)


def _format_instant(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC".replace(":00 UTC", " UTC")
