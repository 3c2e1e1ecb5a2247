"""What took, takes or will take a while on a node: spans on a time axis. Pure.

    within(all_spans(record.entries, now, at=at), start, end)

A history is made of chains: each entry of a thing begins where the one before it led. So a profile was in a state from
the entry that led there until the next one, and the first entry that is left says since when it was where it begins.
What is not over is told by the cluster itself (`Now`), which may know more: a history may be off, or lag behind.

Entries are taken in the order of the record, whatever their times say. Where a clock was set back, a span has no
length, and says so.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from haulout.core import duration
from haulout.history.record import ENDED, DrainFacts, Entry
from haulout.kinds.notice import MaintenanceNotice, NoticeCondition, Phase
from haulout.maintenance.resource import NodeMaintenance
from haulout.profiles.plugin import State
from haulout.profiles.words import counted
from haulout.web.api.notices import phase_of
from haulout.web.api.shapes import Drain, Span, SpanKind

_PROFILE, _ORDER = "profile/", "NodeMaintenance/"
_ORDERED = tuple(SpanKind)
_PLANNED = "planned"
_RUNNING = "running"
_SET_BACK = "the clock was set back meanwhile: how long it took is not known"
_LONGEST = timedelta(days=3650)  # whatever somebody wrote into a record


@dataclass(frozen=True, slots=True)
class Stands:
    """Where a profile stands with a node, by the node's own data."""

    profile: str
    state: str
    since: datetime | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """What goes on with a node, and what comes."""

    profiles: Sequence[Stands] = ()
    notices: Sequence[MaintenanceNotice] = ()
    orders: Sequence[NodeMaintenance] = ()
    drains: Sequence[Drain] = ()


def all_spans(entries: Sequence[Entry], now: Now, *, at: datetime) -> Iterator[Span]:
    """Yield all that is known of a node."""
    by_thing: dict[str, list[Entry]] = {}
    for entry in entries:
        by_thing.setdefault(entry.what, []).append(entry)
    profiles = {f"{_PROFILE}{it.profile}": it for it in now.profiles}
    orders = {f"{_ORDER}{it.name}": it for it in now.orders}
    for what in dict.fromkeys((*by_thing, *profiles, *orders)):
        found = by_thing.get(what, [])
        if what.startswith(_PROFILE):
            yield from _of_profile(what.removeprefix(_PROFILE), found, profiles.get(what))
        elif what.startswith(_ORDER):
            yield from _of_order(what.removeprefix(_ORDER), found, orders.get(what), at=at)
        else:
            yield from _of_holder(what, found)
        yield from _past_drains(found)
    for drain in now.drains:
        yield from _running_drain(drain, at=at)
    for notice in now.notices:
        yield from of_notice(notice, at=at)


def within(spans: Iterable[Span], start: datetime, end: datetime) -> tuple[Span, ...]:
    """Return those that are to be seen between two instants, in the order of their beginning."""
    seen = [it for it in spans if it.start < end and (it.end is None or it.end > start)]
    return tuple(sorted(seen, key=lambda it: (it.start, _ORDERED.index(it.kind), it.title)))


# Profiles


def _of_profile(name: str, entries: Sequence[Entry], stands: Stands | None) -> Iterator[Span]:
    changes = [it for it in entries if it.to]
    if changes and changes[0].since is not None:
        yield from _in_state(name, changes[0].from_, changes[0].since, changes[0].time)
    for it, following in pairwise(changes):
        yield from _in_state(name, it.to, it.time, following.time, it.why)
    last = changes[-1] if changes else None
    if stands is None:
        if last is not None and last.to != State.OPERATIONAL:
            yield from _in_state(name, last.to, last.time, last.time)  # the profile left the node, nobody knows when
        return
    recorded = {(it.to, it.time) for it in changes}
    is_recorded = stands.since is None or (stands.state, stands.since) in recorded
    if last is not None and (last.to == stands.state or is_recorded):
        yield from _in_state(name, stands.state, last.time, None, stands.why or last.why)
        return
    if last is not None:  # what came after was not written down yet
        yield from _in_state(name, last.to, last.time, stands.since, last.why)
    if stands.since is not None:
        yield from _in_state(name, stands.state, stands.since, None, stands.why)


def _in_state(name: str, state: str, start: datetime, end: datetime | None, why: str = "") -> Iterator[Span]:
    if state in ("", State.OPERATIONAL):
        return
    if end is not None and end < start:
        start, why = end, "; ".join(filter(None, (why, _SET_BACK)))
    yield Span(kind=SpanKind.PROFILE, title=name, start=start, end=end, state=state, why=why)


# Orders


def _of_order(name: str, entries: Sequence[Entry], order: NodeMaintenance | None, *, at: datetime) -> Iterator[Span]:
    """Yield a span for each order of this name: one that is made again after it ended is another one."""
    told, left = _in_turn(name, entries)
    yield from told
    if order is not None and not _has_ended(order, entries):
        yield _open_order(order, left[0] if left else None, at=at)
    elif left:  # it is gone, and how it ended was not written down
        yield _order(name, left[0], left[-1], end=left[-1].time)


def _of_holder(what: str, entries: Sequence[Entry]) -> Iterator[Span]:
    """Yield a span for each time that something without an object held the node, such as `ESX`."""
    told, left = _in_turn(_shown(what), entries)
    yield from told
    if left:
        yield _order(_shown(what), left[0], left[-1], end=None)


def _in_turn(name: str, entries: Sequence[Entry]) -> tuple[list[Span], list[Entry]]:
    """Return what is over, and what came after that."""
    told: list[Span] = []
    left: list[Entry] = []
    for it in (it for it in entries if it.to):
        left.append(it)
        if it.to == ENDED:
            told.append(_order(name, left[0], it, end=it.time))
            left = []
    return told, left


def _order(name: str, first: Entry, last: Entry, *, end: datetime | None) -> Span:
    state = last.from_ if last.to == ENDED else last.to
    why = "; ".join(dict.fromkeys(filter(None, (first.why, last.why if last is not first else ""))))
    begin = first.since if first.to == ENDED and first.since is not None else first.time
    start = begin
    if end is not None and end < begin:
        start, why = end, "; ".join(filter(None, (why, _SET_BACK)))
    return Span(kind=SpanKind.ORDER, title=name, start=start, end=end, state=state, why=why)


def _open_order(order: NodeMaintenance, first: Entry | None, *, at: datetime) -> Span:
    start = order.metadata.creation_timestamp or (at if first is None else first.time)
    return Span(
        kind=SpanKind.ORDER,
        title=order.name,
        start=start,
        end=order.metadata.deletion_timestamp,
        state=order.status.phase,
        why=order.spec.reason,
    )


def _has_ended(order: NodeMaintenance, entries: Sequence[Entry]) -> bool:
    """Tell whether the history knows already that this very order is over."""
    own = [it for it in entries if it.to and it.instance == order.uid]
    if own:
        return own[-1].to == ENDED
    # An older version wrote no instance.
    born = order.metadata.creation_timestamp
    return born is not None and order.is_leaving and any(it.to == ENDED and it.time >= born for it in entries)


# Drains


def _past_drains(entries: Iterable[Entry]) -> Iterator[Span]:
    for it in entries:
        if it.drain is not None:
            yield Span(
                kind=SpanKind.DRAIN,
                title=_shown(it.what),
                start=_shifted(it.time, -_lasting(it.drain.seconds)),
                end=it.time,
                state=it.result or it.to,
                why=_took(it.drain),
            )


def _running_drain(drain: Drain, *, at: datetime) -> Iterator[Span]:
    if drain.started is None or drain.is_done:
        return
    left = f"{drain.gone} of {counted(drain.total, 'pod')} gone" if drain.total else ""
    why = "; ".join(filter(None, (left, drain.words)))
    yield Span(
        kind=SpanKind.DRAIN, title=_shown(drain.by), start=min(drain.started, at), end=None, state=_RUNNING, why=why
    )


def _took(facts: DrainFacts) -> str:
    pods = counted(facts.pods, "pod")
    words = f"{pods} left in {duration.short(_lasting(facts.seconds))}"
    if not facts.blocked_by:
        return words
    return f"{words}; {facts.blocked_by} stood in the way for {duration.short(_lasting(facts.blocked_seconds))}"


def _shown(owner: str) -> str:
    """Return whose drain it was: `profile os`, `NodeMaintenance patch-n1`."""
    return owner.replace("/", " ", 1)


# Notices


def of_notice(notice: MaintenanceNotice, *, at: datetime) -> Iterator[Span]:
    """Yield when a maintenance is announced for, and when its node should be emptied before that."""
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
        why=_said(notice),
    )
    drain_at = status.drain_at
    if phase in (Phase.PLANNED, Phase.DUE) and drain_at is not None and at <= drain_at < start:
        takes = _lasting(status.predicted_drain_seconds)
        yield Span(
            kind=SpanKind.DRAIN,
            title=f"for {title}",
            start=drain_at,
            end=min(_shifted(drain_at, takes), start) if takes else start,
            state=_PLANNED,
            why=f"it is expected to take {duration.short(takes)}" if takes else "",
        )


def _end_of(notice: MaintenanceNotice, phase: Phase) -> datetime | None:
    spec, status = notice.spec, notice.status
    if not phase.is_over:
        return spec.end
    known = [it for it in (spec.end, status.ended_at) if it is not None]
    if phase is Phase.MISSED:
        return spec.end or status.ended_at
    return min(known, default=spec.start or notice.metadata.creation_timestamp)


def _said(notice: MaintenanceNotice) -> str:
    on_time = notice.status.condition(NoticeCondition.ON_TIME)
    return "; ".join(filter(None, (notice.spec.description, "" if on_time is None else on_time.message)))


def _lasting(seconds: float) -> timedelta:
    return timedelta(seconds=round(min(seconds, _LONGEST.total_seconds()))) if seconds > 0 else timedelta()


def _shifted(instant: datetime, by: timedelta) -> datetime:
    try:
        return instant + by
    except OverflowError:  # the year 1, or 9999
        return instant
