"""Rate limits of the NodeMaintenance controller: of status writes, and of reconciles.

Rate limit for status writes, so that they stay cheap compared to the drain that they report. Writing the status of a
custom resource costs an API server more than evicting a pod. One maintenance writes at most once a second, and all
together about twenty times: with a hundred drains at once, each status is updated every five seconds. None waits for
longer than ten. A change of phase bypasses the limit.

Rate limit for maintenances that change again and again, because two replicas undo each other's work. At most one
replica should lead, but for some seconds two may believe to, and one may observe what the other does not. Each action
is correct by itself and triggers the other replica. A replica that has executed many actions for one maintenance
recently pauses.
"""

from collections import OrderedDict, deque
from datetime import datetime, timedelta

from haulout.core.clock import Clock

MIN_INTERVAL = timedelta(seconds=1)
MAX_INTERVAL = timedelta(seconds=10)
WRITES_PER_SECOND = 20  # of all together, unless one would wait for longer than MAX_INTERVAL

MAX_CHANGES = 30
RECONCILE_INTERVAL = timedelta(seconds=30)


class StatusRateLimiter:
    """Tracks recent status writes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._written_at: OrderedDict[str, float] = OrderedDict()  # within MAX_INTERVAL, the latest last

    def record_write(self, name: str) -> None:
        self._written_at[name] = self._clock.monotonic()
        self._written_at.move_to_end(name)

    def delay(self, name: str) -> timedelta:
        """Return how long the next write of a status must wait."""
        now = self._clock.monotonic()
        while self._written_at and now - next(iter(self._written_at.values())) >= MAX_INTERVAL.total_seconds():
            self._written_at.popitem(last=False)
        if name not in self._written_at:
            return timedelta()
        interval = min(max(MIN_INTERVAL, timedelta(seconds=len(self._written_at) / WRITES_PER_SECOND)), MAX_INTERVAL)
        return max(timedelta(seconds=self._written_at[name] - now) + interval, timedelta())


class ReconcileRateLimiter:
    """Counts the recent actions of each maintenance."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changes: dict[str, deque[float]] = {}

    def record_change(self, name: str) -> None:
        """Record that an action was executed."""
        self._changes.setdefault(name, deque(maxlen=MAX_CHANGES)).append(self._clock.monotonic())

    def paused_until(self, name: str) -> datetime | None:
        """Return until when to pause a maintenance; None if it is within the limit."""
        changes = self._changes.get(name)
        if changes is None or len(changes) < MAX_CHANGES:
            return None
        remaining = timedelta(seconds=changes[0] - self._clock.monotonic()) + RECONCILE_INTERVAL
        return self._clock.now() + remaining if remaining > timedelta() else None

    def forget(self, name: str) -> None:
        self._changes.pop(name, None)
