"""Calls of cloud APIs: each has a timeout, and transient errors are retried with backoff."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from random import Random
from typing import TypeVar

from haulout.core.backoff import Backoff
from haulout.core.clock import Clock
from haulout.core.retry import Retry
from haulout.core.timeouts import await_with_timeout
from haulout.errors import CloudError

T = TypeVar("T")

_BACKOFF = Backoff(first=timedelta(seconds=1), limit=timedelta(seconds=20), jitter=0.5)
_MAX_ATTEMPTS = 5
_SERVER_ERRORS = 500
_TOO_MANY_REQUESTS = 429


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


class CloudCaller:
    """Calls an API, and retries while the error is transient; records each response in `last_answer`."""

    def __init__(
        self,
        clock: Clock,
        random: Random,
        *,
        is_retryable: Callable[[CloudError], bool],
        last_answer: LastAnswer,
    ) -> None:
        self._clock = clock
        self._random = random
        self._is_retryable = is_retryable
        self._last_answer = last_answer

    async def call(self, operation: Callable[[], Awaitable[T]], *, doing: str) -> T:
        """Return the result; raise the `CloudError` that is not transient, or the last one."""
        retry = Retry(self._clock, self._random, _BACKOFF, max_attempts=_MAX_ATTEMPTS)
        while True:
            try:
                answer = await await_with_timeout(operation(), doing=doing)
            except CloudError as error:
                if not self._is_retryable(error):
                    raise
                await retry.wait(error)
            else:
                self._last_answer.record()
                return answer


def is_transient(error: CloudError) -> bool:
    """Return whether an error may pass by itself: no response (status 0), 429, or a server error."""
    return error.status in (0, _TOO_MANY_REQUESTS) or error.status >= _SERVER_ERRORS
