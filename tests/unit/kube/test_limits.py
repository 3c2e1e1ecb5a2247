"""Servers that send more than they may: each of them meets a limit, on either transport."""

import asyncio
import contextlib
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest

from haulout.api.objects import Node
from haulout.api.resources import NODES
from haulout.controllers.clusterapi.cluster_accessor import strip_node, stripped_node_bytes
from haulout.core.clock import RealClock
from haulout.errors import KubeError, LimitExceeded, MalformedResponse, ServerFailure, Unreachable
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.limits import (
    OWN_CLUSTER,
    WORKLOAD_CLUSTER,
    CacheQuota,
    Limits,
    WatchRateLimiter,
    WorkloadClusterMemory,
)
from haulout.kube.reflector import ListWatch
from haulout.kube.transport import Request, Transport
from haulout.kube.transports import http_common
from haulout.kube.transports.config import Connection
from haulout.kube.transports.credentials import ANONYMOUS
from haulout.kube.transports.h11_http import H11Transport
from haulout.kube.transports.http import HttpTransport
from haulout.kube.transports.tls import TlsClientConfig
from support.expectations.eventually import eventually
from support.servers.hostile_server import Bomb, BombServer, bomb_server, gzip_bomb

pytestmark = pytest.mark.real_time

CLOCK = RealClock()
Reach = Callable[[str, Limits], Transport]


def _connection(server: str) -> Connection:
    return Connection(
        server=server, credentials=ANONYMOUS, tls=TlsClientConfig(), context="c", source="config", user="u"
    )


def by_http(server: str, limits: Limits) -> Transport:
    return HttpTransport(_connection(server), clock=CLOCK, limits=limits)


def by_h11(server: str, limits: Limits) -> Transport:
    return H11Transport(_connection(server), clock=CLOCK, user_agent="test", limits=limits)


@pytest.fixture(params=[by_http, by_h11])
def reach(request: pytest.FixtureRequest) -> Reach:
    found: Reach = request.param
    return found


@asynccontextmanager
async def client_of(
    bomb: Bomb, reach: Reach = by_http, limits: Limits = WORKLOAD_CLUSTER
) -> AsyncIterator[tuple[Client, BombServer]]:
    async with bomb_server(bomb) as server:
        client = Client(reach(server.url, limits), clock=CLOCK, random=Random(1), cache_quota=CacheQuota(limits))
        try:
            yield client, server
        finally:
            await client.close()


@asynccontextmanager
async def running_informer(client: Client) -> AsyncIterator[tuple[Informer[Node], list[KubeError | None]]]:
    observed: list[KubeError | None] = []
    cache: Informer[Node] = Informer(
        client, ListWatch(NODES), transform=strip_node, size=stripped_node_bytes, on_health_change=observed.append
    )
    async with asyncio.TaskGroup() as group:
        task = group.create_task(cache.run())
        try:
            yield cache, observed
        finally:
            task.cancel()


async def failure_of(client: Client) -> LimitExceeded:
    """Return the error with which watching nodes fails."""
    async with running_informer(client) as (_, observed):
        await eventually(CLOCK, lambda: observed, within=timedelta(seconds=30))
        assert isinstance(observed[0], LimitExceeded)
        return observed[0]


@pytest.fixture
def peak() -> Iterator[Callable[[], int]]:
    gzip_bomb()
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


async def test_gzip_bomb_is_decompressed_up_to_the_limit_only(peak: Callable[[], int]) -> None:
    async with client_of(Bomb.GZIP) as (client, server):
        with pytest.raises(LimitExceeded, match=r"listing nodes: GET .*: the answer is longer than 4194304 bytes"):
            await client.list(NODES)
        assert len(server.requested_paths) == 5, "smaller pages were requested, and nothing else"
    assert peak() < 24 << 20


async def test_gzip_within_gzip_is_not_decompressed(peak: Callable[[], int]) -> None:
    async with client_of(Bomb.STACKED_GZIP) as (client, _):
        with pytest.raises(MalformedResponse, match="expected JSON from a Kubernetes API server"):
            await _list_in_one_page(client)
    assert peak() < 24 << 20


async def _list_in_one_page(client: Client) -> None:
    async for _ in client.pages(NODES, page_size=0):
        pass


async def test_endless_response_body_exceeds_the_limit(reach: Reach) -> None:
    async with client_of(Bomb.ENDLESS_BODY, reach) as (client, _):
        with pytest.raises(LimitExceeded, match="the answer is longer than 4194304 bytes"):
            await client.list(NODES)


@pytest.mark.parametrize(
    ("bomb", "problem"),
    [
        (Bomb.ENDLESS_PAGES, "listing nodes: more than 5000 objects"),
        (Bomb.ENDLESS_EMPTY_PAGES, "listing nodes: the pages of the list do not end"),
        (Bomb.SAME_TOKEN, "listing nodes: the pages of the list do not end"),
        (Bomb.UNDECODABLE_OBJECTS, "objects of one page cannot be decoded"),
    ],
)
async def test_endless_list_exceeds_the_limit(reach: Reach, bomb: Bomb, problem: str) -> None:
    async with client_of(bomb, reach, replace(WORKLOAD_CLUSTER, list_objects=5000)) as (client, _):
        with pytest.raises(LimitExceeded, match=problem):
            await client.list(NODES)


async def test_pages_of_a_list_together_have_a_size_limit(reach: Reach) -> None:
    async with client_of(Bomb.ENDLESS_PAGES, reach, replace(WORKLOAD_CLUSTER, list_bytes=1 << 20)) as (client, _):
        with pytest.raises(LimitExceeded, match="listing nodes: more than 1 MiB on all pages"):
            await client.list(NODES)


async def test_list_of_large_objects_is_requested_in_smaller_pages(reach: Reach) -> None:
    """300 nodes of 100 kB: a page of 500 is 30 MB, one of 100 still 10 MB, one of 20 is not too large."""
    async with client_of(Bomb.LARGE_PAGES, reach) as (client, server):
        found = await client.list(NODES)
        assert len({node.name for node in found.items}) == len(found.items) == 300
        assert len(server.requested_paths) == 2 + 15


async def test_deeply_nested_json_is_a_malformed_response(reach: Reach) -> None:
    async with client_of(Bomb.DEEP, reach) as (client, _):
        with pytest.raises(MalformedResponse, match="listing nodes"):
            await _list_in_one_page(client)


async def test_only_the_beginning_of_an_error_response_is_read(reach: Reach) -> None:
    async with client_of(Bomb.ENDLESS_ERROR, reach) as (client, _):
        with pytest.raises(ServerFailure, match="HTTP 500: xxx") as caught:
            await _list_in_one_page(client)
        assert len(str(caught.value)) < 1000


async def test_slow_response_body_is_subject_to_the_request_timeout(reach: Reach) -> None:
    async with client_of(Bomb.SLOW_BODY, reach) as (client, _):
        with pytest.raises(Unreachable, match=r"no answer within 0\.5 s"):
            await client.transport.send(Request(method="GET", path="/", timeout=timedelta(seconds=0.5)))


async def test_endless_response_headers_are_an_error(reach: Reach) -> None:
    async with client_of(Bomb.ENDLESS_HEADERS, reach) as (client, _):
        with pytest.raises((MalformedResponse, Unreachable)):
            await client.transport.send(Request(method="GET", path="/", timeout=timedelta(seconds=20)))


@pytest.mark.parametrize(
    ("bomb", "problem"),
    [
        (Bomb.LONG_LINE, "a line of the stream is longer than 4194304 bytes"),
        (Bomb.FLOOD, "the watch sends more than 50000 lines at once and 2000 a second"),
        (Bomb.GROWTH, "following nodes: more than 5000 objects in all caches of the cluster"),
        (Bomb.LARGE_ROWS, "following nodes: more than 16 MiB in all caches of the cluster"),
    ],
)
async def test_watch_that_exceeds_its_limits_is_ended(reach: Reach, bomb: Bomb, problem: str) -> None:
    limits = replace(WORKLOAD_CLUSTER, cached_objects=5000, cached_bytes=16 << 20)
    async with client_of(bomb, reach, limits) as (client, _):
        assert problem in str(await failure_of(client))


async def test_compressed_flood_of_watch_lines_exceeds_the_limit() -> None:
    """A kilobyte of gzip holds thousands of lines."""
    limits = replace(OWN_CLUSTER, list_objects=200_000, lines_per_second=1)
    async with client_of(Bomb.GZIP_FLOOD, limits=limits) as (client, _):
        assert "the watch sends more than 200000 lines" in str(await failure_of(client))


async def test_reading_many_buffered_lines_yields_to_other_tasks() -> None:
    chunks = iter([b"line\n" * 20_000] * 50)
    turns = 0

    async def read() -> bytes:
        return next(chunks, b"")

    async def count_turns() -> None:
        nonlocal turns
        while True:
            await CLOCK.sleep(timedelta())
            turns += 1

    async with asyncio.TaskGroup() as group:
        task = group.create_task(count_turns())
        lines = http_common.read_lines(read, doing="watching nodes", limits=OWN_CLUSTER, clock=CLOCK)
        assert len([line async for line in lines]) == 1_000_000
        task.cancel()
    assert turns >= 49


async def test_long_uids_of_deleted_objects_are_not_kept_in_memory(peak: Callable[[], int]) -> None:
    limits = replace(WORKLOAD_CLUSTER, list_bytes=100 << 20, bytes_per_second=1)
    async with client_of(Bomb.UIDS, limits=limits) as (client, _):
        assert "the watch sends more than 100 MiB" in str(await failure_of(client))
    assert peak() < 32 << 20


async def test_watch_recovers_once_the_server_keeps_to_its_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("haulout.kube.reflector._ESTABLISHED_AFTER", timedelta(milliseconds=100))
    limits = replace(WORKLOAD_CLUSTER, cached_objects=100)
    async with (
        client_of(Bomb.LONG_LINE, limits=limits) as (client, server),
        running_informer(client) as (cache, observed),
    ):
        await eventually(CLOCK, lambda: observed, within=timedelta(seconds=30))
        server.bomb = Bomb.NONE
        server.close()
        await eventually(CLOCK, lambda: observed[-1] is None, within=timedelta(seconds=30))
        assert [node.name for node in cache.all()] == ["n1"]
        assert cache.health().problem is None


async def test_retries_back_off_after_limit_exceeded() -> None:
    pauses: list[float] = []

    class Hurried(RealClock):
        async def sleep(self, duration: timedelta) -> None:
            if duration > timedelta(seconds=2):
                pauses.append(duration.total_seconds())
                duration = timedelta()
            await super().sleep(duration)

    async with bomb_server(Bomb.UNDECODABLE_OBJECTS) as server:
        client = Client(by_http(server.url, WORKLOAD_CLUSTER), clock=Hurried(), random=Random(1))
        with suppress(TimeoutError):
            async with asyncio.timeout(60), running_informer(client) as (_, observed):
                await eventually(CLOCK, lambda: len(observed) > 5, within=timedelta(seconds=60))
        await client.close()
    assert pauses[0] <= 5
    assert 25 <= pauses[4] <= 60


def test_caches_of_one_cluster_share_a_quota() -> None:
    quota, one, other = CacheQuota(replace(WORKLOAD_CLUSTER, cached_objects=100)), object(), object()
    quota.reserve(one, objects=60, size=0, doing="following nodes")
    with pytest.raises(LimitExceeded, match="following pods: more than 100 objects"):
        quota.reserve(other, objects=41, size=0, doing="following pods")
    quota.reserve(other, objects=40, size=0, doing="following pods")
    quota.release(one)
    quota.reserve(other, objects=100, size=0, doing="following pods")


async def test_watch_rate_limiter_allows_a_burst_of_one_list_and_then_its_rate() -> None:
    allowance = WatchRateLimiter(replace(WORKLOAD_CLUSTER, list_objects=1000, lines_per_second=1_000_000))
    for _ in range(5):
        allowance.take(lines=1000, size=1, doing="watching nodes")
        await CLOCK.sleep(timedelta(milliseconds=2))
    with pytest.raises(LimitExceeded, match="watching nodes: the watch sends more than 1000 lines at once"):
        allowance.take(lines=2000, size=1, doing="watching nodes")


def test_limits_of_own_cluster_fit_the_largest_supported_clusters() -> None:
    nodes, pods, object_bytes = 15_000, 150_000, 20_000
    assert OWN_CLUSTER.list_objects > 10 * pods
    assert OWN_CLUSTER.cached_objects > 10 * (nodes + pods)
    assert OWN_CLUSTER.list_bytes > 10 * pods * object_bytes
    assert OWN_CLUSTER.response_bytes > 10 * 500 * object_bytes
    assert WORKLOAD_CLUSTER.list_objects > 3 * nodes
    assert WORKLOAD_CLUSTER.list_bytes > 3 * nodes * object_bytes
    assert WORKLOAD_CLUSTER.cached_bytes > 3 * nodes * 1200
    assert WORKLOAD_CLUSTER.lines_per_second >= nodes / 10


async def test_clusters_that_exhaust_shared_cache_memory_do_not_affect_a_small_one() -> None:
    """Four clusters with rows of a megabyte each, which may take 16 MiB together, and one of a single node."""
    memory = WorkloadClusterMemory(64 << 20, clock=CLOCK)
    async with contextlib.AsyncExitStack() as stack:
        followed = []
        for bomb in (Bomb.NONE, *[Bomb.LARGE_ROWS] * 4):
            server = await stack.enter_async_context(bomb_server(bomb))
            transport = HttpTransport(_connection(server.url), clock=CLOCK, limits=WORKLOAD_CLUSTER, reads=memory.reads)
            cached = CacheQuota(WORKLOAD_CLUSTER, shared=memory.caches)
            client = Client(transport, clock=CLOCK, random=Random(1), cache_quota=cached)
            stack.push_async_callback(client.close)
            followed.append(await stack.enter_async_context(running_informer(client)))
        (good, of_good), *others = followed
        await eventually(CLOCK, lambda: all(observed for _, observed in others), within=timedelta(seconds=30))
        for _, observed in others:
            assert "more than 16 MiB in the caches of all workload clusters" in str(observed[0])
        assert memory.caches.used <= memory.caches.limit
        assert ([node.name for node in good.all()], of_good) == (["n1"], [])
