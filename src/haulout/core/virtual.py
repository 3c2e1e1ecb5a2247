"""Simulated time: an event loop whose clock jumps to the next timer when nothing is runnable.

A day of waiting passes in milliseconds and a run repeats itself exactly: the loop starts at the same instant every
time, never waits for the machine, and nothing in it depends on how fast the machine is. What is left to chance in the
program (jitter, delays) must come from a seeded `random.Random`.

The loop still serves threads (`run_in_executor`) and waits for them in real time without moving its own clock. When
everything waits and no timer is set, it raises `Deadlock`, which in a test is a far better answer than hanging.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar, TypeVarTuple, Unpack

from haulout.core.clock import Alarm

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

EPOCH = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)  # a Monday morning, when people plan maintenance


class Deadlock(RuntimeError):
    """Everything waits and no timer will ever wake it."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on simulated time."""

    def __init__(self) -> None:
        self._virtual_seconds = 0.0
        self._threads_at_work = 0
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        """Return the simulated seconds since the loop was made."""
        return self._virtual_seconds

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> "asyncio.Future[T]":
        """Run `func` in a thread; simulated time stands still until it is back."""
        self._threads_at_work += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._thread_is_back)
        return future

    def _thread_is_back(self, _: object) -> None:
        self._threads_at_work -= 1

    def _jump(self, seconds: float | None) -> None:
        if seconds is None:
            message = "everything waits and no timer is set"
            raise Deadlock(message)
        self._virtual_seconds += seconds


class _JumpingSelector(selectors.DefaultSelector):
    """Looks at real file descriptors without waiting, and moves the loop's time instead."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if events or (timeout is not None and timeout <= 0):
            return events
        if self._loop._threads_at_work:  # noqa: SLF001 - the two are one thing in two classes
            return super().select(None)
        self._loop._jump(timeout)  # noqa: SLF001
        return events


class VirtualClock:
    """The time of a `VirtualLoop`; wall time can be set, as on a real machine."""

    def __init__(self, start: datetime = EPOCH) -> None:
        self._start = start

    def now(self) -> datetime:
        """Return the simulated wall time."""
        return self._start + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        """Return the simulated seconds since the loop was made."""
        return asyncio.get_running_loop().time()

    async def sleep(self, duration: timedelta) -> None:
        """Return after `duration` of simulated time."""
        await asyncio.sleep(max(duration.total_seconds(), 0))

    def call_at(self, instant: datetime, callback: Callable[[], object]) -> Alarm:
        """Call `callback` at exactly `instant` of simulated wall time."""
        return Alarm(self, instant, callback)

    def set_wall(self, by: timedelta) -> None:
        """Move the wall clock without any time passing, as an operator or NTP would."""
        self._start += by


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end on simulated time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
