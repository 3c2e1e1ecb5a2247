"""Memory quotas of many workload clusters in one process: allocation, eviction and recovery of caches and responses."""

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from haulout.api.objects import Node
from haulout.api.resources import NODES
from haulout.controllers.clusterapi.cluster_accessor import strip_node, stripped_node_bytes
from haulout.core.clock import RealClock
from haulout.core.memory import MemoryQuota
from haulout.errors import KubeError, LimitExceeded
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.limits import WORKLOAD_CLUSTER, CacheQuota, WorkloadClusterMemory
from haulout.kube.reflector import ListWatch, Reflector
from haulout.kube.transport import Request
from haulout.kube.transports.config import Connection
from haulout.kube.transports.credentials import ANONYMOUS
from haulout.kube.transports.http import HttpTransport
from haulout.kube.transports.tls import TlsClientConfig
from support.expectations.eventually import eventually
from support.servers.hostile_server import Bomb, bomb_server

pytestmark = pytest.mark.real_time

MIB = 1 << 20
SOON = timedelta(seconds=60)


class FastClock(RealClock):
    """A clock that shortens each sleep."""

    async def sleep(self, duration: timedelta) -> None:
        """Sleep for a moment at most."""
        await super().sleep(min(duration, timedelta(milliseconds=50)))


CLOCK = FastClock()


@pytest.fixture(autouse=True)
def _established_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("haulout.kube.reflector._ESTABLISHED_AFTER", timedelta(milliseconds=100))


def memory_of(*, caches: int = 100 * MIB, reads: int = 25 * MIB) -> WorkloadClusterMemory:
    memory = WorkloadClusterMemory(400 * MIB, clock=CLOCK)
    memory.caches.limit, memory.reads.limit = caches, reads
    return memory


def transport_to(url: str, reads: MemoryQuota) -> HttpTransport:
    connection = Connection(
        server=url, credentials=ANONYMOUS, tls=TlsClientConfig(), context="c", source="config", user="u"
    )
    return HttpTransport(connection, clock=CLOCK, limits=WORKLOAD_CLUSTER, reads=reads)


@asynccontextmanager
async def client_of(url: str, memory: WorkloadClusterMemory) -> AsyncIterator[Client]:
    cached = CacheQuota(WORKLOAD_CLUSTER, shared=memory.caches)
    client = Client(transport_to(url, memory.reads), clock=CLOCK, random=Random(1), cache_quota=cached)
    try:
        yield client
    finally:
        await client.close()


class RunningInformer:
    """The nodes of one cluster, as a hub caches them."""

    def __init__(self, client: Client, observe: Callable[[KubeError | None], None] | None = None) -> None:
        self.observed: list[KubeError | None] = []
        observe = observe or self.observed.append
        self.cache: Informer[Node] = Informer(
            client,
            ListWatch(NODES, page_size=100),
            transform=strip_node,
            size=stripped_node_bytes,
            on_health_change=observe,
        )

    @property
    def is_complete(self) -> bool:
        """Whether all nodes are known."""
        return self.cache.health().has_synced


@asynccontextmanager
async def running_informer(url: str, memory: WorkloadClusterMemory) -> AsyncIterator[RunningInformer]:
    async with client_of(url, memory) as client, running(RunningInformer(client)) as followed:
        yield followed


@asynccontextmanager
async def running(followed: RunningInformer) -> AsyncIterator[RunningInformer]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(followed.cache.run())
        try:
            yield followed
        finally:
            task.cancel()


def _is_watch(path: str) -> bool:
    return "watch=" in path and "sendInitialEvents" not in path


async def test_default_limits_fit_two_hundred_clusters_of_ordinary_size() -> None:
    """All of them start at once, as when a hub starts: responses that are read at the same time count, too."""
    memory = WorkloadClusterMemory(400 * MIB, clock=CLOCK)
    async with bomb_server(Bomb.ORDINARY) as server, AsyncExitStack() as stack:
        clusters = [await stack.enter_async_context(running_informer(server.url, memory)) for _ in range(200)]
        await eventually(CLOCK, lambda: all(cluster.is_complete for cluster in clusters), within=SOON)
        assert {len(cluster.cache) for cluster in clusters} == {50}
        assert [cluster.observed for cluster in clusters if any(cluster.observed)] == []
        assert memory.caches.used < memory.caches.limit // 4
        # All connections are open: only these are closed when the server ends.
        await eventually(CLOCK, lambda: len(list(filter(_is_watch, server.requested_paths))) >= 200, within=SOON)


async def test_cluster_evicted_in_the_middle_of_a_list_recovers_when_memory_is_free() -> None:
    memory = memory_of(caches=8 * MIB)
    async with bomb_server(Bomb.HALF_LIST) as server, running_informer(server.url, memory) as large:
        await eventually(CLOCK, lambda: memory.caches.used > 3_000_000, within=SOON)
        evictions: list[LimitExceeded] = []
        others = [memory.caches.new_share(evictions.append) for _ in range(2)]
        for other in others:
            other.resize(2_900_000, doing="following nodes of another cluster")
        assert "following nodes: more than 8 MiB in the caches of all workload clusters" in str(large.observed[-1])
        assert (memory.caches.used, len(large.cache)) == (5_800_000, 0)

        server.gate.set()
        await eventually(CLOCK, lambda: len(large.observed) > 4, within=SOON)
        assert not any(error is None for error in large.observed)
        assert not large.is_complete
        assert evictions == []

        memory.caches.release(others[0])
        memory.caches.release(others[1])
        await eventually(CLOCK, lambda: large.observed[-1] is None, within=SOON)
        assert len(large.cache) == 6
    assert memory.caches.used == 0


async def test_synced_cluster_that_is_evicted_is_not_synced_until_it_is_listed_again() -> None:
    memory = memory_of(caches=4 * MIB)
    async with bomb_server(Bomb.NONE) as server, running_informer(server.url, memory) as followed:
        await eventually(CLOCK, lambda: followed.is_complete, within=SOON)
        memory.caches.limit = 1000
        small = memory.caches.new_share(lambda _: None)
        small.resize(1, doing="following nodes of another cluster")
        assert not followed.is_complete
        assert len(followed.cache) == 0
        memory.caches.limit = 4 * MIB
        await eventually(CLOCK, lambda: followed.is_complete and followed.observed[-1] is None, within=SOON)
        assert [node.name for node in followed.cache.all()] == ["n1"]


async def test_cluster_evicted_while_idle_recovers() -> None:
    observed: list[KubeError | None] = []
    async with bomb_server(Bomb.NONE) as server, client_of(server.url, memory_of()) as client:
        followed = RunningInformer(client)
        follower = Reflector(client, ListWatch(NODES), followed.cache, on_health_change=observed.append)
        follower.interrupt(LimitExceeded("too much in all caches"))
        async with asyncio.TaskGroup() as group:
            task = group.create_task(follower.run())
            await eventually(CLOCK, lambda: observed[-1] is None, within=SOON)
            task.cancel()
    assert [str(error) for error in observed[:-1]] == ["too much in all caches"]


@pytest.mark.parametrize("bomb", [Bomb.HEAVY, Bomb.HALF_LIST])
async def test_evicted_cluster_keeps_no_objects_in_memory(bomb: Bomb) -> None:
    """One cluster exceeds the limit by itself, the other in the middle of a list; garbage collection is off."""
    memory, texts = memory_of(caches=8 * MIB), list[str]()
    cached = CacheQuota(WORKLOAD_CLUSTER, shared=memory.caches)
    async with bomb_server(bomb) as server, AsyncExitStack() as stack:
        client = Client(transport_to(server.url, memory.reads), clock=RealClock(), random=Random(1), cache_quota=cached)
        stack.push_async_callback(client.close)
        followed = RunningInformer(client, observe=lambda error: texts.append(str(error)))
        gc.collect()
        gc.disable()
        stack.callback(gc.enable)
        tracemalloc.start()
        stack.callback(tracemalloc.stop)
        await stack.enter_async_context(running(followed))
        await eventually(CLOCK, lambda: texts or memory.caches.used > 3_000_000, within=SOON)
        if bomb is Bomb.HALF_LIST:
            for _ in range(2):
                memory.caches.new_share(lambda _: None).resize(2_900_000, doing="following nodes of another cluster")
        await eventually(CLOCK, lambda: len(texts) > 1, within=SOON)
        await CLOCK.sleep(timedelta(milliseconds=50))
        assert "in the caches of all workload clusters" in texts[-1]
        ours = tracemalloc.take_snapshot().filter_traces(
            [tracemalloc.Filter(inclusive=True, filename_pattern="*/haulout/kube/*")]
        )
        assert sum(trace.size for trace in ours.traces) < 1_000_000


async def body_of(transport: HttpTransport) -> None:
    await transport.send(Request(method="GET", path="/api/v1/nodes", timeout=SOON))


async def line_of(transport: HttpTransport) -> None:
    query = (("watch", "true"),)
    async with transport.stream(Request(method="GET", path="/api/v1/nodes", query=query, timeout=SOON)) as stream:
        async for _ in stream.lines():
            pass


@pytest.mark.parametrize("read", [body_of, line_of])
async def test_largest_response_being_read_is_aborted_when_memory_is_exhausted(
    read: Callable[[HttpTransport], Coroutine[Any, Any, None]],
) -> None:
    """One response of 3 MB stalls; another one of 2 MB does not fit in the quota with it."""
    reads = memory_of(reads=4 * MIB).reads
    async with bomb_server(Bomb.STALL) as stalled, bomb_server(Bomb.LARGE_PAGES) as honest, AsyncExitStack() as stack:
        slow, quick = (transport_to(server.url, reads) for server in (stalled, honest))
        stack.push_async_callback(slow.close)
        stack.push_async_callback(quick.close)

        async def give_up() -> str:
            with pytest.raises(LimitExceeded) as caught:
                await read(slow)
            return str(caught.value)

        async with asyncio.TaskGroup() as group:
            reading = group.create_task(give_up())
            await eventually(CLOCK, lambda: reads.used > 3_000_000, within=SOON)
            query = (("limit", "20"),)
            page = await quick.send(Request(method="GET", path="/api/v1/nodes", query=query, timeout=SOON))
            assert len(page.body) > 2_000_000
        assert "more than 4 MiB in the responses of all workload clusters that are being read" in reading.result()
        assert stalled.url in reading.result()
        assert reads.used == 0
