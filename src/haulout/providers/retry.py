"""Calls of clouds: none may keep us waiting for ever, and what is busy is asked again after a pause."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from random import Random
from typing import TypeVar

from haulout.core import timeouts
from haulout.core.backoff import Backoff
from haulout.core.clock import Clock
from haulout.errors import CloudError

T = TypeVar("T")

_BACKOFF = Backoff(first=timedelta(seconds=1), limit=timedelta(seconds=20), jitter=0.5)
_SERVER_ERRORS = 500
_TOO_MANY_REQUESTS = 429

await_with_timeout = timeouts.await_with_timeout


def ignore_answer() -> None:
    """Do nothing: nobody asks when the cloud last answered."""


class LastAnswer:
    """When a cloud last answered."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._answered_at: float | None = None

    def record(self) -> None:
        """Note that it has answered."""
        self._answered_at = self._clock.monotonic()

    def age(self) -> timedelta | None:
        """Return how long ago that was; None if it has not yet."""
        return None if self._answered_at is None else timedelta(seconds=self._clock.monotonic() - self._answered_at)


class Retrier:
    """Makes calls, and makes them again while the cloud is busy."""

    def __init__(
        self, clock: Clock, random: Random, *, is_retryable: Callable[[CloudError], bool], max_attempts: int = 5
    ) -> None:
        self.last_answer = LastAnswer(clock)
        self._clock = clock
        self._random = random
        self._is_retryable = is_retryable
        self._max_attempts = max_attempts

    async def call(self, operation: Callable[[], Awaitable[T]], *, doing: str) -> T:
        """Return the answer; raises the last `CloudError` when it has been tried often enough."""
        for attempt in range(1, self._max_attempts):
            try:
                return await self._call_once(operation(), doing)
            except CloudError as error:
                if not self._is_retryable(error):
                    raise
                pause = _BACKOFF.delay(attempt, self._random)
                await self._clock.sleep(max(pause, error.retry_after or timedelta()))
        return await self._call_once(operation(), doing)

    async def _call_once(self, awaitable: Awaitable[T], doing: str) -> T:
        answer = await await_with_timeout(awaitable, doing=doing)
        self.last_answer.record()
        return answer


def is_transient(error: CloudError) -> bool:
    """Tell whether an error passes by itself: no answer, too many calls, or trouble in the cloud."""
    return error.status in (0, _TOO_MANY_REQUESTS) or error.status >= _SERVER_ERRORS
