"""What the status of a notice should say, and what happened to it since it was looked at last. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from haulout.core import duration
from haulout.kinds.early import Answer, early_of
from haulout.kinds.notice import HistoryEntry, MaintenanceNotice, NoticeCondition, Phase, Status
from haulout.kinds.standing import LEAD, Standing, drain_at, standing
from haulout.kube.objects import StatusCondition
from haulout.notices.emptying import emptied
from haulout.notices.finding import Finding
from haulout.notices.happenings import US, Happening
from haulout.notices.occupancy import Occupancy
from haulout.notices.prediction import NOT_YET, Prediction
from haulout.notices.readiness import readiness
from haulout.notices.timeliness import Plan, Timeliness, Verdict, judged
from haulout.notices.unattended_hooks import unattended, unattended_at

REMEMBERED = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What can differ from one installation to the next."""

    lead: timedelta = LEAD  # how long before its start a maintenance is due
    is_minded: bool = True  # somebody empties nodes for which maintenance is announced
    keeps: timedelta = timedelta(days=7)  # how long notices are kept that are over


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """The outcome of a look."""

    status: Status
    happenings: tuple[Happening, ...]
    next_look: datetime | None
    is_done_with: bool  # nobody needs the object any more


def planned(
    notice: MaintenanceNotice, finding: Finding, *, now: datetime, terms: Terms, predicted: Prediction | None = None
) -> tuple[Standing, Plan]:
    """Return how a notice stands, and what is planned; `predicted` is how long its node takes to be emptied."""
    before = notice.status
    prediction = _settled(notice, predicted)
    lead = max(terms.lead, prediction.takes) if prediction is not None else terms.lead
    found = standing(notice.spec, now=now, lead=lead)
    is_known = bool(before.phase) and before.start == notice.spec.start
    known_at = (before.start_known_at or notice.metadata.creation_timestamp) if is_known else None
    plan = Plan(
        notice=notice,
        node=finding.node,
        phase=found.phase,
        now=now,
        lead=lead,
        known_at=known_at or now,
        prediction=prediction,
        is_minded=terms.is_minded,
    )
    return found, plan


def reviewed(
    finding: Finding, standing: Standing, plan: Plan, *, terms: Terms, seen: Occupancy | None = None
) -> Review:
    """Return what to say about a notice; `seen` is what is left on its node."""
    notice, now, phase = plan.notice, plan.now, standing.phase
    timeliness = judged(plan, seen)
    ended_at = (notice.status.ended_at or now) if phase.is_over else None
    conditions = _conditions(finding, standing, plan, timeliness)
    happenings = (
        *_happenings(finding, standing, plan, terms=terms),
        *_late(plan, timeliness),
        *_begun_early(notice),
        *unattended(notice, now=now),
    )
    status = msgspec.structs.replace(
        notice.status,
        phase=phase,
        node_name=finding.gone if finding.node is None else finding.node.name,
        provider_id=_machine(notice, finding),
        start=notice.spec.start,
        start_known_at=plan.known_at,
        empty_since=_empty_since(notice, timeliness, now=now),
        drain_at=drain_at(notice.spec, lead=plan.lead) if plan.is_minded and not phase.is_over else None,
        predicted_drain_seconds=0 if plan.prediction is None else round(plan.prediction.takes.total_seconds()),
        observed_generation=notice.metadata.generation,
        ended_at=ended_at,
        conditions=conditions,
        history=remembered(notice, happenings, now=now),
    )
    expires = None if ended_at is None else ended_at + terms.keeps
    unattended_from = unattended_at(notice)
    looks = (
        standing.until,
        expires,
        None if timeliness is None else timeliness.next_look,
        unattended_from if unattended_from is not None and unattended_from > now else None,
    )
    return Review(
        status=status,
        happenings=happenings,
        next_look=min((it for it in looks if it is not None), default=None),
        is_done_with=expires is not None and now >= expires,
    )


def remembered(
    notice: MaintenanceNotice, happenings: tuple[Happening, ...], *, now: datetime
) -> tuple[HistoryEntry, ...]:
    """Return the history with what happened now."""
    entries = (HistoryEntry(time=now, who=it.who, what=it.what) for it in happenings)
    return (*notice.status.history, *entries)[-REMEMBERED:]


def with_condition(status: Status, condition: StatusCondition, *, now: datetime) -> tuple[StatusCondition, ...]:
    """Return the conditions with this one, which is as old as what it says."""
    before = next((it for it in status.conditions if it.type == condition.type), None)
    since = before.last_transition_time if before is not None and before.status == condition.status else now
    kept = [it for it in status.conditions if it.type != condition.type]
    kept.append(msgspec.structs.replace(condition, last_transition_time=since))
    return tuple(sorted(kept, key=lambda it: it.type))  # whoever writes them, the order is the same


def _settled(notice: MaintenanceNotice, predicted: Prediction | None) -> Prediction | None:
    """Return the prediction that counts: one by which a maintenance fell due is not changed any more."""
    before = notice.status
    kept = timedelta(seconds=before.predicted_drain_seconds)
    is_due = before.phase in (Phase.DUE, Phase.ACTIVE) and before.start == notice.spec.start
    if predicted is NOT_YET or (is_due and kept):
        why = predicted.why if predicted not in (None, NOT_YET) else f"it is expected to take {duration.short(kept)}"
        return Prediction(kept, why) if kept else None
    return predicted


def _happenings(finding: Finding, found: Standing, plan: Plan, *, terms: Terms) -> Iterator[Happening]:
    spec, before, lead = plan.notice.spec, plan.notice.status, plan.lead
    who = spec.source or US
    about = f"{spec.kind} ({spec.reason})" if spec.reason else spec.kind
    if not before.phase:
        yield Happening("MaintenanceAnnounced", f"{about} is announced, {_when(spec.start)}", who)
    elif spec.start != before.start:
        yield Happening(
            "MaintenanceMoved", f"{about} is moved: it was {_when(before.start)}, now {_when(spec.start)}", who
        )
    known = before.condition(NoticeCondition.NODE_FOUND)
    was_found = known is not None and known.status == "True"
    if finding.node is not None and (finding.node.name != before.node_name or not was_found):
        yield Happening("NodeFound", f"this is about node {finding.node.name}: {finding.why}")
    elif finding.node is None and was_found:
        yield Happening("NodeGone", f"node {before.node_name} is gone: {finding.why}", is_bad=True)
    if _is_earlier(plan, terms) and before.drain_at != drain_at(spec, lead=lead):
        why = "" if plan.prediction is None else plan.prediction.why
        what = f"the node is emptied {duration.short(lead)} before, instead of {duration.short(terms.lead)}: {why}"
        yield Happening("DrainStartsEarlier", what)
    if found.phase != before.phase and (before.phase or found.phase is not Phase.PLANNED):
        is_bad = found.phase is Phase.MISSED
        yield Happening(f"Maintenance{found.phase}", f"{found.phase}: {found.why}", is_bad=is_bad)


def _machine(notice: MaintenanceNotice, finding: Finding) -> str:
    """Return the machine of a node that is named, so that another under the same name is not taken for it."""
    if finding.node is not None:
        return finding.node.spec.provider_id if notice.spec.node_name else ""
    return notice.status.provider_id if finding.gone else ""


def _is_earlier(plan: Plan, terms: Terms) -> bool:
    usual = drain_at(plan.notice.spec, lead=terms.lead)
    is_pending = plan.phase in (Phase.PLANNED, Phase.DUE)
    return is_pending and plan.lead > terms.lead and usual is not None and plan.now < usual


def _late(plan: Plan, found: Timeliness | None) -> Iterator[Happening]:
    if found is None or found.is_on_time is not False:
        return
    if found.reason is Verdict.OCCUPIED:
        yield Happening("MaintenanceBeganOnOccupiedNode", f"not empty in time: {found.message}", is_bad=True)
    elif plan.before is None or plan.before.status != "False":
        yield Happening("MaintenanceWillBeLate", f"will not be empty in time: {found.message}", is_bad=True)


def _empty_since(notice: MaintenanceNotice, found: Timeliness | None, *, now: datetime) -> datetime | None:
    if found is None or found.reason is Verdict.PODS_NOT_SEEN:
        return notice.status.empty_since
    return (notice.status.empty_since or now) if found.reason is Verdict.EMPTY else None


def _begun_early(notice: MaintenanceNotice) -> Iterator[Happening]:
    early, said = early_of(notice), notice.status.condition(NoticeCondition.EARLY_START)
    if early is None or (said is not None and (said.reason, said.message) == (early.answer, early.said)):
        return
    is_answer = early.answer is not Answer.ASKING
    who = notice.spec.source if is_answer else US
    yield Happening(f"EarlyStart{early.answer}", early.said, who, is_bad=early.answer is Answer.REFUSED)


def _conditions(
    finding: Finding, found: Standing, plan: Plan, timeliness: Timeliness | None
) -> tuple[StatusCondition, ...]:
    said = (_on_time(timeliness), emptied(plan, timeliness), _early_start(plan.notice), _node_found(finding))
    status = _with_conditions(plan, plan.notice.status, said)
    summary = readiness(plan.notice, finding, found, status.condition(NoticeCondition.ON_TIME)).conditions()
    others = {NoticeCondition.RECONCILING, NoticeCondition.STALLED} - {it.type for it in summary}
    kept = tuple(it for it in status.conditions if it.type not in others)
    return _with_conditions(plan, msgspec.structs.replace(status, conditions=kept), summary).conditions


def _with_conditions(plan: Plan, status: Status, said: Iterable[StatusCondition | None]) -> Status:
    generation = plan.notice.metadata.generation
    for each in said:
        if each is not None:
            about = msgspec.structs.replace(each, observed_generation=generation)
            status = msgspec.structs.replace(status, conditions=with_condition(status, about, now=plan.now))
    return status


def _on_time(found: Timeliness | None) -> StatusCondition | None:
    if found is None:
        return None
    return StatusCondition(
        type=NoticeCondition.ON_TIME, status=found.status, reason=found.reason, message=found.message
    )


def _early_start(notice: MaintenanceNotice) -> StatusCondition | None:
    early = early_of(notice)
    if early is None:
        return None
    told = {Answer.AGREED: "True", Answer.REFUSED: "False"}.get(early.answer, "Unknown")
    return StatusCondition(type=NoticeCondition.EARLY_START, status=told, reason=early.answer, message=early.said)


def _node_found(finding: Finding) -> StatusCondition:
    return StatusCondition(
        type=NoticeCondition.NODE_FOUND,
        status=str(finding.node is not None),
        reason="Found" if finding.node is not None else "NotFound",
        message=finding.why,
    )


def _when(start: datetime | None) -> str:
    return "at any moment" if start is None else f"not before {start:%Y-%m-%d %H:%M} UTC"
