"""What is measured, one coroutine each; `worker` runs each in a fresh process that has one core to itself.

A task returns plain numbers by name: how many objects, how much wall time and CPU time, how many bytes. The
callers combine them.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeVar

from client_libraries import OPENERS, ClientLibrary, PodName, haulout
from resource_usage import Stopwatch, memory, peak_memory

T = TypeVar("T")
Numbers = dict[str, float]
Samples = dict[str, list[float]]

LEASE = ("kube-node-lease", "worker-00001")
IN_FLIGHT = 32

_TIMEOUT_SECONDS = 120


async def sync(*, kubeconfig: str, port: int, events: int) -> Numbers:
    """Load pods and nodes side by side into our caches; then take in changes, if any are asked for."""
    async with haulout(Path(kubeconfig)) as haulout_client, asyncio.TaskGroup() as group:
        caches = [haulout_client.informer("pods"), haulout_client.informer("nodes")]
        changes = _Countdown(events)
        caches[0].subscribe(lambda old, new: changes.count(new.resource_version) if old and new else None)
        with Stopwatch() as load:
            informer_tasks = [group.create_task(cache.run()) for cache in caches]
            for cache in caches:
                await cache.wait_synced()
        numbers = _times("load", load, sum(map(len, caches)))
        if events:
            numbers |= await _measure_changes(changes, port, events)
        for task in informer_tasks:
            task.cancel()
        return numbers | {"peak": peak_memory()}


async def keep(*, kubeconfig: str) -> Numbers:
    """Tell how much memory our cache of pods takes."""
    async with haulout(Path(kubeconfig)) as haulout_client, AsyncExitStack() as stack:
        await haulout_client.get_lease(*LEASE)
        before = memory()
        copy = await stack.enter_async_context(haulout_client.synced_copy("pods", _ignore))
        return {"objects": len(copy), "memory": memory() - before, "after": memory(), "peak": peak_memory()}


async def compare(*, kubeconfig: str, contender: str, port: int, events: int) -> Numbers:
    """Load pods, keep them, take in changes."""
    async with OPENERS[contender](Path(kubeconfig)) as client:
        await client.get_lease(*LEASE)
        before = memory()
        changes = _Countdown(events)
        async with AsyncExitStack() as stack:
            with Stopwatch() as load:
                copy = await stack.enter_async_context(client.synced_copy("pods", changes.count))
            numbers = _times("load", load, len(copy)) | {"memory": memory() - before, "objects": len(copy)}
            return numbers | await _measure_changes(changes, port, events)


async def request(*, kubeconfig: str, contender: str, gets: int) -> Numbers:
    """Send small requests, one after the other and many at a time.

    Not in the process of `compare`: collecting the garbage that its changes leave would be counted here.
    """
    async with OPENERS[contender](Path(kubeconfig)) as client:
        await client.get_lease(*LEASE)
        with Stopwatch() as one_by_one:
            for _ in range(gets):
                await client.get_lease(*LEASE)
        await _open_connections(client)
        with Stopwatch() as together:
            await _get(client, gets)
        return _times("get", one_by_one, gets) | _times("get_together", together, gets)


async def load(*, kubeconfig: str, contender: str) -> Numbers:
    """Load pods and then nodes."""
    async with OPENERS[contender](Path(kubeconfig)) as client, AsyncExitStack() as stack:
        with Stopwatch() as load:
            pods = await stack.enter_async_context(client.synced_copy("pods", _ignore))
            nodes = await stack.enter_async_context(client.synced_copy("nodes", _ignore))
        return _times("load", load, len(pods) + len(nodes))


async def write(*, kubeconfig: str, contender: str, nodes: list[str], writes: int) -> Samples:
    """Change nodes one after the other; tell the seconds from each write until our own watch has shown it."""
    latencies = []
    async with OPENERS[contender](Path(kubeconfig)) as client:
        version_times = _VersionTimes()
        async with client.synced_copy("nodes", version_times.record):
            for number in range(writes):
                started = time.perf_counter()
                version = await client.annotate(nodes[number % len(nodes)], f"{contender} {started}")
                latencies.append(await version_times.time_of(version) - started)
    return {"seconds": latencies}


async def evict(*, kubeconfig: str, contender: str, pods: list[list[str]]) -> Numbers:
    """Evict these pods, many at a time."""
    async with OPENERS[contender](Path(kubeconfig)) as client:
        await _open_connections(client)
        with Stopwatch() as evictions:
            await for_each((PodName(*pod) for pod in pods), client.evict, at_once=IN_FLIGHT)
        return _times("evict", evictions, len(pods))


async def deluge(*, port: int, pods: int, events: int) -> Numbers:
    """Read changes and throw them away: this is as fast as the server can be."""
    async with asyncio.timeout(_TIMEOUT_SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /streaming/%d/api/v1/pods?watch=true HTTP/1.1\r\n\r\n" % pods)
        await reader.readuntil(b"\r\n\r\n")
        await _request_changes(port, events)
        with Stopwatch() as flow:
            received = 0
            while received < events:
                received += (await reader.read(1 << 20)).count(b'{"type":"')
        writer.close()
        return _times("deluge", flow, events)


async def _measure_changes(changes: "_Countdown", port: int, events: int) -> Numbers:
    with Stopwatch() as stopwatch:
        await _request_changes(port, events)
        await changes.wait()
    return _times("follow", stopwatch, events)


async def _open_connections(client: ClientLibrary) -> None:
    await _get(client, 2 * IN_FLIGHT)


async def _get(client: ClientLibrary, gets: int) -> None:
    await for_each([LEASE] * gets, lambda lease: client.get_lease(*lease), at_once=IN_FLIGHT)


async def for_each(items: Iterable[T], do: Callable[[T], Awaitable[object]], *, at_once: int) -> None:
    """Do the same to all things, so many at once."""
    remaining = iter(items)

    async def work() -> None:
        for obj in remaining:
            await do(obj)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(work())


async def _request_changes(port: int, events: int) -> None:
    """Have the server send so many changes to all who watch."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /modify?count=%d HTTP/1.1\r\n\r\n" % events)
    await reader.readuntil(b"\r\n\r\n")
    writer.close()


def _times(task: str, stopwatch: Stopwatch, count: int) -> Numbers:
    return {f"{task}_count": count, f"{task}_wall": stopwatch.wall, f"{task}_cpu": stopwatch.cpu}


def _ignore(_resource_version: str) -> None:
    pass


class _Countdown:
    """Waits for a number of changes."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._done = asyncio.Event()

    def count(self, _resource_version: str) -> None:
        """Count one."""
        self._left -= 1
        if not self._left:
            self._done.set()

    async def wait(self) -> None:
        """Return when all were seen."""
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            await self._done.wait()


class _VersionTimes:
    """Knows when a watch showed which resource version."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}
        self._more = asyncio.Event()

    def record(self, resource_version: str) -> None:
        """Note when one was seen."""
        self._at[resource_version] = time.perf_counter()
        self._more.set()

    async def time_of(self, resource_version: str) -> float:
        """Return when `resource_version` was seen, as soon as it is."""
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            while resource_version not in self._at:
                self._more.clear()
                await self._more.wait()
        return self._at[resource_version]


TASKS = {task.__name__: task for task in (sync, keep, compare, request, load, write, evict, deluge)}
