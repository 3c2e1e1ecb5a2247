"""Exponential backoff with jitter.

A `Backoff` is a stateless value. The caller counts its failures and supplies the random source, so the same type serves
the client's retries, the reconnects of a reflector and the work queue, and a simulated run is reproducible.

Jitter only shortens: a delay is between (1 - jitter) times its full length and its full length. So `limit` is an upper
bound, and clients that failed at the same time do not retry at the same time.
"""

import math
from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Wait `first` after one failure, `factor` times as long after each further one, never longer than `limit`."""

    first: timedelta = timedelta(seconds=1)
    factor: float = 2.0
    limit: timedelta = timedelta(minutes=5)
    jitter: float = 0.1

    def __post_init__(self) -> None:
        if not timedelta() < self.first <= self.limit:
            raise ValueError(f"a backoff from {self.first} to {self.limit}: expected 0 < first <= limit")
        if not 1 <= self.factor < math.inf:
            raise ValueError(f"a backoff with factor {self.factor}: expected a number from 1")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"a backoff with jitter {self.jitter}: expected a number from 0 to 1")

    def up_to(self, limit: timedelta) -> "Backoff":
        """Return this backoff with a limit that is not longer than this one."""
        return replace(self, first=min(self.first, limit), limit=min(self.limit, limit))

    def delay(self, attempt: int, random: Random) -> timedelta:
        """Return how long to wait after `attempt` consecutive failures. Values below one count as one."""
        # Not full jitter (a delay from zero): an immediate retry after a failure is what the backoff must prevent.
        return self._delay_without_jitter(max(attempt, 1)) * (1 - self.jitter * random.random())

    def _delay_without_jitter(self, attempt: int) -> timedelta:
        # Compare logarithms: the power itself overflows when something fails for weeks.
        if (attempt - 1) * math.log(self.factor) >= math.log(self.limit / self.first):
            return self.limit
        return min(self.first * self.factor ** (attempt - 1), self.limit)


RECONNECT = Backoff(first=timedelta(seconds=1), limit=timedelta(seconds=30), jitter=0.5)  # to a server that is down
POLL_FAILED = Backoff(first=timedelta(seconds=5), limit=timedelta(minutes=5), jitter=0.3)  # of what changes seldom
CONFLICT = Backoff(first=timedelta(milliseconds=50), limit=timedelta(seconds=1), jitter=0.5)  # between writers
