"""The timeline: past, running and coming maintenance of nodes, and when maintenance may begin.

    builder = TimelineBuilder(client, informers)
    await builder.build(tiles, resolve_time_range(None, None, now=now), profiles=…, lookup=…)

Rows are ordered by what they show: running, coming, past, nothing. Only for rows within the limit the history is read.
The event loop gets control every few rows, so that thousands of nodes block nothing.

Bands of a timeline: when the time windows of profiles allow maintenance to begin. Pure. Only windows on transitions out
of operational count: those on the way back say when a node may return. There is a band per window and blackout, up to a
limit.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from haulout.api.maintenancenotice import MaintenanceNotice
from haulout.api.maintenancerecord import Entry, entries_of_current_node
from haulout.controllers.notices.controller import BY_NODE
from haulout.controllers.profiles.config.model import Profile
from haulout.controllers.profiles.plugin import ExternalQuery, QueryResult, State
from haulout.controllers.profiles.plugins.checks.time_window import CalendarFileQuery, TimeWindow
from haulout.core.windows import Timetable, blackouts_between, open_spans
from haulout.dashboard.api.history.record_cache import HistoryUnavailable, RecordCache
from haulout.dashboard.api.history.spans import CurrentState, ProfileStatus, all_spans, notice_spans, within
from haulout.dashboard.api.nodes.detail import drains_of
from haulout.dashboard.api.nodes.informers import Informers, NodeSnapshot
from haulout.dashboard.api.requests import bad_request
from haulout.dashboard.api.types import NodeState, NodeSummary, Span, SpanKind, Timeline, TimelineRow
from haulout.history.record_store import RecordSummary
from haulout.kube.client import Client

LIMIT = 200
MAX_ROWS = 1_000
BEFORE, AFTER = timedelta(days=1), timedelta(days=7)  # default range around now
MAX_RANGE = timedelta(days=400)
_ROWS_PER_BATCH = 10  # between two yields to the event loop
_RANKS_PER_BATCH = 200
_MAX_SPANS = 300  # per node
_IDLE = frozenset({NodeState.IDLE, NodeState.PLANNED})  # states without work on the node

MAX_BANDS = 100  # per kind and check
_MAX_CHECKS = 20

AnswerLookup = Callable[[ExternalQuery], QueryResult | None]


@dataclass(frozen=True, slots=True)
class TimeRange:
    """The time range of a request."""

    start: datetime
    end: datetime

    def contains(self, instant: datetime) -> bool:
        return self.start <= instant < self.end


def resolve_time_range(start: datetime | None, end: datetime | None, *, now: datetime) -> TimeRange:
    """Return the time range with defaults; raise `HttpError`."""
    try:
        first = start or min(now, end or now) - BEFORE
        last = end or max(now, first) + AFTER
    except OverflowError:
        raise bad_request("expected times closer to now") from None
    if last <= first:
        raise bad_request("`from` must be before `to`")
    if last - first > MAX_RANGE:
        raise bad_request(f"expected at most {MAX_RANGE.days} days between `from` and `to`")
    return TimeRange(first, last)


class TimelineBuilder:
    """Builds timelines."""

    def __init__(self, client: Client, informers: Informers) -> None:
        self._clock = client.clock
        self._informers = informers
        self._records = RecordCache(client)

    async def build(
        self,
        tiles: Sequence[NodeSummary],
        time_range: TimeRange,
        *,
        profiles: Mapping[str, Profile],
        lookup: AnswerLookup,
        limit: int = LIMIT,
    ) -> Timeline:
        """Return the timeline of nodes; `lookup` returns cached calendar files."""
        problems: list[str] = []
        summaries: Mapping[str, RecordSummary] = {}
        try:
            summaries = await self._records.summaries()
        except HistoryUnavailable as error:
            problems.append(str(error))
        ranked = await self._rank_nodes(tiles, summaries, time_range)
        rows = await self._rows(ranked[: min(limit, MAX_ROWS)], summaries, time_range, problems)
        windows: list[Span] = []
        for title, window in time_windows(profiles):
            spans, problem = window_spans(title, window, start=time_range.start, end=time_range.end, lookup=lookup)
            windows += spans
            problems += filter(None, (problem,))
            await self._yield_control()
        return Timeline(
            start=time_range.start,
            end=time_range.end,
            now=self._clock.now(),
            rows=tuple(rows),
            total=len(tiles),
            windows=tuple(windows),
            problem="; ".join(dict.fromkeys(problems)),
        )

    async def _rank_nodes(
        self, tiles: Sequence[NodeSummary], summaries: Mapping[str, RecordSummary], time_range: TimeRange
    ) -> list[NodeSummary]:
        """Return the tiles in the order of rows."""
        ranks: list[tuple[int, str, NodeSummary]] = []
        for number, tile in enumerate(tiles, start=1):
            summary = summaries.get(tile.name) if self._has_record(tile.name, summaries) else None
            notices = self._notices(tile.name)
            ranks.append((rank(tile, notices, summary, time_range, now=self._clock.now()), tile.name, tile))
            if number % _RANKS_PER_BATCH == 0:
                await self._yield_control()
        ranks.sort(key=lambda ranked: ranked[:2])
        return [tile for _, _, tile in ranks]

    async def _rows(
        self,
        tiles: Sequence[NodeSummary],
        summaries: Mapping[str, RecordSummary],
        time_range: TimeRange,
        problems: list[str],
    ) -> list[TimelineRow]:
        entries: Mapping[str, tuple[Entry, ...]] = {}
        with_record = [tile.name for tile in tiles if self._has_record(tile.name, summaries)]
        try:
            entries = await self._records.entries(with_record) if with_record else {}
        except HistoryUnavailable as error:
            problems.append(str(error))
        rows: list[TimelineRow] = []
        observer = self._informers.observer()
        for number, tile in enumerate(tiles, start=1):
            observation = observer.observe(tile.name)
            if observation is not None:
                current = current_state(observation, self._notices(tile.name))
                own_entries = entries_of_current_node(entries.get(tile.name, ()))
                spans = within(all_spans(own_entries, current, at=observation.now), time_range.start, time_range.end)
                rows.append(TimelineRow(node=tile.name, state=tile.state, spans=spans[-_MAX_SPANS:]))
            if number % _ROWS_PER_BATCH == 0:
                await self._yield_control()
        return rows

    def _notices(self, node: str) -> tuple[MaintenanceNotice, ...]:
        """Return all notices of a node, past ones included."""
        controller = self._informers.notices()
        return () if controller is None else tuple(controller.notices.by_index(BY_NODE, node))

    def _has_record(self, name: str, summaries: Mapping[str, RecordSummary]) -> bool:
        """Return whether there is a record of this node, not of an earlier node with the same name."""
        found, node = summaries.get(name), self._informers.nodes.get(name)
        return found is not None and node is not None and found.node_uid in ("", node.uid)

    async def _yield_control(self) -> None:
        await self._clock.sleep(timedelta())


def current_state(observation: NodeSnapshot, notices: Iterable[MaintenanceNotice]) -> CurrentState:
    """Return the current and planned maintenance of a node."""
    reports: dict[str, Any] = (
        {} if observation.info is None else {report.name: report for report in observation.info.reports}
    )
    waits_for = {name: report.waits_for for name, report in reports.items()}
    return CurrentState(
        profiles=[
            ProfileStatus(name, entry.current, entry.transition, waits_for.get(name, ""))
            for name, entry in observation.entries.items()
        ],
        notices=tuple(notices),
        orders=observation.orders,
        drains=drains_of(observation),
    )


def rank(
    tile: NodeSummary,
    notices: Iterable[MaintenanceNotice],
    summary: RecordSummary | None,
    time_range: TimeRange,
    *,
    now: datetime,
) -> int:
    """Return the rank of a row: running, coming, past, nothing."""
    includes_now = time_range.contains(now)
    if includes_now and (tile.maintenance or tile.state not in _IDLE):
        return 0
    announced = (span for notice in notices for span in notice_spans(notice, at=now))
    if within(announced, time_range.start, time_range.end) or (includes_now and tile.state is NodeState.PLANNED):
        return 1
    if summary is not None and any(item.since >= time_range.start for item in summary.last_states.values()):
        return 2
    return 3


def time_windows(profiles: Mapping[str, Profile]) -> list[tuple[str, TimeWindow]]:
    """Return the windows that delay maintenance, each with its title; equal windows of a profile once."""
    found: dict[tuple[str, TimeWindow], str] = {}
    for profile in profiles.values():
        for state, config in profile.states.items():
            for transition in config.transitions:
                if state is State.IN_MAINTENANCE or transition.next is State.OPERATIONAL:
                    continue
                for member in transition.check.members:
                    if isinstance(member.plugin, TimeWindow):
                        found.setdefault((profile.name, member.plugin), f"{profile.name}: {member.name}")
    return [(title, window) for (_, window), title in islice(found.items(), _MAX_CHECKS)]


def window_spans(
    title: str, window: TimeWindow, *, start: datetime, end: datetime, lookup: AnswerLookup
) -> tuple[tuple[Span, ...], str]:
    """Return the open and closed spans of a window in a time range, and what is unknown.

    `lookup` returns cached calendar files.
    """
    calendars, problem = [], ""
    for path in window.calendars:
        found = lookup(CalendarFileQuery(path))
        if found is None or found.problem:
            problem = f"{title}: {'it has not been read yet' if found is None else found.problem}"
        else:
            calendars.append(found.value)
    timetable = window.timetable(tuple(calendars))
    return (*_window_spans(title, timetable, start, end), *_blackout_spans(title, timetable, start, end)), problem


def _window_spans(title: str, timetable: Timetable, start: datetime, end: datetime) -> Iterator[Span]:
    for opening in islice(open_spans(timetable, start, end), MAX_BANDS):
        # A window is open strictly after its start; do not show the microsecond.
        yield Span(kind=SpanKind.WINDOW, title=title, start=opening.start.replace(microsecond=0), end=opening.end)


def _blackout_spans(title: str, timetable: Timetable, start: datetime, end: datetime) -> Iterator[Span]:
    for closing in islice(blackouts_between(timetable, start, end), MAX_BANDS):
        why = closing.reason.removeprefix("blackout: ")
        yield Span(
            kind=SpanKind.BLACKOUT, title=title, start=max(closing.start, start), end=min(closing.end, end), message=why
        )
