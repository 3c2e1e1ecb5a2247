"""The memory of this process: quotas, the limit of its container, and garbage collection.

Several holders share a `MemoryQuota`. When it is exceeded, the largest holder is evicted first:

    quota = MemoryQuota(100 << 20, description="the caches of all workload clusters", clock=clock)
    with quota.share(evict) as share:
        share.resize(1 << 20, doing="following nodes")

`evict` is called with the reason when another holder needs the bytes. It must free them before it returns. `resize`
raises `LimitExceeded` if the caller itself is the largest holder.

An evicted share must not evict a smaller one when it returns, or both would alternate. So for `_PROBATION` after its
last eviction, a share counts with its size at that time, and it may return only if a tenth of the limit stays free.

`memory_limit` returns the limit of this process's container, from its cgroup: version 1 or 2. A cgroup may use no more
than any of its ancestors, so the smallest limit on the path to the root counts. In a container, the root of the cgroup
file system is the container's own cgroup, or the path in `/proc/self/cgroup` does not exist. In both cases the limit of
the root counts.

`gc_thresholds` sets the thresholds of Python's cyclic garbage collector. `permanent_objects` exempts modules from it.
"""

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Final

from haulout.core.clock import Clock
from haulout.errors import LimitExceeded

EvictCallback = Callable[[LimitExceeded], None]

_PROBATION: Final = timedelta(minutes=10).total_seconds()

_UNLIMITED: Final = 1 << 60  # version 1 has a huge number where there is no limit

# After how many new objects the young are collected, after how many of these collections the middle-aged, and so on.
GcThresholds = tuple[int, int, int]

# Includes the oldest generation: cycles left by connections must not accumulate over weeks.
LONG_RUNNING: GcThresholds = (10_000, 10, 10)
SHORT_LIVED: GcThresholds = (50_000, 20, 100)  # for processes without connections that end within an hour


class MemoryShare:
    """The share of one holder. Only the quota and its holder use it."""

    __slots__ = ("_evicted_size", "_evicted_until", "_quota", "doing", "evict", "is_returning", "size")

    def __init__(self, quota: "MemoryQuota", evict: EvictCallback) -> None:
        self.size = 0
        self.doing = ""  # the purpose of the bytes, for messages
        self.evict = evict
        self.is_returning = False  # after an eviction, until the holder is complete again
        self._quota = quota
        self._evicted_size = 0
        self._evicted_until = 0.0

    def resize(self, size: int, *, doing: str) -> None:
        """Resize the share to `size` bytes.

        If the quota does not allow it, free the share and raise `LimitExceeded`.
        """
        self.doing = doing
        self._quota.resize(self, size)

    def effective_size(self, now: float) -> int:
        """Return the size for the comparison with other shares."""
        return max(self.size, self._evicted_size) if now < self._evicted_until else self.size

    def mark_evicted(self, now: float) -> None:
        self._evicted_size, self._evicted_until = self.effective_size(now), now + _PROBATION
        self.size, self.is_returning = 0, True


class MemoryQuota:
    """A quota of `limit` bytes for all shares together. Messages call it `description`."""

    def __init__(self, limit: int, *, description: str, clock: Clock) -> None:
        self.limit = limit
        self.used = 0
        self._description = description
        self._clock = clock
        self._shares: dict[MemoryShare, None] = {}  # in order of creation

    @contextmanager
    def share(self, evict: EvictCallback) -> Iterator[MemoryShare]:
        """Yield a share that is released at the end of the context."""
        share = self.new_share(evict)
        try:
            yield share
        finally:
            self.release(share)

    def new_share(self, evict: EvictCallback) -> MemoryShare:
        """Return a share, which the caller must release."""
        share = MemoryShare(self, evict)
        self._shares[share] = None
        return share

    def release(self, share: MemoryShare) -> None:
        if share in self._shares:
            del self._shares[share]
            self.used -= share.size

    def resize(self, share: MemoryShare, size: int) -> None:
        """Resize a share and evict others if needed. See `MemoryShare.resize`."""
        growth = size - share.size
        self.used += growth
        share.size = size
        limit = self.limit * 9 // 10 if share.is_returning else self.limit
        # A holder that shrinks is never evicted, even if the quota is exceeded at that moment.
        if growth <= 0 or self.used <= limit:
            return
        now = self._clock.monotonic()
        while self.used > limit:
            largest = max((other for other in self._shares if other.size), key=lambda other: other.effective_size(now))
            if largest.effective_size(now) <= share.effective_size(now):
                largest = share
            reason = f"more than {self.limit >> 20} MiB in {self._description}, and this is the largest"
            text = f"{largest.doing}: {reason} ({largest.effective_size(now) >> 10} KiB)"
            self.used -= largest.size
            largest.mark_evicted(now)
            if largest is share:
                raise LimitExceeded(text)
            largest.evict(LimitExceeded(text))


class InterruptScope:
    """A context whose body another task can end with an exception. It must not be entered twice at the same time."""

    def __init__(self) -> None:
        self._error: Exception | None = None
        self._scope: asyncio.Timeout | None = None

    def interrupt(self, error: Exception) -> None:
        """Raise `error` in the body of the context. It has no effect outside of the context."""
        if self._scope is not None and self._error is None:
            self._error = error
            # A timeout that is due now ends the body wherever it waits. `asyncio.timeout` tells it apart from a
            # cancellation of the task, which must stay one.
            self._scope.reschedule(asyncio.get_running_loop().time())

    async def __aenter__(self) -> None:
        self._error = None
        self._scope = asyncio.timeout(None)
        await self._scope.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        scope, self._scope = self._scope, None
        error, self._error = self._error, None
        if scope is None:
            return
        try:
            await scope.__aexit__(kind, raised, trace)
        except TimeoutError:
            if error is None:
                raise
            try:
                raise error from None
            finally:
                del error  # a reference cycle with its traceback would keep the body's objects in memory


def memory_limit(*, proc: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return the limit in bytes; None if there is no limit or no cgroup."""
    try:
        lines = proc.read_text().splitlines()
    except OSError:
        return None
    limits = [limit for line in lines for limit in _limits(line, root)]
    return min(limits, default=None)


def _limits(line: str, root: Path) -> Iterator[int]:
    _, controllers, path = (*line.split(":", 2), "", "")[:3]
    folders: tuple[Path, ...]
    if controllers == "":
        # `unified` is where systemd mounts version 2 beside version 1 (hybrid mode).
        folders, name = (root, root / "unified"), "memory.max"
    elif "memory" in controllers.split(","):
        folders, name = (root / "memory",), "memory.limit_in_bytes"
    else:
        return
    relative = PurePosixPath(path.lstrip("/"))
    for folder in folders:
        for group in (relative, *relative.parents):
            limit = _number(folder / group / name)
            if limit is not None and limit < _UNLIMITED:
                yield limit


def _number(file: Path) -> int | None:
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isascii() and text.isdigit() else None


@contextmanager
def gc_thresholds(thresholds: GcThresholds) -> Iterator[None]:
    """Run the garbage collector less often than by default.

    Haulout keeps many objects and creates hardly any cycles: with the default thresholds the collector takes a tenth of
    the time (a sixth in a simulation), and finds almost nothing.
    """
    previous = gc.get_threshold()
    gc.set_threshold(*thresholds)
    try:
        yield
    finally:
        gc.set_threshold(*previous)


@contextmanager
def permanent_objects() -> Iterator[None]:
    """Exempt all objects that exist now from garbage collection, until the end of the context.

    These are modules, classes and functions, which are never garbage. A full collection that visits the 70,000 of an
    operator pauses its event loop for 13 ms.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
