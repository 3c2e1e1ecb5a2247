"""Parts of the operator that may break without taking the others along: each is started again, later each time.

    part = Part("profiles")
    await part.run(see_to_profiles, client=client, tell=announce)

A part that breaks has a defect, or meets what nobody thought of. It is logged with its traceback, told, and named by
`trouble` until it has worked for a while. What it left behind is in the API server, from where it goes on.
"""

import logging
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any

from haulout.core import duration
from haulout.core.backoff import Backoff
from haulout.core.clock import Clock
from haulout.errors import HandOver, LeadershipLost
from haulout.kube.client import Client

log = logging.getLogger(__name__)

_BACKOFF = Backoff(first=timedelta(seconds=2), limit=timedelta(minutes=5), jitter=0.1)
_WELL_AFTER = timedelta(minutes=10)

Tell = Callable[[str], Awaitable[object]]


class Part:
    """One part, by the name that people know it under."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._broke = ""
        self._clock: Clock | None = None
        self._well_from = 0.0

    @property
    def trouble(self) -> str:
        """How it broke, unless it has worked well since."""
        return self._broke if self._clock and self._clock.monotonic() < self._well_from else ""

    async def run(self, work: Callable[[], Awaitable[None]], *, client: Client, tell: Tell | None = None) -> None:
        """Do `work`, again and again should it break, until cancelled; `tell` hears what happened each time."""
        clock = self._clock = client.clock
        failures = 0
        while True:
            began = clock.monotonic()
            try:
                return await work()
            except HandOver:
                raise
            except Exception as error:  # noqa: BLE001 - the boundary of the part; it is logged with its traceback
                failure = error
            worked = timedelta(seconds=clock.monotonic() - began)
            failures = 1 if worked > _WELL_AFTER else failures + 1
            pause = _BACKOFF.delay(failures, client.random)
            if self._note(failure, pause, clock) and tell is not None:
                await tell(self._broke)
            await clock.sleep(pause)

    def _note(self, error: Exception, pause: timedelta, clock: Clock) -> bool:
        """Log it; return whether it is worth telling: who does not lead any more just has not heard of it yet."""
        causes = _causes(error)
        if all(isinstance(it, LeadershipLost) for it in causes):
            log.warning("%s: %s", self.name, causes[0])
            return False
        what = "; ".join(dict.fromkeys(map(repr, causes)))
        self._broke = f"{self.name} broke, and all else goes on: {what}; the log tells where"
        self._well_from = clock.monotonic() + (pause + _WELL_AFTER).total_seconds()
        log.error("%s broke, and starts again in %s: %s", self.name, duration.format(pause), what, exc_info=error)
        return True


def _causes(error: BaseException) -> list[BaseException]:
    """Return what went wrong: a group of errors says nothing by itself."""
    if isinstance(error, BaseExceptionGroup):
        return [cause for each in error.exceptions for cause in _causes(each)]
    return [error]


async def until_handed_over(work: Coroutine[Any, Any, None]) -> HandOver:
    """Do what has no end but this one; its errors end the leader."""
    try:
        await work
    except HandOver as error:
        return error
    raise RuntimeError("a part of the operator has ended, and nobody told it to")
