"""Tells at most every so often, and never loses the last word."""

from collections.abc import Callable
from datetime import datetime, timedelta

from haulout.core.clock import Alarm, Clock


class Throttle:
    """Calls `call` at once, and then again not before `interval` is over, however often it is asked to."""

    def __init__(self, call: Callable[[], object], *, clock: Clock, interval: timedelta) -> None:
        self._call = call
        self._clock = clock
        self._interval = interval
        self._last_call: datetime | None = None
        self._alarm: Alarm | None = None

    def __call__(self) -> None:
        """Tell, now or as soon as that may be."""
        if self._alarm is not None:
            return
        now = self._clock.now()
        if self._last_call is None or now - self._last_call >= self._interval or now < self._last_call:
            self._call_now()
        else:
            self._alarm = self._clock.call_at(
                self._last_call + self._interval, self._call_now, on_set_back=self._call_now
            )

    def stop(self) -> None:
        """Tell nothing any more."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _call_now(self) -> None:
        self._alarm = None
        self._last_call = self._clock.now()
        self._call()
