"""A brake for maintenances that change again and again: two processes with different views undo each other's work.

At most one of them should lead, but for some seconds both may believe that they do, and one may see what the other does
not. Each step is right by itself, and wakes the other. Who has done a lot for one maintenance of late pauses.
"""

from collections import deque
from datetime import datetime, timedelta

from haulout.core.clock import Clock

MOST = 30
WITHIN = timedelta(seconds=30)


class Restlessness:
    """Counts what was done for each maintenance of late."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._done: dict[str, deque[float]] = {}

    def note(self, name: str) -> None:
        """Take note that something was done."""
        self._done.setdefault(name, deque(maxlen=MOST)).append(self._clock.monotonic())

    def pauses_until(self, name: str) -> datetime | None:
        """Return until when to leave a maintenance alone; None if it need not be."""
        done = self._done.get(name)
        if done is None or len(done) < MOST:
            return None
        left = timedelta(seconds=done[0] - self._clock.monotonic()) + WITHIN
        return self._clock.now() + left if left > timedelta() else None

    def forget(self, name: str) -> None:
        """Forget a maintenance."""
        self._done.pop(name, None)
