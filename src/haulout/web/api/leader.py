"""What the leader answers from its caches: `haulout.web.api.source.Source`, put together.

leader = Leader(client, sight, summed=…, more=…)
await leader.run()                              # until cancelled, in the task group of whoever leads
"""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from typing import Protocol

import msgspec

from haulout import __version__
from haulout.errors import Forbidden, KubeError, NotFound
from haulout.history.record import MAINTENANCE_RECORDS
from haulout.history.record import Entry as Recorded
from haulout.kube.client import Client
from haulout.kube.objects import Base, Object
from haulout.kube.resources import NODES
from haulout.web.api.board import EVERY, Board
from haulout.web.api.budgets import Budgets
from haulout.web.api.details import detail_of
from haulout.web.api.fleet_history import FleetHistory
from haulout.web.api.heading import Heading
from haulout.web.api.hub import Hub, Looker, event
from haulout.web.api.notices import listed
from haulout.web.api.shapes import (
    ClusterList,
    Configuration,
    Edit,
    Fleet,
    Health,
    Hello,
    HistoryList,
    NodeDetail,
    NodeState,
    NoticeList,
    Replica,
    Summary,
    Timeline,
    WhatIf,
)
from haulout.web.api.sight import Sight
from haulout.web.api.source import HistoryQuery, Stretch, Unanswerable

_ASIDE_FOR = timedelta(seconds=5)
_MOST_ASIDES = 100


class More(Protocol):
    """What is answered beside nodes."""

    async def timeline(self, stretch: Stretch, fleet: Fleet) -> Timeline:
        """Return what was, is and comes."""
        ...

    async def configuration(self) -> Configuration:
        """Return what profiles go by."""
        ...

    async def check(self, edit: Edit) -> WhatIf:
        """Return what would change with another configuration."""
        ...

    async def health(self, *, viewers: int) -> Health:
        """Return how the operator is doing."""
        ...


class NothingMore:
    """Answers nothing beside nodes."""

    async def timeline(self, stretch: Stretch, fleet: Fleet) -> Timeline:
        """Have no timeline."""
        del stretch, fleet
        raise Unanswerable("there is no timeline here", HTTPStatus.NOT_IMPLEMENTED)

    async def configuration(self) -> Configuration:
        """Have no configuration."""
        raise Unanswerable("the configuration is not told here", HTTPStatus.NOT_IMPLEMENTED)

    async def check(self, edit: Edit) -> WhatIf:
        """Check nothing."""
        del edit
        raise Unanswerable("nothing is checked here", HTTPStatus.NOT_IMPLEMENTED)

    async def health(self, *, viewers: int) -> Health:
        """Know of no health."""
        del viewers
        raise Unanswerable("how the operator is doing is not told here", HTTPStatus.NOT_IMPLEMENTED)


class Leader:
    """Answers, while this process leads."""

    def __init__(
        self, client: Client, sight: Sight, *, heading: Heading, more: More | None = None, every: timedelta = EVERY
    ) -> None:
        self.hub = Hub()
        self.board = Board(sight, self.hub, summed=self._summed, described=self.detail, every=every)
        self._client = client
        self._clock = client.clock
        self._sight = sight
        self._heading = heading
        self._more: More = more or NothingMore()
        self._budgets = Budgets(sight)
        self._fleet_history = FleetHistory(client, nodes=sight.nodes)
        self._asides: dict[str, _Aside] = {}

    async def run(self) -> None:
        """Keep what is looked at, until cancelled."""
        await self.board.run()

    async def summary(self) -> Summary:
        """Return how it stands as a whole."""
        return msgspec.structs.replace(await self.board.summary(), time=self._clock.now())

    async def fleet(self) -> Fleet:
        """Return all nodes."""
        return await self.board.fleet()

    async def detail(self, name: str) -> NodeDetail | None:
        """Return all there is to know about a node."""
        if self._sight.nodes.get(name) is None:
            return None
        aside = await self._aside(name)
        subject = self._sight.subjects().get(name)
        profiles = self._sight.profiles()
        if subject is None:
            return None
        configuration = None if profiles is None else profiles.configuration
        return detail_of(
            subject,
            configuration=configuration,
            kubelet=aside.kubelet,
            history=aside.history,
            history_problem=aside.problem,
        )

    async def timeline(self, stretch: Stretch) -> Timeline:
        """Return what was, is and comes."""
        return await self._more.timeline(stretch, await self.board.fleet())

    async def history(self, query: HistoryQuery) -> HistoryList:
        """Return what happened last to all nodes."""
        return await self._fleet_history.newest(query)

    def history_csv(self, query: HistoryQuery) -> AsyncGenerator[bytes, None]:
        """Return all that happened as CSV, in pieces."""
        return self._fleet_history.csv(query)

    async def notices(self) -> NoticeList:
        """Return all notices."""
        await self.board.look()
        notices = self._sight.notices()
        found = () if notices is None else notices.notices.all()
        return listed(found, revision=self.hub.revision, now=self._clock.now())

    async def clusters(self) -> ClusterList:
        """Have none: that is for a hub."""
        raise Unanswerable("this operator is no hub: it has nodes, and no clusters", HTTPStatus.NOT_FOUND)

    async def configuration(self) -> Configuration:
        """Return what profiles go by."""
        return await self._more.configuration()

    async def check(self, edit: Edit) -> WhatIf:
        """Return what would change with another configuration."""
        return await self._more.check(edit)

    async def health(self) -> Health:
        """Return how the operator is doing."""
        return await self._more.health(viewers=len(self.hub))

    @contextlib.asynccontextmanager
    async def looking(self, *, since: str = "", node: str = "") -> AsyncIterator[Looker]:
        """Let somebody look on."""
        summary = await self.board.summary()
        detail = await self.detail(node) if node else None
        first = [event("hello", Hello(revision=self.hub.revision, time=self._clock.now())), event("summary", summary)]
        first += [] if detail is None else [event("node", detail)]
        with self.hub.looking(*first, since=since, node=node) as looker:
            yield looker

    def _summed(self, board: Board) -> Summary:
        profiles, notices = self._sight.profiles(), self._sight.notices()
        configuration = None if profiles is None else profiles.configuration
        tiles = board.tiles.values()
        return Summary(
            version=__version__,
            cluster=self._heading.cluster,
            leader=Replica(identity=self._heading.identity, since=self._heading.since),
            total=len(tiles),
            counts={state: number for state, number in sorted(board.counts.items()) if number},
            zones=tuple(sorted({it.zone for it in tiles if it.zone})),
            pools=tuple(sorted({it.pool for it in tiles if it.pool})),
            profiles=() if configuration is None else tuple(configuration.profiles),
            budgets=self._budgets.uses(it.name for it in tiles if it.state == NodeState.PLANNED),
            banners=self._heading.banners(),
            has_history=self._heading.has_history(),
            has_notices=notices is not None and not notices.notices.health().is_missing,
        )

    async def _aside(self, name: str) -> "_Aside":
        """Return what is read when somebody asks, and kept for a moment."""
        now, known = self._clock.monotonic(), self._asides.get(name)
        if known is not None and now < known.until:
            return known
        if len(self._asides) >= _MOST_ASIDES:
            self._asides.clear()
        entries, problem = await self._history(name)
        until = now + _ASIDE_FOR.total_seconds()
        found = _Aside(until=until, history=entries, problem=problem, kubelet=await self._kubelet(name))
        self._asides[name] = found
        return found

    async def _history(self, name: str) -> tuple[tuple[Recorded, ...], str]:
        """Return what happened to a node, or why nobody knows."""
        try:
            return (await self._client.get(MAINTENANCE_RECORDS, name)).entries, ""
        except NotFound:
            missing = f"{MAINTENANCE_RECORDS.kind} is not installed, so nothing is written down"
            return (), "" if self._heading.has_history() else missing
        except Forbidden as error:
            return (), f"Haulout may not read it: {error}"
        except KubeError as error:
            return (), str(error)

    async def _kubelet(self, name: str) -> str:
        try:
            return (await self._client.get(NODES.of(_NodeWithKubelet), name)).status.node_info.kubelet_version
        except KubeError:
            return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Aside:
    """What no cache has of a node."""

    until: float
    history: tuple[Recorded, ...]
    problem: str
    kubelet: str


class _NodeInfo(Base, frozen=True):
    kubelet_version: str = ""


class _Status(Base, frozen=True):
    node_info: _NodeInfo = _NodeInfo()


class _NodeWithKubelet(Object, frozen=True):
    status: _Status = _Status()
