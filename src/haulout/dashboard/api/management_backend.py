"""The `haulout.dashboard.api.backend.Backend` of a hub: clusters instead of nodes.

    backend = ManagementBackend(client, hub, operator_info=…, health=…, read_uses=budget.usage)
    await backend.run()  # until cancelled, in the TaskGroup of the leader

As for nodes, nothing is computed without viewers, changes are batched, at most four batches a second, and the state is
kept for a while after the last viewer left.
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
from haulout.controllers.clusterapi.cluster_budget import LimitUsage
from haulout.controllers.clusterapi.status import WorkloadClusterStatus
from haulout.core.clock import real_seconds, real_time
from haulout.dashboard.api.backend import HistoryQuery, HttpError, TimelineQuery
from haulout.dashboard.api.cluster_summary import budget_uses, cluster_banners, summarize_cluster
from haulout.dashboard.api.health import OperatorInfo
from haulout.dashboard.api.types import (
    Banner,
    ClusterList,
    ClustersChanged,
    ClusterSummary,
    Configuration,
    ConfigurationEdit,
    ConfigurationPreview,
    Health,
    Hello,
    HistoryList,
    Leader,
    Level,
    Mode,
    NodeDetail,
    NodeList,
    NoticeList,
    Summary,
    Timeline,
)
from haulout.dashboard.stream.broadcaster import Broadcaster, Subscriber, encode_event
from haulout.errors import KubeError
from haulout.kube.client import Client

log = logging.getLogger(__name__)

REFRESH_INTERVAL = timedelta(milliseconds=250)
KEEP_AFTER_LAST_VIEWER = timedelta(seconds=30)  # after the last viewer left
_SUMMARY_INTERVAL = timedelta(seconds=1)
_BUDGET_INTERVAL = timedelta(seconds=2)  # between reads of the ledger
_READY_TIMEOUT = timedelta(seconds=10)


class ClusterStatuses(Protocol):
    """The source of cluster states: `haulout.controllers.clusterapi.controller.ClusterApiController`."""

    def cluster_statuses(self) -> tuple[WorkloadClusterStatus, ...]: ...

    def subscribe(self, callback: Callable[[], None], /) -> Callable[[], None]:
        """Call back when a cluster's state changes; return a function that unsubscribes."""
        ...


class ManagementBackend:
    """Answers requests while this hub leads."""

    def __init__(
        self,
        client: Client,
        clusters: ClusterStatuses,
        *,
        operator_info: OperatorInfo,
        health: Callable[[int], Awaitable[Health]],
        read_uses: Callable[[], Awaitable[tuple[LimitUsage, ...]]] | None = None,
    ) -> None:
        self.broadcaster = Broadcaster()
        self.tiles: dict[str, ClusterSummary] = {}
        self._clock = client.clock
        self._clusters = clusters
        self._operator_info = operator_info
        self._health = health
        self._read_uses = read_uses
        self._uses: tuple[LimitUsage, ...] = ()
        self._uses_fresh_until = 0.0
        self._budget_problem = ""  # why the usage of the budget is unknown
        self._summary: Summary | None = None
        self._requested = asyncio.Event()
        self._changed = asyncio.Event()
        self._refreshed = asyncio.Event()
        self._keep_until = 0.0

    async def run(self) -> None:
        """Keep the state up to date while there are viewers, until cancelled."""
        try:
            while True:
                await self._requested.wait()
                await self._keep_updated()
        finally:
            self.broadcaster.reset_all()

    # Requests

    async def summary(self) -> Summary:
        await self._wait_ready()
        return msgspec.structs.replace(self._summarize(), time=self._clock.now())

    async def clusters(self) -> ClusterList:
        await self._wait_ready()
        tiles = tuple(tile for _, tile in sorted(self.tiles.items()))
        return ClusterList(revision=self.broadcaster.revision, total=len(tiles), clusters=tiles)

    async def health(self) -> Health:
        return await self._health(len(self.broadcaster))

    @contextlib.asynccontextmanager
    async def subscribe(self, *, since: str = "", node: str = "") -> AsyncIterator[Subscriber]:
        """Subscribe a viewer while the context lasts."""
        await self._wait_ready()
        hello = Hello(revision=self.broadcaster.revision, time=self._clock.now(), mode=Mode.MANAGEMENT)
        initial = encode_event("hello", hello), encode_event("summary", self._summarize())
        with self.broadcaster.subscribe(*initial, since=since, node=node) as subscriber:
            yield subscriber

    # Requests that a hub cannot answer

    async def fleet(self) -> NodeList:
        """Return no nodes: they are in other clusters."""
        await self._wait_ready()
        return NodeList(revision=self.broadcaster.revision, total=0, nodes=())

    async def detail(self, name: str) -> NodeDetail | None:
        """Return None: a hub has no nodes."""
        del name
        return None

    async def notices(self) -> NoticeList:
        """Return no notices: they are about nodes."""
        await self._wait_ready()
        return NoticeList(revision=self.broadcaster.revision, notices=())

    async def timeline(self, query: TimelineQuery) -> Timeline:
        """Raise `HttpError`."""
        del query
        raise _not_on_management_cluster("no timeline")

    async def history(self, query: HistoryQuery) -> HistoryList:
        """Raise `HttpError`."""
        del query
        raise _not_on_management_cluster("no history of nodes")

    def history_csv(self, query: HistoryQuery) -> AsyncGenerator[bytes, None]:
        """Raise `HttpError`."""
        del query
        raise _not_on_management_cluster("no history of nodes")

    async def configuration(self) -> Configuration:
        """Raise `HttpError`."""
        raise _not_on_management_cluster("no configuration")

    async def check(self, edit: ConfigurationEdit) -> ConfigurationPreview:
        """Raise `HttpError`."""
        del edit
        raise _not_on_management_cluster("no configuration")

    # Refresh

    @property
    def _is_in_use(self) -> bool:
        return len(self.broadcaster) > 0 or self._clock.monotonic() < self._keep_until

    async def _wait_ready(self) -> None:
        """Request the state, and wait until it is there."""
        self._keep_until = self._clock.monotonic() + real_seconds(KEEP_AFTER_LAST_VIEWER)
        self._requested.set()
        try:
            async with asyncio.timeout(real_seconds(_READY_TIMEOUT)):
                await self._refreshed.wait()
        except TimeoutError:
            raise HttpError("clusters are not loaded yet") from None

    async def _keep_updated(self) -> None:
        self.broadcaster.start(f"{int(self._clock.now().timestamp() * 1000):x}")
        unsubscribe = self._clusters.subscribe(self._changed.set)
        try:
            while self._is_in_use:
                await self._refresh()
                await self._clock.sleep(real_time(REFRESH_INTERVAL))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(real_seconds(_SUMMARY_INTERVAL)):
                        await self._changed.wait()
        finally:
            unsubscribe()
            self._requested.clear()
            self._refreshed.clear()
            self.tiles, self._summary = {}, None
            self.broadcaster.reset_all()

    async def _refresh(self) -> None:
        self._changed.clear()
        await self._refresh_budget()
        before = self.tiles
        self.tiles = {
            str(cluster.key): summarize_cluster(cluster, self._uses) for cluster in self._clusters.cluster_statuses()
        }
        if self._refreshed.is_set():
            changed = tuple(cluster for key, cluster in sorted(self.tiles.items()) if before.get(key) != cluster)
            gone = tuple(sorted(set(before) - set(self.tiles)))
            if changed or gone:
                change = ClustersChanged(revision=self.broadcaster.next_revision(), changed=changed, deleted=gone)
                self.broadcaster.publish("clusters", change)
        summary = self._summarize()
        if summary != self._summary and self._refreshed.is_set():
            self.broadcaster.publish("summary", summary)
        self._summary = summary
        self._refreshed.set()

    async def _refresh_budget(self) -> None:
        """Read the usage of the budget, at most once per _BUDGET_INTERVAL."""
        now = self._clock.monotonic()
        if self._read_uses is None or now < self._uses_fresh_until:
            return
        self._uses_fresh_until = now + real_seconds(_BUDGET_INTERVAL)
        try:
            self._uses, self._budget_problem = await self._read_uses(), ""
        except KubeError as error:
            self._budget_problem = f"cannot read the usage of the budget across clusters: {error}"

    def _summarize(self) -> Summary:
        problem = (
            (Banner(level=Level.WARNING, message=self._budget_problem, page="health"),) if self._budget_problem else ()
        )
        return Summary(
            version=__version__,
            cluster=self._operator_info.cluster,
            leader=Leader(identity=self._operator_info.identity, since=self._operator_info.since),
            budgets=budget_uses(self._uses),
            banners=(*problem, *self._operator_info.banners(), *cluster_banners(self.tiles.values())),
            mode=Mode.MANAGEMENT,
        )


def _not_on_management_cluster(what: str) -> HttpError:
    return HttpError(f"this is a hub, which has {what}: ask the operator of the workload cluster", HTTPStatus.NOT_FOUND)
