import asyncio
import gc
import logging
import random
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haulout.core.clock import Alarm, Clock, RealClock
from haulout_sandbox.event_loops.virtual_time import EPOCH, Deadlock, VirtualClock, VirtualLoop, run_virtual

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)

microseconds_in_years = st.integers(min_value=1, max_value=5 * 365 * 86_400 * 1_000_000).map(
    lambda count: timedelta(microseconds=count)
)


class JumpCountingLoop(VirtualLoop):
    """A loop that counts how often time advances, and fails after too many steps."""

    jumps = 0

    def _jump(self, seconds: float | None) -> None:
        self.jumps += 1
        assert self.jumps < 100_000, "time does not advance"
        super()._jump(seconds)


class MachineClock(VirtualClock):
    """Simulated time, but alarms detect changes of the wall clock as on a real machine: by rechecking."""

    def call_at(
        self, instant: datetime, callback: Callable[[], object], *, on_set_back: Callable[[], object] | None = None
    ) -> Alarm:
        """Call `callback` when the wall clock has reached `instant`."""
        return Alarm(self, instant, callback, recheck_interval=MINUTE, on_set_back=on_set_back)


async def wait_for_alarm(clock: Clock, instant: datetime) -> datetime:
    """Return when an alarm for `instant` fires."""
    rang = asyncio.Event()
    clock.call_at(instant, rang.set)
    await rang.wait()
    return clock.now()


# Simulated time passes only by waiting.


async def test_a_day_of_sleep_takes_a_simulated_day(clock: VirtualClock) -> None:
    await clock.sleep(DAY)
    assert clock.now() == EPOCH + DAY
    assert clock.monotonic() == DAY.total_seconds()


async def test_simulated_time_does_not_advance_while_a_task_is_runnable(clock: VirtualClock) -> None:
    for _ in range(1_000):
        await clock.sleep(timedelta())
    assert clock.now() == EPOCH


async def test_negative_sleep_returns_at_once_but_yields(clock: VirtualClock) -> None:
    ran: list[str] = []
    asyncio.get_running_loop().call_soon(ran.append, "other")
    await clock.sleep(-HOUR)
    assert ran == ["other"]
    assert clock.now() == EPOCH


async def test_sleepers_wake_in_the_order_of_their_instants(clock: VirtualClock) -> None:
    woke: list[tuple[int, datetime]] = []

    async def sleeper(hours: int) -> None:
        await clock.sleep(hours * HOUR)
        woke.append((hours, clock.now()))

    async with asyncio.TaskGroup() as group:
        for hours in (3, 1, 2):
            group.create_task(sleeper(hours))
    assert woke == [(hours, EPOCH + hours * HOUR) for hours in (1, 2, 3)]


async def test_timeout_expires_after_its_simulated_time(clock: VirtualClock) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(90):
            await clock.sleep(DAY)
    assert clock.now() == EPOCH + 90 * SECOND


async def test_timeout_does_not_interrupt_a_wait_that_ends_in_time(clock: VirtualClock) -> None:
    async with asyncio.timeout(90):
        await clock.sleep(89 * SECOND)
    assert clock.now() == EPOCH + 89 * SECOND


def test_virtual_loop_runs_a_program_deterministically() -> None:
    async def program() -> list[tuple[str, datetime]]:
        clock = VirtualClock()
        chance = random.Random(3)
        trace: list[tuple[str, datetime]] = []

        async def walker(name: str) -> None:
            for _ in range(50):
                await clock.sleep(timedelta(seconds=chance.choice([0, 1, 1, 2, chance.random()])))
                trace.append((name, clock.now()))

        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(walker(f"walker-{number}"))
        return trace

    first = run_virtual(program())
    assert len(first) == 1_000
    assert run_virtual(program()) == first


def test_task_group_cancels_its_tasks_in_a_deterministic_order() -> None:
    """Sets of tasks must not be ordered by memory addresses."""

    async def program() -> list[int]:
        cancelled: list[int] = []

        async def member(number: int) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.append(number)

        with suppress(TimeoutError):
            async with asyncio.timeout(1), asyncio.TaskGroup() as group:
                for number in range(100):
                    group.create_task(member(number))
        return cancelled

    first = run_virtual(program())
    assert sorted(first) == list(range(100))
    assert all(run_virtual(program()) == first for _ in range(5))


# The microsecond is exact, however far ahead.


@given(before=st.lists(microseconds_in_years, max_size=5), ahead=microseconds_in_years)
def test_alarm_fires_at_its_exact_microsecond(before: list[timedelta], ahead: timedelta) -> None:
    async def main() -> None:
        clock = VirtualClock()
        for duration in before:
            await clock.sleep(duration)
        instant = clock.now() + ahead
        assert await wait_for_alarm(clock, instant) == instant

    days = sum((*before, ahead), timedelta()) // DAY
    assert jumps_during(main()) <= days + len(before) + 1  # the loop never sleeps longer than a day in one go


@given(st.lists(st.floats(min_value=0, max_value=1e-3), max_size=50))
def test_waiting_until_an_instant_between_two_microseconds_ends(waits: list[float]) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        for seconds in waits:
            end = loop.time() + seconds
            while loop.time() < end:
                rang = asyncio.Event()
                loop.call_at(end, rang.set)
                await rang.wait()

    assert jumps_during(main()) <= 2 * len(waits)


async def test_many_small_sleeps_add_up_exactly(clock: VirtualClock) -> None:
    for _ in range(10_000):
        await clock.sleep(timedelta(milliseconds=100.1))
    assert clock.now() == EPOCH + 10_000 * timedelta(milliseconds=100.1)


async def test_timer_that_is_due_now_runs_after_ten_simulated_years(clock: VirtualClock) -> None:
    """The base class compares with a resolution that vanishes in the rounding of large floats."""
    await clock.sleep(3_650 * DAY)
    rang = asyncio.Event()
    asyncio.get_running_loop().call_later(0, rang.set)
    await rang.wait()
    assert clock.now() == EPOCH + 3_650 * DAY


# Alarms follow the wall clock.


async def test_alarm_for_the_past_fires_at_once(clock: VirtualClock) -> None:
    assert await wait_for_alarm(clock, EPOCH - DAY) == EPOCH


async def test_cancelled_alarm_does_not_fire(clock: VirtualClock) -> None:
    rang: list[datetime] = []
    alarm = clock.call_at(EPOCH + HOUR, lambda: rang.append(clock.now()))
    alarm.cancel()
    clock.move_wall_clock(DAY)
    await clock.sleep(DAY)
    assert rang == []


async def test_alarm_fires_once_and_may_be_cancelled_afterwards(clock: VirtualClock) -> None:
    rang: list[datetime] = []
    alarm = clock.call_at(EPOCH + HOUR, lambda: rang.append(clock.now()))
    await clock.sleep(HOUR)
    clock.move_wall_clock(-DAY)
    await clock.sleep(2 * DAY)
    alarm.cancel()
    assert rang == [EPOCH + HOUR]


@pytest.mark.parametrize(
    ("set_by", "rings_after"),
    [(-HOUR, 11 * HOUR), (HOUR, 9 * HOUR), (9 * HOUR, HOUR), (DAY, MINUTE)],
)
async def test_simulated_alarms_react_at_once_to_wall_clock_changes(
    clock: VirtualClock, set_by: timedelta, rings_after: timedelta
) -> None:
    asyncio.get_running_loop().call_later(60, clock.move_wall_clock, set_by)
    await wait_for_alarm(clock, EPOCH + 10 * HOUR)
    assert timedelta(seconds=clock.monotonic()) == rings_after


def test_waiting_a_month_for_one_alarm_wakes_once_a_day() -> None:
    async def main() -> None:
        clock = VirtualClock()
        await wait_for_alarm(clock, EPOCH + 30 * DAY)

    assert jumps_during(main()) == 30


async def test_rechecking_alarm_detects_a_clock_set_forward_within_a_minute() -> None:
    clock = MachineClock()
    asyncio.get_running_loop().call_later(30, clock.move_wall_clock, DAY)
    await wait_for_alarm(clock, EPOCH + DAY)
    assert clock.monotonic() == 60


async def test_rechecking_alarm_fires_no_earlier_than_its_instant_after_a_clock_set_back() -> None:
    clock = MachineClock()
    asyncio.get_running_loop().call_later(30, clock.move_wall_clock, -HOUR)
    assert await wait_for_alarm(clock, EPOCH + 10 * MINUTE) == EPOCH + 10 * MINUTE
    assert clock.monotonic() == 70 * 60


@pytest.mark.parametrize(("kind", "after"), [(VirtualClock, 30), (MachineClock, 60)])
async def test_on_set_back_is_called_when_the_clock_is_set_back(kind: type[VirtualClock], after: float) -> None:
    clock, calls = kind(), list[float]()
    alarm = clock.call_at(EPOCH + HOUR, lambda: calls.append(-1), on_set_back=lambda: calls.append(clock.monotonic()))
    asyncio.get_running_loop().call_later(30, clock.move_wall_clock, -HOUR)
    await clock.sleep(3 * HOUR)
    alarm.cancel()
    assert calls == [after], "and the alarm is over"


@pytest.mark.parametrize("kind", [VirtualClock, MachineClock])
@pytest.mark.parametrize("set_by", [timedelta(seconds=-4), timedelta(seconds=30)])
async def test_on_set_back_is_not_called_for_small_corrections_and_forward_changes(
    kind: type[VirtualClock], set_by: timedelta
) -> None:
    clock, calls = kind(), list[str]()
    clock.call_at(EPOCH + HOUR, lambda: calls.append("rang"), on_set_back=lambda: calls.append("set back"))
    asyncio.get_running_loop().call_later(30, clock.move_wall_clock, set_by)
    await clock.sleep(2 * HOUR)
    assert calls == ["rang"]


# Threads and deadlocks.


async def test_waiting_for_threads_does_not_advance_simulated_time(clock: VirtualClock) -> None:
    release = threading.Event()
    late = asyncio.get_running_loop().call_later(3_600, release.set)
    threading.Timer(0.05, release.set).start()
    assert await asyncio.to_thread(release.wait)
    assert clock.now() == EPOCH
    late.cancel()


def test_loop_that_used_threads_closes_without_a_deadlock_error() -> None:
    """Closing waits for the executor's threads, which is not a deadlock."""
    for _ in range(20):
        assert run_virtual(asyncio.to_thread(threading.active_count)) > 0


async def test_executor_that_is_shut_down_does_not_stop_simulated_time(clock: VirtualClock) -> None:
    loop = asyncio.get_running_loop()
    await loop.shutdown_default_executor()
    with pytest.raises(RuntimeError, match="shutdown"):
        await asyncio.to_thread(print)
    await clock.sleep(HOUR)
    assert clock.now() == EPOCH + HOUR


def test_deadlock_error_names_the_waiting_tasks_and_lines(caplog: pytest.LogCaptureFixture) -> None:
    cleaned_up: list[str] = []

    async def wait_forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned_up.append("inner")

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(wait_forever(), name="the lonely one")

    with (
        caplog.at_level(logging.DEBUG),
        pytest.raises(Deadlock, match=r"no timer is set: .*the lonely one in .*\.wait_forever line \d+"),
    ):
        run_virtual(main())
    gc.collect()
    assert cleaned_up == ["inner"]
    assert [record for record in caplog.records if record.levelno > logging.DEBUG] == []


def test_deadlock_error_of_many_tasks_is_shortened() -> None:
    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(30):
                group.create_task(asyncio.Event().wait())

    with pytest.raises(Deadlock, match=r"and 21 more$"):
        run_virtual(main())


def test_a_deadlocked_loop_is_closed() -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    async def main() -> None:
        loops.append(asyncio.get_running_loop())
        await asyncio.Event().wait()

    with pytest.raises(Deadlock):
        run_virtual(main())
    assert loops[0].is_closed()


# The real clock.


def test_real_clock_returns_utc() -> None:
    assert RealClock().now().tzinfo is UTC


@pytest.mark.real_time
async def test_real_clock_sleeps_and_is_monotonic(clock: RealClock) -> None:
    before, started = clock.now(), clock.monotonic()
    await clock.sleep(timedelta(milliseconds=5))
    await clock.sleep(-HOUR)
    assert clock.monotonic() - started >= 0.004
    assert clock.now() > before


@pytest.mark.real_time
async def test_real_clock_alarm_fires_no_earlier_than_its_instant(clock: RealClock) -> None:
    instant = clock.now() + timedelta(milliseconds=5)
    assert await wait_for_alarm(clock, instant) >= instant
    assert await wait_for_alarm(clock, instant - DAY) >= instant


def jumps_during(main: Coroutine[Any, Any, None]) -> int:
    with asyncio.Runner(loop_factory=JumpCountingLoop) as runner:
        runner.run(main)
        loop = runner.get_loop()
        assert isinstance(loop, JumpCountingLoop)
        return loop.jumps
