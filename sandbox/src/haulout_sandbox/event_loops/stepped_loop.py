"""Event loops whose time moves in steps of their own, not with the machine's clock.

Time is counted in whole microseconds, the grain of `datetime`. Floats would drift apart over a simulated year, and a
timer that rings a hair before the instant it was set for would be set again for no time at all, without end.

What such a loop does in between is up to its selector: jump (`virtual_time`), or wait (`paced_loop`).
Either way time stands still while something is runnable, so that no time-out strikes because the machine is slow.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from heapq import heappush
from itertools import count
from typing import Any, TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_TICKS_PER_SECOND = 1_000_000


class SteppedLoop(asyncio.SelectorEventLoop):
    """An event loop that begins at zero and stays there until it is told to `step`."""

    _scheduled: list[asyncio.TimerHandle]  # the base class's heap

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._ticks = 0
        self._time = 0.0  # the same in seconds, which is asked for all the time
        super().__init__(selector)
        # The base class runs timers that are due within this many seconds. Its own nanosecond is lost in the rounding
        # of `time() + resolution` after half a year, and a timer that is due right now would never run.
        self._clock_resolution = 0.5 / _TICKS_PER_SECOND
        self._task_numbers = count()

    def time(self) -> float:
        """Return the seconds since the loop was made, a whole number of microseconds."""
        return self._time

    def step(self, seconds: float) -> None:
        """Move time on: to the nearest microsecond, and at least by one."""
        self._ticks += max(round(seconds * _TICKS_PER_SECOND), 1)
        self._time = self._ticks / _TICKS_PER_SECOND

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call `callback` at the microsecond nearest to `when`; what lies ahead is at least one microsecond ahead."""
        ticks = round(when * _TICKS_PER_SECOND)
        if ticks <= self._ticks and when > self._time:
            # Whoever waits for a moment that lies between two ticks must not wait for it without end.
            ticks = self._ticks + 1
        if self.get_debug():
            return super().call_at(ticks / _TICKS_PER_SECOND, callback, *args, context=context)
        # What the base class does, with timers that are cheaper to compare: a simulated day is made of timers.
        if self.is_closed():
            raise RuntimeError("Event loop is closed")
        timer = _Timer(ticks / _TICKS_PER_SECOND, callback, args, self, context)
        heappush(self._scheduled, timer)
        timer._scheduled = True  # noqa: SLF001 - the loop's own mark, by which it counts timers that are cancelled
        return timer

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call `callback` after so many seconds."""
        return self.call_at(self._time + delay, callback, *args, context=context)

    def create_task(self, coro: Coroutine[Any, Any, T] | Generator[Any, None, T], **options: Any) -> asyncio.Task[T]:
        """Run `coro` as a task."""
        return _NumberedTask(coro, loop=self, number=next(self._task_numbers), **options)


class _Timer(asyncio.TimerHandle):
    """A timer that is only ever compared with its like, as the loop does to find the next: that takes a third less."""

    __slots__ = ()

    _scheduled: bool
    _when: float

    def __lt__(self, other: asyncio.TimerHandle) -> bool:
        return self._when < other._when  # type: ignore[attr-defined, no-any-return]  # it has this, too


class _NumberedTask(asyncio.Task[T]):
    """A task whose hash is its number in its loop.

    Task groups and `asyncio.wait` keep tasks in sets. By default their order there, and with it the order in which a
    group cancels its tasks, follows from memory addresses and differs from run to run.
    """

    def __init__(self, *args: Any, number: int, **kwargs: Any) -> None:
        self._number = number  # first: the base class hashes the new task
        super().__init__(*args, **kwargs)

    def __hash__(self) -> int:
        return self._number
