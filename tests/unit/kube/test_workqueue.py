import asyncio
import dataclasses
import gc
import logging
import random
import weakref
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from itertools import count, cycle
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout.core.backoff import Backoff
from haulout.core.clock import Alarm
from haulout.errors import TooManyRequests, Unreachable
from haulout.kube.workqueue import CompletedRun, WorkQueue, WorkQueueStats
from haulout_sandbox.event_loops.virtual_time import EPOCH, VirtualClock, run_virtual

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
STEADY = Backoff(first=SECOND, factor=2, limit=5 * MINUTE, jitter=0)


class Recorder:
    """A reconciler that records when each key was run and returns the results that the test sets."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.takes = timedelta()
        self.starts: list[tuple[str, timedelta]] = []
        self.ends: list[tuple[str, timedelta]] = []
        self.results: dict[str, Iterator[datetime | BaseException | None]] = {}

    async def __call__(self, key: str) -> datetime | None:
        """Run `key`."""
        self.starts.append((key, self.clock.now() - EPOCH))
        await self.clock.sleep(self.takes)
        self.ends.append((key, self.clock.now() - EPOCH))
        result = next(self.results.get(key, iter(())), None)
        if isinstance(result, BaseException):
            raise result
        return result

    def returns(self, key: str, *results: datetime | BaseException | None) -> None:
        """Let the next runs of `key` end like this, and those after them with None."""
        self.results[key] = iter(results)

    def always(self, key: str, result: datetime | BaseException) -> None:
        """Let all runs of `key` end like this."""
        self.results[key] = cycle([result])

    @property
    def keys(self) -> list[str]:
        """Return the keys that were run, in order."""
        return [key for key, _ in self.starts]

    @property
    def times(self) -> list[timedelta]:
        """Return when runs started."""
        return [instant for _, instant in self.starts]


@pytest.fixture
def work(clock: VirtualClock) -> Recorder:
    return Recorder(clock)


@pytest.fixture
def queue(work: Recorder) -> WorkQueue[str]:
    return a_queue(work)


def a_queue(work: Recorder, **options: Any) -> WorkQueue[str]:
    defaults: dict[str, Any] = {"clock": work.clock, "random": random.Random(7), "backoff": STEADY, "name": "nodes"}
    return WorkQueue(work, **(defaults | options))


@asynccontextmanager
async def running_queue(queue: WorkQueue[Any]) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        running = group.create_task(queue.run())
        await asyncio.sleep(0)  # noqa: TID251 - no time passes: the queue gets to start
        try:
            yield
        finally:
            running.cancel()


# Adding keys.


async def test_an_added_key_is_run_at_once(queue: WorkQueue[str], work: Recorder) -> None:
    async with running_queue(queue):
        queue.add("n1")
        await queue.wait_idle()
    assert work.starts == [("n1", timedelta())]


async def test_keys_added_before_the_queue_runs_are_not_lost(queue: WorkQueue[str], work: Recorder) -> None:
    queue.add("n1")
    queue.add_at("n2", EPOCH + HOUR)
    await work.clock.sleep(2 * HOUR)
    async with running_queue(queue):
        await queue.wait_idle()
    assert work.starts == [("n1", 2 * HOUR), ("n2", 2 * HOUR)]


async def test_adds_before_a_run_starts_are_one_run(queue: WorkQueue[str], work: Recorder) -> None:
    async with running_queue(queue):
        for _ in range(5):
            queue.add("n1")
        await queue.wait_idle()
    assert work.keys == ["n1"]


async def test_adds_during_a_run_are_merged_into_one_further_run(queue: WorkQueue[str], work: Recorder) -> None:
    work.takes = 10 * SECOND
    async with running_queue(queue):
        queue.add("n1")
        for _ in range(5):
            await work.clock.sleep(SECOND)
            queue.add("n1")
        await queue.wait_idle()
    assert work.starts == [("n1", timedelta()), ("n1", 10 * SECOND)]


async def test_at_most_one_key_per_worker_runs_at_once(work: Recorder) -> None:
    work.takes = MINUTE
    queue = a_queue(work, workers=2)
    async with running_queue(queue):
        for number in range(5):
            queue.add(f"n{number}")
            await work.clock.sleep(SECOND)
        await queue.wait_idle()
    assert work.times == [timedelta(), SECOND, MINUTE, MINUTE + SECOND, 2 * MINUTE]
    assert work.keys == ["n0", "n1", "n2", "n3", "n4"]


async def test_a_key_that_always_adds_itself_does_not_starve_the_others(clock: VirtualClock) -> None:
    runs: list[str] = []

    async def work(key: str) -> None:
        runs.append(key)
        if key == "busy" and runs.count("busy") < 100:
            busy_queue.add("busy")

    busy_queue = WorkQueue(work, clock=clock, random=random.Random(7), workers=1)
    async with running_queue(busy_queue):
        for key in ("busy", "n1", "n2"):
            busy_queue.add(key)
        await busy_queue.wait_idle()
    assert runs[:4] == ["busy", "n1", "n2", "busy"]


async def test_reconciler_that_never_awaits_does_not_block_the_event_loop(
    queue: WorkQueue[str], work: Recorder
) -> None:
    counts: list[int] = []
    async with running_queue(queue):
        for number in range(1_000):
            queue.add(f"n{number}")
        while len(work.starts) < 1_000:
            counts.append(len(work.starts))
            await work.clock.sleep(timedelta())
    assert len(counts) > 1_000 / 16


def test_a_queue_without_workers_is_refused() -> None:
    with pytest.raises(ValueError, match="0 workers"):
        a_queue(Recorder(VirtualClock()), workers=0)


# Delayed keys.


async def test_delayed_key_runs_at_its_exact_instant(queue: WorkQueue[str], work: Recorder) -> None:
    instant = timedelta(days=40, microseconds=1)
    async with running_queue(queue):
        queue.add_at("n1", EPOCH + instant)
        await work.clock.sleep(50 * DAY)
    assert work.starts == [("n1", instant)]


async def test_returned_instant_schedules_the_next_run(queue: WorkQueue[str], work: Recorder) -> None:
    work.returns("n1", EPOCH + HOUR, EPOCH + DAY, None)
    async with running_queue(queue):
        queue.add("n1")
        await work.clock.sleep(2 * DAY)
    assert work.times == [timedelta(), HOUR, DAY]


@pytest.mark.parametrize("hours", [(1, 2), (2, 1), (2, 1, 3)])
async def test_earliest_delayed_add_wins(queue: WorkQueue[str], work: Recorder, hours: Sequence[int]) -> None:
    async with running_queue(queue):
        for hour in hours:
            queue.add_at("n1", EPOCH + hour * HOUR)
        await work.clock.sleep(DAY)
    assert work.times == [HOUR]


async def test_an_instant_in_the_past_means_now(queue: WorkQueue[str], work: Recorder) -> None:
    work.returns("n2", EPOCH - HOUR, None)
    async with running_queue(queue):
        queue.add_at("n1", EPOCH - DAY)
        queue.add("n2")
        await queue.wait_idle()
    assert work.starts == [("n1", timedelta()), ("n2", timedelta()), ("n2", timedelta())]


async def test_start_of_a_run_clears_the_delayed_add(queue: WorkQueue[str], work: Recorder) -> None:
    async with running_queue(queue):
        queue.add_at("n1", EPOCH + HOUR)
        queue.add("n1")
        await work.clock.sleep(DAY)
    assert work.times == [timedelta()]


@pytest.mark.parametrize(("meanwhile", "result"), [(HOUR, DAY), (DAY, HOUR)])
async def test_earlier_of_delayed_add_during_a_run_and_its_result_wins(
    queue: WorkQueue[str], work: Recorder, meanwhile: timedelta, result: timedelta
) -> None:
    work.takes = SECOND
    work.returns("n1", EPOCH + result)
    async with running_queue(queue):
        queue.add("n1")
        await work.clock.sleep(SECOND / 2)
        queue.add_at("n1", EPOCH + meanwhile)
        await work.clock.sleep(2 * DAY)
    assert work.times == [timedelta(), HOUR]


async def test_delayed_add_due_during_a_run_causes_another_run(queue: WorkQueue[str], work: Recorder) -> None:
    work.takes = MINUTE
    async with running_queue(queue):
        queue.add("n1")
        await work.clock.sleep(SECOND)
        queue.add_at("n1", EPOCH + 30 * SECOND)
        await work.clock.sleep(HOUR)
    assert work.times == [timedelta(), MINUTE]


async def test_thousands_of_keys_can_be_due_at_the_same_instant(queue: WorkQueue[str], work: Recorder) -> None:
    async with running_queue(queue):
        for number in range(3_000):
            queue.add_at(f"n{number}", EPOCH + HOUR)
        await work.clock.sleep(DAY)
    assert work.starts == [(f"n{number}", HOUR) for number in range(3_000)]


# Changes of the wall clock.


async def test_delayed_keys_run_again_when_the_wall_clock_is_set_back(clock: VirtualClock) -> None:
    runs: list[tuple[str, float]] = []

    async def work(key: str) -> datetime | None:
        runs.append((key, clock.monotonic()))
        return EPOCH + 10 * HOUR if clock.now() < EPOCH + 10 * HOUR else None

    queue = WorkQueue(work, clock=clock, random=random.Random(7))
    async with running_queue(queue):
        queue.add_at("n1", EPOCH + 10 * HOUR)
        queue.add_at("n2", EPOCH + 11 * HOUR)
        await clock.sleep(MINUTE)
        clock.move_wall_clock(-9 * HOUR)
        await clock.sleep(DAY)
    second_run = 19 * HOUR.total_seconds()
    assert runs == [("n1", 60), ("n2", 60), ("n1", second_run), ("n2", second_run)]


@pytest.mark.parametrize(("set_by", "runs_after"), [(9 * HOUR, HOUR), (DAY, MINUTE)])
async def test_delayed_adds_follow_the_wall_clock_when_it_is_set_forward(
    clock: VirtualClock, set_by: timedelta, runs_after: timedelta
) -> None:
    ran_at: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    async def work(_: str) -> None:
        ran_at.set_result(clock.monotonic())

    queue = WorkQueue(work, clock=clock, random=random.Random(7))
    async with running_queue(queue):
        queue.add_at("n1", EPOCH + 10 * HOUR)
        await clock.sleep(MINUTE)
        clock.move_wall_clock(set_by)
        assert await ran_at == runs_after.total_seconds()


@pytest.mark.parametrize("set_by", [-DAY, DAY])
async def test_backoff_does_not_depend_on_the_wall_clock(
    queue: WorkQueue[str], work: Recorder, set_by: timedelta
) -> None:
    work.returns("n1", a_refusal(), None)
    async with running_queue(queue):
        queue.add("n1")
        await queue.wait_idle()
        work.clock.move_wall_clock(set_by)
        await work.clock.sleep(2 * SECOND)
    assert work.times == [timedelta(), SECOND + set_by]


# Failures back off.


async def test_consecutive_failures_are_retried_with_exponential_backoff(queue: WorkQueue[str], work: Recorder) -> None:
    work.always("n1", a_refusal())
    async with running_queue(queue):
        queue.add("n1")
        await work.clock.sleep(20 * MINUTE)
    waits = [after - before for before, after in zip(work.times, work.times[1:], strict=False)]
    assert waits[:10] == [min(2**power * SECOND, 5 * MINUTE) for power in range(10)]


async def test_a_success_resets_the_backoff(queue: WorkQueue[str], work: Recorder) -> None:
    work.returns("n1", a_refusal(), a_refusal(), None, a_refusal(), None)
    async with running_queue(queue):
        queue.add("n1")
        await work.clock.sleep(MINUTE)
        queue.add("n1")
        await work.clock.sleep(MINUTE)
    assert work.times == [timedelta(), SECOND, 3 * SECOND, MINUTE, MINUTE + SECOND]


async def test_one_failing_key_does_not_hold_up_the_others(queue: WorkQueue[str], work: Recorder) -> None:
    work.always("n1", ZeroDivisionError())
    async with running_queue(queue):
        queue.add("n1")
        queue.add("n2")
        await queue.wait_idle()
    assert work.starts == [("n1", timedelta()), ("n2", timedelta())]


async def test_retry_after_delays_the_next_attempt(queue: WorkQueue[str], work: Recorder) -> None:
    """Not even events shorten the wait that the server asked for."""
    work.returns("n1", a_refusal(retry_after=MINUTE), None)
    async with running_queue(queue):
        queue.add("n1")
        await queue.wait_idle()
        for _ in range(90):
            await work.clock.sleep(SECOND)
            if len(work.starts) == 1:
                queue.add("n1")
    assert work.times == [timedelta(), MINUTE]


async def test_retry_after_shorter_than_the_backoff_does_not_shorten_it(queue: WorkQueue[str], work: Recorder) -> None:
    work.returns("n1", a_refusal(retry_after=SECOND / 10), None)
    async with running_queue(queue):
        queue.add("n1")
        await work.clock.sleep(HOUR)
    assert work.times == [timedelta(), SECOND]


async def test_longest_retry_after_of_an_exception_group_applies(queue: WorkQueue[str], work: Recorder) -> None:
    refusals = [a_refusal(retry_after=MINUTE), a_refusal(), a_refusal(retry_after=HOUR)]
    work.returns("n1", ExceptionGroup("evicting", [refusals[0], ExceptionGroup("more", refusals[1:])]), None)
    async with running_queue(queue):
        queue.add("n1")
        await work.clock.sleep(DAY)
    assert work.times == [timedelta(), HOUR]


async def test_add_shortens_a_long_backoff_to_max_wait_after_event(
    work: Recorder,
) -> None:
    queue = a_queue(work, backoff=Backoff(first=HOUR, limit=HOUR, jitter=0), max_wait_after_event=10 * SECOND)
    work.returns("n1", a_refusal(), a_refusal(), None)
    async with running_queue(queue):
        queue.add("n1")
        await work.clock.sleep(SECOND)
        queue.add("n1")  # runs ten seconds after the failure
        await work.clock.sleep(10 * MINUTE)
        queue.add("n1")  # later than that: runs at once
        await work.clock.sleep(DAY)
    assert work.times == [timedelta(), 10 * SECOND, 10 * MINUTE + SECOND]


async def test_add_during_a_failing_run_does_not_bypass_the_backoff(work: Recorder) -> None:
    queue = a_queue(work, backoff=Backoff(first=HOUR, limit=HOUR, jitter=0), max_wait_after_event=10 * SECOND)
    work.takes = SECOND
    work.returns("n1", a_refusal(), None)
    async with running_queue(queue):
        queue.add("n1")
        await work.clock.sleep(SECOND / 2)
        queue.add("n1")
        await work.clock.sleep(MINUTE)
    assert work.times == [timedelta(), 11 * SECOND]


async def test_delayed_add_during_a_backoff_does_not_bypass_it(queue: WorkQueue[str], work: Recorder) -> None:
    work.returns("n1", a_refusal(), None)
    async with running_queue(queue):
        queue.add("n1")
        await queue.wait_idle()
        queue.add_at("n1", EPOCH + SECOND / 4)
        await work.clock.sleep(MINUTE)
    assert work.times == [timedelta(), SECOND]


async def test_many_adds_do_not_bypass_the_backoff_of_a_failing_key(queue: WorkQueue[str], work: Recorder) -> None:
    work.always("n1", a_refusal())
    async with running_queue(queue):
        for _ in range(10 * 600):
            queue.add("n1")
            await work.clock.sleep(SECOND / 10)
    assert 60 <= len(work.starts) <= 64  # ten minutes: four quick tries, then one in ten seconds


async def test_cancelled_error_raised_by_a_run_is_a_failure_with_backoff(queue: WorkQueue[str], work: Recorder) -> None:
    """A CancelledError that was not sent to the run itself must not lose the key."""
    work.returns("n1", asyncio.CancelledError(), None)
    async with running_queue(queue):
        queue.add("n1")
        await work.clock.sleep(MINUTE)
    assert work.times == [timedelta(), SECOND]


async def test_naive_datetime_as_result_is_a_failure_with_backoff(
    queue: WorkQueue[str], work: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    work.returns("n1", (EPOCH + HOUR).replace(tzinfo=None), None)
    async with running_queue(queue):
        queue.add("n1")
        await work.clock.sleep(MINUTE)
    assert work.times == [timedelta(), SECOND]
    assert "return an aware datetime" in caplog.text


# Logging.


async def test_expected_failure_is_logged_in_one_line_with_key_attempt_and_next_try(
    queue: WorkQueue[str], work: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    work.returns("n1", a_refusal("evicting shop/cart-0: no"), a_refusal("evicting shop/cart-0: no"), None)
    async with running_queue(queue):
        queue.add("n1")
        await work.clock.sleep(MINUTE)
    assert [record.getMessage() for record in caplog.records] == [
        "nodes n1: attempt 1 failed, next try in 1s: evicting shop/cart-0: no",
        "nodes n1: attempt 2 failed, next try in 2s: evicting shop/cart-0: no",
    ]
    assert {record.levelname for record in caplog.records} == {"WARNING"}
    assert {record.__dict__["key"] for record in caplog.records} == {"n1"}
    assert not any(record.exc_info for record in caplog.records)


async def test_expected_failure_has_a_traceback_at_debug_level(
    queue: WorkQueue[str], work: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="haulout.kube.workqueue")
    work.returns("n1", a_refusal())
    async with running_queue(queue):
        queue.add("n1")
        await queue.wait_idle()
    assert caplog.records[0].exc_info


async def test_unexpected_failure_is_logged_as_error_with_a_traceback(
    queue: WorkQueue[str], work: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    work.returns("n1", ZeroDivisionError("division by zero"))
    async with running_queue(queue):
        queue.add("n1")
        await queue.wait_idle()
    assert caplog.records[0].levelname == "ERROR"
    assert caplog.records[0].exc_info
    assert "next try in 1s: ZeroDivisionError('division by zero')" in caplog.text


async def test_exception_group_is_logged_with_its_member_messages(
    queue: WorkQueue[str], work: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    work.returns("n1", ExceptionGroup("x", [a_refusal("one"), Unreachable("two", sent=False)]))
    async with running_queue(queue):
        queue.add("n1")
        await queue.wait_idle()
    assert caplog.records[0].levelname == "WARNING"
    assert caplog.records[0].getMessage().endswith("next try in 1s: one; two")


# Forgetting.


async def test_a_forgotten_key_has_nothing_pending(work: Recorder) -> None:
    queue = a_queue(work, workers=1)
    async with running_queue(queue):
        queue.add("due")
        queue.add_at("asleep", EPOCH + HOUR)
        for key in ("due", "asleep", "unknown"):
            queue.forget(key)
        await queue.wait_idle()
        await work.clock.sleep(DAY)
    assert work.starts == []


async def test_forgotten_key_is_not_retried_and_its_backoff_is_reset(
    queue: WorkQueue[str], work: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    work.returns("n1", a_refusal(), a_refusal(), a_refusal(), None)
    async with running_queue(queue):
        queue.add("n1")
        await work.clock.sleep(2 * SECOND)
        queue.forget("n1")
        await work.clock.sleep(MINUTE)
        assert work.times == [timedelta(), SECOND]
        queue.add("n1")
        await work.clock.sleep(HOUR)
    assert work.times[2:] == [62 * SECOND, 63 * SECOND]
    assert {record.name for record in caplog.records} == {
        "haulout.kube.workqueue"
    }  # no timer fired for a forgotten key


@pytest.mark.parametrize("result", [EPOCH + HOUR, EPOCH - HOUR, TooManyRequests("no", code=429)])
async def test_result_of_a_forgotten_keys_run_is_ignored(
    queue: WorkQueue[str], work: Recorder, result: datetime | Exception
) -> None:
    work.takes = SECOND
    work.returns("n1", result)
    async with running_queue(queue):
        queue.add("n1")
        await work.clock.sleep(SECOND / 2)
        queue.add("n1")
        queue.forget("n1")
        await work.clock.sleep(DAY)
    assert work.times == [timedelta()]


@pytest.mark.parametrize("result", [None, TooManyRequests("no", code=429)])
async def test_a_key_forgotten_and_added_during_its_run_runs_once_more_after_it(
    queue: WorkQueue[str], work: Recorder, result: Exception | None
) -> None:
    """An object deleted and created again under the same name is still worked on by one run at a time."""
    work.takes = SECOND
    work.returns("n1", result)
    async with running_queue(queue):
        queue.add("n1")
        await work.clock.sleep(SECOND / 2)
        queue.forget("n1")
        queue.add("n1")
        await work.clock.sleep(DAY)
    assert work.times == [timedelta(), SECOND]


async def test_queue_keeps_no_reference_to_completed_keys(clock: VirtualClock) -> None:
    class Key:
        """A key that can be weakly referenced."""

    async def work(_: Key) -> datetime | None:
        return next(results)

    results: Iterator[datetime | None] = iter([EPOCH + HOUR, None, None])
    queue = WorkQueue(work, clock=clock, random=random.Random(7))
    key = Key()
    trace = weakref.ref(key)
    async with running_queue(queue):
        queue.add(key)
        await clock.sleep(DAY)
        queue.add_at(key, EPOCH + 2 * DAY)
        queue.forget(key)
        queue.add(key)
        await queue.wait_idle()
        del key
        await clock.sleep(SECOND)
        gc.collect()
        assert trace() is None


# Stopping.


async def test_cancelling_the_queue_cancels_the_work_and_waits_for_it(clock: VirtualClock) -> None:
    cleanups: list[str] = []

    async def work(key: str) -> None:
        try:
            await clock.sleep(DAY)
        finally:
            await clock.sleep(5 * SECOND)
            cleanups.append(f"{key} put away at {clock.monotonic():g}")

    queue = WorkQueue(work, clock=clock, random=random.Random(7))
    async with running_queue(queue):
        queue.add("n1")
        queue.add("n2")
        await clock.sleep(SECOND)
    assert sorted(cleanups) == ["n1 put away at 6", "n2 put away at 6"]


async def test_no_run_starts_while_the_queue_stops(work: Recorder) -> None:
    queue = a_queue(work, workers=1)
    work.takes = MINUTE
    async with running_queue(queue):
        queue.add("n1")
        queue.add("n2")
        await work.clock.sleep(SECOND)
    queue.add("n3")
    await work.clock.sleep(DAY)
    assert work.keys == ["n1"]


async def test_queued_interrupted_and_failing_keys_run_when_the_queue_runs_again(work: Recorder) -> None:
    queue = a_queue(work, workers=1)
    work.returns("failing", a_refusal(), None)
    async with running_queue(queue):
        queue.add("failing")
        await queue.wait_idle()
        work.takes = MINUTE
        queue.add("cut short")
        await work.clock.sleep(timedelta())
        queue.add("due")
        queue.add_at("asleep", EPOCH + HOUR)
    async with running_queue(queue):
        await work.clock.sleep(DAY)
    assert sorted(key for key, _ in work.ends) == ["asleep", "cut short", "due", "failing", "failing"]


async def test_a_run_cancelled_before_its_first_step_is_not_lost(queue: WorkQueue[str], work: Recorder) -> None:
    async with asyncio.TaskGroup() as group:
        running = group.create_task(queue.run())
        await work.clock.sleep(timedelta())
        running.cancel()
        queue.add("n1")
    assert work.starts == []
    async with running_queue(queue):
        await queue.wait_idle()
    assert work.keys == ["n1"]


async def test_key_forgotten_during_an_interrupted_run_stays_forgotten(queue: WorkQueue[str], work: Recorder) -> None:
    work.takes = MINUTE
    async with running_queue(queue):
        queue.add("n1")
        await work.clock.sleep(SECOND)
        queue.forget("n1")
    assert queue.stats().waiting == 0


async def test_a_stopped_queue_leaves_no_timers(queue: WorkQueue[str], work: Recorder) -> None:
    work.always("n1", a_refusal())
    async with running_queue(queue):
        queue.add("n1")
        queue.add_at("n2", EPOCH + HOUR)
        await queue.wait_idle()
    stats = queue.stats()
    assert (stats.waiting, stats.backing_off, stats.delayed) == (1, 0, 1)
    await work.clock.sleep(DAY)
    assert queue.stats() == dataclasses.replace(stats, oldest_waiting=DAY)


async def test_a_queue_does_not_run_twice_at_once(queue: WorkQueue[str]) -> None:
    async with running_queue(queue):
        with pytest.raises(RuntimeError, match="queue nodes: it is already running"):
            await queue.run()


# Statistics.


async def test_stats_count_waiting_running_delayed_succeeded_and_failed_keys(work: Recorder) -> None:
    queue = a_queue(work, workers=1)
    work.takes = 10 * SECOND
    work.returns("n0", a_refusal())
    async with running_queue(queue):
        for key in ("n0", "n1", "n2", "n3"):
            queue.add(key)
        queue.add_at("n9", EPOCH + DAY)
        await work.clock.sleep(10 * SECOND + SECOND / 2)
        assert queue.stats() == WorkQueueStats(
            waiting=2,
            running=1,
            delayed=1,
            backing_off=1,
            oldest_waiting=10 * SECOND + SECOND / 2,
            succeeded=0,
            failed=1,
        )
        await work.clock.sleep(HOUR)
        assert queue.stats() == WorkQueueStats(
            waiting=0, running=0, delayed=1, backing_off=0, oldest_waiting=timedelta(), succeeded=4, failed=1
        )


async def test_max_lag_includes_waiting_keys_and_expires(work: Recorder) -> None:
    queue = a_queue(work, workers=1)
    work.takes = 10 * SECOND
    async with running_queue(queue):
        queue.add("n1")
        queue.add("n2")
        await work.clock.sleep(5 * SECOND)
        assert queue.max_lag() == 5 * SECOND
        await work.clock.sleep(MINUTE)
        assert queue.max_lag() == 10 * SECOND
        await work.clock.sleep(HOUR)
        assert queue.max_lag() == timedelta()


async def test_on_completed_receives_each_run_with_lag_duration_and_error(work: Recorder) -> None:
    runs: list[CompletedRun[str]] = []
    queue = a_queue(work, workers=1, on_completed=runs.append)
    work.takes = 2 * SECOND
    refusal = a_refusal()
    work.returns("n2", refusal, None)
    async with running_queue(queue):
        queue.add("n1")
        queue.add("n2")
        await work.clock.sleep(MINUTE)
    assert runs == [
        CompletedRun(key="n1", lag=timedelta(), took=2 * SECOND, attempt=1, error=None),
        CompletedRun(key="n2", lag=2 * SECOND, took=2 * SECOND, attempt=1, error=refusal),
        CompletedRun(key="n2", lag=timedelta(), took=2 * SECOND, attempt=2, error=None),
    ]


async def test_failing_on_completed_callback_does_not_end_the_queue(
    work: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    def observe(run: CompletedRun[str]) -> None:
        raise ValueError(f"no such metric: {run.key}")

    queue = a_queue(work, on_completed=observe)
    async with running_queue(queue):
        queue.add("n1")
        await queue.wait_idle()
        queue.add("n2")
        await queue.wait_idle()
    assert work.keys == ["n1", "n2"]
    assert "no such metric: n2" in caplog.text


# Scale.


class AlarmCountingClock(VirtualClock):
    """Counts how many alarms are pending at once, at most."""

    most = 0

    def call_at(
        self, instant: datetime, callback: Callable[[], object], *, on_set_back: Callable[[], object] | None = None
    ) -> Alarm:
        """Call `callback` at `instant`, and count."""
        alarm = super().call_at(instant, callback, on_set_back=on_set_back)
        self.most = max(self.most, len(self._alarms))
        return alarm


async def test_queue_with_fifteen_thousand_delayed_keys_uses_one_alarm() -> None:
    clock = AlarmCountingClock()
    chance = random.Random(7)
    runs: Counter[int] = Counter()

    async def work(key: int) -> datetime:
        runs[key] += 1
        return clock.now() + timedelta(hours=chance.random())

    queue = WorkQueue(work, clock=clock, random=chance)
    async with running_queue(queue):
        for number in range(15_000):
            queue.add_at(number, EPOCH + timedelta(hours=chance.random()))
        assert queue.stats().delayed == 15_000
        for _ in range(10):
            for number in range(15_000):
                queue.add(number)
        await queue.wait_idle()
    assert runs == Counter(range(15_000))
    assert clock.most == 1


async def test_repeated_runs_of_a_key_do_not_grow_the_delay_heap(queue: WorkQueue[str], work: Recorder) -> None:
    work.results["n1"] = (EPOCH + DAY + number * SECOND for number in count())
    async with running_queue(queue):
        queue.add_at("n2", EPOCH + HOUR)
        for _ in range(5_000):
            queue.add("n1")
            await queue.wait_idle()
        assert queue.stats().delayed == 2
        assert len(queue._delayed._heap) < 100


class CountingKey:
    """Counts how often any of them is looked up."""

    lookups = 0

    def __hash__(self) -> int:
        CountingKey.lookups += 1
        return id(self)


async def test_cost_of_a_run_does_not_grow_with_keys_due_at_the_same_instant(clock: VirtualClock) -> None:
    async def work(_key: CountingKey) -> datetime:
        return EPOCH + DAY

    chance = random.Random(7)
    keys = [CountingKey() for _ in range(200)]
    queue = WorkQueue(work, clock=clock, random=chance)
    CountingKey.lookups = 0
    async with running_queue(queue):
        for _ in range(20):
            for key in chance.sample(keys, len(keys)):
                queue.add(key)
            await queue.wait_idle()
    assert CountingKey.lookups / (20 * len(keys)) < 50


# Against models.


class Step(NamedTuple):
    """Something done to the queue half a second after a whole one, so that it never coincides with a wake-up."""

    pause: int
    verb: str
    key: str
    second: int


KEYS = st.sampled_from(["a", "b", "c"])
STEPS = st.lists(
    st.builds(
        Step,
        pause=st.integers(0, 4),
        verb=st.sampled_from(["add", "wake_at", "wake_at", "wake_at", "forget"]),
        key=KEYS,
        second=st.integers(0, 30),
    ),
    max_size=30,
)
RESULTS = st.fixed_dictionaries(
    {key: st.lists(st.none() | st.integers(0, 5), max_size=10) for key in "abc"}
)  # seconds until the next run


def modelled_runs(steps: Sequence[Step], results: dict[str, list[int | None]]) -> list[tuple[str, float]]:
    """Return which key runs when, if runs take no time: a model as simple as possible."""
    runs: list[tuple[str, float]] = []
    wakes: dict[str, float] = {}
    left = {key: list(delays) for key, delays in results.items()}

    def run(key: str, now: float) -> None:
        runs.append((key, now))
        wakes.pop(key, None)
        delay = left[key].pop(0) if left[key] else None
        if delay is not None:
            wake(key, int(now) + delay, now)

    def wake(key: str, instant: float, now: float) -> None:
        if instant <= now:
            run(key, now)
        else:
            wakes[key] = min(instant, wakes.get(key, instant))

    def pass_time(until: float) -> None:
        while due := [(instant, key) for key, instant in wakes.items() if instant <= until]:
            instant, key = min(due)
            run(key, instant)

    now = 0.5
    for step in steps:
        now += step.pause
        pass_time(now)
        if step.verb == "add":
            run(step.key, now)
        elif step.verb == "wake_at":
            wake(step.key, step.second, now)
        else:
            wakes.pop(step.key, None)
    pass_time(now + 1_000)
    return runs


@given(steps=STEPS, results=RESULTS)
def test_keys_run_exactly_as_in_a_simple_model(steps: list[Step], results: dict[str, list[int | None]]) -> None:
    async def main() -> list[tuple[str, float]]:
        clock = VirtualClock()
        runs: list[tuple[str, float]] = []
        left = {key: list(delays) for key, delays in results.items()}

        async def work(key: str) -> datetime | None:
            now = clock.monotonic()
            runs.append((key, now))
            delay = left[key].pop(0) if left[key] else None
            return None if delay is None else EPOCH + (int(now) + delay) * SECOND

        queue = WorkQueue(work, clock=clock, random=random.Random(7))
        async with running_queue(queue):
            await clock.sleep(SECOND / 2)
            for step in steps:
                await clock.sleep(step.pause * SECOND)
                if step.verb == "wake_at":
                    queue.add_at(step.key, EPOCH + step.second * SECOND)
                else:
                    getattr(queue, step.verb)(step.key)
                await queue.wait_idle()
            await clock.sleep(1_000 * SECOND)
        return runs

    def in_order(runs: list[tuple[str, float]]) -> list[tuple[float, str]]:
        return sorted((now, key) for key, now in runs)  # the order of keys due at the same instant is not defined

    assert in_order(run_virtual(main())) == in_order(modelled_runs(steps, results))


@given(
    adds=st.lists(st.tuples(KEYS, st.integers(0, 8)), max_size=60),
    lengths=st.lists(st.integers(0, 5), min_size=1, max_size=20),
    failures=st.lists(st.booleans(), max_size=30),
    workers=st.integers(1, 4),
)
def test_runs_of_a_key_never_overlap_and_no_add_is_lost(
    adds: list[tuple[str, int]], lengths: list[int], failures: list[bool], workers: int
) -> None:
    moments = count()
    active: list[str] = []
    overlaps: list[str] = []
    crowds: list[int] = [0]
    started: dict[str, list[int]] = {key: [] for key in "abc"}
    added: dict[str, list[int]] = {key: [] for key in "abc"}
    outcomes = iter(failures)
    durations = cycle(lengths)

    async def main() -> None:
        clock = VirtualClock()

        async def work(key: str) -> None:
            overlaps.extend({key}.intersection(active))
            active.append(key)
            crowds.append(len(active))
            started[key].append(next(moments))
            await clock.sleep(next(durations) * SECOND)
            active.remove(key)
            if next(outcomes, False):
                raise Unreachable("no answer", sent=True)

        queue = WorkQueue(work, clock=clock, random=random.Random(7), workers=workers)
        async with running_queue(queue):
            for key, pause in adds:
                queue.add(key)
                added[key].append(next(moments))
                await clock.sleep(pause * SECOND / 2)
            await clock.sleep(DAY)
            stats = queue.stats()
            assert (stats.waiting, stats.running, stats.backing_off) == (0, 0, 0)
            assert stats.succeeded + stats.failed == sum(map(len, started.values()))
            assert stats.failed <= sum(failures)

    run_virtual(main())
    assert overlaps == []
    assert max(crowds) <= workers
    for key in "abc":
        assert not added[key] or started[key][-1] > added[key][-1]
        assert len(started[key]) <= len(added[key]) + sum(failures)


async def test_consecutive_keys_share_a_worker_task(clock: VirtualClock) -> None:
    tasks: set[object] = set()

    async def work(_: str) -> None:
        tasks.add(asyncio.current_task())
        await clock.sleep(SECOND)

    queue = WorkQueue(work, clock=clock, random=random.Random(7))
    async with running_queue(queue):
        for number in range(10):
            queue.add(f"n{number}")
            await queue.wait_idle()
    assert len(tasks) == 1


async def test_queue_stopped_while_its_workers_are_idle_runs_again(queue: WorkQueue[str], work: Recorder) -> None:
    for key in ("n1", "n2"):
        async with running_queue(queue):
            queue.add(key)
            await queue.wait_idle()
            await work.clock.sleep(SECOND)
    assert work.keys == ["n1", "n2"]


def a_refusal(message: str = "no", *, retry_after: timedelta | None = None) -> TooManyRequests:
    return TooManyRequests(message, code=429, retry_after=retry_after)
