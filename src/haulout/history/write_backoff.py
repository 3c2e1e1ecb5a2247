"""A failure that may concern the records of all nodes: writes are tried less and less often until one succeeds."""

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random

from haulout.core.backoff import Backoff
from haulout.core.clock import Clock
from haulout.errors import (
    AlreadyExists,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    MalformedResponse,
    NotFound,
    Unauthorized,
)

log = logging.getLogger(__name__)

SINGLE_RECORD_ERRORS = (AlreadyExists, BadRequest, Conflict, MalformedResponse, Invalid, NotFound)  # concern no other
RETRY_BACKOFF = Backoff(first=timedelta(seconds=1), limit=timedelta(seconds=30), jitter=0.5)


@dataclass(slots=True)
class WriteFailure:
    """Why nothing can be written, for how many tries in a row, and until when the next is put off."""

    error: KubeError
    tries: int = 0
    until: float = 0  # on the monotonic clock


class WriteBackoff:
    """Whether nothing can be written, and until when the next try is put off."""

    def __init__(self, clock: Clock, random: Random) -> None:
        self.failure: WriteFailure | None = None
        self._clock = clock
        self._random = random

    def retry_at(self) -> datetime | None:
        """Return when to try, if not now: at another moment for each, so that none is always the first."""
        wait = 0 if self.failure is None else self.failure.until - self._clock.monotonic()
        if wait <= 0:
            return None
        return self._clock.now() + timedelta(seconds=wait + self._random.random())

    def record_failure(self, error: KubeError) -> datetime:
        """Put off all writes for a while, after a failure that may concern all of them."""
        known = self.failure
        if known is not None and (retry_at := self.retry_at()) is not None:
            return retry_at  # another worker was faster
        if known is None or type(known.error) is not type(error):
            level = logging.WARNING if isinstance(error, Forbidden | Unauthorized) else logging.INFO
            log.log(level, "history cannot be written for now, and what happens is kept until it can: %s", error)
        failure = self.failure = WriteFailure(error, 1 if known is None else known.tries + 1)
        delay = RETRY_BACKOFF.delay(failure.tries, self._random)
        delay = max(delay, getattr(error, "retry_after", None) or delay)
        failure.until = self._clock.monotonic() + delay.total_seconds()
        return self._clock.now() + delay
