"""The poll loop of event sources: poll now, after each interval and when woken, with backoff after failures.

    retry = Retry(clock, random, POLL_FAILED)
    poller = Poller(retry, problems, failure="EC2 does not answer", interval=lambda: INTERVAL)
    await poller.run(poll)
    poller.wake()                       # something has changed: do not wait for the interval

A wake is never lost: one that comes during a poll leads to another poll. It does not shorten a backoff, since a cloud
that throttles must not be asked again because of an event.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import NoReturn

from haulout.core.retry import Retry
from haulout.errors import CloudError, ExternalError, KubeError
from haulout.providers.problems import Problems


class Poller:
    """Polls one API.

    `failure` is the text of the problem after a `CloudError`. `interval` returns None if only a wake is a reason to
    poll again. A wake leads to a poll `wake_delay` later, so that what comes with it is polled, too.
    """

    def __init__(
        self,
        retry: Retry,
        problems: Problems,
        *,
        failure: str,
        interval: Callable[[], timedelta | None],
        topic: str = "poll",
        wake_delay: timedelta | None = None,
    ) -> None:
        self._retry = retry
        self._problems = problems
        self._failure = failure
        self._interval = interval
        self._topic = topic
        self._wake_delay = wake_delay
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Poll soon instead of after the interval."""
        self._wake.set()

    async def run(self, poll: Callable[[], Awaitable[Sequence[str] | None]]) -> NoReturn:
        """Call `poll` until cancelled. It returns what failed, one line each, or raises `CloudError` or `KubeError`."""
        while True:
            self._wake.clear()  # before the poll: a change during it must lead to another one
            try:
                problems = await poll() or ()
            except CloudError as error:
                await self._back_off(error, f"{self._failure}, retrying: {error}")
            except KubeError as error:
                await self._back_off(error, f"MaintenanceNotices cannot be read or written, retrying: {error}")
            else:
                if problems:
                    await self._back_off(ExternalError(problems[0]), *problems)
                else:
                    self._retry.reset()
                    self._problems.set(self._topic)
                    await self._wait()

    async def _back_off(self, error: Exception, *problems: str) -> None:
        self._problems.set(self._topic, *problems)
        await self._retry.wait(error)

    async def _wait(self) -> None:
        interval = self._interval()
        try:
            async with asyncio.timeout(None if interval is None else interval.total_seconds()):
                await self._wake.wait()
        except TimeoutError:
            return
        if self._wake_delay is not None:
            await self._retry.clock.sleep(self._wake_delay)
