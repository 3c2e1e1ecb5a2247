"""Render the fleet for a terminal. Pure: fleet and view state in, rich renderables out.

Text from other sources (names, reasons) is escaped so that it cannot move the cursor. Columns are dropped if the
terminal is too narrow; states are words as well as colours.
"""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from haulout.api.maintenancenotice import NoticePhase
from haulout.cli.top.fleet_cache import FleetCache
from haulout.cli.top.node_detail import detail_lines
from haulout.cli.top.text_format import STATE_STYLES, format_age, format_relative, one_line, truncate, wrap_lines
from haulout.cli.top.view_state import ViewState, visible_nodes
from haulout.dashboard.api.types import Level, NodeState, NodeSummary, Notice

KEYS = "q quit  / search  s sort  f filter  arrows, Enter details  Esc back"
_LEVELS = {Level.INFO: "cyan", Level.WARNING: "yellow", Level.CRITICAL: "bold red"}
_NARROW_WIDTH, _WIDE_WIDTH = 70, 110
_FRAME_LINES = 2  # the head of the table, and the keys
_MIN_NODES = 3  # if fewer would fit, notices are hidden
_MAX_NOTICES = 5
_FINAL_PHASES = tuple(str(it) for it in NoticePhase if it.is_over)


def render_screen(fleet: FleetCache, state: ViewState, *, width: int, height: int | None = None) -> RenderableType:
    """Return the whole screen, no higher than `height`."""
    head = list(_header_lines(fleet, state))
    if state.detail_node:
        detail = [
            wrapped_line for line in detail_lines(fleet, state.detail_node) for wrapped_line in wrap_lines(line, width)
        ]
        return Group(
            *head, *detail[: None if height is None else max(height - len(head) - 1, 1)], *_footer_lines(state, height)
        )
    rows = visible_nodes(state, fleet.tiles.values())
    notices = list(_notice_lines(fleet))
    rows_left = None if height is None else height - len(head) - _FRAME_LINES
    if rows_left is not None and rows_left - len(notices) < _MIN_NODES:
        notices = []
    rows_left = None if rows_left is None else max(rows_left - len(notices), 1)
    return Group(
        *head, _node_table(rows, fleet, state, width=width, max_rows=rows_left), *notices, *_footer_lines(state, height)
    )


def _header_lines(fleet: FleetCache, view_state: ViewState) -> Iterator[Text]:
    summary = fleet.summary
    leader = summary.leader.identity or "none"
    yield truncate(
        Text.assemble(
            ("Haulout ", "bold"),
            f"{one_line(summary.cluster)}  " if summary.cluster else "",
            "leader ",
            (one_line(leader), "" if summary.leader.identity else "bold red"),
            f"  {fleet.now:%H:%M:%S} UTC",
        )
    )
    if fleet.problem:
        yield truncate(Text(f"not connected, showing the last known data: {one_line(fleet.problem)}", "bold red"))
    counts = fleet.count_by_state()
    line = Text(f"{len(fleet.tiles)} nodes")
    for state in NodeState:
        if counts[state]:
            line.append(f"  {state} {counts[state]}", STATE_STYLES[state])
    yield truncate(line)
    for budget in summary.budgets:
        is_full = budget.used >= budget.limit
        waiting_text = f", {len(budget.waiting)} waiting" if budget.waiting else ""
        text = f"budget {one_line(budget.name)}: {budget.used} of {budget.limit}{waiting_text}"
        yield truncate(Text(text, "bold yellow" if is_full else ""))
    for banner in summary.banners:
        yield truncate(Text(f"{banner.level}: {one_line(banner.message)}", _LEVELS[banner.level]))
    if view_state.is_searching or view_state.search or view_state.state is not None:
        only = f"only: {view_state.state}  " if view_state.state else ""
        search = f"search: {one_line(view_state.search)}{'_' if view_state.is_searching else ''}"
        yield truncate(Text(only + (search if view_state.is_searching or view_state.search else "")))


def _node_table(
    rows: Sequence[NodeSummary], fleet: FleetCache, state: ViewState, *, width: int, max_rows: int | None
) -> RenderableType:
    if not rows:
        return Text("no maintenance in progress" if not (state.search or state.state) else "no such node", "dim")
    table = Table(box=None, pad_edge=False, expand=True, padding=(0, 1), header_style="bold underline")
    table.add_column("NODE", no_wrap=True, overflow="ellipsis", max_width=max(width // 3, 12))
    table.add_column("STATE", no_wrap=True)
    if width >= _NARROW_WIDTH:
        table.add_column("DURATION", no_wrap=True, justify="right")
        table.add_column("DONE", no_wrap=True, justify="right")
    table.add_column("MESSAGE", no_wrap=True, overflow="ellipsis", ratio=1)
    if width >= _WIDE_WIDTH:
        table.add_column("NEXT", no_wrap=True)
    first = 0 if max_rows is None else max(min(state.selected_row - max_rows // 2, len(rows) - max_rows), 0)
    visible = rows[first:] if max_rows is None else rows[first : first + max_rows]
    for at, tile in enumerate(visible, first):
        cells: list[Text | str] = [Text(one_line(tile.name)), Text(str(tile.state), STATE_STYLES[tile.state])]
        if width >= _NARROW_WIDTH:
            cells += [format_age(tile.since, fleet.now), "" if tile.progress is None else f"{tile.progress}%"]
        cells.append(Text(one_line(tile.message or tile.hold)))
        if width >= _WIDE_WIDTH:
            cells.append(format_relative(tile.next_at, fleet.now))
        table.add_row(*cells, style="reverse" if max_rows is not None and at == state.selected_row else "")
    return table


def _notice_lines(fleet: FleetCache) -> Iterator[Text]:
    upcoming = [notice for notice in fleet.notices.values() if notice.phase not in _FINAL_PHASES]
    if not upcoming:
        return
    yield Text("")
    yield Text(f"Announced: {len(upcoming)}", "bold")
    first = sorted(upcoming, key=_start_key)[:_MAX_NOTICES]
    rows = [
        (
            notice.phase,
            one_line(notice.node or notice.name),
            one_line(notice.kind),
            format_relative(notice.start, fleet.now),
        )
        for notice in first
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for notice, row in zip(first, rows, strict=True):
        late = Text("  will be late", "bold red") if notice.is_on_time is False else Text("")
        padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield truncate(Text("  " + "  ".join(padded)).append_text(late))
    if len(upcoming) > _MAX_NOTICES:
        yield Text(f"  and {len(upcoming) - _MAX_NOTICES} more: haulout notice list", "dim")


def _start_key(notice: Notice) -> tuple[bool, float, str]:
    return notice.start is None, notice.start.timestamp() if notice.start else 0, notice.name


def _footer_lines(state: ViewState, height: int | None) -> Iterator[Text]:
    if height is not None:
        yield truncate(Text(f"sorted by {state.sort}   {KEYS}", "dim"))
