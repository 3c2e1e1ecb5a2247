"""The timeline: past, running and coming maintenance of nodes on one axis, and when maintenance may begin at all.

    timelines = Timelines(client, sight)
    await timelines.made(tiles, asked_range(None, None, now=now), profiles=…, answer=…)

Rows come in order of what there is to see: something goes on, something comes, something was, nothing. Only for those
within the limit are histories read and spans made. It gives way to others every few rows, so that a look at thousands
of nodes holds up nobody.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from haulout.history.record import Entry, of_current_node
from haulout.history.survey import Standing
from haulout.kinds.notice import MaintenanceNotice
from haulout.kube.client import Client
from haulout.notices.controller import BY_NODE
from haulout.profiles.model import Profile
from haulout.web.api.asking import bad
from haulout.web.api.details import drains_of
from haulout.web.api.openings import Ask, bands, windows_of
from haulout.web.api.records import NoRecords, Records
from haulout.web.api.shapes import NodeState, Span, Tile, Timeline, TimelineRow
from haulout.web.api.sight import Sight
from haulout.web.api.spans import Now, Stands, all_spans, of_notice, within
from haulout.web.api.subject import Subject

LIMIT = 200
MOST_ROWS = 1_000
BEFORE, AFTER = timedelta(days=1), timedelta(days=7)  # of now, if nobody says what is wanted
LONGEST = timedelta(days=400)
_AT_A_TIME = 10  # rows
_RANKED_AT_A_TIME = 200
_MOST_SPANS = 300  # of one node
_IDLE = frozenset({NodeState.IDLE, NodeState.PLANNED})  # nothing was done to the node yet


@dataclass(frozen=True, slots=True)
class Range:
    """What part of time is asked for."""

    start: datetime
    end: datetime

    def has(self, instant: datetime) -> bool:
        """Tell whether an instant is to be seen."""
        return self.start <= instant < self.end


def asked_range(start: datetime | None, end: datetime | None, *, now: datetime) -> Range:
    """Return what part of time is meant; raises `Unanswerable`."""
    try:
        first = start or min(now, end or now) - BEFORE
        last = end or max(now, first) + AFTER
    except OverflowError:
        raise bad("expected times that are nearer") from None
    if last <= first:
        raise bad("`from` must be before `to`")
    if last - first > LONGEST:
        raise bad(f"expected at most {LONGEST.days} days between `from` and `to`")
    return Range(first, last)


class Timelines:
    """Makes timelines."""

    def __init__(self, client: Client, sight: Sight) -> None:
        self._clock = client.clock
        self._sight = sight
        self._records = Records(client)

    async def made(
        self, tiles: Sequence[Tile], asked: Range, *, profiles: Mapping[str, Profile], answer: Ask, limit: int = LIMIT
    ) -> Timeline:
        """Return the timeline of these nodes; `answer` knows what is in calendar files."""
        problems: list[str] = []
        standings: Mapping[str, Standing] = {}
        try:
            standings = await self._records.standings()
        except NoRecords as error:
            problems.append(str(error))
        ranked = await self._ranked(tiles, standings, asked)
        rows = await self._rows(ranked[: min(limit, MOST_ROWS)], standings, asked, problems)
        windows: list[Span] = []
        for title, window in windows_of(profiles):
            spans, problem = bands(title, window, start=asked.start, end=asked.end, answer=answer)
            windows += spans
            problems += filter(None, (problem,))
            await self._give_way()
        return Timeline(
            start=asked.start,
            end=asked.end,
            now=self._clock.now(),
            rows=tuple(rows),
            total=len(tiles),
            windows=tuple(windows),
            problem="; ".join(dict.fromkeys(problems)),
        )

    async def _ranked(self, tiles: Sequence[Tile], standings: Mapping[str, Standing], asked: Range) -> list[Tile]:
        """Return them in the order of rows."""
        ranks: list[tuple[int, str, Tile]] = []
        for number, it in enumerate(tiles, start=1):
            standing = standings.get(it.name) if self._has_record(it.name, standings) else None
            notices = self._notices(it.name)
            ranks.append((rank(it, notices, standing, asked, now=self._clock.now()), it.name, it))
            if number % _RANKED_AT_A_TIME == 0:
                await self._give_way()
        ranks.sort(key=lambda ranked: ranked[:2])
        return [it for _, _, it in ranks]

    async def _rows(
        self, tiles: Sequence[Tile], standings: Mapping[str, Standing], asked: Range, problems: list[str]
    ) -> list[TimelineRow]:
        entries: Mapping[str, tuple[Entry, ...]] = {}
        with_record = [it.name for it in tiles if self._has_record(it.name, standings)]
        try:
            entries = await self._records.entries(with_record) if with_record else {}
        except NoRecords as error:
            problems.append(str(error))
        rows: list[TimelineRow] = []
        subjects = self._sight.subjects()
        for number, it in enumerate(tiles, start=1):
            subject = subjects.get(it.name)
            if subject is not None:
                now = now_of(subject, self._notices(it.name))
                own = of_current_node(entries.get(it.name, ()))
                spans = within(all_spans(own, now, at=subject.now), asked.start, asked.end)
                rows.append(TimelineRow(node=it.name, state=it.state, spans=spans[-_MOST_SPANS:]))
            if number % _AT_A_TIME == 0:
                await self._give_way()
        return rows

    def _notices(self, node: str) -> tuple[MaintenanceNotice, ...]:
        """Return what is announced for a node, and was."""
        controller = self._sight.notices()
        return () if controller is None else tuple(controller.notices.by(BY_NODE, node))

    def _has_record(self, name: str, standings: Mapping[str, Standing]) -> bool:
        """Tell whether there is a record of this very node: it may be one of another that had its name before."""
        found, node = standings.get(name), self._sight.nodes.get(name)
        return found is not None and node is not None and found.uid in ("", node.uid)

    async def _give_way(self) -> None:
        await self._clock.sleep(timedelta())


def now_of(subject: Subject, notices: Iterable[MaintenanceNotice]) -> Now:
    """Return what goes on with a node, and what comes."""
    reports: dict[str, Any] = {} if subject.info is None else {it.name: it for it in subject.info.reports}
    waits = {name: it.waits_for for name, it in reports.items()}
    return Now(
        profiles=[
            Stands(name, entry.current, entry.transition, waits.get(name, ""))
            for name, entry in subject.entries.items()
        ],
        notices=tuple(notices),
        orders=subject.orders,
        drains=drains_of(subject),
    )


def rank(
    tile: Tile, notices: Iterable[MaintenanceNotice], standing: Standing | None, asked: Range, *, now: datetime
) -> int:
    """Return how early the row of a node comes: what goes on, what comes, what was, and nothing."""
    is_now_seen = asked.has(now)
    if is_now_seen and (tile.maintenance or tile.state not in _IDLE):
        return 0
    announced = (span for notice in notices for span in of_notice(notice, at=now))
    if within(announced, asked.start, asked.end) or (is_now_seen and tile.state is NodeState.PLANNED):
        return 1
    if standing is not None and any(it.since >= asked.start for it in standing.standing.values()):
        return 2
    return 3
