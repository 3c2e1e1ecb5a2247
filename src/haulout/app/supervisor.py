"""Parts of the operator that may break without taking the others along: each is started again, later each time.

    part = Part("profiles")
    await part.run(see_to_profiles, client=client, tell=announce)

A part that breaks has a defect, or meets what nobody thought of. It is logged with its traceback, told, and named by
`problem` until it has worked for a while. What it left behind is in the API server, from where it goes on.
"""

import logging
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from typing import Any

from haulout.core import duration
from haulout.core.backoff import Backoff
from haulout.core.clock import Clock
from haulout.errors import LeadershipHandover, LeadershipLost
from haulout.kube.client import Client

log = logging.getLogger(__name__)

_BACKOFF = Backoff(first=timedelta(seconds=2), limit=timedelta(minutes=5), jitter=0.1)
_HEALTHY_AFTER = timedelta(minutes=10)

ReportCrash = Callable[[str], Awaitable[object]]


class Supervisor:
    """One part, by the name that people know it under."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._problem = ""
        self._clock: Clock | None = None
        self._healthy_from = 0.0

    @property
    def problem(self) -> str:
        """How it broke, unless it has worked well since."""
        return self._problem if self._clock and self._clock.monotonic() < self._healthy_from else ""

    async def run(
        self, work: Callable[[], Awaitable[None]], *, client: Client, report: ReportCrash | None = None
    ) -> None:
        """Do `work`, again and again should it break, until cancelled; `report` hears what happened each time."""
        clock = self._clock = client.clock
        failures = 0
        while True:
            started = clock.monotonic()
            try:
                return await work()
            except LeadershipHandover:
                raise
            except Exception as error:  # noqa: BLE001 - the boundary of the part; it is logged with its traceback
                failure = error
            ran_for = timedelta(seconds=clock.monotonic() - started)
            failures = 1 if ran_for > _HEALTHY_AFTER else failures + 1
            pause = _BACKOFF.delay(failures, client.random)
            if self._record_failure(failure, pause, clock) and report is not None:
                await report(self._problem)
            await clock.sleep(pause)

    def _record_failure(self, error: Exception, pause: timedelta, clock: Clock) -> bool:
        """Log it; return whether it is worth telling: who does not lead any more just has not heard of it yet."""
        causes = _root_causes(error)
        if all(isinstance(cause, LeadershipLost) for cause in causes):
            log.warning("%s: %s", self.name, causes[0])
            return False
        causes_text = "; ".join(dict.fromkeys(map(repr, causes)))
        self._problem = f"{self.name} broke, and all else goes on: {causes_text}; the log tells where"
        self._healthy_from = clock.monotonic() + (pause + _HEALTHY_AFTER).total_seconds()
        log.error(
            "%s broke, and starts again in %s: %s", self.name, duration.format(pause), causes_text, exc_info=error
        )
        return True


def _root_causes(error: BaseException) -> list[BaseException]:
    """Return what went wrong: a group of errors says nothing by itself."""
    if isinstance(error, BaseExceptionGroup):
        return [cause for inner in error.exceptions for cause in _root_causes(inner)]
    return [error]


async def wait_for_handover(work: Coroutine[Any, Any, None]) -> LeadershipHandover:
    """Do what has no end but this one; its errors end the leader."""
    try:
        await work
    except LeadershipHandover as error:
        return error
    raise RuntimeError("a part of the operator has ended, and nobody told it to")
