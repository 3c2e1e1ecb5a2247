"""What `haulout history` says: to people, or to programs."""

import shutil
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

import click
import msgspec

from haulout.cli import documents
from haulout.cli.holders import elapsed
from haulout.cli.node_history import Found, NodeHistory, is_set_back
from haulout.cli.tables import columns
from haulout.cli.terminal import printable
from haulout.drain.words import pods
from haulout.history.record import GAP, DrainFacts, Entry

_HEADER = ("TIME (UTC)", "AFTER", "WHAT", "CHANGE", "WHY")
_WIDE_HEADER = ("TIME (UTC)", "AFTER", "WHAT", "ORDERED BY", "CHANGE", "RESULT", "WHY")
_COLOURS = {
    "green": ("operational", "Ended"),
    "yellow": ("maintenance-required", "Running"),
    "cyan": ("in-maintenance", "Succeeded", "Drained"),
    "red": ("Failed", "TimedOut", "Refused", "DrainTimedOut", "DrainRefused", "LeaseLost", GAP),
}
_BY_STATE = {state: colour for colour, states in _COLOURS.items() for state in states}


def terminal_width() -> int | None:
    """Return how wide the terminal is; None if it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def as_text(found: Found, *, is_wide: bool = False, width: int | None = None) -> Iterator[str]:
    """Yield lines; the last column is cut so that they are not wider than `width`."""
    for number, history in enumerate(found.nodes):
        if number:
            yield ""
        yield from _node(history, is_titled=len(found.nodes) > 1, is_wide=is_wide, width=width)


def as_table(histories: Sequence[NodeHistory], *, is_wide: bool = False, width: int | None = None) -> Iterator[str]:
    """Yield lines of one table about all nodes, the newest last; the entries of each node stay in their order."""
    rows = [(at, _with_node(it, entry, is_wide=is_wide)) for it in histories for at, entry in _in_order(it.entries)]
    if not rows:
        yield "Nothing has happened to any node, or not in that time."
        return
    rows.sort(key=lambda timed: timed[0])
    time, *others = _WIDE_HEADER if is_wide else _HEADER
    yield from columns([(time, "NODE", *others), *(cells for _, cells in rows)], width=width)


def _in_order(entries: Sequence[Entry]) -> Iterator[tuple[datetime, Entry]]:
    """Yield entries with the times by which they are sorted among others: no clock takes one before its predecessor."""
    latest = None
    for entry in entries:
        latest = entry.time if latest is None else max(latest, entry.time)
        yield latest, entry


def _with_node(history: NodeHistory, entry: Entry, *, is_wide: bool) -> tuple[str, ...]:
    time, *others = _cells(entry, is_wide=is_wide)
    name = printable(history.node) if history.exists else f"{printable(history.node)} (deleted)"
    return time, name, *others


def _node(history: NodeHistory, *, is_titled: bool, is_wide: bool, width: int | None) -> Iterator[str]:
    if is_titled:
        yield click.style(printable(f"Node {history.node}"), bold=True)
    if not history.entries:
        yield _nothing(history)
        return
    if history.older:
        yield click.style(f"({history.older} older {_entries(history.older)} gone: only the newest are kept)", dim=True)
    header = _WIDE_HEADER if is_wide else _HEADER
    rows = [_cells(it, is_wide=is_wide) for it in history.entries]
    yield from columns([header, *rows], width=width)


def _nothing(history: NodeHistory) -> str:
    name = printable(history.node)
    if history.left_out:
        return f"Nothing of the {history.left_out} {_entries(history.left_out)} about node {name} is of that time."
    return f"Nothing has happened to node {name} yet, or not since its history is kept."


def _entries(count: int) -> str:
    return "entry" if count == 1 else "entries"


def _cells(entry: Entry, *, is_wide: bool) -> tuple[str, ...]:
    time = f"{entry.time:%Y-%m-%d %H:%M:%S}"
    after = _after(entry)
    what = printable(entry.what.replace("/", " ", 1))
    if is_wide:
        return (
            time,
            after,
            what,
            printable(entry.by) or "-",
            _change(entry),
            _coloured(entry.result) or "-",
            _why(entry),
        )
    return time, after, what, _change(entry), _why(entry)


def _after(entry: Entry) -> str:
    if entry.since is None:
        return "-"
    return "?" if is_set_back(entry) else elapsed(entry.time - entry.since)


def _change(entry: Entry) -> str:
    if not entry.to:
        return _coloured(entry.result) or "-"
    return f"{printable(entry.from_)} → {_coloured(entry.to)}" if entry.from_ else f"→ {_coloured(entry.to)}"


def _coloured(state: str) -> str:
    colour = _BY_STATE.get(state)
    return click.style(printable(state), fg=colour) if colour else printable(state)


def _why(entry: Entry) -> str:
    if entry.drain is None:
        return printable(entry.why) or "-"
    why = "" if entry.why.endswith(_drained(entry.drain)) else entry.why  # the numbers say it already
    return printable("; ".join(filter(None, (_facts(entry.drain), why))))


def _drained(drain: DrainFacts) -> str:
    return f"is drained: {pods(drain.pods)} left it"


def _facts(drain: DrainFacts) -> str:
    text = f"{pods(drain.pods)} left in {elapsed(timedelta(seconds=drain.seconds))}"
    if not drain.blocked_by:
        return text
    return f"{text}, held up longest by {drain.blocked_by} ({elapsed(timedelta(seconds=drain.blocked_seconds))})"


# For programs


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


def as_json(found: Found) -> bytes:
    """Return it for programs; `haulout history --help` documents the fields."""
    return documents.as_json(_document(found))


def as_yaml(found: Found) -> str:
    """Return the same as YAML."""
    return documents.as_yaml(_document(found))


def _document(found: Found) -> _FoundJson:
    nodes = [
        _NodeJson(
            node=it.node,
            exists=it.exists,
            older=it.older,
            entries=it.entries,
            deleted=it.deleted or msgspec.UNSET,
        )
        for it in found.nodes
    ]
    return _FoundJson(nodes=tuple(nodes), notes=(*found.notes, *found.unknown))
