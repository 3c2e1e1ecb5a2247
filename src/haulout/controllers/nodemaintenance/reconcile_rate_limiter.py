"""Rate limit for maintenances that change again and again, because two replicas undo each other's work.

At most one replica should lead, but for some seconds two may believe to, and one may observe what the other does not.
Each action is correct by itself and triggers the other replica. A replica that has executed many actions for one
maintenance recently pauses.
"""

from collections import deque
from datetime import datetime, timedelta

from haulout.core.clock import Clock

MAX_CHANGES = 30
INTERVAL = timedelta(seconds=30)


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
        remaining = timedelta(seconds=changes[0] - self._clock.monotonic()) + INTERVAL
        return self._clock.now() + remaining if remaining > timedelta() else None

    def forget(self, name: str) -> None:
        self._changes.pop(name, None)
