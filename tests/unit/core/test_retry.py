"""When an operation is tried again, and when it is given up."""

from datetime import timedelta
from random import Random
from typing import Any

import pytest

from haulout.core.backoff import Backoff
from haulout.core.clock import Clock
from haulout.core.retry import Retry
from haulout.errors import CloudError

SECOND = timedelta(seconds=1)
BACKOFF = Backoff(first=SECOND, limit=8 * SECOND, jitter=0)


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
