"""When an operation is tried again, and when it is given up."""

from datetime import datetime, timedelta
from random import Random
from typing import Any

import pytest

from haulout.core.backoff import Backoff
from haulout.core.clock import Clock
from haulout.core.retry import MAX_RETRY_AFTER, Retry
from haulout.errors import CloudError

SECOND = timedelta(seconds=1)
BACKOFF = Backoff(first=SECOND, limit=8 * SECOND, jitter=0)


class ClockOfAnotherTime:
    """A clock whose wall time is set during a wait."""

    def __init__(self, clock: Clock) -> None:
        self.offset = timedelta()
        self._clock = clock
        self.monotonic, self.sleep, self.call_at = clock.monotonic, clock.sleep, clock.call_at

    def now(self) -> datetime:
        return self._clock.now() + self.offset


def a_retry(clock: Clock, **limits: Any) -> Retry:
    return Retry(clock, Random(7), BACKOFF, **limits)


def an_error(*, retry_after: timedelta | None = None) -> CloudError:
    return CloudError("try later", doing="asking", retry_after=retry_after)


async def test_each_failure_in_a_row_waits_longer_up_to_the_limit(clock: Clock) -> None:
    retry = a_retry(clock)
    assert [retry.delay(an_error()) / SECOND for _ in range(5)] == [1, 2, 4, 8, 8]


async def test_success_starts_the_backoff_from_the_beginning(clock: Clock) -> None:
    retry = a_retry(clock)
    retry.delay(an_error())
    retry.delay(an_error())
    retry.reset()
    assert retry.delay(an_error()) == SECOND


async def test_wait_is_never_shorter_than_retry_after(clock: Clock) -> None:
    retry, started = a_retry(clock), clock.monotonic()
    await retry.wait(an_error(retry_after=30 * SECOND))
    assert clock.monotonic() - started >= 30


async def test_retry_after_is_bounded(clock: Clock) -> None:
    """An error page of a proxy may ask for a day."""
    assert a_retry(clock).delay(an_error(retry_after=timedelta(days=1))) == MAX_RETRY_AFTER
    assert a_retry(clock, max_retry_after=3 * SECOND).delay(an_error(retry_after=timedelta(days=1))) == 3 * SECOND


async def test_jitter_only_shortens_a_wait(clock: Clock) -> None:
    backoff = Backoff(first=4 * SECOND, limit=4 * SECOND, jitter=0.5)
    retry = Retry(clock, Random(7), backoff)
    waits = [retry.delay(an_error()) for _ in range(100)]
    assert all(2 * SECOND <= wait <= 4 * SECOND for wait in waits)
    assert len(set(waits)) > 50


async def test_retry_after_is_not_shortened_by_jitter(clock: Clock) -> None:
    backoff = Backoff(first=4 * SECOND, limit=4 * SECOND, jitter=1)
    retry = Retry(clock, Random(7), backoff)
    assert all(retry.delay(an_error(retry_after=4 * SECOND)) == 4 * SECOND for _ in range(20))


async def test_attempt_that_ran_for_long_counts_as_a_success(clock: Clock) -> None:
    retry = a_retry(clock, stable_after=60 * SECOND)
    await retry.wait(an_error())
    await retry.wait(an_error())
    await clock.sleep(60 * SECOND)
    assert retry.delay(an_error()) == 4 * SECOND
    await clock.sleep(66 * SECOND)
    assert retry.delay(an_error()) == SECOND


async def test_wait_itself_does_not_count_as_an_attempt_that_ran_for_long(clock: Clock) -> None:
    retry = a_retry(clock, stable_after=5 * SECOND)
    for _ in range(5):
        await retry.wait(an_error(retry_after=60 * SECOND))
    assert retry.failures == 5


async def test_jump_of_the_wall_clock_changes_neither_deadline_nor_stability(clock: Clock) -> None:
    set_clock = ClockOfAnotherTime(clock)
    retry = a_retry(set_clock, timeout=60 * SECOND, stable_after=60 * SECOND)
    for days in (1, -2, 3):
        set_clock.offset = timedelta(days=days)
        await retry.wait(an_error())
    assert retry.failures == 3


async def test_deadline_starts_anew_after_a_success(clock: Clock) -> None:
    retry = a_retry(clock, timeout=2 * SECOND)
    await clock.sleep(5 * SECOND)
    retry.reset()
    assert retry.delay(an_error()) == SECOND


async def test_last_attempt_raises_its_error(clock: Clock) -> None:
    retry, error = a_retry(clock, max_attempts=2), an_error()
    await retry.wait(an_error())
    with pytest.raises(CloudError) as raised:
        await retry.wait(error)
    assert raised.value is error


async def test_wait_ends_at_the_deadline_and_not_after_it(clock: Clock) -> None:
    retry, started = a_retry(clock, timeout=2 * SECOND), clock.monotonic()
    await retry.wait(an_error())
    await retry.wait(an_error())
    assert clock.monotonic() - started == pytest.approx(2)
    with pytest.raises(CloudError):
        await retry.wait(an_error())


async def test_retry_after_beyond_the_deadline_gives_up_at_once(clock: Clock) -> None:
    retry, started = a_retry(clock, timeout=2 * SECOND), clock.monotonic()
    with pytest.raises(CloudError):
        await retry.wait(an_error(retry_after=SECOND * 60))
    assert clock.monotonic() == started
