"""Base of event loops whose time moves in explicit steps, not with the machine's clock.

Time is counted in whole microseconds, the resolution of `datetime`. Floats would drift apart over a simulated year, and
a timer that fires slightly before its instant would be set again with no delay, forever.

The selector of such a loop decides how time moves: it jumps (`virtual_time`) or waits (`accelerated_loop`). Either way
time does not move while something is runnable, so that no timeout expires because the machine is slow.
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
    """An event loop that starts at zero and moves only by `step`."""

    _scheduled: list[asyncio.TimerHandle]  # the base class's heap

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._ticks = 0
        self._time = 0.0  # the time in seconds, cached because it is read very often
        super().__init__(selector)
        # The base class runs timers that are due within this many seconds. With its own resolution of a nanosecond,
        # `time() + resolution` is rounded off after half a year, and a timer that is due right now would never run.
        self._clock_resolution = 0.5 / _TICKS_PER_SECOND
        self._task_numbers = count()

    def time(self) -> float:
        """Return the seconds since the loop was created, a whole number of microseconds."""
        return self._time

    def step(self, seconds: float) -> None:
        """Move the time forward: rounded to microseconds, and by at least one."""
        self._ticks += max(round(seconds * _TICKS_PER_SECOND), 1)
        self._time = self._ticks / _TICKS_PER_SECOND

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call `callback` at the microsecond nearest to `when`; a future instant is at least one microsecond ahead."""
        ticks = round(when * _TICKS_PER_SECOND)
        if ticks <= self._ticks and when > self._time:
            # An instant between two ticks must not round down to now, or its waiter would loop forever.
            ticks = self._ticks + 1
        if self.get_debug():
            return super().call_at(ticks / _TICKS_PER_SECOND, callback, *args, context=context)
        # As the base class, but with timers that are cheaper to compare: a simulated day consists of timers.
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
        return self.call_at(self._time + delay, callback, *args, context=context)

    def create_task(self, coro: Coroutine[Any, Any, T] | Generator[Any, None, T], **options: Any) -> asyncio.Task[T]:
        return _NumberedTask(coro, loop=self, number=next(self._task_numbers), **options)


class _Timer(asyncio.TimerHandle):
    """A timer that is compared only with its own type, as the loop's heap does: a third faster."""

    __slots__ = ()

    _scheduled: bool
    _when: float

    def __lt__(self, other: asyncio.TimerHandle) -> bool:
        return self._when < other._when  # type: ignore[attr-defined, no-any-return]  # it has this, too


class _NumberedTask(asyncio.Task[T]):
    """A task whose hash is its number in its loop.

    Task groups and `asyncio.wait` keep tasks in sets. By default the order of these sets, and so the order in which a
    group cancels its tasks, depends on memory addresses and differs between runs.
    """

    def __init__(self, *args: Any, number: int, **kwargs: Any) -> None:
        self._number = number  # set first: the base class hashes the new task
        super().__init__(*args, **kwargs)

    def __hash__(self) -> int:
        return self._number
