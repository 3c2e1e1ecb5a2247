"""The recent median and maximum of a value, in constant memory.

    lag = RecentValues()
    lag.record(0.02, at=clock.monotonic())
    lag.maximum(clock.monotonic())

The maximum covers the last two to five minutes, and a burst cannot displace it. The median is that of the last fifty
values. To record a value takes a fraction of a microsecond, because it is done for each API request and each reconcile.
"""

import math
from collections import deque

_ROTATION_SECONDS = 150.0  # the maximum covers one to two of these periods
_MAX_SAMPLES = 50


class RecentValues:
    """Non-negative values, each with the time at which it was recorded."""

    __slots__ = ("_maximum", "_previous_maximum", "_rotates_at", "_samples")

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque(maxlen=_MAX_SAMPLES)
        self._maximum = 0.0
        self._previous_maximum = 0.0  # of the previous period
        self._rotates_at = -math.inf

    def record(self, value: float, *, at: float) -> None:
        """Record a value. `at` is monotonic time."""
        if at >= self._rotates_at:
            self._rotate(at)
        self._maximum = max(self._maximum, value)
        self._samples.append((at, value))

    def maximum(self, now: float) -> float:
        """Return the recent maximum; 0 if there is no recent value."""
        if now >= self._rotates_at:
            self._rotate(now)
        return max(self._maximum, self._previous_maximum)

    def median(self, now: float) -> float:
        """Return the recent median; 0 if there is no recent value."""
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
