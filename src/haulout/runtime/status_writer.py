"""Limits the rate of status writes, so that they stay cheap compared to the work that they report.

Writing the status of a custom resource costs an API server more than evicting a pod. One object is written at most once
a second, and all together about twenty times: with a hundred objects at once, each status is written every five
seconds. None waits for longer than ten. A change of phase is written at once.

A status that could not be written is tried again at the pace of the work queue's backoff, which slows down by itself.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from haulout.core.clock import Clock
from haulout.errors import Conflict, HauloutError

K = TypeVar("K", bound=Hashable)

MIN_INTERVAL = timedelta(seconds=1)
MAX_INTERVAL = timedelta(seconds=10)
WRITES_PER_SECOND = 20  # of all together, unless one would wait for longer than MAX_INTERVAL
_ROUNDING = timedelta(milliseconds=1)  # an instant that is rounded down to now would be requeued again and again


class StatusWriter(Generic[K]):
    """Decides when the status of each object is written."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._written_at: OrderedDict[K, float] = OrderedDict()  # within MAX_INTERVAL, the latest last
        self._unwritten: set[K] = set()  # keys whose last write failed

    async def write(self, key: K, write: Callable[[], Awaitable[object]], *, at_once: bool = False) -> datetime | None:
        """Call `write` now, or return when it may be called. `at_once` is for changes that people wait for."""
        wait = self.delay(key)
        if wait and not at_once and key not in self._unwritten:
            return self._clock.now() + wait + _ROUNDING
        self.record_write(key)
        try:
            await write()
        except Conflict:  # the object has changed: it is observed and written again
            raise
        except HauloutError:
            self._unwritten.add(key)
            raise
        self._unwritten.discard(key)
        return None

    def record_write(self, key: K) -> None:
        """Record that the status was written by another path, for example together with an action."""
        self._written_at[key] = self._clock.monotonic()
        self._written_at.move_to_end(key)

    def delay(self, key: K) -> timedelta:
        """Return how long the next write of a status must wait."""
        now = self._clock.monotonic()
        while self._written_at and now - next(iter(self._written_at.values())) >= MAX_INTERVAL.total_seconds():
            self._written_at.popitem(last=False)
        if key not in self._written_at:
            return timedelta()
        interval = min(max(MIN_INTERVAL, timedelta(seconds=len(self._written_at) / WRITES_PER_SECOND)), MAX_INTERVAL)
        return max(timedelta(seconds=self._written_at[key] - now) + interval, timedelta())

    def has_failed(self, key: K) -> bool:
        """Return whether the last write of a status failed. Then the failure cannot be shown in that status either."""
        return key in self._unwritten

    def forget(self, key: K) -> None:
        """Forget a deleted object. Its recent write still counts for the pace of the others."""
        self._unwritten.discard(key)
