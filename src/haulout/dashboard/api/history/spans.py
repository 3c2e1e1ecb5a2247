"""Time spans of maintenance on a node: past, current and planned. Pure.

    within(all_spans(record.entries, current, at=at), start, end)

A history consists of chains: each entry of a profile or maintenance begins where the previous one led. So a profile was
in a state from the entry that led there until the next entry, and the first remaining entry says since when it was in
its initial state. The cluster itself provides what is not over (`CurrentState`), and may know more: the history may be
off or lag behind.

Entries keep the order of the record, whatever their times say. If a clock was set back, a span has zero length and says
so.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from haulout.api.maintenancenotice import MaintenanceNotice, NoticeCondition, NoticePhase
from haulout.api.maintenancerecord import ENDED, DrainFacts, Entry
from haulout.api.nodemaintenance import NodeMaintenance
from haulout.controllers.profiles.plugin import State
from haulout.core import duration
from haulout.core.text import format_count
from haulout.dashboard.api.notices import phase_of
from haulout.dashboard.api.types import DrainSummary, Span, SpanKind

_PROFILE, _ORDER = "profile/", "NodeMaintenance/"
_KIND_ORDER = tuple(SpanKind)
_PLANNED = "planned"
_RUNNING = "running"
_SET_BACK = "the clock was set back meanwhile: the duration is unknown"
_MAX_DURATION = timedelta(days=3650)  # clamps absurd values in a record


@dataclass(frozen=True, slots=True)
class ProfileStatus:
    """The state of a profile, from the annotation of the node."""

    profile: str
    state: str
    since: datetime | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentState:
    """The current and planned maintenance of a node."""

    profiles: Sequence[ProfileStatus] = ()
    notices: Sequence[MaintenanceNotice] = ()
    orders: Sequence[NodeMaintenance] = ()
    drains: Sequence[DrainSummary] = ()


def all_spans(entries: Sequence[Entry], current: CurrentState, *, at: datetime) -> Iterator[Span]:
    by_owner: dict[str, list[Entry]] = {}
    for entry in entries:
        by_owner.setdefault(entry.object, []).append(entry)
    profiles = {f"{_PROFILE}{item.profile}": item for item in current.profiles}
    orders = {f"{_ORDER}{item.name}": item for item in current.orders}
    for what in dict.fromkeys((*by_owner, *profiles, *orders)):
        found = by_owner.get(what, [])
        if what.startswith(_PROFILE):
            yield from _profile_spans(what.removeprefix(_PROFILE), found, profiles.get(what))
        elif what.startswith(_ORDER):
            yield from _maintenance_spans(what.removeprefix(_ORDER), found, orders.get(what), at=at)
        else:
            yield from _holder_spans(what, found)
        yield from _past_drain_spans(found)
    for drain in current.drains:
        yield from _running_drain_spans(drain, at=at)
    for notice in current.notices:
        yield from notice_spans(notice, at=at)


def within(spans: Iterable[Span], start: datetime, end: datetime) -> tuple[Span, ...]:
    """Return the spans that overlap a time range, ordered by their start."""
    visible = [span for span in spans if span.start < end and (span.end is None or span.end > start)]
    return tuple(sorted(visible, key=lambda span: (span.start, _KIND_ORDER.index(span.kind), span.title)))


# Profiles


def _profile_spans(name: str, entries: Sequence[Entry], current: ProfileStatus | None) -> Iterator[Span]:
    changes = [entry for entry in entries if entry.to]
    if changes and changes[0].since is not None:
        yield from _state_spans(name, changes[0].from_, changes[0].since, changes[0].time)
    for entry, next_entry in pairwise(changes):
        yield from _state_spans(name, entry.to, entry.time, next_entry.time, entry.reason)
    last = changes[-1] if changes else None
    if current is None:
        if last is not None and last.to != State.OPERATIONAL:
            yield from _state_spans(name, last.to, last.time, last.time)  # the profile left the node at an unknown time
        return
    recorded = {(entry.to, entry.time) for entry in changes}
    is_recorded = current.since is None or (current.state, current.since) in recorded
    if last is not None and (last.to == current.state or is_recorded):
        yield from _state_spans(name, current.state, last.time, None, current.why or last.reason)
        return
    if last is not None:  # later entries are not written yet
        yield from _state_spans(name, last.to, last.time, current.since, last.reason)
    if current.since is not None:
        yield from _state_spans(name, current.state, current.since, None, current.why)


def _state_spans(name: str, state: str, start: datetime, end: datetime | None, why: str = "") -> Iterator[Span]:
    if state in ("", State.OPERATIONAL):
        return
    if end is not None and end < start:
        start, why = end, "; ".join(filter(None, (why, _SET_BACK)))
    yield Span(kind=SpanKind.PROFILE, title=name, start=start, end=end, state=state, message=why)


# NodeMaintenances


def _maintenance_spans(
    name: str, entries: Sequence[Entry], order: NodeMaintenance | None, *, at: datetime
) -> Iterator[Span]:
    """Yield a span per NodeMaintenance with this name: after one has ended, the next is another one."""
    finished, remaining = _split_finished(name, entries)
    yield from finished
    if order is not None and not _has_ended(order, entries):
        yield _open_maintenance_span(order, remaining[0] if remaining else None, at=at)
    elif remaining:  # deleted, and its end was not recorded
        yield _maintenance_span(name, remaining[0], remaining[-1], end=remaining[-1].time)


def _holder_spans(what: str, entries: Sequence[Entry]) -> Iterator[Span]:
    """Yield a span per ownership without an object."""
    finished, remaining = _split_finished(_owner_title(what), entries)
    yield from finished
    if remaining:
        yield _maintenance_span(_owner_title(what), remaining[0], remaining[-1], end=None)


def _split_finished(name: str, entries: Sequence[Entry]) -> tuple[list[Span], list[Entry]]:
    """Return the finished spans, and the entries after them."""
    finished: list[Span] = []
    remaining: list[Entry] = []
    for entry in (entry for entry in entries if entry.to):
        remaining.append(entry)
        if entry.to == ENDED:
            finished.append(_maintenance_span(name, remaining[0], entry, end=entry.time))
            remaining = []
    return finished, remaining


def _maintenance_span(name: str, first: Entry, last: Entry, *, end: datetime | None) -> Span:
    state = last.from_ if last.to == ENDED else last.to
    why = "; ".join(dict.fromkeys(filter(None, (first.reason, last.reason if last is not first else ""))))
    begin = first.since if first.to == ENDED and first.since is not None else first.time
    start = begin
    if end is not None and end < begin:
        start, why = end, "; ".join(filter(None, (why, _SET_BACK)))
    return Span(kind=SpanKind.MAINTENANCE, title=name, start=start, end=end, state=state, message=why)


def _open_maintenance_span(order: NodeMaintenance, first: Entry | None, *, at: datetime) -> Span:
    start = order.metadata.creation_timestamp or (at if first is None else first.time)
    return Span(
        kind=SpanKind.MAINTENANCE,
        title=order.name,
        start=start,
        end=order.metadata.deletion_timestamp,
        state=order.status.phase,
        message=order.spec.reason,
    )


def _has_ended(order: NodeMaintenance, entries: Sequence[Entry]) -> bool:
    """Return whether the history has the end of this NodeMaintenance (by uid)."""
    own_entries = [entry for entry in entries if entry.to and entry.instance == order.uid]
    if own_entries:
        return own_entries[-1].to == ENDED
    # Entries of older versions have no instance.
    created_at = order.metadata.creation_timestamp
    return (
        created_at is not None
        and order.is_being_deleted
        and any(entry.to == ENDED and entry.time >= created_at for entry in entries)
    )


# Drains


def _past_drain_spans(entries: Iterable[Entry]) -> Iterator[Span]:
    for entry in entries:
        if entry.drain is not None:
            yield Span(
                kind=SpanKind.DRAIN,
                title=_owner_title(entry.object),
                start=_shift(entry.time, -_duration(entry.drain.seconds)),
                end=entry.time,
                state=entry.result or entry.to,
                message=_drain_summary(entry.drain),
            )


def _running_drain_spans(drain: DrainSummary, *, at: datetime) -> Iterator[Span]:
    if drain.started is None or drain.is_done:
        return
    progress = f"{drain.removed} of {format_count(drain.total, 'pod')} gone" if drain.total else ""
    why = "; ".join(filter(None, (progress, drain.message)))
    yield Span(
        kind=SpanKind.DRAIN,
        title=_owner_title(drain.owner),
        start=min(drain.started, at),
        end=None,
        state=_RUNNING,
        message=why,
    )


def _drain_summary(facts: DrainFacts) -> str:
    pods = format_count(facts.pods, "pod")
    text = f"{pods} removed in {duration.format_short(_duration(facts.seconds))}"
    if not facts.blocked_by:
        return text
    return f"{text}; {facts.blocked_by} blocked it for {duration.format_short(_duration(facts.blocked_seconds))}"


def _owner_title(owner: str) -> str:
    """Return the initiator of a drain: `profile os`, `NodeMaintenance patch-n1`."""
    return owner.replace("/", " ", 1)


# Notices


def notice_spans(notice: MaintenanceNotice, *, at: datetime) -> Iterator[Span]:
    """Yield the span of an announced maintenance, and of the planned drain before it."""
    spec, status, phase = notice.spec, notice.status, phase_of(notice, now=at)
    start = spec.start or notice.metadata.creation_timestamp or at
    end = _end_of(notice, phase)
    if end is not None and end < start:
        start = end
    title = f"{spec.kind}: {spec.reason or notice.name}"
    yield Span(
        kind=SpanKind.NOTICE,
        title=title,
        start=start,
        end=end,
        state=phase,
        message=_notice_text(notice),
    )
    drain_at = status.drain_at
    if phase in (NoticePhase.PLANNED, NoticePhase.DUE) and drain_at is not None and at <= drain_at < start:
        predicted = _duration(status.predicted_drain_seconds)
        yield Span(
            kind=SpanKind.DRAIN,
            title=f"for {title}",
            start=drain_at,
            end=min(_shift(drain_at, predicted), start) if predicted else start,
            state=_PLANNED,
            message=f"it is expected to take {duration.format_short(predicted)}" if predicted else "",
        )


def _end_of(notice: MaintenanceNotice, phase: NoticePhase) -> datetime | None:
    spec, status = notice.spec, notice.status
    if not phase.is_over:
        return spec.end
    ends = [instant for instant in (spec.end, status.ended_at) if instant is not None]
    if phase is NoticePhase.MISSED:
        return spec.end or status.ended_at
    return min(ends, default=spec.start or notice.metadata.creation_timestamp)


def _notice_text(notice: MaintenanceNotice) -> str:
    on_time = notice.status.condition(NoticeCondition.ON_TIME)
    return "; ".join(filter(None, (notice.spec.description, "" if on_time is None else on_time.message)))


def _duration(seconds: float) -> timedelta:
    return timedelta(seconds=round(min(seconds, _MAX_DURATION.total_seconds()))) if seconds > 0 else timedelta()


def _shift(instant: datetime, by: timedelta) -> datetime:
    try:
        return instant + by
    except OverflowError:  # the year 1 or 9999
        return instant
