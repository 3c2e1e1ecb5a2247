"""The `haulout.dashboard.api.backend.Backend` of an operator: answers from the leader's informers.

backend = NodeBackend(client, informers, operator_info=…, operator=…)
await backend.run()  # until cancelled, in the TaskGroup of the leader
"""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from typing import Protocol

import msgspec

from haulout import __version__
from haulout.api.maintenancerecord import MAINTENANCE_RECORDS
from haulout.api.maintenancerecord import Entry as Recorded
from haulout.api.objects import Base, Object
from haulout.api.resources import NODES
from haulout.dashboard.api.backend import HistoryQuery, HttpError, TimelineQuery
from haulout.dashboard.api.budget_usage import BudgetUsageView
from haulout.dashboard.api.health import OperatorInfo
from haulout.dashboard.api.history.fleet_history import FleetHistory
from haulout.dashboard.api.nodes.detail import detail_of
from haulout.dashboard.api.nodes.informers import Informers
from haulout.dashboard.api.notices import notice_list
from haulout.dashboard.api.types import (
    ClusterList,
    Configuration,
    ConfigurationEdit,
    ConfigurationPreview,
    Health,
    Hello,
    HistoryList,
    Leader,
    NodeDetail,
    NodeList,
    NodeState,
    NoticeList,
    Summary,
    Timeline,
)
from haulout.dashboard.stream.broadcaster import Broadcaster, Subscriber, encode_event
from haulout.dashboard.stream.summary_cache import REFRESH_INTERVAL, SummaryCache
from haulout.errors import Forbidden, KubeError, NotFound
from haulout.kube.client import Client

_UNCACHED_TTL = timedelta(seconds=5)
_MAX_UNCACHED = 100


class OperatorBackend(Protocol):
    """The answers about the operator itself."""

    async def timeline(self, query: TimelineQuery, fleet: NodeList) -> Timeline: ...

    async def configuration(self) -> Configuration: ...

    async def check(self, edit: ConfigurationEdit) -> ConfigurationPreview:
        """Return what would change with another configuration."""
        ...

    async def health(self, *, viewers: int) -> Health: ...


class NoOperatorBackend:
    """Answers nothing about the operator."""

    async def timeline(self, query: TimelineQuery, fleet: NodeList) -> Timeline:
        """Raise `HttpError`."""
        del query, fleet
        raise HttpError("there is no timeline here", HTTPStatus.NOT_IMPLEMENTED)

    async def configuration(self) -> Configuration:
        """Raise `HttpError`."""
        raise HttpError("the configuration is not available here", HTTPStatus.NOT_IMPLEMENTED)

    async def check(self, edit: ConfigurationEdit) -> ConfigurationPreview:
        """Raise `HttpError`."""
        del edit
        raise HttpError("configuration checks are not available here", HTTPStatus.NOT_IMPLEMENTED)

    async def health(self, *, viewers: int) -> Health:
        """Raise `HttpError`."""
        del viewers
        raise HttpError("the health of the operator is not available here", HTTPStatus.NOT_IMPLEMENTED)


class NodeBackend:
    """Answers requests while this process leads."""

    def __init__(
        self,
        client: Client,
        informers: Informers,
        *,
        operator_info: OperatorInfo,
        operator: OperatorBackend | None = None,
        interval: timedelta = REFRESH_INTERVAL,
    ) -> None:
        self.broadcaster = Broadcaster()
        self.summary_cache = SummaryCache(
            informers, self.broadcaster, summarize=self._summarize, describe=self.detail, interval=interval
        )
        self._client = client
        self._clock = client.clock
        self._informers = informers
        self._operator_info = operator_info
        self._operator: OperatorBackend = operator or NoOperatorBackend()
        self._budget_usage = BudgetUsageView(informers)
        self._fleet_history = FleetHistory(client, nodes=informers.nodes)
        self._uncached_details: dict[str, _UncachedDetails] = {}

    async def run(self) -> None:
        """Keep the tiles up to date while there are viewers, until cancelled."""
        await self.summary_cache.run()

    async def summary(self) -> Summary:
        return msgspec.structs.replace(await self.summary_cache.summary(), time=self._clock.now())

    async def fleet(self) -> NodeList:
        return await self.summary_cache.fleet()

    async def detail(self, name: str) -> NodeDetail | None:
        """Return all details of a node; None: there is no such node."""
        if self._informers.nodes.get(name) is None:
            return None
        uncached = await self._read_uncached(name)
        observation = self._informers.observer().observe(name)
        profiles = self._informers.profiles()
        if observation is None:
            return None
        configuration = None if profiles is None else profiles.configuration
        return detail_of(
            observation,
            configuration=configuration,
            kubelet=uncached.kubelet,
            history=uncached.history,
            history_problem=uncached.problem,
        )

    async def timeline(self, query: TimelineQuery) -> Timeline:
        return await self._operator.timeline(query, await self.summary_cache.fleet())

    async def history(self, query: HistoryQuery) -> HistoryList:
        return msgspec.structs.replace(
            await self._fleet_history.newest(query), components=self._operator_info.components
        )

    def history_csv(self, query: HistoryQuery) -> AsyncGenerator[bytes, None]:
        return self._fleet_history.csv(query)

    async def notices(self) -> NoticeList:
        await self.summary_cache.wait_ready()
        notices = self._informers.notices()
        found = () if notices is None else notices.notices.all()
        return notice_list(found, revision=self.broadcaster.revision, now=self._clock.now())

    async def clusters(self) -> ClusterList:
        """Raise `HttpError`: only a hub has clusters."""
        raise HttpError("this operator is no hub: it has nodes, and no clusters", HTTPStatus.NOT_FOUND)

    async def configuration(self) -> Configuration:
        return await self._operator.configuration()

    async def check(self, edit: ConfigurationEdit) -> ConfigurationPreview:
        return await self._operator.check(edit)

    async def health(self) -> Health:
        return await self._operator.health(viewers=len(self.broadcaster))

    @contextlib.asynccontextmanager
    async def subscribe(self, *, since: str = "", node: str = "") -> AsyncIterator[Subscriber]:
        """Subscribe a viewer while the context lasts."""
        summary = await self.summary_cache.summary()
        detail = await self.detail(node) if node else None
        initial = [
            encode_event("hello", Hello(revision=self.broadcaster.revision, time=self._clock.now())),
            encode_event("summary", summary),
        ]
        initial += [] if detail is None else [encode_event("node", detail)]
        with self.broadcaster.subscribe(*initial, since=since, node=node) as subscriber:
            yield subscriber

    def _summarize(self, summary_cache: SummaryCache) -> Summary:
        profiles, notices = self._informers.profiles(), self._informers.notices()
        configuration = None if profiles is None else profiles.configuration
        tiles = summary_cache.tiles.values()
        return Summary(
            version=__version__,
            cluster=self._operator_info.cluster,
            leader=Leader(identity=self._operator_info.identity, since=self._operator_info.since),
            total=len(tiles),
            counts={state: number for state, number in sorted(summary_cache.counts.items()) if number},
            zones=tuple(sorted({tile.zone for tile in tiles if tile.zone})),
            pools=tuple(sorted({tile.pool for tile in tiles if tile.pool})),
            profiles=() if configuration is None else tuple(configuration.profiles),
            budgets=self._budget_usage.uses(tile.name for tile in tiles if tile.state == NodeState.PLANNED),
            banners=self._operator_info.banners(),
            has_history=self._operator_info.has_history(),
            has_notices=notices is not None and not notices.notices.health().is_missing,
        )

    async def _read_uncached(self, name: str) -> "_UncachedDetails":
        """Return what is read on request, cached for a moment."""
        now, cached = self._clock.monotonic(), self._uncached_details.get(name)
        if cached is not None and now < cached.expires_at:
            return cached
        if len(self._uncached_details) >= _MAX_UNCACHED:
            self._uncached_details.clear()
        entries, problem = await self._history(name)
        expires_at = now + _UNCACHED_TTL.total_seconds()
        found = _UncachedDetails(
            expires_at=expires_at, history=entries, problem=problem, kubelet=await self._kubelet_version(name)
        )
        self._uncached_details[name] = found
        return found

    async def _history(self, name: str) -> tuple[tuple[Recorded, ...], str]:
        """Return the history of a node, or why it is unknown."""
        try:
            return (await self._client.get(MAINTENANCE_RECORDS, name)).entries, ""
        except NotFound:
            missing = f"{MAINTENANCE_RECORDS.kind} is not installed, so no history is kept"
            return (), "" if self._operator_info.has_history() else missing
        except Forbidden as error:
            return (), f"Haulout is not allowed to read it: {error}"
        except KubeError as error:
            return (), str(error)

    async def _kubelet_version(self, name: str) -> str:
        try:
            return (await self._client.get(NODES.with_model(_NodeWithKubelet), name)).status.node_info.kubelet_version
        except KubeError:
            return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _UncachedDetails:
    """The details of a node that no informer has."""

    expires_at: float
    history: tuple[Recorded, ...]
    problem: str
    kubelet: str


class _NodeInfo(Base, frozen=True):
    kubelet_version: str = ""


class _Status(Base, frozen=True):
    node_info: _NodeInfo = _NodeInfo()


class _NodeWithKubelet(Object, frozen=True):
    status: _Status = _Status()
