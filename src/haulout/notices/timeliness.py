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

from haulout.core import duration
from haulout.kinds.hold import HELD, Hold, holding
from haulout.kinds.notice import Kind, MaintenanceNotice, NoticeCondition, Phase
from haulout.kinds.standing import drain_at
from haulout.kube.objects import Condition, Node
from haulout.notices.occupancy import Occupancy, held_since
from haulout.notices.prediction import Prediction

_SHORTEST, _LONGEST = timedelta(seconds=10), timedelta(minutes=2)  # between two looks at pods
_LOOKS = 10  # while a node should be emptied


class Verdict(StrEnum):
    """The reasons of the condition."""

    NOT_NEEDED = "NotNeeded"
    NODE_NOT_FOUND = "NodeNotFound"
    PLANNED = "Planned"
    NOBODY_MINDS = "NobodyMinds"
    PODS_NOT_SEEN = "PodsNotSeen"
    ANY_MOMENT = "AnyMoment"  # nobody says when it begins
    EMPTY = "Empty"
    DRAINING = "Draining"
    NOT_BEGUN = "NotBegun"
    TOO_LATE = "BegunTooLate"
    BLOCKED = "PodsStay"
    CATCHING_UP = "CatchingUp"
    OCCUPIED = "Occupied"
    HELD = HELD  # a person keeps maintenance off the node


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is known about a maintenance and its node, but not about pods."""

    notice: MaintenanceNotice
    node: Node | None
    phase: Phase
    now: datetime
    lead: timedelta
    known_at: datetime  # since when its start is known
    prediction: Prediction | None = None
    is_minded: bool = True  # somebody empties the node for it

    @property
    def before(self) -> Condition | None:
        """What was said the last time, if that was about the same start."""
        said = self.notice.status.condition(NoticeCondition.ON_TIME)
        if said is None or said.last_transition_time is None:
            return None
        is_same = self.notice.status.start == self.notice.spec.start
        return said if is_same else None

    @property
    def start(self) -> datetime | None:
        """When it begins, by what was announced."""
        return self.notice.spec.start

    @property
    def has_begun(self) -> bool:
        """Whether it has begun, or may have: the node should be empty."""
        return self.phase is Phase.ACTIVE or (self.start is not None and self.now >= self.start)

    @property
    def has_last_word(self) -> bool:
        """Whether it has begun, and is known to have met an empty node, or an occupied one."""
        said = self.before
        return self.has_begun and said is not None and said.reason in (Verdict.EMPTY, Verdict.OCCUPIED)

    @property
    def hold(self) -> Hold | None:
        """The person who keeps maintenance off the node, if that makes it late: who has begun to empty it goes on."""
        node, start = self.node, self.start
        if node is None or node.spec.unschedulable or not self.is_minded:
            return None
        found = holding(node, now=self.now)
        if found is None or start is None or found.until is None:
            return found
        takes = timedelta() if self.prediction is None else self.prediction.expected
        return found if found.until >= start - takes else None

    @property
    def window(self) -> timedelta:
        """How much time there is, or was, to empty the node."""
        begins = drain_at(self.notice.spec, lead=self.lead)
        if self.start is None or begins is None:
            return timedelta()
        return max(self.start - max(begins, self.known_at), timedelta())


@dataclass(frozen=True, slots=True)
class Timeliness:
    """What to say, and when to look again."""

    is_on_time: bool | None  # None: nobody can tell
    reason: Verdict
    message: str
    next_look: datetime | None = None

    @property
    def status(self) -> str:
        """As conditions have it."""
        return "Unknown" if self.is_on_time is None else str(self.is_on_time)


def needs_a_look(plan: Plan) -> bool:
    """Tell whether it depends on pods."""
    is_due = plan.phase in (Phase.DUE, Phase.ACTIVE)
    return is_due and plan.node is not None and plan.notice.spec.kind != Kind.FREEZE and not plan.has_last_word


def judged(plan: Plan, seen: Occupancy | None) -> Timeliness | None:
    """Return what to say; None: nothing else than was said before."""
    if plan.phase.is_over or plan.has_last_word:
        return None
    if plan.notice.spec.kind == Kind.FREEZE:
        return Timeliness(True, Verdict.NOT_NEEDED, "the machine stands still for seconds: pods may stay")
    if plan.node is None:
        return Timeliness(None, Verdict.NODE_NOT_FOUND, "which node it is about is not known")
    return _planned(plan, plan.node) if plan.phase is Phase.PLANNED else _pressing(plan, plan.node, seen)


def _pressing(plan: Plan, node: Node, seen: Occupancy | None) -> Timeliness:
    """Return what pods tell about a maintenance that is due, or has begun."""
    if seen is None or seen.trouble:
        why = "nobody has looked yet" if seen is None else seen.trouble
        return Timeliness(None, Verdict.PODS_NOT_SEEN, f"pods of {node.name}: {why}", _soon(plan))
    if not seen.left:
        return _empty(plan, node, seen)
    if plan.has_begun:
        held = "" if plan.hold is None else f", and is {plan.hold}"
        return Timeliness(False, Verdict.OCCUPIED, f"it began, and {node.name} has {seen}{held}")
    if plan.start is None:
        held = "" if plan.hold is None else f", and is {plan.hold}"
        message = f"it may begin at any moment, and {node.name} has {seen}{held}"
        return Timeliness(None, Verdict.ANY_MOMENT, message, _soon(plan))
    return _kept_late(plan, _foreseen(plan, node, plan.start, seen))


def _planned(plan: Plan, node: Node) -> Timeliness:
    if not plan.is_minded:
        message = f"no profile on {node.name} has a check `notice` for it: somebody else has to empty it"
        return Timeliness(None, Verdict.NOBODY_MINDS, message)
    if plan.hold is not None:
        message = f"{node.name} is {plan.hold}; it begins nevertheless, at {_clock(plan.start or plan.now)}"
        return Timeliness(False, Verdict.HELD, message, plan.hold.until)
    begins = drain_at(plan.notice.spec, lead=plan.lead)
    takes = "" if plan.prediction is None else f", which is expected to take {duration.short(plan.prediction.takes)}"
    return Timeliness(
        True, Verdict.PLANNED, f"{node.name} is to be emptied from {_clock(begins or plan.now)} on{takes}"
    )


def _empty(plan: Plan, node: Node, seen: Occupancy) -> Timeliness:
    since = plan.notice.status.empty_since or seen.at
    next_look = None
    if plan.start is not None and plan.now < plan.start:
        # Nothing new comes to a node that is cordoned.
        next_look = plan.start if node.spec.unschedulable else min(_soon(plan), plan.start)
    return Timeliness(True, Verdict.EMPTY, f"{node.name} is empty since {_clock(since)}", next_look)


def _foreseen(plan: Plan, node: Node, start: datetime, seen: Occupancy) -> Timeliness:
    if plan.hold is not None:
        message = f"{node.name} is {plan.hold}, and has {seen}; it begins nevertheless, at {_clock(start)}"
        looks = (_soon(plan), start, plan.hold.until or start)
        return Timeliness(False, Verdict.HELD, message, min(looks))
    since = held_since(node)
    has_begun = node.spec.unschedulable or seen.ending_by is not None
    late_at, reason, why = min(_limits(plan, node, start, since=since, has_begun=has_begun), key=lambda it: it[0])
    left = f"{node.name} has {seen}"
    if has_begun and seen.ending_by is not None and seen.ending_by <= start:
        return Timeliness(True, Verdict.DRAINING, f"{left}, all of which are ending", min(_soon(plan), start))
    if plan.now >= late_at:
        return Timeliness(False, reason, f"{left}, and it begins at {_clock(start)}: {why}", min(_soon(plan), start))
    next_look = min(_soon(plan), late_at, start)
    if not has_begun:
        return Timeliness(None, Verdict.NOT_BEGUN, f"{left}, and is not being emptied yet", next_look)
    being = "it is cordoned" if since is None else f"it is being emptied since {_clock(since)}"
    return Timeliness(True, Verdict.DRAINING, f"{left}; {being}", next_look)


def _limits(
    plan: Plan, node: Node, start: datetime, *, since: datetime | None, has_begun: bool
) -> Iterator[tuple[datetime, Verdict, str]]:
    """Yield from when on it counts as late, and why."""
    third = plan.window / 3
    asks = f"`haulout why {node.name}` tells who waits for what"
    expected = None if plan.prediction is None else plan.prediction.expected
    from_history = "" if plan.prediction is None else plan.prediction.why
    if has_begun:
        if expected is not None and since is not None:
            late_at = plan.now if since + expected > start else start
            yield late_at, Verdict.TOO_LATE, f"it is being emptied since {_clock(since)}, and {from_history}"
        yield start - third, Verdict.BLOCKED, f"they do not leave; {asks}"
        return
    nobody = f"nobody has begun to empty it; {asks}"
    if expected is not None:
        yield start - expected, Verdict.NOT_BEGUN, f"{from_history}, and {nobody}"
    yield start - (third if expected is not None else 2 * third), Verdict.NOT_BEGUN, nobody


def _kept_late(plan: Plan, found: Timeliness) -> Timeliness:
    was = plan.before
    if found.is_on_time is False or was is None or was.status != "False":
        return found
    return Timeliness(False, Verdict.CATCHING_UP, f"{found.message}; it was foreseen to be late", found.next_look)


def _soon(plan: Plan) -> datetime:
    usual = _LONGEST if plan.start is None else plan.window / _LOOKS
    return plan.now + min(max(usual, _SHORTEST), _LONGEST)


def _clock(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC".replace(":00 UTC", " UTC")
