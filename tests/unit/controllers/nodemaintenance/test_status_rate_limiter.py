"""How long statuses wait."""

from datetime import timedelta

import pytest

from haulout.controllers.nodemaintenance.rate_limiters import MAX_INTERVAL, StatusRateLimiter
from haulout.core.clock import Clock

MOMENT = timedelta(milliseconds=100)


def after(pace: StatusRateLimiter, others: int) -> timedelta:
    """Write the status of one maintenance, then those of others; return how long the first has to wait."""
    for name in ("it", *(f"other-{number}" for number in range(others))):
        pace.record_write(name)
    return pace.delay("it")


@pytest.mark.parametrize(("others", "seconds"), [(0, 1), (10, 1), (59, 3), (199, 10), (1999, 10)])
async def test_the_more_there_are_the_longer_each_waits(clock: Clock, others: int, seconds: float) -> None:
    assert after(StatusRateLimiter(clock), others) == timedelta(seconds=seconds)


async def test_a_status_that_was_not_written_of_late_need_not_wait(clock: Clock) -> None:
    pace = StatusRateLimiter(clock)
    after(pace, 500)
    assert pace.delay("another") == timedelta()


async def test_those_that_have_nothing_new_to_tell_slow_nobody_down(clock: Clock) -> None:
    pace = StatusRateLimiter(clock)
    after(pace, 500)
    await clock.sleep(MAX_INTERVAL)
    assert pace.delay("it") == timedelta()
    pace.record_write("it")
    await clock.sleep(MOMENT)
    assert pace.delay("it") == timedelta(seconds=1) - MOMENT


async def test_a_status_is_of_late_from_its_last_write_on(clock: Clock) -> None:
    pace = StatusRateLimiter(clock)
    pace.record_write("it")
    await clock.sleep(MAX_INTERVAL - MOMENT)
    pace.record_write("other")
    pace.record_write("it")
    await clock.sleep(2 * MOMENT)
    assert pace.delay("it") == timedelta(seconds=1) - 2 * MOMENT
