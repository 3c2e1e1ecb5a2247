"""How much the API server of a cluster may send, and how much of it a process keeps.

    transport = HttpTransport(connection, clock=clock, limits=WORKLOAD_CLUSTER)
    client = Client(transport, clock=clock, random=random, cached=CacheBudget(WORKLOAD_CLUSTER))

Every answer has a limit after decompression: a response, an error, a line of a watch, a list over all of its pages, the
lines of a watch per second. What caches keep has a limit per cluster. Whatever exceeds one raises `LimitExceeded`; that
request ends, and nothing else. `WorkloadClusterMemory` is what all workload clusters of a process may take together.

The API server of our own cluster decides about us anyway: its limits only catch a broken server or proxy. The API
server of a workload cluster may be hostile, and a hub of 400Mi talks to hundreds of them. A response of these is small,
since decoding takes up to 32 times its size; `Client.pages` asks for fewer objects when a page is too large.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from haulout.core.clock import Clock
from haulout.core.memory_quota import MemoryQuota, MemoryShare
from haulout.errors import LimitExceeded


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one API server may answer; bytes are counted after decompression."""

    response_bytes: int
    line_bytes: int  # of a watch: one object
    list_objects: int  # over all pages; also what a watch may send at once
    list_bytes: int  # the same
    lines_per_second: int  # of a watch, in the long run
    bytes_per_second: int  # the same
    cached_objects: int  # in all caches of the cluster
    cached_bytes: int  # the same, of caches that measure their rows
    error_bytes: int = 64 << 10  # of an answer that refuses; the rest is not read


# 15,000 nodes and 150,000 pods with 20 kB each are 3.3 GB and 165,000 objects. etcd takes fewer than 20,000 writes a
# second, and no object beyond 1.5 MiB.
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

# A hub keeps about 1 kB of a node, and reads nothing but nodes: 50,000 of them. A kubelet writes its node every five
# minutes, or ten seconds if something changes all the time: 1,500 a second of 15,000 nodes.
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
    """What a watch may still send: a whole list at once, and a steady rate after that."""

    __slots__ = ("_at", "_bytes", "_limits", "_lines", "_loop")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lines: float = limits.list_objects
        self._bytes: float = limits.list_bytes
        self._loop = asyncio.get_running_loop()
        self._at = self._loop.time()

    def take(self, *, lines: int, size: int, doing: str) -> None:
        """Take `lines` of together `size` bytes from it; raises `LimitExceeded`."""
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
    """What all workload clusters may take together of a process that may use `memory_limit` bytes.

    Decoding one answer may take a third of the limit of 400 MiB that a hub has by default; the process itself takes a
    fifth. So a quarter is for caches, and a sixteenth for answers that are being read.
    """

    def __init__(self, memory_limit: int, *, clock: Clock) -> None:
        self.caches = MemoryQuota(memory_limit // 4, description="the caches of all workload clusters", clock=clock)
        self.reads = MemoryQuota(
            memory_limit // 16, description="the answers of all workload clusters that are being read", clock=clock
        )


class CacheQuota:
    """What all caches of one cluster may keep together; with `shared`, together with those of other clusters.

    A cache that is registered is told by `evict` when it has to free what it keeps, as other clusters need it.
    """

    def __init__(self, limits: Limits, *, shared: MemoryQuota | None = None) -> None:
        self.limits = limits
        self._reserved: dict[object, tuple[int, int]] = {}  # by cache: objects, bytes
        self._replaced: dict[object, int] = {}  # by cache: bytes of rows that it is about to replace
        self._evict_callbacks: dict[object, Callable[[LimitExceeded], None]] = {}  # by cache
        self._shared = shared
        self._share: MemoryShare | None = None

    def register(self, owner: object, evict: Callable[[LimitExceeded], None]) -> None:
        """Add a cache, until it is released."""
        self._evict_callbacks[owner] = evict
        if self._shared is not None and self._share is None:
            self._share = self._shared.new_share(self._evict_all)

    def reserve(self, owner: object, *, objects: int, size: int, replaced: int = 0, doing: str) -> None:
        """Note how much a cache keeps now; raises `LimitExceeded` if that is too much, and notes nothing then.

        `replaced` is what it keeps besides until a list is complete. That counts for the process, not the cluster.
        """
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
                self._evict_all(error)
                raise

    def mark_synced(self) -> None:
        """Note that the caches have everything that they need for now."""
        if self._share is not None:
            self._share.is_returning = False

    def release(self, owner: object) -> None:
        """Forget a cache."""
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
