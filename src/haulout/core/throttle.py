"""Calls a function at most once per interval. The last call is never dropped."""

from collections.abc import Callable
from datetime import datetime, timedelta

from haulout.core.clock import Alarm, Clock


class Throttle:
    """Calls `call` at once, and then again after `interval` at the earliest, however often it is invoked."""

    def __init__(self, call: Callable[[], object], *, clock: Clock, interval: timedelta) -> None:
        self._call = call
        self._clock = clock
        self._interval = interval
        self._last_call: datetime | None = None
        self._alarm: Alarm | None = None

    def __call__(self) -> None:
        """Call now, or as soon as the interval allows."""
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
        """Cancel the pending call."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _call_now(self) -> None:
        self._alarm = None
        self._last_call = self._clock.now()
        self._call()
