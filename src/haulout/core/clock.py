"""The clock: the only module that reads the time.

All code that reads the time or waits takes a `Clock`; lint forbids `datetime.now`, `time.time`, `time.sleep` and
`asyncio.sleep` elsewhere. A clock has two times, and confusing them is a classic source of operator bugs:

- `now()` is wall time. It is for instants that other systems name (a window opens, a notice is due), and it may jump.
- `monotonic()` is for durations. It never goes back and includes the time during which a machine was suspended, so that
  a lease held before a suspend is known to be old after it.

All waiting goes through the running event loop, so `asyncio.timeout` and the clock agree. Simulated time is therefore a
property of the event loop (the sandbox has one), not a second implementation of all code that waits.

`real_time` is for timers that concern people and networks, even if the cluster's time runs faster. A sandbox may run
sixty times faster, and so do its timers. People do not read faster, and networks are not faster.
"""

import asyncio
import math
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

# The wall clock may be set during a wait for an instant, and no event tells that. So a long wait checks it this often.
_RECHECK_INTERVAL = timedelta(minutes=1)
SET_BACK_TOLERANCE = timedelta(seconds=5)  # smaller steps are ignored as normal corrections


class Clock(Protocol):
    """Reads the time and waits. All waiting code takes one, so that tests need not wait."""

    def now(self) -> datetime:
        """Return the wall time, aware and in UTC."""
        ...

    def monotonic(self) -> float:
        """Return the seconds since a fixed instant. The value never decreases."""
        ...

    async def sleep(self, duration: timedelta) -> None:
        """Wait for `duration`. If it is not positive, yield once to other tasks."""
        ...

    def call_at(
        self, instant: datetime, callback: Callable[[], object], *, on_set_back: Callable[[], object] | None = None
    ) -> "Alarm":
        """Call `callback` from the running loop when `now()` has reached `instant`.

        If the wall clock is set back, call `on_set_back` instead. This is for instants computed from `now()`: a wait of
        seconds would otherwise take hours.
        """
        ...


class Alarm:
    """A callback at an instant of wall time. It follows changes of the wall clock."""

    __slots__ = ("_callback", "_clock", "_handle", "_offset", "_on_set_back", "_recheck_interval", "instant")

    def __init__(
        self,
        clock: Clock,
        instant: datetime,
        callback: Callable[[], object],
        *,
        recheck_interval: timedelta | None = None,
        on_set_back: Callable[[], object] | None = None,
    ) -> None:
        self.instant = instant
        self._clock = clock
        self._on_set_back = on_set_back
        # A clock that calls `rearm` when it is set needs no offset: simulations have very many alarms.
        self._offset = -math.inf if recheck_interval is None or on_set_back is None else wall_clock_offset(clock)
        self._callback = callback
        self._recheck_interval = recheck_interval
        self._handle = self._arm()

    def cancel(self) -> None:
        """Cancel the alarm. It has no effect after the callback."""
        self._handle.cancel()

    def rearm(self, *, by: timedelta) -> None:
        """Restart the wait after the wall clock was set by `by`. Only for an alarm that is still pending."""
        self.cancel()
        if self._on_set_back is not None and by <= -SET_BACK_TOLERANCE:
            self._on_set_back()
        else:
            self._handle = self._arm()

    def _arm(self) -> asyncio.TimerHandle:
        wait = max(self.instant - self._clock.now(), timedelta())
        if self._recheck_interval is not None:
            wait = min(wait, self._recheck_interval)
        return asyncio.get_running_loop().call_later(wait.total_seconds(), self._fire)

    def _fire(self) -> None:
        if self._clock.now() >= self.instant:
            self._callback()
        elif (
            self._on_set_back is not None
            and wall_clock_offset(self._clock) - self._offset <= -SET_BACK_TOLERANCE.total_seconds()
        ):
            self._on_set_back()
        else:
            self._handle = self._arm()


def wall_clock_offset(clock: Clock) -> float:
    """Return the seconds by which the wall clock is ahead of the monotonic clock. They change only when it is set."""
    return clock.now().timestamp() - clock.monotonic()


class RealClock:
    """The clock of this machine. No other code reads it."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return the seconds since boot, including suspend where the system supports it."""
        return _since_boot()

    async def sleep(self, duration: timedelta) -> None:
        await asyncio.sleep(max(duration.total_seconds(), 0))

    def call_at(
        self, instant: datetime, callback: Callable[[], object], *, on_set_back: Callable[[], object] | None = None
    ) -> Alarm:
        """Call `callback` when the wall clock has reached `instant`, or `on_set_back` when it was set back."""
        return Alarm(self, instant, callback, recheck_interval=_RECHECK_INTERVAL, on_set_back=on_set_back)


# Linux only. Its CLOCK_MONOTONIC, which `time.monotonic` reads, stops while the machine is suspended
# (clock_gettime(2)). A lease held before a suspend would look fresh after it.
if hasattr(time, "CLOCK_BOOTTIME"):

    def _since_boot() -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:  # macOS: the monotonic clock stops during suspend, so leases only look younger to their own holder
    _since_boot = time.monotonic


def real_time(span: timedelta) -> timedelta:
    """Return the timer duration that lasts `span` in real time."""
    speed = getattr(asyncio.get_running_loop(), "speed", 1.0)
    return span * speed if 1 < speed < math.inf else span


def real_seconds(span: timedelta) -> float:
    """Return the timer duration that lasts `span` in real time, in seconds."""
    return real_time(span).total_seconds()
