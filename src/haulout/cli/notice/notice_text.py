"""Output of `haulout notice list` and `haulout notice show`: text, JSON or YAML."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import NoReturn

import click
import msgspec

from haulout.api.maintenancenotice import (
    MAINTENANCE_NOTICES,
    MaintenanceKind,
    MaintenanceNotice,
    NoticeCondition,
    NoticeHistoryEntry,
    NoticePhase,
)
from haulout.api.objects import Condition
from haulout.cli.cordon_owners import format_elapsed
from haulout.cli.notice.notice_view import (
    NoticeList,
    NoticeQuery,
    NoticeView,
    get_notice,
    lead_time_of,
    list_notices,
    view_of,
)
from haulout.cli.output import (
    OutputLine,
    column_widths,
    format_pairs,
    format_row,
    format_table,
    printable,
    to_json,
    to_yaml,
)
from haulout.cli.times import format_instant, format_relative, format_timestamp
from haulout.errors import KubeError
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.reflector import ListWatch

HEADER = ("NAME", "NODE", "KIND", "PHASE", "START (UTC)", "END (UTC)", "DRAIN AT (UTC)", "ON TIME", "SOURCE")
WIDE_HEADER = (*HEADER, "ID", "DEADLINE (UTC)", "MACHINE", "REASON")
# Maximum cell widths, where they are known: for tables that grow by lines.
WIDEST_CELLS = (
    "",
    "",
    "Terminate",
    "Cancelled",
    "0000-00-00 00:00:00 (in 59m59s)",
    *("0000-00-00 00:00:00",) * 2,
    *("",) * 6,
)
_COLOURS = {
    NoticePhase.DUE: "yellow",
    NoticePhase.ACTIVE: "cyan",
    NoticePhase.COMPLETED: "green",
    NoticePhase.MISSED: "red",
}
_ON_TIME = {None: "-", True: "yes", False: "no"}
_FREEZE_TEXT = "not by default: a Freeze takes seconds"

# All notices


def table_lines(result: NoticeList, *, is_wide: bool = False, width: int | None = None) -> Iterator[str]:
    """Yield a line per notice; nothing if there is none."""
    if result.views:
        header = WIDE_HEADER if is_wide else HEADER
        yield from format_table([header, *(table_row(view, is_wide=is_wide) for view in result.views)], width=width)


def empty_message(result: NoticeList, *, nodes: Sequence[str]) -> str:
    """Return the message for an empty result."""
    node_text = f" for node {' or '.join(nodes)}" if nodes else ""
    over = f"; --all shows {result.over} that have ended" if result.over > 1 else "; --all shows 1 that has ended"
    return f"Nothing is announced{node_text}{over if result.over else ''}."


def table_row(view: NoticeView, *, is_wide: bool = False) -> tuple[str, ...]:
    spec = view.notice.spec
    cells = (
        printable(view.notice.name),
        printable(view.node) or "-",
        printable(spec.kind),
        click.style(view.phase, fg=_COLOURS.get(view.phase)) if view.phase in _COLOURS else str(view.phase),
        "any moment"
        if spec.start is None
        else f"{format_timestamp(spec.start)} ({format_relative(spec.start, now=view.now)})",
        _timestamp_or_dash(spec.end),
        "at once" if view.drains_at_once else _timestamp_or_dash(view.drain_at),
        click.style("no", fg="red", bold=True) if view.is_on_time is False else _ON_TIME[view.is_on_time],
        printable(spec.source) or "-",
    )
    if not is_wide:
        return cells
    more = (spec.notice_id, _timestamp_or_dash(spec.deadline), spec.provider_id, spec.reason)
    return *cells, *(printable(cell) or "-" for cell in more)


def _timestamp_or_dash(instant: datetime | None) -> str:
    return "-" if instant is None else format_timestamp(instant)


# One notice


def detail_lines(view: NoticeView) -> Iterator[str]:
    yield from format_pairs([(click.style(title, bold=True), text) for title, text in _facts(view)])
    history = view.notice.status.history
    if history:
        yield ""
        yield click.style("History (UTC)", bold=True)
        yield from format_table([_history_row(entry) for entry in history])


def _facts(view: NoticeView) -> Iterator[tuple[str, str]]:
    notice, spec, now = view.notice, view.notice.spec, view.now
    yield "Notice", notice.name
    yield "Kind", spec.kind + (f": {spec.reason}" if spec.reason else "")
    if spec.description:
        yield "Description", " ".join(spec.description.split())
    yield "Node", _node_text(view)
    if spec.provider_id:
        yield "Machine", spec.provider_id + (f", name {spec.machine_name}" if spec.machine_name else "")
    yield "Phase", f"{view.phase}: {view.phase_status.message}"
    yield "Start", "at any moment" if spec.start is None else f"{format_instant(spec.start, now=now)}, not before"
    yield "End", "unknown" if spec.end is None else f"{format_instant(spec.end, now=now)}, expected"
    if spec.deadline is not None:
        yield "Deadline", f"{format_instant(spec.deadline, now=now)}: the latest start"
    if not view.phase.is_over:
        yield "Drain due", drain_text(view) + lead_time_text(view)
    yield from _condition_facts(view)
    yield "Source", f"{spec.source or 'unknown'}" + (f", ID {spec.notice_id}" if spec.notice_id else "")
    yield "Can be moved", "yes: the source accepts requests for another time" if spec.reschedulable else "no"
    if not view.is_observed:
        yield "Operator", "has not processed the latest change: is it running?"


def _node_text(view: NoticeView) -> str:
    found = view.notice.status.condition(NoticeCondition.NODE_FOUND)
    why = "" if found is None or not found.message else f": {found.message}"
    if not view.node:
        return f"not known{why or ' yet'}"
    is_plain = bool(view.notice.spec.node_name) and found is not None and found.status == "True"
    return view.node if is_plain else f"{view.node}{why}"


def _condition_facts(view: NoticeView) -> Iterator[tuple[str, str]]:
    on_time = view.notice.status.condition(NoticeCondition.ON_TIME)
    if on_time is not None and not view.phase.is_over:
        answer = {"True": "yes", "False": "no"}.get(on_time.status, "unknown")
        yield "On time", answer + (f": {on_time.message}" if on_time.message else "")
    shown = (NoticeCondition.NODE_FOUND, NoticeCondition.ON_TIME)
    for condition in view.notice.status.conditions:
        if condition.type not in shown:
            yield printable(condition.type), _condition_text(condition)


def _condition_text(condition: Condition) -> str:
    answer = {"True": "yes", "False": "no"}.get(condition.status, condition.status or "unknown")
    why = ": ".join(filter(None, (condition.reason, condition.message)))
    return f"{answer}, {why}" if why else answer


def drain_text(view: NoticeView) -> str:
    """Return in words when the node is drained; the maintenance must not be over."""
    drain_at = view.drain_at
    if view.notice.spec.kind == MaintenanceKind.FREEZE:
        return _FREEZE_TEXT
    if drain_at is None:
        return "at once"
    return f"{'from' if drain_at > view.now else 'since'} {format_instant(drain_at, now=view.now)}"


def lead_time_text(view: NoticeView) -> str:
    """Return in words how long before the start the node is drained; "" if at once."""
    if view.drain_at is None or view.drain_at <= view.now:
        return ""
    return f", {format_elapsed(lead_time_of(view.notice))} before the start"


def summary_line(view: NoticeView) -> str:
    spec = view.notice.spec
    about = f"{spec.kind} ({spec.reason})" if spec.reason else spec.kind
    if spec.start is None:
        about += " at any moment"
    else:
        about += f" {'since' if view.phase is NoticePhase.ACTIVE else 'at'} {format_instant(spec.start, now=view.now)}"
    late_text = ", will not be empty in time" if view.is_on_time is False else ""
    return f"{about}{_drain_summary(view)}{late_text}; notice {view.notice.name}"


def _drain_summary(view: NoticeView) -> str:
    if view.notice.spec.kind == MaintenanceKind.FREEZE:
        return ", by default not drained"
    return "" if view.phase is NoticePhase.ACTIVE else f", drain due {drain_text(view)}"


def _history_row(entry: NoticeHistoryEntry) -> tuple[str, str, str]:
    return _timestamp_or_dash(entry.time), printable(entry.reporter) or "-", printable(entry.message)


# JSON and YAML


class _Json(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    pass


class NoticeJson(_Json, frozen=True):
    """A notice in JSON."""

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
    phase_message: str
    start: datetime | None
    end: datetime | None
    deadline: datetime | None
    drain_at: datetime | None
    on_time: bool | None
    reschedulable: bool
    created: datetime | None
    ended_at: datetime | None
    observed: bool
    conditions: tuple[Condition, ...]
    history: tuple[NoticeHistoryEntry, ...]


class _FoundJson(_Json, frozen=True):
    notices: tuple[NoticeJson, ...]
    notes: tuple[str, ...]


def to_document(result: NoticeList) -> _FoundJson:
    """Return the document that `haulout notice list --help` describes."""
    return _FoundJson(notices=tuple(map(notice_json, result.views)), notes=(*result.notes, *result.unknown_nodes))


def notice_json(view: NoticeView) -> NoticeJson:
    notice, spec = view.notice, view.notice.spec
    return NoticeJson(
        name=notice.name,
        node=view.node,
        machine=spec.provider_id,
        kind=spec.kind,
        reason=spec.reason,
        description=spec.description,
        source=spec.source,
        id=spec.notice_id,
        stage=spec.stage,
        phase=view.phase,
        phase_message=view.phase_status.message,
        start=spec.start,
        end=spec.end,
        deadline=spec.deadline,
        drain_at=view.drain_at,
        on_time=view.is_on_time,
        reschedulable=spec.reschedulable,
        created=notice.metadata.creation_timestamp,
        ended_at=notice.status.ended_at,
        observed=view.is_observed,
        conditions=notice.status.conditions,
        history=notice.status.history,
    )


async def watch_notices(
    client: Client, query: NoticeQuery, initial: Sequence[NoticeView], *, show: Callable[[NoticeView], None]
) -> NoReturn:
    """Call `show` for each selected notice whenever its visible state changes, until cancelled."""
    last = {view.notice.name: _visible_state(view) for view in initial}
    events: asyncio.Queue[MaintenanceNotice] = asyncio.Queue()
    cache: Informer[MaintenanceNotice] = Informer(client, ListWatch(MAINTENANCE_NOTICES), transform=as_is)
    cache.subscribe(lambda _, new: None if new is None else events.put_nowait(new))
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(cache.run())
            while True:
                changed = view_of(await events.get(), now=client.clock.now())
                name = changed.notice.name
                is_selected = name in last or query.matches(changed)  # a notice that was shown once stays selected
                if is_selected and last.get(name) != _visible_state(changed):
                    last[name] = _visible_state(changed)
                    show(changed)
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None


def _visible_state(view: NoticeView) -> tuple[object, ...]:
    return view.node, view.phase, view.drain_at, view.is_on_time, view.notice.spec


async def print_notice(client: Client, name: str, *, output: str) -> None:
    view = view_of(await get_notice(client, name), now=client.clock.now())
    match output:
        case "json":
            click.echo(to_json(notice_json(view)))
        case "yaml":
            click.echo(to_yaml(notice_json(view)), nl=False)
        case _:
            for line in detail_lines(view):
                click.echo(line)


async def print_notices(client: Client, query: NoticeQuery, *, output: str) -> NoticeList:
    result = await list_notices(client, query)
    match output:
        case "json":
            click.echo(to_json(to_document(result)))
        case "yaml":
            click.echo(to_yaml(to_document(result)), nl=False)
        case "name":
            for view in result.views:
                OutputLine(f"maintenancenotice.haulout.dev/{view.notice.name}", is_result=True).print()
        case _:
            for line in table_lines(result, is_wide=output == "wide"):
                click.echo(line)
            _print_notes(result, query)
    for problem in result.unknown_nodes:
        OutputLine(f"haulout: {problem}").print()
    return result


async def watch_and_print(client: Client, query: NoticeQuery, *, output: str) -> NoReturn:
    """Print the selected notices and their changes, until cancelled."""
    result = await list_notices(client, query)
    if result.unknown_nodes:
        raise KubeError(result.unknown_nodes[0])
    is_wide = output == "wide"
    header = WIDE_HEADER if is_wide else HEADER
    rows = [table_row(view, is_wide=is_wide) for view in result.views]
    widths = column_widths([header, WIDEST_CELLS[: len(header)], *rows])
    for row in (header, *rows):
        click.echo(format_row(row, widths))
    _print_notes(result, query)
    await watch_notices(
        client,
        query,
        result.views,
        show=lambda changed: click.echo(format_row(table_row(changed, is_wide=is_wide), widths)),
    )


def _print_notes(result: NoticeList, query: NoticeQuery) -> None:
    if not result.views and not result.unknown_nodes:
        OutputLine(empty_message(result, nodes=query.nodes)).print()
    for note in result.notes:
        OutputLine(note).print()
