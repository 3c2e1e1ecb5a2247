"""How large something was of late: the median and the worst of some minutes, in constant room.

    lag = Lately()
    lag.note(0.02, at=clock.monotonic())
    lag.worst(clock.monotonic())

The worst is that of two to five minutes, and no burst pushes it out; the median is that of the last fifty. To note one
takes a fraction of a microsecond, as it is done for each request and each look at a node.
"""

import math
from collections import deque

_ROTATION_SECONDS = 150.0  # seconds
_MAX_SAMPLES = 50


class RecentValues:
    """Numbers that are not negative, each with the moment at which it was noted."""

    __slots__ = ("_maximum", "_previous_maximum", "_rotates_at", "_samples")

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque(maxlen=_MAX_SAMPLES)
        self._maximum = 0.0
        self._previous_maximum = 0.0  # the worst of the turn before
        self._rotates_at = -math.inf

    def record(self, value: float, *, at: float) -> None:
        """Note one; `at` is a monotonic clock's."""
        if at >= self._rotates_at:
            self._rotate(at)
        self._maximum = max(self._maximum, value)
        self._samples.append((at, value))

    def maximum(self, now: float) -> float:
        """Return the largest of late; 0 if there was none."""
        if now >= self._rotates_at:
            self._rotate(now)
        return max(self._maximum, self._previous_maximum)

    def median(self, now: float) -> float:
        """Return the one in the middle of the last ones; 0 if there was none of late."""
        since = now - 2 * _ROTATION_SECONDS
        found = sorted(number for at, number in self._samples if at >= since)
        middle = len(found) // 2
        if not found:
            return 0.0
        return found[middle] if len(found) % 2 else (found[middle - 1] + found[middle]) / 2

    def _rotate(self, now: float) -> None:
        self._previous_maximum = self._maximum if now < self._rotates_at + _ROTATION_SECONDS else 0.0
        self._maximum = 0.0
        self._rotates_at = now + _ROTATION_SECONDS
