"""Output of `haulout history`: text, JSON or YAML."""

import shutil
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

import click
import msgspec

from haulout.api.maintenancerecord import GAP, DrainFacts, Entry
from haulout.cli import output
from haulout.cli.cordon_owners import format_elapsed
from haulout.cli.history.node_history import HistoryResult, NodeHistory, is_before_start
from haulout.cli.output import format_table, printable
from haulout.core.text import format_pod_count

_HEADER = ("TIME (UTC)", "DURATION", "OBJECT", "CHANGE", "REASON")
_WIDE_HEADER = ("TIME (UTC)", "DURATION", "OBJECT", "REQUESTED BY", "CHANGE", "RESULT", "REASON")
_STATES_BY_COLOUR = {
    "green": ("operational", "Ended"),
    "yellow": ("maintenance-required", "Running"),
    "cyan": ("in-maintenance", "Succeeded", "Drained"),
    "red": ("Failed", "TimedOut", "Refused", "DrainTimedOut", "DrainRefused", "LeaseLost", GAP),
}
_COLOUR_BY_STATE = {state: colour for colour, states in _STATES_BY_COLOUR.items() for state in states}


def terminal_width() -> int | None:
    """Return the width of the terminal; None if standard output is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def text_lines(result: HistoryResult, *, is_wide: bool = False, width: int | None = None) -> Iterator[str]:
    """Yield lines; the last column is cut to `width`."""
    for number, history in enumerate(result.nodes):
        if number:
            yield ""
        yield from _node_lines(history, is_titled=len(result.nodes) > 1, is_wide=is_wide, width=width)


def table_lines(histories: Sequence[NodeHistory], *, is_wide: bool = False, width: int | None = None) -> Iterator[str]:
    """Yield one table of all nodes, the newest last; the entries of each node keep their order."""
    rows = [
        (at, _table_cells(node_entries, entry, is_wide=is_wide))
        for node_entries in histories
        for at, entry in _with_sort_times(node_entries.entries)
    ]
    if not rows:
        yield "No node has entries in this period."
        return
    rows.sort(key=lambda timed: timed[0])
    time, *others = _WIDE_HEADER if is_wide else _HEADER
    yield from format_table([(time, "NODE", *others), *(cells for _, cells in rows)], width=width)


def _with_sort_times(entries: Sequence[Entry]) -> Iterator[tuple[datetime, Entry]]:
    """Yield entries with monotonic sort times, so that a clock set back does not reorder a node's entries."""
    latest = None
    for entry in entries:
        latest = entry.time if latest is None else max(latest, entry.time)
        yield latest, entry


def _table_cells(history: NodeHistory, entry: Entry, *, is_wide: bool) -> tuple[str, ...]:
    time, *others = _cells(entry, is_wide=is_wide)
    name = printable(history.node) if history.exists else f"{printable(history.node)} (deleted)"
    return time, name, *others


def _node_lines(history: NodeHistory, *, is_titled: bool, is_wide: bool, width: int | None) -> Iterator[str]:
    if is_titled:
        yield click.style(printable(f"Node {history.node}"), bold=True)
    if not history.entries:
        yield _empty_message(history)
        return
    if history.older:
        yield click.style(
            f"({history.older} older {_entries(history.older)} deleted: only the newest are kept)", dim=True
        )
    header = _WIDE_HEADER if is_wide else _HEADER
    rows = [_cells(entry, is_wide=is_wide) for entry in history.entries]
    yield from format_table([header, *rows], width=width)


def _empty_message(history: NodeHistory) -> str:
    name = printable(history.node)
    if history.left_out:
        return f"Node {name} has no entries in this period ({history.left_out} outside of it)."
    return f"Node {name} has no history yet."


def _entries(count: int) -> str:
    return "entry" if count == 1 else "entries"


def _cells(entry: Entry, *, is_wide: bool) -> tuple[str, ...]:
    time = f"{entry.time:%Y-%m-%d %H:%M:%S}"
    after = _after(entry)
    what = printable(entry.object.replace("/", " ", 1))
    if is_wide:
        return (
            time,
            after,
            what,
            printable(entry.requested_by) or "-",
            _change(entry),
            _coloured(entry.result) or "-",
            _why(entry),
        )
    return time, after, what, _change(entry), _why(entry)


def _after(entry: Entry) -> str:
    if entry.since is None:
        return "-"
    return "?" if is_before_start(entry) else format_elapsed(entry.time - entry.since)


def _change(entry: Entry) -> str:
    if not entry.to:
        return _coloured(entry.result) or "-"
    return f"{printable(entry.from_)} → {_coloured(entry.to)}" if entry.from_ else f"→ {_coloured(entry.to)}"


def _coloured(state: str) -> str:
    colour = _COLOUR_BY_STATE.get(state)
    return click.style(printable(state), fg=colour) if colour else printable(state)


def _why(entry: Entry) -> str:
    if entry.drain is None:
        return printable(entry.reason) or "-"
    why = "" if entry.reason.endswith(_drained_message(entry.drain)) else entry.reason  # the numbers already say it
    return printable("; ".join(filter(None, (_drain_facts(entry.drain), why))))


def _drained_message(drain: DrainFacts) -> str:
    return f"is drained: {format_pod_count(drain.pods)} removed"


def _drain_facts(drain: DrainFacts) -> str:
    text = f"{format_pod_count(drain.pods)} removed in {format_elapsed(timedelta(seconds=drain.seconds))}"
    if not drain.blocked_by:
        return text
    return f"{text}, blocked longest by {drain.blocked_by} ({format_elapsed(timedelta(seconds=drain.blocked_seconds))})"


# JSON and YAML


class _Json(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    pass


class _NodeJson(_Json, frozen=True):
    node: str
    exists: bool
    older: int
    entries: tuple[Entry, ...]
    deleted: datetime | msgspec.UnsetType = msgspec.UNSET


class _FoundJson(_Json, frozen=True):
    nodes: tuple[_NodeJson, ...]
    notes: tuple[str, ...]


def to_json(result: HistoryResult) -> bytes:
    """Return the result as JSON; `haulout history --help` documents the fields."""
    return output.to_json(_document(result))


def to_yaml(result: HistoryResult) -> str:
    return output.to_yaml(_document(result))


def _document(result: HistoryResult) -> _FoundJson:
    nodes = [
        _NodeJson(
            node=node_entries.node,
            exists=node_entries.exists,
            older=node_entries.older,
            entries=node_entries.entries,
            deleted=node_entries.deleted or msgspec.UNSET,
        )
        for node_entries in result.nodes
    ]
    return _FoundJson(nodes=tuple(nodes), notes=(*result.notes, *result.unknown_nodes))
