"""How long statuses wait."""

from datetime import timedelta

import pytest

from haulout.core.clock import Clock
from haulout.maintenance.pacing import LONGEST, StatusPace

MOMENT = timedelta(milliseconds=100)


def after(pace: StatusPace, others: int) -> timedelta:
    """Write the status of one maintenance, then those of others; return how long the first has to wait."""
    for name in ("it", *(f"other-{number}" for number in range(others))):
        pace.note(name)
    return pace.wait("it")


@pytest.mark.parametrize(("others", "seconds"), [(0, 1), (10, 1), (59, 3), (199, 10), (1999, 10)])
async def test_the_more_there_are_the_longer_each_waits(clock: Clock, others: int, seconds: float) -> None:
    assert after(StatusPace(clock), others) == timedelta(seconds=seconds)


async def test_a_status_that_was_not_written_of_late_need_not_wait(clock: Clock) -> None:
    pace = StatusPace(clock)
    after(pace, 500)
    assert pace.wait("another") == timedelta()


async def test_those_that_have_nothing_new_to_tell_slow_nobody_down(clock: Clock) -> None:
    pace = StatusPace(clock)
    after(pace, 500)
    await clock.sleep(LONGEST)
    assert pace.wait("it") == timedelta()
    pace.note("it")
    await clock.sleep(MOMENT)
    assert pace.wait("it") == timedelta(seconds=1) - MOMENT


async def test_a_status_is_of_late_from_its_last_write_on(clock: Clock) -> None:
    pace = StatusPace(clock)
    pace.note("it")
    await clock.sleep(LONGEST - MOMENT)
    pace.note("other")
    pace.note("it")
    await clock.sleep(2 * MOMENT)
    assert pace.wait("it") == timedelta(seconds=1) - 2 * MOMENT
