"""Pauses keys that change again and again, because two processes undo each other's work.

At most one replica should lead, but for some seconds two may believe to, and one may observe what the other does not.
Each action is correct by itself and triggers the other replica. A key with many actions within a short time pauses.
"""

from collections import deque
from collections.abc import Hashable
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from haulout.core.clock import Clock

K = TypeVar("K", bound=Hashable)

MAX_CHANGES = 30
INTERVAL = timedelta(seconds=30)


class FlappingGuard(Generic[K]):
    """Counts the recent actions of each key."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changes: dict[K, deque[float]] = {}

    def record_change(self, key: K) -> None:
        """Record that an action was executed."""
        self._changes.setdefault(key, deque(maxlen=MAX_CHANGES)).append(self._clock.monotonic())

    def paused_until(self, key: K) -> datetime | None:
        """Return until when to pause a key; None if it is within the limit."""
        changes = self._changes.get(key)
        if changes is None or len(changes) < MAX_CHANGES:
            return None
        remaining = timedelta(seconds=changes[0] - self._clock.monotonic()) + INTERVAL
        return self._clock.now() + remaining if remaining > timedelta() else None

    def forget(self, key: K) -> None:
        self._changes.pop(key, None)
