"""Simulated time: an event loop whose clock jumps to the next timer when nothing is runnable.

A day of waiting passes in milliseconds, and runs are reproducible: the loop always starts at the same instant, never
waits for the machine, and does not depend on the machine's speed. Randomness in the program (jitter, delays) must come
from a seeded `random.Random`.

The loop still serves threads (`run_in_executor`) and waits for them in real time without moving its own clock. It does
not wait for sockets. When every task waits and no timer is set, it raises `Deadlock` with the location of each waiting
task, instead of hanging.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from datetime import UTC, datetime, timedelta
from inspect import iscoroutine
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack

from haulout.core.clock import Alarm
from haulout.core.memory import SHORT_LIVED, gc_thresholds
from haulout_sandbox.event_loops.stepped_loop import SteppedLoop

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

EPOCH = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)  # a Monday morning, a realistic time for maintenance

_MAX_WAITERS_SHOWN = 10
_POLL_EVERY = 64  # iterations of the loop


class Deadlock(RuntimeError):
    """All tasks wait, and no timer will wake any of them."""


class VirtualLoop(SteppedLoop):
    def __init__(self) -> None:
        self._busy_threads = 0
        super().__init__(_JumpingSelector(self))

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> "asyncio.Future[T]":
        """Run `func` in a thread; simulated time does not move until it returns."""
        future = super().run_in_executor(executor, func, *args)
        self._busy_threads += 1
        future.add_done_callback(self._on_thread_done)
        return future

    async def shutdown_default_executor(self, *args: Any, **kwargs: Any) -> None:
        """Wait for the default executor's threads in real time."""
        self._busy_threads += 1
        try:
            await super().shutdown_default_executor(*args, **kwargs)
        finally:
            self._busy_threads -= 1

    def _on_thread_done(self, _: object) -> None:
        self._busy_threads -= 1

    def _jump(self, seconds: float | None) -> None:
        if seconds is None:
            raise Deadlock(f"everything waits and no timer is set: {_format_waiters(self)}")
        self.step(seconds)


class _JumpingSelector(selectors.DefaultSelector):
    """Polls file descriptors without waiting, and moves the loop's time instead."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop
        self._files = 0
        self._polls = 0

    def register(self, fileobj: "FileDescriptorLike", events: int, data: Any = None) -> selectors.SelectorKey:
        self._files += 1
        return super().register(fileobj, events, data)

    def unregister(self, fileobj: "FileDescriptorLike") -> selectors.SelectorKey:
        self._files -= 1
        return super().unregister(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0) if self._should_poll() else []
        if events or (timeout is not None and timeout <= 0):
            return events
        if self._loop._busy_threads:  # noqa: SLF001 - the two are one thing in two classes
            return super().select(None)
        self._loop._jump(timeout)  # noqa: SLF001 - the same
        return events

    def _should_poll(self) -> bool:
        """Return whether a poll is worth a system call.

        If the loop's own pipe is the only descriptor, only a signal or a thread can have written to it.
        """
        self._polls += 1
        has_other_sources = self._files > 1 or self._loop._busy_threads  # noqa: SLF001 - the same
        return bool(has_other_sources) or self._polls % _POLL_EVERY == 0


class VirtualClock:
    """The clock of a `VirtualLoop` or another stepped loop; its wall time can be set, as on a real machine."""

    def __init__(self, start: datetime = EPOCH) -> None:
        self._start = start
        self._latest = (0.0, start)  # the latest result of `now`, cached because it is read many times at one instant
        self._alarms: dict[Alarm, None] = {}  # an ordered set, so that runs are reproducible

    def now(self) -> datetime:
        elapsed = asyncio.get_running_loop().time()
        if self._latest[0] != elapsed:
            self._latest = elapsed, self._start + timedelta(seconds=elapsed)
        return self._latest[1]

    def monotonic(self) -> float:
        """Return the simulated seconds since the loop was created."""
        return asyncio.get_running_loop().time()

    async def sleep(self, duration: timedelta) -> None:
        await asyncio.sleep(max(duration.total_seconds(), 0))

    def call_at(
        self, instant: datetime, callback: Callable[[], object], *, on_set_back: Callable[[], object] | None = None
    ) -> Alarm:
        """Call `callback` at exactly `instant` of wall time, or `on_set_back` if the wall clock is set back."""
        return _ListedAlarm(self, instant, callback, alarms=self._alarms, on_set_back=on_set_back)

    def move_wall_clock(self, by: timedelta) -> None:
        """Move the wall clock without letting time pass, as an operator or NTP would.

        Pending alarms react at once; on a real machine they notice within a minute.
        """
        self._start += by
        self._latest = (0.0, self._start)
        for alarm in tuple(self._alarms):
            alarm.rearm(by=by)


class _ListedAlarm(Alarm):
    """An alarm that its clock can reach while it is pending."""

    __slots__ = ("_alarms",)

    def __init__(
        self,
        clock: VirtualClock,
        instant: datetime,
        callback: Callable[[], object],
        *,
        alarms: dict[Alarm, None],
        on_set_back: Callable[[], object] | None,
    ) -> None:
        self._alarms = alarms
        super().__init__(clock, instant, callback, on_set_back=on_set_back)

    def cancel(self) -> None:
        self._alarms.pop(self, None)
        super().cancel()

    def _arm(self) -> asyncio.TimerHandle:
        self._alarms[self] = None
        return super()._arm()

    def _fire(self) -> None:
        self._alarms.pop(self, None)
        super()._fire()


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to completion on simulated time."""
    with gc_thresholds(SHORT_LIVED), asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


def _format_waiters(loop: asyncio.AbstractEventLoop) -> str:
    waiters = sorted(f"{task.get_name()} in {_waiting_location(task.get_coro())}" for task in asyncio.all_tasks(loop))
    shown = "; ".join(waiters[:_MAX_WAITERS_SHOWN])
    return f"{shown}; and {len(waiters) - _MAX_WAITERS_SHOWN} more" if len(waiters) > _MAX_WAITERS_SHOWN else shown


def _waiting_location(waiting: object) -> str:
    """Return function and line where a suspended coroutine waits: the innermost frame outside of asyncio."""
    locations: list[str] = []
    asyncio_locations: list[str] = []
    while iscoroutine(waiting) and waiting.cr_frame is not None:
        module = str(waiting.cr_frame.f_globals.get("__name__"))
        location = f"{waiting.__qualname__} line {waiting.cr_frame.f_lineno}"
        (asyncio_locations if module.startswith("asyncio.") else locations).append(location)
        waiting = waiting.cr_await
    return (locations or asyncio_locations or [repr(waiting)])[-1]
