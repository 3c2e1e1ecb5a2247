"""The one place that knows what time it is.

Everything that reads the time or waits takes a `Clock`; lint refuses `datetime.now`, `time.time`, `time.sleep` and
`asyncio.sleep` elsewhere. A clock has two faces, and mixing them up is a classic source of operator bugs:

- `now()` is wall time. It is for instants that other machines name (a window opens, a notice falls due) and may jump.
- `monotonic()` is for measuring how long something took. It never goes back and counts the time a machine slept, so
  that a lease held before a suspend is known to be old after it.

Waiting always goes through the running event loop, so `asyncio.timeout` and the clock agree. Simulated time is
therefore a property of the loop (the sandbox has one), not a second implementation of everything that waits.
"""

import asyncio
import math
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

# A wall clock may be set while we wait for an instant: a long wait looks again this often.
_RECHECK_INTERVAL = timedelta(minutes=1)
SET_BACK_TOLERANCE = timedelta(seconds=5)  # less is a correction that nobody need hear of


class Clock(Protocol):
    """Reads the time and waits for it."""

    def now(self) -> datetime:
        """Return the wall time, aware and in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds since some fixed moment; never goes back."""
        ...

    async def sleep(self, duration: timedelta) -> None:
        """Return after `duration`; at once (but letting others run) if it is not positive."""
        ...

    def call_at(
        self, instant: datetime, callback: Callable[[], object], *, on_set_back: Callable[[], object] | None = None
    ) -> "Alarm":
        """Call `callback` from the running loop when `now()` has reached `instant`.

        Call `on_set_back` instead once the wall clock proves to have been set back: for whoever reckoned the instant
        from what `now()` was, and would wait for hours instead of seconds.
        """
        ...


class Alarm:
    """A callback that waits for an instant of wall time, also when the wall clock is set meanwhile."""

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
        # A clock that tells its alarms when it is set is not asked: simulations have very many of them.
        self._offset = -math.inf if recheck_interval is None or on_set_back is None else wall_clock_offset(clock)
        self._callback = callback
        self._recheck_interval = recheck_interval
        self._handle = self._arm()

    def cancel(self) -> None:
        """Forget it; harmless after it rang."""
        self._handle.cancel()

    def rearm(self, *, by: timedelta) -> None:
        """Wait anew: the wall clock was set. Only for an alarm that has neither rung nor been cancelled."""
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
    """Return by how many seconds the wall clock is ahead of the one that nobody sets: the same, until it is set."""
    return clock.now().timestamp() - clock.monotonic()


class RealClock:
    """The time of this machine."""

    def now(self) -> datetime:
        """Return the wall time, aware and in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds since boot, time asleep included where the system can tell."""
        return _since_boot()

    async def sleep(self, duration: timedelta) -> None:
        """Return after `duration`."""
        await asyncio.sleep(max(duration.total_seconds(), 0))

    def call_at(
        self, instant: datetime, callback: Callable[[], object], *, on_set_back: Callable[[], object] | None = None
    ) -> Alarm:
        """Call `callback` when the wall clock has reached `instant`, or `on_set_back` when it was set back."""
        return Alarm(self, instant, callback, recheck_interval=_RECHECK_INTERVAL, on_set_back=on_set_back)


if hasattr(time, "CLOCK_BOOTTIME"):

    def _since_boot() -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:  # macOS: its monotonic clock stops while asleep, which only makes leases look younger to their own holder
    _since_boot = time.monotonic
