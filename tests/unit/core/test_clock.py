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
    """Tells how often time moved, and stops a loop that turns without end."""

    jumps = 0

    def _jump(self, seconds: float | None) -> None:
        self.jumps += 1
        assert self.jumps < 100_000, "time crawls"
        super()._jump(seconds)


class MachineClock(VirtualClock):
    """Simulated time, but alarms find out that it was set as they do on a machine: by looking again."""

    def call_at(
        self, instant: datetime, callback: Callable[[], object], *, on_set_back: Callable[[], object] | None = None
    ) -> Alarm:
        """Call `callback` when the wall clock has reached `instant`."""
        return Alarm(self, instant, callback, recheck_interval=MINUTE, on_set_back=on_set_back)


async def ring(clock: Clock, instant: datetime) -> datetime:
    """Return when an alarm for `instant` rings."""
    rang = asyncio.Event()
    clock.call_at(instant, rang.set)
    await rang.wait()
    return clock.now()


# Simulated time passes only by waiting.


async def test_a_day_of_sleep_takes_a_simulated_day(clock: VirtualClock) -> None:
    await clock.sleep(DAY)
    assert clock.now() == EPOCH + DAY
    assert clock.monotonic() == DAY.total_seconds()


async def test_simulated_time_stands_still_while_something_is_runnable(clock: VirtualClock) -> None:
    for _ in range(1_000):
        await clock.sleep(timedelta())
    assert clock.now() == EPOCH


async def test_a_negative_sleep_returns_at_once_but_lets_others_run(clock: VirtualClock) -> None:
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


async def test_a_timeout_ends_a_wait_after_its_simulated_time(clock: VirtualClock) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(90):
            await clock.sleep(DAY)
    assert clock.now() == EPOCH + 90 * SECOND


async def test_a_timeout_leaves_what_ends_in_time_alone(clock: VirtualClock) -> None:
    async with asyncio.timeout(90):
        await clock.sleep(89 * SECOND)
    assert clock.now() == EPOCH + 89 * SECOND


def test_the_same_program_leaves_the_same_trace_every_time() -> None:
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


def test_a_group_cancels_its_tasks_in_the_same_order_every_time() -> None:
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
def test_an_alarm_rings_at_its_very_microsecond(before: list[timedelta], ahead: timedelta) -> None:
    async def main() -> None:
        clock = VirtualClock()
        for duration in before:
            await clock.sleep(duration)
        instant = clock.now() + ahead
        assert await ring(clock, instant) == instant

    days = sum((*before, ahead), timedelta()) // DAY
    assert jumps_during(main()) <= days + len(before) + 1  # the loop never sleeps longer than a day in one go


@given(st.lists(st.floats(min_value=0, max_value=1e-3), max_size=50))
def test_whoever_waits_until_a_moment_between_two_microseconds_gets_there(waits: list[float]) -> None:
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


async def test_a_timer_that_is_due_right_now_runs_also_after_ten_years(clock: VirtualClock) -> None:
    """The base class compares with a resolution that vanishes in the rounding of large floats."""
    await clock.sleep(3_650 * DAY)
    rang = asyncio.Event()
    asyncio.get_running_loop().call_later(0, rang.set)
    await rang.wait()
    assert clock.now() == EPOCH + 3_650 * DAY


# Alarms follow the wall clock.


async def test_an_alarm_for_the_past_rings_at_once(clock: VirtualClock) -> None:
    assert await ring(clock, EPOCH - DAY) == EPOCH


async def test_a_cancelled_alarm_stays_silent(clock: VirtualClock) -> None:
    rang: list[datetime] = []
    alarm = clock.call_at(EPOCH + HOUR, lambda: rang.append(clock.now()))
    alarm.cancel()
    clock.move_wall_clock(DAY)
    await clock.sleep(DAY)
    assert rang == []


async def test_an_alarm_rings_once_and_may_be_cancelled_afterwards(clock: VirtualClock) -> None:
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
async def test_simulated_alarms_know_at_once_that_the_wall_clock_was_set(
    clock: VirtualClock, set_by: timedelta, rings_after: timedelta
) -> None:
    asyncio.get_running_loop().call_later(60, clock.move_wall_clock, set_by)
    await ring(clock, EPOCH + 10 * HOUR)
    assert timedelta(seconds=clock.monotonic()) == rings_after


def test_a_month_of_waiting_for_one_alarm_has_no_useless_wake_ups() -> None:
    async def main() -> None:
        clock = VirtualClock()
        await ring(clock, EPOCH + 30 * DAY)

    assert jumps_during(main()) == 30


async def test_a_machine_whose_clock_is_set_forward_notices_within_a_minute() -> None:
    clock = MachineClock()
    asyncio.get_running_loop().call_later(30, clock.move_wall_clock, DAY)
    await ring(clock, EPOCH + DAY)
    assert clock.monotonic() == 60


async def test_a_machine_whose_clock_is_set_back_rings_no_earlier_than_the_instant() -> None:
    clock = MachineClock()
    asyncio.get_running_loop().call_later(30, clock.move_wall_clock, -HOUR)
    assert await ring(clock, EPOCH + 10 * MINUTE) == EPOCH + 10 * MINUTE
    assert clock.monotonic() == 70 * 60


@pytest.mark.parametrize(("kind", "after"), [(VirtualClock, 30), (MachineClock, 60)])
async def test_who_wants_to_hear_of_it_is_told_that_the_clock_was_set_back(
    kind: type[VirtualClock], after: float
) -> None:
    clock, told = kind(), list[float]()
    alarm = clock.call_at(EPOCH + HOUR, lambda: told.append(-1), on_set_back=lambda: told.append(clock.monotonic()))
    asyncio.get_running_loop().call_later(30, clock.move_wall_clock, -HOUR)
    await clock.sleep(3 * HOUR)
    alarm.cancel()
    assert told == [after], "and the alarm is over"


@pytest.mark.parametrize("kind", [VirtualClock, MachineClock])
@pytest.mark.parametrize("set_by", [timedelta(seconds=-4), timedelta(seconds=30)])
async def test_small_corrections_and_clocks_set_forward_are_not_told(
    kind: type[VirtualClock], set_by: timedelta
) -> None:
    clock, told = kind(), list[str]()
    clock.call_at(EPOCH + HOUR, lambda: told.append("rang"), on_set_back=lambda: told.append("set back"))
    asyncio.get_running_loop().call_later(30, clock.move_wall_clock, set_by)
    await clock.sleep(2 * HOUR)
    assert told == ["rang"]


# Threads, and nothing to wait for.


async def test_threads_are_waited_for_without_moving_time(clock: VirtualClock) -> None:
    release = threading.Event()
    late = asyncio.get_running_loop().call_later(3_600, release.set)
    threading.Timer(0.05, release.set).start()
    assert await asyncio.to_thread(release.wait)
    assert clock.now() == EPOCH
    late.cancel()


def test_a_loop_that_used_threads_closes_without_a_fuss() -> None:
    """Closing waits for the executor's threads, and that is no deadlock."""
    for _ in range(20):
        assert run_virtual(asyncio.to_thread(threading.active_count)) > 0


async def test_an_executor_that_refuses_work_does_not_stop_time(clock: VirtualClock) -> None:
    loop = asyncio.get_running_loop()
    await loop.shutdown_default_executor()
    with pytest.raises(RuntimeError, match="shutdown"):
        await asyncio.to_thread(print)
    await clock.sleep(HOUR)
    assert clock.now() == EPOCH + HOUR


def test_a_deadlock_is_an_error_that_tells_who_waits_where(caplog: pytest.LogCaptureFixture) -> None:
    cleaned_up: list[str] = []

    async def waits_for_nobody() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned_up.append("inner")

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(waits_for_nobody(), name="the lonely one")

    with (
        caplog.at_level(logging.DEBUG),
        pytest.raises(Deadlock, match=r"no timer is set: .*the lonely one in .*\.waits_for_nobody line \d+"),
    ):
        run_virtual(main())
    gc.collect()
    assert cleaned_up == ["inner"]
    assert [record for record in caplog.records if record.levelno > logging.DEBUG] == []


def test_a_deadlock_of_many_names_only_some() -> None:
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


# The machine's own clock.


def test_the_machine_says_its_time_in_utc() -> None:
    assert RealClock().now().tzinfo is UTC


@pytest.mark.real_time
async def test_the_machine_clock_waits_and_never_goes_back(clock: RealClock) -> None:
    before, began = clock.now(), clock.monotonic()
    await clock.sleep(timedelta(milliseconds=5))
    await clock.sleep(-HOUR)
    assert clock.monotonic() - began >= 0.004
    assert clock.now() > before


@pytest.mark.real_time
async def test_the_machine_rings_no_earlier_than_the_instant(clock: RealClock) -> None:
    instant = clock.now() + timedelta(milliseconds=5)
    assert await ring(clock, instant) >= instant
    assert await ring(clock, instant - DAY) >= instant


def jumps_during(main: Coroutine[Any, Any, None]) -> int:
    with asyncio.Runner(loop_factory=JumpCountingLoop) as runner:
        runner.run(main)
        loop = runner.get_loop()
        assert isinstance(loop, JumpCountingLoop)
        return loop.jumps
