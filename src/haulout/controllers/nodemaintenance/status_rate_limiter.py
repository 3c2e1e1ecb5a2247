"""How often statuses are written: often enough to watch, and not at the cost of what they tell of.

To write the status of a custom resource costs a server more than to evict a pod. So one maintenance writes at most once
a second, and all together some twenty times: of a hundred drains at once each tells every five seconds how it goes on.
None is silent for more than ten. Whoever has another phase to tell does not ask.
"""

from collections import OrderedDict
from datetime import timedelta

from haulout.core.clock import Clock

MIN_INTERVAL = timedelta(seconds=1)
MAX_INTERVAL = timedelta(seconds=10)
WRITES_PER_SECOND = 20  # by all together, until that would make one of them wait for longer than the longest


class StatusRateLimiter:
    """Knows which statuses were written of late."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._written_at: OrderedDict[str, float] = OrderedDict()  # within the longest wait, the latest last

    def record_write(self, name: str) -> None:
        """Take note that a status is written now."""
        self._written_at[name] = self._clock.monotonic()
        self._written_at.move_to_end(name)

    def delay(self, name: str) -> timedelta:
        """Return how long a status has to wait, if nothing happens meanwhile."""
        now = self._clock.monotonic()
        while self._written_at and now - next(iter(self._written_at.values())) >= MAX_INTERVAL.total_seconds():
            self._written_at.popitem(last=False)
        if name not in self._written_at:
            return timedelta()
        interval = min(max(MIN_INTERVAL, timedelta(seconds=len(self._written_at) / WRITES_PER_SECOND)), MAX_INTERVAL)
        return max(timedelta(seconds=self._written_at[name] - now) + interval, timedelta())
