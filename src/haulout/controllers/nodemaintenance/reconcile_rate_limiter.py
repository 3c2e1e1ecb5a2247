"""A brake for maintenances that change again and again: two processes with different views undo each other's work.

At most one of them should lead, but for some seconds both may believe that they do, and one may see what the other does
not. Each step is right by itself, and wakes the other. Who has done a lot for one maintenance of late pauses.
"""

from collections import deque
from datetime import datetime, timedelta

from haulout.core.clock import Clock

MAX_CHANGES = 30
INTERVAL = timedelta(seconds=30)


class ReconcileRateLimiter:
    """Counts what was done for each maintenance of late."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changes: dict[str, deque[float]] = {}

    def record_change(self, name: str) -> None:
        """Take note that something was done."""
        self._changes.setdefault(name, deque(maxlen=MAX_CHANGES)).append(self._clock.monotonic())

    def paused_until(self, name: str) -> datetime | None:
        """Return until when to leave a maintenance alone; None if it need not be."""
        changes = self._changes.get(name)
        if changes is None or len(changes) < MAX_CHANGES:
            return None
        remaining = timedelta(seconds=changes[0] - self._clock.monotonic()) + INTERVAL
        return self._clock.now() + remaining if remaining > timedelta() else None

    def forget(self, name: str) -> None:
        """Forget a maintenance."""
        self._changes.pop(name, None)
