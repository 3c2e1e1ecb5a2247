"""When a source polls again, and what it says about failures."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from random import Random

import pytest

from haulout.core.backoff import Backoff
from haulout.core.clock import Clock
from haulout.core.retry import Retry
from haulout.errors import CloudError, Unreachable
from haulout.providers.poller import Poller
from haulout.providers.problems import Problems

SECOND = timedelta(seconds=1)
BACKOFF = Backoff(first=SECOND, limit=8 * SECOND, jitter=0)


class World:
    """A poller with a minute's interval, and the times of its polls."""

    def __init__(self, clock: Clock) -> None:
        self.times: list[float] = []
        self.outcomes: list[Exception | Sequence[str]] = []  # of the next polls; then nothing fails
        self.wakes_during_poll = False
        self.problems = Problems("sky")
        self.poller = Poller(
            Retry(clock, Random(7), BACKOFF),
            self.problems,
            failure="the sky does not answer",
            interval=lambda: 60 * SECOND,
            wake_delay=3 * SECOND,
        )
        self._clock = clock
        self._started = clock.monotonic()

    async def poll(self) -> Sequence[str]:
        self.times.append(round(self._clock.monotonic() - self._started))
        if self.wakes_during_poll and len(self.times) == 1:
            self.poller.wake()
        outcome = self.outcomes.pop(0) if self.outcomes else ()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


@asynccontextmanager
async def a_world(clock: Clock, *outcomes: Exception | Sequence[str]) -> AsyncIterator[World]:
    world = World(clock)
    world.outcomes = list(outcomes)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(world.poller.run(world.poll))
        yield world
        task.cancel()


def cloud_error(*, retry_after: timedelta | None = None) -> CloudError:
    return CloudError("no", doing="asking", retry_after=retry_after)


async def test_polls_now_and_after_each_interval(clock: Clock) -> None:
    async with a_world(clock) as world:
        await clock.sleep(130 * SECOND)
        assert world.times == [0, 60, 120]


async def test_failures_wait_longer_each_and_end_with_a_success(clock: Clock) -> None:
    outcomes = cloud_error(), Unreachable("no", sent=False), ["zone a does not answer"], (), cloud_error()
    async with a_world(clock, *outcomes) as world:
        await clock.sleep(0.5 * SECOND)
        assert world.problems.lines() == ("sky: the sky does not answer, retrying: asking: no",)
        await clock.sleep(1 * SECOND)
        assert world.problems.lines() == ("sky: MaintenanceNotices cannot be read or written, retrying: no",)
        await clock.sleep(2 * SECOND)
        assert world.problems.lines() == ("sky: zone a does not answer",)
        await clock.sleep(70 * SECOND)
        assert world.times == [0, 1, 3, 7, 67, 68]
        assert not world.problems


async def test_wake_shortens_an_interval_but_no_backoff(clock: Clock) -> None:
    async with a_world(clock, (), cloud_error(retry_after=30 * SECOND)) as world:
        await clock.sleep(10 * SECOND)
        world.poller.wake()
        await clock.sleep(5 * SECOND)
        assert world.times == [0, 13]
        world.poller.wake()
        await clock.sleep(30 * SECOND)
        assert world.times == [0, 13, 43]


async def test_wake_during_a_poll_leads_to_another_one(clock: Clock) -> None:
    async with a_world(clock) as world:
        world.wakes_during_poll = True
        await clock.sleep(10 * SECOND)
        assert world.times == [0, 3]


async def test_same_problem_is_logged_once_and_its_end_once(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with a_world(clock, *[cloud_error()] * 5):
        await clock.sleep(120 * SECOND)
    assert [record.getMessage() for record in caplog.records] == [
        "sky: the sky does not answer, retrying: asking: no",
        "sky: all problems are resolved",
    ]
