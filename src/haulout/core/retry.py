"""One way to try again: exponential backoff, the server's Retry-After, a deadline, monotonic time.

    retry = Retry(clock, random, BACKOFF, timeout=timedelta(minutes=1))
    while True:
        try:
            return await request()
        except (Unreachable, ServerFailure) as error:
            await retry.wait(error)             # raises `error` when the minute is over

    async def listen():                         # without end; a success starts the backoff from the beginning
        retry = Retry(clock, random, BACKOFF)
        while True:
            try:
                await receive()
                retry.reset()
            except CloudError as error:
                await retry.wait(error)

Which errors are temporary is the caller's decision: it catches them. A wait is never shorter than the `retry_after` of
the error, up to `max_retry_after`, and never ends after the deadline. `Retry` keeps no state in the API server: a
successor begins anew.
"""

from datetime import timedelta
from random import Random

from haulout.core.backoff import Backoff
from haulout.core.clock import Clock

MAX_RETRY_AFTER = timedelta(minutes=5)  # the error page of a proxy must not stop an operation for hours


class Retry:
    """The failures of one operation, and how long to wait after each.

    `timeout` is counted from the first attempt, `max_attempts` includes it. Without both it never gives up. An attempt
    that ran for longer than `stable_after` before it failed counts as a success that ended.
    """

    def __init__(
        self,
        clock: Clock,
        random: Random,
        backoff: Backoff,
        *,
        timeout: timedelta | None = None,
        max_attempts: int | None = None,
        max_retry_after: timedelta = MAX_RETRY_AFTER,
        stable_after: timedelta | None = None,
    ) -> None:
        self.failures = 0  # in a row
        self.clock = clock
        self._random = random
        self._backoff = backoff
        self._timeout = timeout
        self._max_attempts = max_attempts
        self._max_retry_after = max_retry_after
        self._stable_after = stable_after
        # An object outside of an event loop may own a Retry, where a loop's clock does not run yet.
        has_times = timeout is not None or stable_after is not None
        self._started = self._attempt_started = clock.monotonic() if has_times else 0.0

    def reset(self) -> None:
        """Record a success: the next failure is the first one."""
        self.failures = 0
        self._started = self._attempt_started = self.clock.monotonic()

    def delay(self, error: BaseException) -> timedelta:
        """Count a failure and return how long to wait; raise `error` if no attempt is left."""
        now = self.clock.monotonic()
        if self._stable_after is not None and now - self._attempt_started > self._stable_after.total_seconds():
            self.reset()
        self.failures += 1
        if self._max_attempts is not None and self.failures >= self._max_attempts:
            raise error
        retry_after = min(getattr(error, "retry_after", None) or timedelta(), self._max_retry_after)
        wait = max(self._backoff.delay(self.failures, self._random), retry_after)
        if self._timeout is not None:
            remaining = self._timeout - timedelta(seconds=now - self._started)
            if remaining <= timedelta() or retry_after > remaining:
                raise error
            wait = min(wait, remaining)
        self._attempt_started = now + wait.total_seconds()
        return wait

    async def wait(self, error: BaseException) -> None:
        """Count a failure and wait until the next attempt; raise `error` if none is left."""
        await self.clock.sleep(self.delay(error))
