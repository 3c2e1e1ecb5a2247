"""How large something was of late: the median and the worst of some minutes, in constant room.

    lag = Lately()
    lag.note(0.02, at=clock.monotonic())
    lag.worst(clock.monotonic())

The worst is that of two to five minutes, and no burst pushes it out; the median is that of the last fifty. To note one
takes a fraction of a microsecond, as it is done for each request and each look at a node.
"""

import math
from collections import deque

_TURN = 150.0  # seconds
_KEPT = 50


class Lately:
    """Numbers that are not negative, each with the moment at which it was noted."""

    __slots__ = ("_before", "_last", "_turns_at", "_worst")

    def __init__(self) -> None:
        self._last: deque[tuple[float, float]] = deque(maxlen=_KEPT)
        self._worst = 0.0
        self._before = 0.0  # the worst of the turn before
        self._turns_at = -math.inf

    def note(self, number: float, *, at: float) -> None:
        """Note one; `at` is a monotonic clock's."""
        if at >= self._turns_at:
            self._turn(at)
        self._worst = max(self._worst, number)
        self._last.append((at, number))

    def worst(self, now: float) -> float:
        """Return the largest of late; 0 if there was none."""
        if now >= self._turns_at:
            self._turn(now)
        return max(self._worst, self._before)

    def median(self, now: float) -> float:
        """Return the one in the middle of the last ones; 0 if there was none of late."""
        since = now - 2 * _TURN
        found = sorted(number for at, number in self._last if at >= since)
        middle = len(found) // 2
        if not found:
            return 0.0
        return found[middle] if len(found) % 2 else (found[middle - 1] + found[middle]) / 2

    def _turn(self, now: float) -> None:
        self._before = self._worst if now < self._turns_at + _TURN else 0.0
        self._worst = 0.0
        self._turns_at = now + _TURN
