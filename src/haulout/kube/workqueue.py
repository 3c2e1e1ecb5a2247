"""The work queue: decides which key is reconciled when.

A reconciler is a function that takes one key (a node, a maintenance) and returns the instant of its next reconcile, or
None. The queue calls it as soon as possible for keys that were added because of an event, and at the exact instant for
keys that were requeued. There is no polling; an idle queue has one timer, for the earliest instant.

- One key is never reconciled twice at the same time. All `add` calls during a run are merged into one further run, so
  every `add` is followed by a run that started after it.
- Keys start in the order in which they became due, at most `workers` at once. No key starves.
- The start of a run cancels the pending requeue of its key; its result sets the next one. The earliest of several wins.
- A failed run is retried after an exponential backoff, and never before the error's `retry_after`. Events do not bypass
  the backoff, or a key that causes its own events would fail in a tight loop. But an event may also mean that the cause
  is fixed, so it shortens the wait to `max_wait_after_event` after the failure.
- The queue keeps no state for a key that is not due, running, delayed or failing. It keeps its worker tasks, as many as
  have run at once, for reuse.

Requeue instants are wall time and follow the wall clock when it is set. If it is set back, all delayed keys become due.
Backoffs are durations and ignore the wall clock.
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

from haulout.core.backoff import Backoff
from haulout.core.clock import Clock
from haulout.core.metrics import RecentValues
from haulout.core.text import format_duration
from haulout.errors import HauloutError
from haulout.kube.delaying_queue import DelayingQueue
from haulout.kube.metrics import KubeMetrics

K = TypeVar("K", bound=Hashable)

# client-go's default rate limiter starts at 5 ms and ends at 1000 s. A failed reconcile here has usually waited for a
# server already, and an operator who fixed the cause should not wait a quarter of an hour.
_BACKOFF = Backoff(first=timedelta(seconds=1), factor=2, limit=timedelta(minutes=5), jitter=0.1)
# Short enough that a fixed cause is seen soon, long enough that a key whose failures cause events does not run in a
# loop.
_MAX_WAIT_AFTER_EVENT = timedelta(seconds=10)

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CompletedRun(Generic[K]):
    """One completed run, for metrics. A cancelled run does not count."""

    key: K
    lag: timedelta  # from when the key was due until a worker was free
    took: timedelta
    attempt: int  # 1, or more after consecutive failures
    error: BaseException | None


@dataclass(frozen=True, slots=True)
class WorkQueueStats:
    """The current content of the queue, and its totals so far."""

    waiting: int  # due, but all workers are busy
    running: int
    delayed: int  # with a pending requeue; such a key may also be waiting or running
    backing_off: int
    oldest_waiting: timedelta
    succeeded: int
    failed: int


class WorkQueue(Generic[K]):
    """Calls `reconcile` for each key when it is due. The module docstring lists the guarantees."""

    def __init__(  # noqa: PLR0913 - options of a queue
        self,
        reconcile: Callable[[K], Awaitable[datetime | None]],
        *,
        clock: Clock,
        random: Random,
        workers: int = 16,
        backoff: Backoff = _BACKOFF,
        max_wait_after_event: timedelta = _MAX_WAIT_AFTER_EVENT,
        name: str = "",
        on_completed: Callable[[CompletedRun[K]], object] | None = None,
        metrics: KubeMetrics | None = None,
    ) -> None:
        if workers < 1:
            raise ValueError(f"queue {name}: {workers} workers cannot reconcile anything, expected at least 1")
        self.name = name
        self._reconcile = reconcile
        self._clock = clock
        self._random = random
        self._workers = workers
        self._backoff = backoff
        self._max_wait_after_event = max_wait_after_event
        self._on_completed = on_completed
        self._metrics = metrics
        self._active = False
        self._group: asyncio.TaskGroup | None = None  # set while runs may start
        self._starting = 0  # tasks created or woken up that have not taken their key yet
        self._idle_workers: list[asyncio.Future[None]] = []  # the most recent one is last
        self._due: OrderedDict[K, float] = OrderedDict()  # key to the instant since when it is due, oldest first
        self._running: dict[K, _Running] = {}
        self._delayed: DelayingQueue[K] = DelayingQueue(clock, self._on_due)
        self._scheduled: set[K] = set()  # due keys whose requeue instant has come
        self._failing: dict[K, _Failing] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._succeeded_runs = 0
        self._failed_runs = 0
        self._recent_lag = RecentValues()

    def add(self, key: K) -> None:
        """Reconcile `key` as soon as possible, because of an event."""
        if running := self._running.get(key):
            # client-go's queue does the same with its sets `dirty` and `processing` (util/workqueue/queue.go).
            running.must_requeue = True
        elif (failing := self._failing.get(key)) and failing.timer:
            failing.shorten_wait()
        elif key not in self._due:
            self._make_due(key)

    def add_at(self, key: K, instant: datetime) -> None:
        """Reconcile `key` at `instant`, or earlier if it is added earlier. An instant in the past means now."""
        if instant <= self._clock.now():
            self.add(key)
        else:
            self._delayed.add_at(key, instant)

    def forget(self, key: K) -> None:
        """Drop all state of `key`, for example because its object is deleted.

        The result of a current run is ignored.
        """
        self._due.pop(key, None)
        self._scheduled.discard(key)
        self._delayed.discard(key)
        if failing := self._failing.pop(key, None):
            failing.cancel_timer()
        if running := self._running.get(key):
            running.must_requeue = False
            running.is_forgotten = True
        self._set_idle_if_empty()

    def stats(self) -> WorkQueueStats:
        oldest = next(iter(self._due.values()), None)
        return WorkQueueStats(
            waiting=len(self._due),
            running=len(self._running),
            delayed=len(self._delayed),
            backing_off=sum(failing.timer is not None for failing in self._failing.values()),
            oldest_waiting=timedelta() if oldest is None else self._since(oldest),
            succeeded=self._succeeded_runs,
            failed=self._failed_runs,
        )

    def max_lag(self) -> timedelta:
        """Return the longest recent wait of a due key for a free worker, including keys that still wait."""
        oldest = next(iter(self._due.values()), None)
        max_started = timedelta(seconds=self._recent_lag.maximum(self._clock.monotonic()))
        return max_started if oldest is None else max(max_started, self._since(oldest))

    async def wait_idle(self) -> None:
        """Return when no key is due or running. Keys may still be delayed or backing off."""
        while self._due or self._running:
            await self._idle.wait()

    async def run(self) -> None:
        """Reconcile until cancelled; then cancel the current runs and wait for their end.

        If the queue runs again, keys whose run was cancelled or that were backing off are due at once.
        """
        if self._active:
            raise RuntimeError(f"queue {self.name}: it is already running, a second run() would reconcile keys twice")
        self._active = True
        try:
            with self._tracked():
                async with asyncio.TaskGroup() as group:
                    await self._serve(group)
        finally:
            self._reset()
            self._active = False

    def _tracked(self) -> AbstractContextManager[None]:
        if self._metrics is None:
            return nullcontext()
        return self._metrics.track_queue(self)

    async def _serve(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._delayed.start()
        self._start_workers()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._group = None  # before the current runs end, so that they start no further ones
            self._delayed.stop()

    def _reset(self) -> None:
        self._starting = 0
        self._idle_workers.clear()
        cut_short = [key for key, running in self._running.items() if running.must_requeue or not running.is_forgotten]
        held_back = [key for key, failing in self._failing.items() if failing.cancel_timer()]
        self._running.clear()
        for key in (*cut_short, *held_back):
            self._make_due(key)
        self._set_idle_if_empty()

    def _on_due(self, key: K, instant: datetime) -> None:
        if key in self._due or key in self._running or key in self._failing:
            self.add(key)
            return
        self._scheduled.add(key)
        self._make_due(key, overdue=max(self._clock.now() - instant, timedelta()))

    def _make_due(self, key: K, *, overdue: timedelta = timedelta()) -> None:
        self._due[key] = self._clock.monotonic() - overdue.total_seconds()
        self._idle.clear()
        self._start_workers()

    def _start_workers(self) -> None:
        # A key stays in `_due` until its task takes its first step, so an `add` before that is merged into this run.
        while self._group and self._starting < min(len(self._due), self._workers - len(self._running)):
            self._starting += 1
            idle_worker = self._idle_workers.pop() if self._idle_workers else None
            if idle_worker is None or idle_worker.done():  # the task was cancelled
                self._group.create_task(self._worker())
            else:
                idle_worker.set_result(None)

    async def _worker(self) -> None:
        """Run due keys, and wait for more: to wake a task takes a third of the time to create one."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        while True:
            await self._run_next()
            if task is None or task.cancelling():
                return
            task.set_name(f"{self.name} idle")
            work_available = loop.create_future()
            self._idle_workers.append(work_available)
            await work_available

    async def _run_next(self) -> None:
        self._starting -= 1
        if not self._due:  # the key was forgotten
            return
        key, due_since = self._due.popitem(last=False)
        self._delayed.discard(key)
        # From here on an `add` means one more run: this one may have read its observation already.
        running = self._running[key] = _Running()
        attempt = self._failing[key].attempts + 1 if key in self._failing else 1
        started, is_scheduled = self._clock.monotonic(), key in self._scheduled
        self._recent_lag.record(started - due_since, at=started)
        self._scheduled.discard(key)
        requeue_at, error = await self._try(key)
        del self._running[key]
        if error is None:
            self._record_success(key, running, requeue_at)
        else:
            self._record_failure(error, key, running, attempt)
        if self._metrics is not None:
            self._metrics.record_run(
                self.name, lag=started - due_since, is_scheduled=is_scheduled, failed=error is not None
            )
        if self._on_completed:
            lag = timedelta(seconds=started - due_since)
            run = CompletedRun(key=key, lag=lag, took=self._since(started), attempt=attempt, error=error)
            # Not called directly: an observer that raises must not end the queue. The event loop logs its error.
            asyncio.get_running_loop().call_soon(self._on_completed, run)
        self._start_workers()
        self._set_idle_if_empty()

    async def _try(self, key: K) -> tuple[datetime | None, BaseException | None]:
        task = asyncio.current_task()
        try:
            if task:
                # A dump of all tasks shows by the name which key hangs.
                task.set_name(f"{self.name} {key}")
            requeue_at = await self._reconcile(key)
            if requeue_at is not None and requeue_at.tzinfo is None:
                raise TypeError(
                    f"the requeue time of {key} is {requeue_at} without a time zone: return an aware datetime"
                )
        except asyncio.CancelledError as cancelled:
            # Was this task cancelled, or something that `reconcile` awaited? Only the former is passed on.
            if task is None or task.cancelling():
                raise
            return None, cancelled
        except Exception as error:  # noqa: BLE001 - the task boundary: log, count and back off on any exception
            return None, error
        return requeue_at, None

    def _record_success(self, key: K, running: "_Running", requeue_at: datetime | None) -> None:
        self._succeeded_runs += 1
        self._failing.pop(key, None)
        if requeue_at is not None and not running.is_forgotten:
            self.add_at(key, requeue_at)
        if running.must_requeue:
            self.add(key)

    def _record_failure(self, error: BaseException, key: K, running: "_Running", attempt: int) -> None:
        self._failed_runs += 1
        if running.is_forgotten:
            # A key that was forgotten and added again during its run is a new object, and its first run has not
            # started.
            self._log(error, key, attempt, "not retried because the key was removed")
            if running.must_requeue:
                self.add(key)
        else:
            delay = self._back_off(key, attempt, retry_after=_retry_after(error), has_new_event=running.must_requeue)
            self._log(error, key, attempt, f"next try in {format_duration(delay)}")

    def _back_off(self, key: K, attempt: int, *, retry_after: timedelta, has_new_event: bool) -> timedelta:
        full = max(self._backoff.delay(attempt, self._random), retry_after)
        shortened = max(min(full, self._max_wait_after_event), retry_after)
        wait = shortened if has_new_event else full
        loop = asyncio.get_running_loop()
        # The event loop's monotonic time: a backoff must not stretch when the wall clock is set.
        retry = partial(self._retry, key)
        self._failing[key] = _Failing(
            attempts=attempt,
            retry=retry,
            timer=loop.call_later(wait.total_seconds(), retry),
            earliest_retry=loop.time() + shortened.total_seconds(),
        )
        return wait

    def _retry(self, key: K) -> None:
        self._failing[key].timer = None
        self._make_due(key)

    def _set_idle_if_empty(self) -> None:
        if not self._due and not self._running:
            self._idle.set()

    def _since(self, since: float) -> timedelta:
        return timedelta(seconds=self._clock.monotonic() - since)

    def _log(self, error: BaseException, key: K, attempt: int, outcome: str) -> None:
        causes = list(_causes(error))
        expected = all(isinstance(cause, HauloutError) for cause in causes)
        _logger.log(
            logging.WARNING if expected else logging.ERROR,
            "%s %s: attempt %d failed, %s: %s",
            self.name or "queue",
            key,
            attempt,
            outcome,
            "; ".join(str(cause) if isinstance(cause, HauloutError) else repr(cause) for cause in causes),
            exc_info=error if not expected or _logger.isEnabledFor(logging.DEBUG) else None,
            extra={"queue": self.name, "key": str(key), "attempt": attempt},
        )


@dataclass(slots=True)
class _Running:
    """A current run, and what happened to its key during it."""

    must_requeue: bool = False
    is_forgotten: bool = False


@dataclass(slots=True)
class _Failing:
    """A key whose last run failed: the number of consecutive failures, and the timer of the next attempt."""

    attempts: int
    retry: Callable[[], object]
    timer: asyncio.TimerHandle | None
    earliest_retry: float

    def shorten_wait(self) -> None:
        """Retry at the earliest time that an event allows."""
        if self.timer and self.timer.when() > self.earliest_retry:
            self.timer.cancel()
            self.timer = asyncio.get_running_loop().call_at(self.earliest_retry, self.retry)

    def cancel_timer(self) -> bool:
        """Cancel the timer. Return whether there was one."""
        if self.timer is None:
            return False
        self.timer.cancel()
        self.timer = None
        return True


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the leaf exceptions of an exception group, or the error itself."""
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from _causes(member)
    else:
        yield error


def _retry_after(error: BaseException) -> timedelta:
    """Return the longest `retry_after` of the error and its causes; zero if there is none."""
    retry_afters = (getattr(cause, "retry_after", None) for cause in _causes(error))
    return max((retry_after for retry_after in retry_afters if isinstance(retry_after, timedelta)), default=timedelta())
