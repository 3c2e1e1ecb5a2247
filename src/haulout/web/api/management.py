"""What a hub answers from: `haulout.web.api.source.Source` about clusters instead of nodes.

    source = Management(client, hub, heading=…, health=…, uses=budget.uses)
    await source.run()                              # until cancelled, in the task group of whoever leads

As with nodes, nothing is made while nobody looks, changes are told in batches, at most four a second, and whoever
looked last is waited for a while.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from datetime import timedelta
from http import HTTPStatus
from typing import Protocol

import msgspec

from haulout import __version__
from haulout.errors import KubeError
from haulout.hub.admission import Use
from haulout.hub.standing import ClusterStanding
from haulout.kube.client import Client
from haulout.web.api.cluster_tiles import budget_uses, cluster_banners, cluster_tile
from haulout.web.api.heading import Heading
from haulout.web.api.hub import Hub, Looker, event
from haulout.web.api.pace import of_life, seconds_of_life
from haulout.web.api.shapes import (
    Banner,
    ClusterList,
    ClustersChanged,
    ClusterTile,
    Configuration,
    Edit,
    Fleet,
    Health,
    Hello,
    HistoryList,
    Level,
    Mode,
    NodeDetail,
    NoticeList,
    Replica,
    Summary,
    Timeline,
    WhatIf,
)
from haulout.web.api.source import HistoryQuery, Stretch, Unanswerable

log = logging.getLogger(__name__)

EVERY = timedelta(milliseconds=250)
KEPT_FOR = timedelta(seconds=30)  # after the last who looked has gone
_LOOKS_UP_EVERY = timedelta(seconds=1)
_BUDGET_EVERY = timedelta(seconds=2)  # the ledger is read so often at most
_THERE_WITHIN = timedelta(seconds=10)


class Standings(Protocol):
    """Whoever knows how workload clusters stand: `haulout.hub.controller.Hub`."""

    def standings(self) -> tuple[ClusterStanding, ...]:
        """Return how each of them stands."""
        ...

    def subscribe(self, callback: Callable[[], None], /) -> Callable[[], None]:
        """Call back when one of them stands in another way; returns what ends that."""
        ...


class Management:
    """Answers, while this hub leads."""

    def __init__(
        self,
        client: Client,
        standings: Standings,
        *,
        heading: Heading,
        health: Callable[[int], Awaitable[Health]],
        uses: Callable[[], Awaitable[tuple[Use, ...]]] | None = None,
    ) -> None:
        self.hub = Hub()
        self.tiles: dict[str, ClusterTile] = {}
        self._clock = client.clock
        self._standings = standings
        self._heading = heading
        self._health = health
        self._ask_uses = uses
        self._uses: tuple[Use, ...] = ()
        self._uses_until = 0.0
        self._problem = ""  # why it is not known how much of the budget is used
        self._summary: Summary | None = None
        self._wanted = asyncio.Event()
        self._news = asyncio.Event()
        self._fresh = asyncio.Event()
        self._kept_until = 0.0

    async def run(self) -> None:
        """Keep what is looked at, until cancelled."""
        try:
            while True:
                await self._wanted.wait()
                await self._keep()
        finally:
            self.hub.end()

    # What is asked

    async def summary(self) -> Summary:
        """Return how it stands as a whole."""
        await self._look()
        return msgspec.structs.replace(self._summed(), time=self._clock.now())

    async def clusters(self) -> ClusterList:
        """Return all workload clusters."""
        await self._look()
        tiles = tuple(tile for _, tile in sorted(self.tiles.items()))
        return ClusterList(revision=self.hub.revision, total=len(tiles), clusters=tiles)

    async def health(self) -> Health:
        """Return how the hub is doing."""
        return await self._health(len(self.hub))

    @contextlib.asynccontextmanager
    async def looking(self, *, since: str = "", node: str = "") -> AsyncIterator[Looker]:
        """Let somebody look on."""
        await self._look()
        hello = Hello(revision=self.hub.revision, time=self._clock.now(), mode=Mode.MANAGEMENT)
        first = event("hello", hello), event("summary", self._summed())
        with self.hub.looking(*first, since=since, node=node) as looker:
            yield looker

    # What a hub has not

    async def fleet(self) -> Fleet:
        """Have no nodes: they are in other clusters."""
        await self._look()
        return Fleet(revision=self.hub.revision, total=0, nodes=())

    async def detail(self, name: str) -> NodeDetail | None:
        """Know no node."""
        del name
        return None

    async def notices(self) -> NoticeList:
        """Have no notices: they are about nodes."""
        await self._look()
        return NoticeList(revision=self.hub.revision, notices=())

    async def timeline(self, stretch: Stretch) -> Timeline:
        """Have no timeline."""
        del stretch
        raise _not_here("no timeline")

    async def history(self, query: HistoryQuery) -> HistoryList:
        """Have no history: it is about nodes."""
        del query
        raise _not_here("no history of nodes")

    def history_csv(self, query: HistoryQuery) -> AsyncGenerator[bytes, None]:
        """Have none."""
        del query
        raise _not_here("no history of nodes")

    async def configuration(self) -> Configuration:
        """Have no configuration."""
        raise _not_here("no configuration")

    async def check(self, edit: Edit) -> WhatIf:
        """Check nothing."""
        del edit
        raise _not_here("no configuration")

    # How it is kept

    @property
    def _is_kept(self) -> bool:
        return len(self.hub) > 0 or self._clock.monotonic() < self._kept_until

    async def _look(self) -> None:
        """Want tiles; return when they are there."""
        self._kept_until = self._clock.monotonic() + seconds_of_life(KEPT_FOR)
        self._wanted.set()
        try:
            async with asyncio.timeout(seconds_of_life(_THERE_WITHIN)):
                await self._fresh.wait()
        except TimeoutError:
            raise Unanswerable("clusters are not known yet: they are being read") from None

    async def _keep(self) -> None:
        self.hub.begin(f"{int(self._clock.now().timestamp() * 1000):x}")
        end = self._standings.subscribe(self._news.set)
        try:
            while self._is_kept:
                await self._refresh()
                await self._clock.sleep(of_life(EVERY))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(seconds_of_life(_LOOKS_UP_EVERY)):
                        await self._news.wait()
        finally:
            end()
            self._wanted.clear()
            self._fresh.clear()
            self.tiles, self._summary = {}, None
            self.hub.end()

    async def _refresh(self) -> None:
        self._news.clear()
        await self._count()
        before = self.tiles
        self.tiles = {str(it.key): cluster_tile(it, self._uses) for it in self._standings.standings()}
        if self._fresh.is_set():
            changed = tuple(it for key, it in sorted(self.tiles.items()) if before.get(key) != it)
            gone = tuple(sorted(set(before) - set(self.tiles)))
            if changed or gone:
                told = ClustersChanged(revision=self.hub.next_revision(), changed=changed, gone=gone)
                self.hub.tell("clusters", told)
        summary = self._summed()
        if summary != self._summary and self._fresh.is_set():
            self.hub.tell("summary", summary)
        self._summary = summary
        self._fresh.set()

    async def _count(self) -> None:
        """Read how much of the budget is used, not too often."""
        now = self._clock.monotonic()
        if self._ask_uses is None or now < self._uses_until:
            return
        self._uses_until = now + seconds_of_life(_BUDGET_EVERY)
        try:
            self._uses, self._problem = await self._ask_uses(), ""
        except KubeError as error:
            self._problem = f"how much of the budget across clusters is used is not known: {error}"

    def _summed(self) -> Summary:
        problem = (Banner(level=Level.WARNING, text=self._problem, page="health"),) if self._problem else ()
        return Summary(
            version=__version__,
            cluster=self._heading.cluster,
            leader=Replica(identity=self._heading.identity, since=self._heading.since),
            budgets=budget_uses(self._uses),
            banners=(*problem, *self._heading.banners(), *cluster_banners(self.tiles.values())),
            mode=Mode.MANAGEMENT,
        )


def _not_here(what: str) -> Unanswerable:
    return Unanswerable(f"this is a hub, which has {what}: the operators in its clusters may", HTTPStatus.NOT_FOUND)
