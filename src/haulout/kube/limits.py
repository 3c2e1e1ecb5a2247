"""Limits on what an API server may send, and on what a process caches of it.

    transport = HttpTransport(connection, clock=clock, limits=WORKLOAD_CLUSTER)
    client = Client(transport, clock=clock, random=random, cache_quota=CacheQuota(WORKLOAD_CLUSTER))

Every response has a limit after decompression: a body, an error, a line of a watch, a list over all of its pages, the
lines of a watch per second. Caches have a limit per cluster. An excess raises `LimitExceeded`; that ends this request,
and nothing else. `WorkloadClusterMemory` is the limit of all workload clusters of a process together.

The operator trusts the API server of its own cluster: these limits only catch a broken server or proxy. The API server
of a workload cluster may be hostile, and a hub of 400Mi talks to hundreds of them. Their responses must be small,
because decoding takes up to 32 times their size; `Client.pages` requests fewer objects when a page is too large.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from haulout.core.clock import Clock
from haulout.core.memory import MemoryQuota, MemoryShare
from haulout.errors import LimitExceeded


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of one API server. Bytes are counted after decompression."""

    response_bytes: int
    line_bytes: int  # of a watch: one object
    list_objects: int  # over all pages; also the burst of a watch
    list_bytes: int  # over all pages; also the burst of a watch
    lines_per_second: int  # sustained rate of a watch
    bytes_per_second: int  # sustained rate of a watch
    cached_objects: int  # in all caches of the cluster
    cached_bytes: int  # in all caches of the cluster that have `size`
    error_bytes: int = 64 << 10  # of an error response; the rest is not read


# 15,000 nodes and 150,000 pods with 20 kB each are 3.3 GB and 165,000 objects. etcd handles fewer than 20,000 writes a
# second, and no object larger than 1.5 MiB.
OWN_CLUSTER = Limits(
    response_bytes=256 << 20,
    line_bytes=64 << 20,
    list_objects=2_000_000,
    list_bytes=32 << 30,
    lines_per_second=50_000,
    bytes_per_second=1 << 30,
    cached_objects=4_000_000,
    cached_bytes=4 << 30,
)

# A hub caches about 1 kB of a node, and reads only nodes: up to 50,000. A kubelet updates its node every five minutes,
# or every ten seconds if something changes all the time: 1,500 updates a second for 15,000 nodes.
WORKLOAD_CLUSTER = Limits(
    response_bytes=4 << 20,
    line_bytes=4 << 20,
    list_objects=50_000,
    list_bytes=2 << 30,
    lines_per_second=2_000,
    bytes_per_second=64 << 20,
    cached_objects=50_000,
    cached_bytes=64 << 20,
)


class WatchRateLimiter:
    """A token bucket for a watch: a burst of a whole list, then a steady rate."""

    __slots__ = ("_at", "_bytes", "_limits", "_lines", "_loop")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lines: float = limits.list_objects
        self._bytes: float = limits.list_bytes
        self._loop = asyncio.get_running_loop()
        self._at = self._loop.time()

    def take(self, *, lines: int, size: int, doing: str) -> None:
        """Take `lines` with `size` bytes in total from the bucket. Raise `LimitExceeded` if it is empty."""
        limits, now = self._limits, self._loop.time()
        elapsed, self._at = now - self._at, now
        self._lines = min(self._lines + elapsed * limits.lines_per_second, limits.list_objects) - lines
        self._bytes = min(self._bytes + elapsed * limits.bytes_per_second, limits.list_bytes) - size
        if self._lines < 0:
            limit = f"{limits.list_objects} lines at once and {limits.lines_per_second} a second"
            raise LimitExceeded(f"{doing}: the watch sends more than {limit}")
        if self._bytes < 0:
            limit = f"{limits.list_bytes >> 20} MiB at once and {limits.bytes_per_second >> 20} MiB a second"
            raise LimitExceeded(f"{doing}: the watch sends more than {limit}")


class WorkloadClusterMemory:
    """The memory that all workload clusters may use together, in a process that may use `memory_limit` bytes.

    A hub has 400 MiB by default. Decoding one response may take a third of that; the process itself takes a fifth. So a
    quarter is for caches, and a sixteenth for responses that are being read.
    """

    def __init__(self, memory_limit: int, *, clock: Clock) -> None:
        self.caches = MemoryQuota(memory_limit // 4, description="the caches of all workload clusters", clock=clock)
        self.reads = MemoryQuota(
            memory_limit // 16, description="the responses of all workload clusters that are being read", clock=clock
        )


class CacheQuota:
    """The quota of all caches of one cluster; with `shared`, also of the caches of other clusters.

    `evict` is called for a registered cache when it must free its rows because other clusters need the memory.
    """

    def __init__(self, limits: Limits, *, shared: MemoryQuota | None = None) -> None:
        self.limits = limits
        self._reserved: dict[object, tuple[int, int]] = {}  # by cache: objects, bytes
        self._replaced: dict[object, int] = {}  # by cache: bytes of the rows that a relist is about to replace
        self._evict_callbacks: dict[object, Callable[[LimitExceeded], None]] = {}  # by cache
        self._shared = shared
        self._share: MemoryShare | None = None

    def register(self, owner: object, evict: Callable[[LimitExceeded], None]) -> None:
        """Add a cache, whose rows count from now on until `release`."""
        self._evict_callbacks[owner] = evict
        if self._shared is not None and self._share is None:
            self._share = self._shared.new_share(self._evict_all)

    def reserve(self, owner: object, *, objects: int, size: int, replaced: int = 0, doing: str) -> None:
        """Reserve what a cache holds now. Raise `LimitExceeded` and reserve nothing if that is too much.

        `replaced` is the size of old rows that the cache keeps until a list is complete. They count toward the quota of
        the process, not of the cluster.
        """
        # Summed at each call: a cluster has a handful of caches, and a running total could drift after an eviction.
        others = [amount for key, amount in self._reserved.items() if key is not owner]
        all_objects = objects + sum(amount for amount, _ in others)
        all_bytes = size + sum(amount for _, amount in others)
        if all_objects > self.limits.cached_objects:
            raise LimitExceeded(f"{doing}: more than {self.limits.cached_objects} objects in all caches of the cluster")
        if all_bytes > self.limits.cached_bytes:
            limit = f"{self.limits.cached_bytes >> 20} MiB"
            raise LimitExceeded(f"{doing}: more than {limit} in all caches of the cluster")
        self._reserved[owner] = objects, size
        self._replaced[owner] = replaced
        if self._share is not None:
            try:
                self._share.resize(all_bytes + sum(self._replaced.values()), doing=doing)
            except LimitExceeded as error:
                # The quota has freed the share of the whole cluster, so all of its caches must go, not only this one.
                self._evict_all(error)
                raise

    def mark_synced(self) -> None:
        """Record that the caches are complete for now."""
        if self._share is not None:
            self._share.is_returning = False

    def release(self, owner: object) -> None:
        self._forget(owner)
        self._evict_callbacks.pop(owner, None)
        if self._shared is not None and self._share is not None and not self._evict_callbacks:
            self._shared.release(self._share)
            self._share = None

    def _evict_all(self, error: LimitExceeded) -> None:
        for owner, evict in tuple(self._evict_callbacks.items()):
            self._forget(owner)
            evict(error)

    def _forget(self, owner: object) -> None:
        self._reserved.pop(owner, None)
        self._replaced.pop(owner, None)
