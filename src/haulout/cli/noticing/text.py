"""What `haulout notice` says: to people, or to programs."""

from collections.abc import Iterator, Sequence
from datetime import datetime

import click
import msgspec

from haulout.cli.holders import elapsed
from haulout.cli.noticing.finding import Found
from haulout.cli.noticing.sights import Sight, lead_of
from haulout.cli.tables import columns
from haulout.cli.terminal import aligned, printable
from haulout.cli.times import away, moment, told
from haulout.kinds.notice import HistoryEntry, Kind, NoticeCondition, Phase
from haulout.kube.objects import Condition

HEADER = ("NAME", "NODE", "KIND", "PHASE", "START (UTC)", "END (UTC)", "DRAIN AT (UTC)", "ON TIME", "SOURCE")
WIDE_HEADER = (*HEADER, "ID", "DEADLINE (UTC)", "MACHINE", "REASON")
# As wide as a cell gets, where that is known: for tables that lines are added to.
WIDEST = (
    "",
    "",
    "Terminate",
    "Cancelled",
    "0000-00-00 00:00:00 (in 59m59s)",
    *("0000-00-00 00:00:00",) * 2,
    *("",) * 6,
)
_COLOURS = {Phase.DUE: "yellow", Phase.ACTIVE: "cyan", Phase.COMPLETED: "green", Phase.MISSED: "red"}
_ON_TIME = {None: "-", True: "yes", False: "no"}
_FREEZE = "not by default: a Freeze takes seconds"


# All of them


def table(found: Found, *, is_wide: bool = False, width: int | None = None) -> Iterator[str]:
    """Yield a line for each notice; nothing if there is none."""
    if found.sights:
        header = WIDE_HEADER if is_wide else HEADER
        yield from columns([header, *(row(it, is_wide=is_wide) for it in found.sights)], width=width)


def nothing(found: Found, *, nodes: Sequence[str]) -> str:
    """Return how to say that there is nothing to show."""
    where = f" for node {' or '.join(nodes)}" if nodes else ""
    over = f"; {found.over} that are over: --all shows them" if found.over > 1 else "; --all shows one that is over"
    return f"Nothing is announced{where}{over if found.over else ''}."


def row(seen: Sight, *, is_wide: bool = False) -> tuple[str, ...]:
    """Return the cells of one notice."""
    spec = seen.notice.spec
    cells = (
        printable(seen.notice.name),
        printable(seen.node) or "-",
        printable(spec.kind),
        click.style(seen.phase, fg=_COLOURS.get(seen.phase)) if seen.phase in _COLOURS else str(seen.phase),
        "any moment" if spec.start is None else f"{moment(spec.start)} ({away(spec.start, now=seen.now)})",
        _moment(spec.end),
        "at once" if seen.is_drained_at_once else _moment(seen.drain_at),
        click.style("no", fg="red", bold=True) if seen.is_on_time is False else _ON_TIME[seen.is_on_time],
        printable(spec.source) or "-",
    )
    if not is_wide:
        return cells
    more = (spec.notice_id, _moment(spec.deadline), spec.provider_id, spec.reason)
    return *cells, *(printable(it) or "-" for it in more)


def _moment(when: datetime | None) -> str:
    return "-" if when is None else moment(when)


# One


def details(seen: Sight) -> Iterator[str]:
    """Yield all there is to say about one notice."""
    yield from aligned([(click.style(title, bold=True), text) for title, text in _facts(seen)])
    history = seen.notice.status.history
    if history:
        yield ""
        yield click.style("History (UTC)", bold=True)
        yield from columns([_entry(it) for it in history])


def _facts(seen: Sight) -> Iterator[tuple[str, str]]:
    notice, spec, now = seen.notice, seen.notice.spec, seen.now
    yield "Notice", notice.name
    yield "Kind", spec.kind + (f": {spec.reason}" if spec.reason else "")
    if spec.description:
        yield "Description", " ".join(spec.description.split())
    yield "Node", _node(seen)
    if spec.provider_id:
        yield "Machine", spec.provider_id + (f", called {spec.machine_name}" if spec.machine_name else "")
    yield "Phase", f"{seen.phase}: {seen.standing.why}"
    yield "Start", "at any moment" if spec.start is None else f"{told(spec.start, now=now)}, not before"
    yield "End", "nobody has said" if spec.end is None else f"{told(spec.end, now=now)}, expected"
    if spec.deadline is not None:
        yield "Deadline", f"{told(spec.deadline, now=now)}: the latest that it can begin"
    if not seen.phase.is_over:
        yield "Drain due", draining(seen) + lead(seen)
    yield from _conditions(seen)
    yield "Source", f"{spec.source or 'nobody says'}" + (f", which calls it {spec.notice_id}" if spec.notice_id else "")
    yield "Can be moved", "yes: the source can be asked for another time" if spec.reschedulable else "no"
    if not seen.is_looked_at:
        yield "Operator", "has not looked at it as it is now: does it run?"


def _node(seen: Sight) -> str:
    found = seen.notice.status.condition(NoticeCondition.NODE_FOUND)
    why = "" if found is None or not found.message else f": {found.message}"
    if not seen.node:
        return f"not known{why or ' yet'}"
    is_plain = bool(seen.notice.spec.node_name) and found is not None and found.status == "True"
    return seen.node if is_plain else f"{seen.node}{why}"


def _conditions(seen: Sight) -> Iterator[tuple[str, str]]:
    on_time = seen.notice.status.condition(NoticeCondition.ON_TIME)
    if on_time is not None and not seen.phase.is_over:
        answer = {"True": "yes", "False": "no"}.get(on_time.status, "nobody knows")
        yield "On time", answer + (f": {on_time.message}" if on_time.message else "")
    shown = (NoticeCondition.NODE_FOUND, NoticeCondition.ON_TIME)
    for it in seen.notice.status.conditions:
        if it.type not in shown:
            yield printable(it.type), _condition(it)


def _condition(condition: Condition) -> str:
    answer = {"True": "yes", "False": "no"}.get(condition.status, condition.status or "nobody knows")
    why = ": ".join(filter(None, (condition.reason, condition.message)))
    return f"{answer}, {why}" if why else answer


def draining(seen: Sight) -> str:
    """Return when the node is emptied, in words, of a maintenance that is not over."""
    when = seen.drain_at
    if seen.notice.spec.kind == Kind.FREEZE:
        return _FREEZE
    if when is None:
        return "at once"
    return f"{'from' if when > seen.now else 'since'} {told(when, now=seen.now)}"


def lead(seen: Sight) -> str:
    """Return how long before its start the node is emptied, in words; nothing if that is at once."""
    if seen.drain_at is None or seen.drain_at <= seen.now:
        return ""
    return f", {elapsed(lead_of(seen.notice))} before it begins"


def announced(seen: Sight) -> str:
    """Return what is announced, in a line."""
    spec = seen.notice.spec
    about = f"{spec.kind} ({spec.reason})" if spec.reason else spec.kind
    if spec.start is None:
        about += " at any moment"
    else:
        about += f" {'since' if seen.phase is Phase.ACTIVE else 'at'} {told(spec.start, now=seen.now)}"
    late = ", not empty in time" if seen.is_on_time is False else ""
    return f"{about}{_to_be_drained(seen)}{late}; notice {seen.notice.name}"


def _to_be_drained(seen: Sight) -> str:
    if seen.notice.spec.kind == Kind.FREEZE:
        return ", by default not drained"
    return "" if seen.phase is Phase.ACTIVE else f", to be drained {draining(seen)}"


def _entry(entry: HistoryEntry) -> tuple[str, str, str]:
    return _moment(entry.time), printable(entry.who) or "-", printable(entry.what)


# For programs


class _Json(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    pass


class NoticeJson(_Json, frozen=True):
    """A notice, as programs get it."""

    name: str
    node: str
    machine: str
    kind: str
    reason: str
    description: str
    source: str
    id: str
    stage: str
    phase: str
    why: str
    start: datetime | None
    end: datetime | None
    deadline: datetime | None
    drain_at: datetime | None
    on_time: bool | None
    reschedulable: bool
    created: datetime | None
    ended_at: datetime | None
    seen_by_operator: bool
    conditions: tuple[Condition, ...]
    history: tuple[HistoryEntry, ...]


class _FoundJson(_Json, frozen=True):
    notices: tuple[NoticeJson, ...]
    notes: tuple[str, ...]


def document(found: Found) -> _FoundJson:
    """Return what `haulout notice list --help` documents."""
    return _FoundJson(notices=tuple(map(notice_json, found.sights)), notes=(*found.notes, *found.unknown))


def notice_json(seen: Sight) -> NoticeJson:
    """Return one of them."""
    notice, spec = seen.notice, seen.notice.spec
    return NoticeJson(
        name=notice.name,
        node=seen.node,
        machine=spec.provider_id,
        kind=spec.kind,
        reason=spec.reason,
        description=spec.description,
        source=spec.source,
        id=spec.notice_id,
        stage=spec.stage,
        phase=seen.phase,
        why=seen.standing.why,
        start=spec.start,
        end=spec.end,
        deadline=spec.deadline,
        drain_at=seen.drain_at,
        on_time=seen.is_on_time,
        reschedulable=spec.reschedulable,
        created=notice.metadata.creation_timestamp,
        ended_at=notice.status.ended_at,
        seen_by_operator=seen.is_looked_at,
        conditions=notice.status.conditions,
        history=notice.status.history,
    )
