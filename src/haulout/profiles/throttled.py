"""Tells at most every so often, and never loses the last word."""

from collections.abc import Callable
from datetime import datetime, timedelta

from haulout.core.clock import Alarm, Clock


class Throttled:
    """Calls `tell` at once, and then again not before `every` is over, however often it is asked to."""

    def __init__(self, tell: Callable[[], object], *, clock: Clock, every: timedelta) -> None:
        self._tell = tell
        self._clock = clock
        self._every = every
        self._last: datetime | None = None
        self._alarm: Alarm | None = None

    def __call__(self) -> None:
        """Tell, now or as soon as that may be."""
        if self._alarm is not None:
            return
        now = self._clock.now()
        if self._last is None or now - self._last >= self._every or now < self._last:
            self._ring()
        else:
            self._alarm = self._clock.call_at(self._last + self._every, self._ring, set_back=self._ring)

    def stop(self) -> None:
        """Tell nothing any more."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _ring(self) -> None:
        self._alarm = None
        self._last = self._clock.now()
        self._tell()
