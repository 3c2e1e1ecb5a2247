"""The work queue: which keys to look at, and when.

A controller is a function that looks at one key (a node, a maintenance) and returns the instant at which it wants to
look again. The queue calls it: as soon as possible for keys that were added because something changed, at the exact
instant for keys that named one. There is no polling; an idle queue holds one alarm, for the earliest instant.

- A key is worked on by one run at a time. Whatever is added while it runs is merged into one further run, so every
  `add` is followed by a run that started after it.
- Keys start in the order in which they fell due, at most `workers` at once: none starves, however busy another is.
- A run's start uses up the pending wake-up of its key: its result names the next one. Of several the earliest wins.
- A failed run is tried again after a backoff, longer with each failure in a row, and never before a `retry_after` that
  the error carries. Events do not defeat the backoff, or a key that causes its own events would fail in a tight
  loop. But they may be what ends the trouble, so they shorten the wait to `patience` after the failure.
- A key that is neither due, running, sleeping nor failing costs nothing: the queue has forgotten it. Tasks stay, as
  many as have run at once, and rest until there is work.

Instants are wall time and follow the wall clock when it is set; if that is set back, all who sleep are looked at again.
Backoffs are lengths of time and do not.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from random import Random
from typing import Generic, TypeVar

from haulout.core import duration
from haulout.core.backoff import Backoff
from haulout.core.clock import Clock
from haulout.core.lately import Lately
from haulout.errors import HauloutError
from haulout.kube.meters import Meters
from haulout.kube.wakes import Wakes

K = TypeVar("K", bound=Hashable)

_BACKOFF = Backoff(first=timedelta(seconds=1), factor=2, limit=timedelta(minutes=5), jitter=0.1)
_PATIENCE = timedelta(seconds=10)

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Run(Generic[K]):
    """One run that ended, for metrics: a run that was cancelled is none."""

    key: K
    lag: timedelta  # how long the key was due before a worker was free
    took: timedelta
    attempt: int  # 1, or more after failures in a row
    error: BaseException | None


@dataclass(frozen=True, slots=True)
class QueueStats:
    """What the queue holds right now, and what it has done so far."""

    waiting: int  # due, but no worker is free
    running: int
    sleeping: int  # with a pending wake-up; such a key may be waiting or running as well
    backing_off: int
    oldest_waiting: timedelta
    done: int
    failed: int


class Queue(Generic[K]):
    """Calls `work` for each key when it is due; see the module for what is promised."""

    def __init__(  # noqa: PLR0913 - what queues may differ in
        self,
        work: Callable[[K], Awaitable[datetime | None]],
        *,
        clock: Clock,
        random: Random,
        workers: int = 16,
        backoff: Backoff = _BACKOFF,
        patience: timedelta = _PATIENCE,
        name: str = "",
        observe: Callable[[Run[K]], object] | None = None,
        meters: Meters | None = None,
    ) -> None:
        if workers < 1:
            raise ValueError(f"queue {name}: {workers} workers would never work, expected at least 1")
        self.name = name
        self._work = work
        self._clock = clock
        self._random = random
        self._workers = workers
        self._backoff = backoff
        self._patience = patience
        self._observe = observe
        self._meters = meters
        self._active = False
        self._group: asyncio.TaskGroup | None = None  # while runs may start
        self._starting = 0  # tasks that were made or woken, but have not taken their key yet
        self._resting: list[asyncio.Future[None]] = []  # of tasks that wait for their next key, the latest last
        self._due: OrderedDict[K, float] = OrderedDict()  # since when, oldest first
        self._running: dict[K, _Running] = {}
        self._wakes: Wakes[K] = Wakes(clock, self._wake)
        self._woken: set[K] = set()  # of those that are due: for which the instant has come that they named
        self._failing: dict[K, _Failing] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._done = 0
        self._failed = 0
        self._lags = Lately()

    def add(self, key: K) -> None:
        """Look at `key` as soon as possible: something about it changed."""
        if running := self._running.get(key):
            running.again = True
        elif (failing := self._failing.get(key)) and failing.timer:
            failing.hurry()
        elif key not in self._due:
            self._make_due(key)

    def wake_at(self, key: K, instant: datetime) -> None:
        """Look at `key` at `instant`, unless it is looked at sooner anyway; an instant in the past means now."""
        if instant <= self._clock.now():
            self.add(key)
        else:
            self._wakes.set(key, instant)

    def cancel(self, key: K) -> None:
        """Forget the pending wake-up of `key`; if it is due, running or about to be tried again it stays so."""
        self._wakes.discard(key)

    def forget(self, key: K) -> None:
        """Drop all about `key`, for example because its object is gone; what a run under way returns is ignored."""
        self._due.pop(key, None)
        self._woken.discard(key)
        self._wakes.discard(key)
        if failing := self._failing.pop(key, None):
            failing.give_up()
        if running := self._running.get(key):
            running.again = False
            running.forgotten = True
        self._tell_if_idle()

    def stats(self) -> QueueStats:
        """Return what the queue holds right now, and what it has done so far."""
        oldest = next(iter(self._due.values()), None)
        return QueueStats(
            waiting=len(self._due),
            running=len(self._running),
            sleeping=len(self._wakes),
            backing_off=sum(failing.timer is not None for failing in self._failing.values()),
            oldest_waiting=timedelta() if oldest is None else self._since(oldest),
            done=self._done,
            failed=self._failed,
        )

    def worst_lag(self) -> timedelta:
        """Return how long a key was due of late, at worst, before a worker was free; or is, if it still waits."""
        oldest = next(iter(self._due.values()), None)
        started = timedelta(seconds=self._lags.worst(self._clock.monotonic()))
        return started if oldest is None else max(started, self._since(oldest))

    async def wait_idle(self) -> None:
        """Return when no key is due or running; some may sleep or back off."""
        while self._due or self._running:
            await self._idle.wait()

    async def run(self) -> None:
        """Work until cancelled; then cancel the runs under way and wait for their end.

        Should the queue run again, what was cut short or waited to be tried again is due at once.
        """
        if self._active:
            raise RuntimeError(f"queue {self.name}: it runs already, a second run() would work on keys twice")
        self._active = True
        try:
            with self._counted():
                async with asyncio.TaskGroup() as group:
                    await self._serve(group)
        finally:
            self._clear_away()
            self._active = False

    def _counted(self) -> AbstractContextManager[None]:
        if self._meters is None:
            return nullcontext()
        return self._meters.working(self)

    async def _serve(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._wakes.start()
        self._start_runs()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._group = None  # before the runs under way end, so that none follows them
            self._wakes.stop()

    def _clear_away(self) -> None:
        self._starting = 0
        self._resting.clear()
        cut_short = [key for key, running in self._running.items() if running.again or not running.forgotten]
        held_back = [key for key, failing in self._failing.items() if failing.give_up()]
        self._running.clear()
        for key in (*cut_short, *held_back):
            self._make_due(key)
        self._tell_if_idle()

    def _wake(self, key: K, instant: datetime) -> None:
        if key in self._due or key in self._running or key in self._failing:
            self.add(key)
            return
        self._woken.add(key)
        self._make_due(key, late=max(self._clock.now() - instant, timedelta()))

    def _make_due(self, key: K, *, late: timedelta = timedelta()) -> None:
        self._due[key] = self._clock.monotonic() - late.total_seconds()
        self._idle.clear()
        self._start_runs()

    def _start_runs(self) -> None:
        # A key stays in `_due` until its task takes its first step: what is added until then is the same run.
        while self._group and self._starting < min(len(self._due), self._workers - len(self._running)):
            self._starting += 1
            rest = self._resting.pop() if self._resting else None
            if rest is None or rest.done():  # it was cancelled
                self._group.create_task(self._run_all())
            else:
                rest.set_result(None)

    async def _run_all(self) -> None:
        """Run what is due, and rest until there is more: to wake a task takes a third of the time to make one."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        while True:
            await self._run_next()
            if task is None or task.cancelling():
                return
            task.set_name(f"{self.name} at rest")
            rest = loop.create_future()
            self._resting.append(rest)
            await rest

    async def _run_next(self) -> None:
        self._starting -= 1
        if not self._due:  # its key was forgotten
            return
        key, due_since = self._due.popitem(last=False)
        self._wakes.discard(key)
        running = self._running[key] = _Running()
        attempt = self._failing[key].attempts + 1 if key in self._failing else 1
        began, is_exact = self._clock.monotonic(), key in self._woken
        self._lags.note(began - due_since, at=began)
        self._woken.discard(key)
        wake, error = await self._try(key)
        del self._running[key]
        if error is None:
            self._succeeded(key, running, wake)
        else:
            self._failed_with(error, key, running, attempt)
        if self._meters is not None:
            self._meters.ran(self.name, lag=began - due_since, is_exact=is_exact, failed=error is not None)
        if self._observe:
            lag = timedelta(seconds=began - due_since)
            run = Run(key=key, lag=lag, took=self._since(began), attempt=attempt, error=error)
            # Not called from here: an observer that raises must not end the queue. The loop logs its error.
            asyncio.get_running_loop().call_soon(self._observe, run)
        self._start_runs()
        self._tell_if_idle()

    async def _try(self, key: K) -> tuple[datetime | None, BaseException | None]:
        task = asyncio.current_task()
        try:
            if task:
                task.set_name(f"{self.name} {key}")
            wake = await self._work(key)
            if wake is not None and wake.tzinfo is None:
                raise TypeError(f"the next look at {key} is at {wake} without a time zone: return an aware datetime")
        except asyncio.CancelledError as cancelled:
            # Of something that the work awaited, or of the work itself? Only the latter is ours to pass on.
            if task is None or task.cancelling():
                raise
            return None, cancelled
        except Exception as error:  # noqa: BLE001 - the task boundary: whatever it is gets logged, counted, backed off
            return None, error
        return wake, None

    def _succeeded(self, key: K, running: "_Running", wake: datetime | None) -> None:
        self._done += 1
        self._failing.pop(key, None)
        if wake is not None and not running.forgotten:
            self.wake_at(key, wake)
        if running.again:
            self.add(key)

    def _failed_with(self, error: BaseException, key: K, running: "_Running", attempt: int) -> None:
        self._failed += 1
        if running.forgotten:
            self._log(error, key, attempt, "and it was forgotten meanwhile")
            if running.again:
                self.add(key)
        else:
            wait = self._back_off(key, attempt, asked_for=_retry_after(error), hurry=running.again)
            self._log(error, key, attempt, f"next try in {duration.format(wait)}")

    def _back_off(self, key: K, attempt: int, *, asked_for: timedelta, hurry: bool) -> timedelta:
        full = max(self._backoff.delay(attempt, self._random), asked_for)
        shortened = max(min(full, self._patience), asked_for)
        wait = shortened if hurry else full
        loop = asyncio.get_running_loop()
        retry = partial(self._retry, key)
        self._failing[key] = _Failing(
            attempts=attempt,
            retry=retry,
            timer=loop.call_later(wait.total_seconds(), retry),
            soonest=loop.time() + shortened.total_seconds(),
        )
        return wait

    def _retry(self, key: K) -> None:
        self._failing[key].timer = None
        self._make_due(key)

    def _tell_if_idle(self) -> None:
        if not self._due and not self._running:
            self._idle.set()

    def _since(self, moment: float) -> timedelta:
        return timedelta(seconds=self._clock.monotonic() - moment)

    def _log(self, error: BaseException, key: K, attempt: int, outlook: str) -> None:
        causes = list(_causes(error))
        expected = all(isinstance(cause, HauloutError) for cause in causes)
        _logger.log(
            logging.WARNING if expected else logging.ERROR,
            "%s %s: attempt %d failed, %s: %s",
            self.name or "queue",
            key,
            attempt,
            outlook,
            "; ".join(str(cause) if isinstance(cause, HauloutError) else repr(cause) for cause in causes),
            exc_info=error if not expected or _logger.isEnabledFor(logging.DEBUG) else None,
            extra={"queue": self.name, "key": str(key), "attempt": attempt},
        )


@dataclass(slots=True)
class _Running:
    """A run under way, and what happened to its key meanwhile."""

    again: bool = False
    forgotten: bool = False


@dataclass(slots=True)
class _Failing:
    """A key whose last run failed: how many did in a row, and the timer for the next one until that is due."""

    attempts: int
    retry: Callable[[], object]
    timer: asyncio.TimerHandle | None
    soonest: float

    def hurry(self) -> None:
        """Try again as soon as events may bring it about."""
        if self.timer and self.timer.when() > self.soonest:
            self.timer.cancel()
            self.timer = asyncio.get_running_loop().call_at(self.soonest, self.retry)

    def give_up(self) -> bool:
        """Stop the timer; return whether there was one."""
        if self.timer is None:
            return False
        self.timer.cancel()
        self.timer = None
        return True


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield what went wrong: the members of an exception group, which itself says nothing, or the error."""
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from _causes(member)
    else:
        yield error


def _retry_after(error: BaseException) -> timedelta:
    """Return how long the server asked us to wait, if it did."""
    wishes = (getattr(cause, "retry_after", None) for cause in _causes(error))
    return max((wish for wish in wishes if isinstance(wish, timedelta)), default=timedelta())
