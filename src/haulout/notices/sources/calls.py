"""Calls of clouds: none may keep us waiting for ever, and what is busy is asked again after a pause."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from random import Random
from typing import TypeVar

from haulout.core import answering
from haulout.core.backoff import Backoff
from haulout.core.clock import Clock
from haulout.errors import CloudError

T = TypeVar("T")

_PAUSE = Backoff(first=timedelta(seconds=1), limit=timedelta(seconds=20), jitter=0.5)
_SERVER_ERRORS = 500
_TOO_MANY = 429

answered = answering.answered


def no_beat() -> None:
    """Do nothing: nobody asks when the cloud last answered."""


class Pulse:
    """When a cloud last answered."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heard: float | None = None

    def beat(self) -> None:
        """Note that it has answered."""
        self._heard = self._clock.monotonic()

    def ago(self) -> timedelta | None:
        """Return how long ago that was; None if it has not yet."""
        return None if self._heard is None else timedelta(seconds=self._clock.monotonic() - self._heard)


class Patient:
    """Makes calls, and makes them again while the cloud is busy."""

    def __init__(self, clock: Clock, random: Random, *, is_busy: Callable[[CloudError], bool], tries: int = 5) -> None:
        self.pulse = Pulse(clock)
        self._clock = clock
        self._random = random
        self._is_busy = is_busy
        self._tries = tries

    async def ask(self, call: Callable[[], Awaitable[T]], *, doing: str) -> T:
        """Return the answer; raises the last `CloudError` when it has been tried often enough."""
        for attempt in range(1, self._tries):
            try:
                return await self._answered(call(), doing)
            except CloudError as error:
                if not self._is_busy(error):
                    raise
                pause = _PAUSE.delay(attempt, self._random)
                await self._clock.sleep(max(pause, error.retry_after or timedelta()))
        return await self._answered(call(), doing)

    async def _answered(self, call: Awaitable[T], doing: str) -> T:
        answer = await answered(call, doing=doing)
        self.pulse.beat()
        return answer


def is_passing(error: CloudError) -> bool:
    """Tell whether an error passes by itself: no answer, too many calls, or trouble in the cloud."""
    return error.status in (0, _TOO_MANY) or error.status >= _SERVER_ERRORS
