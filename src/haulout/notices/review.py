"""What the status of a notice should say, and what happened to it since it was looked at last. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.kinds.notice import HistoryEntry, MaintenanceNotice, NoticeCondition, Phase, Status
from haulout.kinds.standing import LEAD, Standing, drain_at, standing
from haulout.kube.objects import Condition
from haulout.notices.finding import Finding

_US = "haulout"
_REMEMBERED = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What can differ from one installation to the next."""

    lead: timedelta = LEAD  # how long before its start a maintenance is due
    keeps: timedelta = timedelta(days=7)  # how long notices are kept that are over


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that happened, for the history and for an event."""

    reason: str
    what: str
    who: str = _US
    is_bad: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """The outcome of a look."""

    status: Status
    happenings: tuple[Happening, ...]
    next_look: datetime | None
    is_done_with: bool  # nobody needs the object any more


def reviewed(
    notice: MaintenanceNotice, finding: Finding, *, now: datetime, terms: Terms, predicted: timedelta | None = None
) -> Review:
    """Return what to say about a notice; `predicted` is how long its node takes to be emptied."""
    lead = max(terms.lead, predicted or timedelta(0))
    found = standing(notice.spec, now=now, lead=lead)
    ended_at = (notice.status.ended_at or now) if found.phase.is_over else None
    happenings = tuple(_happenings(notice, finding, found, lead=lead, terms=terms))
    entries = tuple(HistoryEntry(time=now, who=it.who, what=it.what) for it in happenings)
    status = Status(
        phase=found.phase,
        node_name="" if finding.node is None else finding.node.name,
        start=notice.spec.start,
        drain_at=None if found.phase.is_over else drain_at(notice.spec, lead=lead),
        predicted_drain_seconds=0 if predicted is None else round(predicted.total_seconds()),
        observed_generation=notice.metadata.generation,
        ended_at=ended_at,
        conditions=_conditions(notice, finding, now=now),
        history=(*notice.status.history, *entries)[-_REMEMBERED:],
    )
    expires = None if ended_at is None else ended_at + terms.keeps
    return Review(
        status=status,
        happenings=happenings,
        next_look=min((it for it in (found.until, expires) if it is not None), default=None),
        is_done_with=expires is not None and now >= expires,
    )


def _happenings(
    notice: MaintenanceNotice, finding: Finding, found: Standing, *, lead: timedelta, terms: Terms
) -> Iterator[Happening]:
    spec, before = notice.spec, notice.status
    who = spec.source or _US
    about = f"{spec.kind} ({spec.reason})" if spec.reason else spec.kind
    if not before.phase:
        yield Happening("MaintenanceAnnounced", f"{about} is announced, {_when(spec.start)}", who)
    elif spec.start != before.start:
        yield Happening(
            "MaintenanceMoved", f"{about} is moved: it was {_when(before.start)}, now {_when(spec.start)}", who
        )
    if finding.node is not None and finding.node.name != before.node_name:
        yield Happening("NodeFound", f"this is about node {finding.node.name}: {finding.why}")
    elif finding.node is None and before.node_name:
        yield Happening("NodeGone", f"node {before.node_name} is gone: {finding.why}", is_bad=True)
    if found.phase is Phase.PLANNED and lead > terms.lead and before.drain_at != drain_at(spec, lead=lead):
        yield Happening("DrainStartsEarlier", f"emptying the node is expected to take {lead}, so it begins that early")
    if found.phase != before.phase and (before.phase or found.phase is not Phase.PLANNED):
        is_bad = found.phase is Phase.MISSED
        yield Happening(f"Maintenance{found.phase}", f"{found.phase}: {found.why}", is_bad=is_bad)


def _conditions(notice: MaintenanceNotice, finding: Finding, *, now: datetime) -> tuple[Condition, ...]:
    kept = tuple(it for it in notice.status.conditions if it.type != NoticeCondition.NODE_FOUND)
    is_found = str(finding.node is not None)
    before = notice.status.condition(NoticeCondition.NODE_FOUND)
    since = before.last_transition_time if before is not None and before.status == is_found else now
    condition = Condition(
        type=NoticeCondition.NODE_FOUND,
        status=is_found,
        reason="Found" if finding.node is not None else "NotFound",
        message=finding.why,
        last_transition_time=since,
    )
    return (condition, *kept)


def _when(start: datetime | None) -> str:
    return "at any moment" if start is None else f"not before {start:%Y-%m-%d %H:%M} UTC"
