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
    GarbledAnswer,
    Invalid,
    KubeError,
    NotFound,
    Unauthorized,
)

log = logging.getLogger(__name__)

OF_ONE_RECORD = (AlreadyExists, BadRequest, Conflict, GarbledAnswer, Invalid, NotFound)  # concern no other
TRIED_AGAIN = Backoff(first=timedelta(seconds=1), limit=timedelta(seconds=30), jitter=0.5)


@dataclass(slots=True)
class Trouble:
    """Why nothing can be written, for how many tries in a row, and until when the next is put off."""

    why: KubeError
    tries: int = 0
    until: float = 0  # on the monotonic clock


class Outage:
    """Whether nothing can be written, and until when the next try is put off."""

    def __init__(self, clock: Clock, random: Random) -> None:
        self.trouble: Trouble | None = None
        self._clock = clock
        self._random = random

    def put_off(self) -> datetime | None:
        """Return when to try, if not now: at another moment for each, so that none is always the first."""
        wait = 0 if self.trouble is None else self.trouble.until - self._clock.monotonic()
        if wait <= 0:
            return None
        return self._clock.now() + timedelta(seconds=wait + self._random.random())

    def suffer(self, error: KubeError) -> datetime:
        """Put off all writes for a while, after a failure that may concern all of them."""
        known = self.trouble
        if known is not None and (put_off := self.put_off()) is not None:
            return put_off  # another worker was faster
        if known is None or type(known.why) is not type(error):
            level = logging.WARNING if isinstance(error, Forbidden | Unauthorized) else logging.INFO
            log.log(level, "history cannot be written for now, and what happens is kept until it can: %s", error)
        trouble = self.trouble = Trouble(error, 1 if known is None else known.tries + 1)
        delay = TRIED_AGAIN.delay(trouble.tries, self._random)
        delay = max(delay, getattr(error, "retry_after", None) or delay)
        trouble.until = self._clock.monotonic() + delay.total_seconds()
        return self._clock.now() + delay
