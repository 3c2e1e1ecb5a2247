"""Backoff after failures that may concern the records of all nodes, until a write succeeds."""

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

# Concern one record only.
SINGLE_RECORD_ERRORS = (AlreadyExists, BadRequest, Conflict, MalformedResponse, Invalid, NotFound)
RETRY_BACKOFF = Backoff(first=timedelta(seconds=1), limit=timedelta(seconds=30), jitter=0.5)


@dataclass(slots=True)
class WriteFailure:
    """The last failure, the number of failed attempts in a row, and until when to wait."""

    error: KubeError
    tries: int = 0
    until: float = 0  # monotonic


class WriteBackoff:
    """Whether writes fail for all records, and when to try again."""

    def __init__(self, clock: Clock, random: Random) -> None:
        self.failure: WriteFailure | None = None
        self._clock = clock
        self._random = random

    def retry_at(self) -> datetime | None:
        """Return when to try again; None: now. The jitter avoids that the same record is always the first."""
        wait = 0 if self.failure is None else self.failure.until - self._clock.monotonic()
        if wait <= 0:
            return None
        return self._clock.now() + timedelta(seconds=wait + self._random.random())

    def record_failure(self, error: KubeError) -> datetime:
        """Delay all writes after a failure that may concern all of them; return when to try again."""
        known = self.failure
        if known is not None and (retry_at := self.retry_at()) is not None:
            return retry_at  # another worker has recorded the failure
        if known is None or type(known.error) is not type(error):
            level = logging.WARNING if isinstance(error, Forbidden | Unauthorized) else logging.INFO
            log.log(level, "cannot write the history; entries are kept in memory until it works: %s", error)
        failure = self.failure = WriteFailure(error, 1 if known is None else known.tries + 1)
        delay = RETRY_BACKOFF.delay(failure.tries, self._random)
        delay = max(delay, getattr(error, "retry_after", None) or delay)
        failure.until = self._clock.monotonic() + delay.total_seconds()
        return self._clock.now() + delay
