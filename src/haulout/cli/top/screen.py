"""Render the fleet for a terminal. Pure: fleet and view state in, rich renderables out.

Text from other sources (names, reasons) is escaped so that it cannot move the cursor. Columns are dropped if the
terminal is too narrow; states are words as well as colours.

The clusters of a hub as a table, problems first.

The details of one node: what its profiles wait for, its drains with blockers, and commands.

Styles of states, times and untrusted text in a terminal.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from io import StringIO

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from haulout.api.maintenancenotice import NoticePhase
from haulout.cli.cordon_owners import format_elapsed
from haulout.cli.output import format_table, printable
from haulout.cli.top.api_client import ApiClient
from haulout.cli.top.fleet_cache import FleetCache, decode
from haulout.cli.top.view_state import ViewState, visible_nodes
from haulout.dashboard.api.types import (
    Check,
    ClusterConnection,
    ClusterList,
    ClusterState,
    ClusterSummary,
    DrainSummary,
    Level,
    NodeDetail,
    NodeState,
    NodeSummary,
    Notice,
    ProfileState,
    Summary,
    Transition,
)

KEYS = "q quit  / search  s sort  f filter  arrows, Enter details  Esc back"
_LEVELS = {Level.INFO: "cyan", Level.WARNING: "yellow", Level.CRITICAL: "bold red"}
_NARROW_WIDTH, _WIDE_WIDTH = 70, 110
_FRAME_LINES = 2  # the head of the table, and the keys
_MIN_NODES = 3  # if fewer would fit, notices are hidden
_MAX_NOTICES = 5
_FINAL_PHASES = tuple(str(it) for it in NoticePhase if it.is_over)

_HEADER = ("CLUSTER", "CONNECTION", "DURATION", "STATE", "ACTIVE", "ENABLED", "NODES", "MESSAGE")
_STATES = (ClusterState.IN_MAINTENANCE, ClusterState.WAITING, ClusterState.IDLE)
_REACHES = (
    ClusterConnection.UNREACHABLE,
    ClusterConnection.UNREADABLE,
    ClusterConnection.CONNECTING,
    ClusterConnection.CONNECTED,
)

_MAX_HISTORY = 10
_CHECK_SIGNS = {None: "?", True: "+", False: "-"}

STATE_STYLES = {
    NodeState.IDLE: "dim",
    NodeState.PLANNED: "cyan",
    NodeState.DRAINING: "yellow",
    NodeState.BLOCKED: "bold red",
    NodeState.IN_MAINTENANCE: "magenta",
    NodeState.RECOVERING: "blue",
}


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


async def fetch_clusters(client: ApiClient) -> ClusterList:
    """Get the clusters of a hub; raise `HauloutError`."""
    return decode(ClusterList, await client.get("clusters"))


def table_lines(summary: Summary, clusters: ClusterList, *, now: datetime, width: int | None) -> Iterator[str]:
    """Yield the header and the table of clusters."""
    leader = one_line(summary.leader.identity) or "no leader"
    yield f"Haulout {one_line(summary.cluster)}  a hub, leader {leader}  {now:%H:%M:%S} UTC"
    yield from (
        f"budget {item.text}: {item.used} of {item.limit}{_waiting_text(len(item.waiting))}" for item in summary.budgets
    )
    yield from (f"{item.level}: {one_line(item.message)}" for item in summary.banners)
    if not clusters.clusters:
        yield "No cluster has enabled Machines."
        return
    yield from format_table([_HEADER, *_rows(clusters.clusters, now)], width=width)


def _rows(clusters: Iterable[ClusterSummary], now: datetime) -> Iterator[tuple[str, ...]]:
    for cluster in sorted(
        clusters, key=lambda cluster: (_REACHES.index(cluster.connection), _STATES.index(cluster.state), cluster.key)
    ):
        active, enabled = str(cluster.active_count or ""), f"{cluster.enabled}/{cluster.machines}"
        yield (
            one_line(cluster.key),
            cluster.connection,
            format_age(cluster.since, now),
            cluster.state,
            active,
            enabled,
            str(cluster.nodes),
            one_line(_why(cluster)),
        )


def _why(tile: ClusterSummary) -> str:
    machines = (
        f"{machine.name}: {machine.message}" for machine in tile.active if not machine.is_approved and machine.message
    )
    return tile.message or tile.waiting_for or next(machines, "")


def _waiting_text(count: int) -> str:
    return f", {count} waiting" if count else ""


def detail_lines(fleet: FleetCache, name: str) -> list[Text]:
    """Return the details of a node as lines."""
    detail = fleet.details.get(name)
    tile = detail.summary if detail is not None else fleet.tiles.get(name)
    if tile is None:
        return [Text(f"node {one_line(name)} is gone", "bold")]
    head = Text.assemble(
        (one_line(tile.name), "bold"), "  ", (str(tile.state), STATE_STYLES[tile.state]), f"  {one_line(tile.message)}"
    )
    if detail is None:
        return [Text(""), head, Text("loading details", "dim")]
    return [Text(""), head, *_sections(detail, fleet.now)]


def _sections(detail: NodeDetail, now: datetime) -> Iterator[Text]:
    if detail.problem:
        yield Text(one_line(detail.problem), "red")
    if detail.summary.hold:
        yield Text(one_line(detail.summary.hold), "yellow")
    for drain in detail.drains:
        yield from _drain_lines(drain, now)
    for profile in detail.profiles:
        yield from _profile_lines(profile, now)
    for order in detail.maintenances:
        yield Text(f"order {one_line(order.name)}: {one_line(order.phase)}  {one_line(order.error or order.reason)}")
    for notice in detail.notices:
        yield Text(
            f"notice {one_line(notice.name)}: {notice.phase}, "
            f"{format_relative(notice.start, now)}  {one_line(notice.on_time_message)}"
        )
    if detail.next_reconcile is not None:
        yield Text(f"next reconcile: {format_relative(detail.next_reconcile, now)}")
    for command in detail.commands:
        yield Text.assemble(f"{one_line(command.title)}: ", (one_line(command.command), "cyan"))
    for entry in detail.history[:_MAX_HISTORY]:
        yield Text(
            f"{entry.time:%m-%d %H:%M}  {one_line(entry.object)}  {one_line(entry.to)}  {one_line(entry.reason)}", "dim"
        )


def _drain_lines(drain: DrainSummary, now: datetime) -> Iterator[Text]:
    progress = one_line(drain.message) or f"{drain.removed} of {drain.total} pods have left"
    yield Text(f"drain by {one_line(drain.owner)}: {progress}", "bold")
    for blocker in drain.blockers:
        pod_prefix = f"{one_line(blocker.pod)}: " if blocker.pod else ""
        yield Text(f"  {pod_prefix}{one_line(blocker.reason)}  {format_age(blocker.since, now)}", "red")
        if blocker.remedy:
            yield Text(f"    {one_line(blocker.remedy)}")


def _profile_lines(profile: ProfileState, now: datetime) -> Iterator[Text]:
    yield Text(f"profile {one_line(profile.name)}: {one_line(profile.state)}  {format_age(profile.since, now)}", "bold")
    if profile.error or profile.waiting_for:
        yield Text(f"  {one_line(profile.error or profile.waiting_for)}", "red" if profile.error else "")
    for transition in profile.transitions:
        if transition.is_current:
            yield from _transition_lines(transition)


def _transition_lines(transition: Transition) -> Iterator[Text]:
    outcome = "passes" if transition.passed else one_line(transition.veto or transition.error) or "waits"
    yield Text(f"  to {one_line(transition.target)}: {outcome}")
    yield from map(_check_line, transition.checks)


def _check_line(check: Check) -> Text:
    return Text(f"    {_CHECK_SIGNS[check.passed]} {one_line(check.name)}: {one_line(check.error or check.reason)}")


def format_age(since: datetime | None, now: datetime) -> str:
    """Return the time since an instant; empty if unknown."""
    return "" if since is None or since > now else format_elapsed(now - since)


def format_relative(instant: datetime | None, now: datetime) -> str:
    """Return the distance of an instant; empty if there is none."""
    if instant is None:
        return ""
    return f"in {format_elapsed(instant - now)}" if instant > now else f"{format_elapsed(now - instant)} ago"


def one_line(text: str) -> str:
    """Return untrusted text in one line, with control characters escaped."""
    return printable(" ".join(text.split()))


def truncate(text: Text) -> Text:
    """Return a line that is cut at the edge of the terminal."""
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def wrap_lines(text: Text, width: int) -> list[Text]:
    """Wrap a text to the width, so that commands in it can be copied completely."""
    return list(text.wrap(Console(width=width, file=StringIO()), width)) or [text]
