"""Calls of cloud APIs: each has a timeout, and transient errors are retried with backoff."""

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
    """Do nothing; used where nothing needs the time of the last response."""


class LastAnswer:
    """The time of a cloud's last response."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._answered_at: float | None = None

    def record(self) -> None:
        self._answered_at = self._clock.monotonic()

    def age(self) -> timedelta | None:
        """Return the time since the last response; None if there was none yet."""
        return None if self._answered_at is None else timedelta(seconds=self._clock.monotonic() - self._answered_at)


class Retrier:
    """Calls an API, and retries while the error is transient."""

    def __init__(
        self, clock: Clock, random: Random, *, is_retryable: Callable[[CloudError], bool], max_attempts: int = 5
    ) -> None:
        self.last_answer = LastAnswer(clock)
        self._clock = clock
        self._random = random
        self._is_retryable = is_retryable
        self._max_attempts = max_attempts

    async def call(self, operation: Callable[[], Awaitable[T]], *, doing: str) -> T:
        """Return the result; raise the last `CloudError` after `max_attempts`."""
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
    """Return whether an error may pass by itself: no response (status 0), 429, or a server error."""
    return error.status in (0, _TOO_MANY_REQUESTS) or error.status >= _SERVER_ERRORS
