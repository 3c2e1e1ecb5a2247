"""All tiles, kept up to date while somebody looks, and not touched while nobody does.

What changes marks its node; marked nodes are looked at in batches, at most four a second, with a pause after each
fifty so that the controllers have their turn. A tile that came out as it was is not told. Some tiles change by
themselves, when a drain has been blocked for a while or a notice falls due: these are looked at again then.

Whoever asked last is waited for a while, so that a page that is hidden and shown again finds what it needs.
"""

import asyncio
import heapq
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime, timedelta

from haulout.kinds.notice import MaintenanceNotice
from haulout.web.api.hub import Hub, event
from haulout.web.api.notices import told as told_notice
from haulout.web.api.pace import of_life, seconds_of_life
from haulout.web.api.shapes import (
    Fleet,
    NodeDetail,
    NodesChanged,
    NodeState,
    NoticesChanged,
    Summary,
    Tile,
)
from haulout.web.api.sight import Following, Sight
from haulout.web.api.source import Unanswerable
from haulout.web.api.subject import Subject
from haulout.web.api.tiles import broken_tile, tile_of

log = logging.getLogger(__name__)

EVERY = timedelta(milliseconds=250)
KEPT_FOR = timedelta(seconds=30)  # after the last who looked has gone
_LOOKS_UP_EVERY = timedelta(seconds=1)  # whether something else stands above the pages
_THERE_WITHIN = timedelta(seconds=10)
_AT_ONCE = 50  # nodes, before others have their turn
_MOST_TOLD = 500  # tiles in one event

Sum = Callable[["Board"], Summary]
Describe = Callable[[str], Awaitable[NodeDetail | None]]


class Board:
    """The tiles; `run` belongs into the leader's task group."""

    def __init__(self, sight: Sight, hub: Hub, *, summed: Sum, described: Describe, every: timedelta = EVERY) -> None:
        self.tiles: dict[str, Tile] = {}
        self.counts: Counter[NodeState] = Counter()
        self.computed = 0  # tiles so far
        self._sight = sight
        self._clock = sight.clock
        self._hub = hub
        self._summed = summed
        self._described = described
        self._every = every
        self._summary: Summary | None = None
        self._marked: set[str] = set()
        self._notices: set[str] = set()
        self._due: list[tuple[datetime, str]] = []
        self._due_at: dict[str, datetime] = {}
        self._troubled: set[str] = set()
        self._details: dict[str, bytes] = {}
        self._to_describe: set[str] = set()
        self._following = Following(sight, self._mark, self._mark_notice)
        self._news = asyncio.Event()
        self._describing = asyncio.Event()
        self._wanted = asyncio.Event()
        self._fresh = asyncio.Condition()
        self._rounds = 0
        self._kept_until = 0.0

    @property
    def is_kept(self) -> bool:
        """Tell whether somebody looks, or did so a moment ago."""
        return len(self._hub) > 0 or self._clock.monotonic() < self._kept_until

    async def run(self) -> None:
        """Keep tiles whenever somebody wants them, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._describe_all())
            try:
                while True:
                    await self._wanted.wait()
                    await self._keep()
            finally:
                self._hub.end()

    async def _keep(self) -> None:
        await self._sight.nodes.wait_synced()
        self._hub.begin(f"{int(self._clock.now().timestamp() * 1000):x}")
        self._following.begin()
        try:
            while self.is_kept:
                await self._refresh()
                await self._clock.sleep(of_life(self._every))
                await self._something_to_do()
        finally:
            self._following.end()
            self._forget()

    async def _something_to_do(self) -> None:
        try:
            async with asyncio.timeout(seconds_of_life(_LOOKS_UP_EVERY)):
                await self._news.wait()
        except TimeoutError:
            return

    def _forget(self) -> None:
        self._wanted.clear()
        self._rounds = 0
        self._summary = None
        for known in (self.tiles, self.counts, self._marked, self._notices, self._due, self._due_at, self._details):
            known.clear()
        self._hub.end()

    # For those who ask

    async def look(self) -> None:
        """Want tiles; return when all of them are there."""
        self._kept_until = self._clock.monotonic() + seconds_of_life(KEPT_FOR)
        self._wanted.set()
        try:
            async with asyncio.timeout(seconds_of_life(_THERE_WITHIN)), self._fresh:
                await self._fresh.wait_for(lambda: self._rounds > 0)
        except TimeoutError:
            why = self._sight.nodes.health().problem or "they are being read"
            raise Unanswerable(f"nodes are not known yet: {why}") from None

    async def fleet(self) -> Fleet:
        """Return all tiles."""
        await self.look()
        nodes = tuple(tile for _, tile in sorted(self.tiles.items()))
        return Fleet(revision=self._hub.revision, total=len(nodes), nodes=nodes)

    async def summary(self) -> Summary:
        """Return how it stands as a whole."""
        await self.look()
        return self._summed(self)

    # What happened

    def _mark(self, node: str) -> None:
        self._marked.add(node)
        self._news.set()

    def _mark_notice(self, notice: str) -> None:
        self._notices.add(notice)
        self._news.set()

    async def _refresh(self) -> None:
        """Look at all nodes that are marked, and tell what is different."""
        self._following.renew()
        self._news.clear()
        marked, self._marked = self._marked | self._fall_due(), set()
        changed, gone = await self._look_at(marked)
        is_first = self._rounds == 0
        if not is_first:
            self._tell(changed, gone)
            self._tell_notices()
        self._notices.clear()
        self._to_describe |= marked & self._hub.nodes()
        if self._to_describe:
            self._describing.set()
        summary = self._summed(self)
        if summary != self._summary:
            self._summary = summary
            if not is_first:
                self._hub.tell("summary", summary)
        self._rounds += 1
        if is_first:
            async with self._fresh:
                self._fresh.notify_all()

    def _fall_due(self) -> set[str]:
        now, found = self._clock.now(), set()
        while self._due and self._due[0][0] <= now:
            at, name = heapq.heappop(self._due)
            if self._due_at.get(name) == at:
                found.add(name)
        return found

    def _look_again(self, name: str, at: datetime | None) -> None:
        """Have a tile looked at then; each instant of a node is noted once, however often it is looked at before."""
        if at is None:
            self._due_at.pop(name, None)
        elif self._due_at.get(name) != at:
            self._due_at[name] = at
            heapq.heappush(self._due, (at, name))

    async def _look_at(self, names: Iterable[str]) -> tuple[list[Tile], list[str]]:
        changed: list[Tile] = []
        gone: list[str] = []
        subjects = self._sight.subjects()
        for number, name in enumerate(sorted(names), 1):
            before = self.tiles.get(name)
            try:
                subject = subjects.get(name)
                after, changes_at = (None, None) if subject is None else self._made(subject)
            except Exception as error:  # noqa: BLE001 - what one node has must not hide the others
                after, changes_at = self._broken(name, error), None
            self._look_again(name, changes_at)
            if after != before:
                self._put(name, before, after)
                changed += [] if after is None else [after]
                gone += [name] if after is None else []
            if number % _AT_ONCE == 0:
                await self._clock.sleep(timedelta())
        return changed, gone

    def _made(self, subject: Subject) -> tuple[Tile, datetime | None]:
        tile, stand = tile_of(subject)
        self.computed += 1
        self._troubled.discard(tile.name)
        return tile, stand.changes_at

    def _broken(self, name: str, error: Exception) -> Tile:
        if name not in self._troubled:
            self._troubled.add(name)
            log.error("node %s cannot be shown", name, exc_info=error, extra={"node": name})
        return broken_tile(name, repr(error))

    def _put(self, name: str, before: Tile | None, after: Tile | None) -> None:
        if before is not None:
            self.counts[before.state] -= 1
        if after is None:
            del self.tiles[name]
            return
        self.tiles[name] = after
        self.counts[after.state] += 1

    # What is told

    def _tell(self, changed: list[Tile], gone: list[str]) -> None:
        for first in range(0, max(len(changed), bool(gone)), _MOST_TOLD):
            told = NodesChanged(
                revision=self._hub.next_revision(),
                changed=tuple(changed[first : first + _MOST_TOLD]),
                gone=() if first else tuple(gone),
            )
            self._hub.tell("nodes", told)

    def _tell_notices(self) -> None:
        notices = self._sight.notices()
        if not self._notices or notices is None:
            return
        found: Mapping[str, MaintenanceNotice | None] = {it: notices.notices.get(it) for it in sorted(self._notices)}
        now = self._clock.now()
        told = NoticesChanged(
            revision=self._hub.next_revision(),
            changed=tuple(told_notice(it, now=now) for it in found.values() if it is not None),
            gone=tuple(name for name, it in found.items() if it is None),
        )
        self._hub.tell("notices", told)

    async def _describe_all(self) -> None:
        """Tell of nodes in detail to those who want to know."""
        while True:
            await self._describing.wait()
            self._describing.clear()
            names, self._to_describe = self._to_describe, set()
            wanted = self._hub.nodes()
            self._details = {name: told for name, told in self._details.items() if name in wanted}
            for name in sorted(names & wanted):
                await self._describe(name)
            await self._clock.sleep(of_life(self._every))

    async def _describe(self, name: str) -> None:
        try:
            detail = await self._described(name)
        except Exception:
            log.exception("node %s cannot be told of in detail", name, extra={"node": name})
            return
        if detail is None:
            return
        told = event("node", detail)
        if self._details.get(name) != told:
            self._details[name] = told
            self._hub.tell_of(name, told)
