"""Restart a component of the operator after a failure, with backoff, without affecting the others.

    supervisor = Supervisor("profiles")
    await supervisor.run(run_profiles, client=client, report=report)

A failure is a programming error or an unexpected condition. It is logged with its traceback, reported, and kept in
`problem` until the component has run for a while. The component's state is in the API server, so a restart continues.
"""

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

from haulout.core.backoff import Backoff
from haulout.core.clock import Clock
from haulout.core.retry import Retry
from haulout.core.text import format_duration
from haulout.errors import LeadershipHandover, LeadershipLost
from haulout.kube.client import Client

log = logging.getLogger(__name__)

_BACKOFF = Backoff(first=timedelta(seconds=2), limit=timedelta(minutes=5), jitter=0.1)
_HEALTHY_AFTER = timedelta(minutes=10)

ReportCrash = Callable[[str], Awaitable[object]]


class Supervisor:
    """Supervises one component; `name` is its display name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._problem = ""
        self._clock: Clock | None = None
        self._healthy_from = 0.0

    @property
    def problem(self) -> str:
        """The last failure, or "" if the component has run well since."""
        return self._problem if self._clock and self._clock.monotonic() < self._healthy_from else ""

    async def run(
        self, work: Callable[[], Awaitable[None]], *, client: Client, report: ReportCrash | None = None
    ) -> None:
        """Run `work`, restarting it after each failure, until cancelled; call `report` after each failure."""
        clock = self._clock = client.clock
        retry = Retry(clock, client.random, _BACKOFF, stable_after=_HEALTHY_AFTER)
        while True:
            try:
                return await work()
            except LeadershipHandover:
                raise
            except Exception as error:  # noqa: BLE001 - the task boundary; the error is logged with its traceback
                failure = error
            pause = retry.delay(failure)
            if self._record_failure(failure, pause, clock) and report is not None:
                await report(self._problem)
            await clock.sleep(pause)

    def _record_failure(self, error: Exception, pause: timedelta, clock: Clock) -> bool:
        """Log a failure; return whether to report it.

        LeadershipLost is not reported: the component just did not stop in time.
        """
        causes = _root_causes(error)
        if all(isinstance(cause, LeadershipLost) for cause in causes):
            log.warning("%s: %s", self.name, causes[0])
            return False
        causes_text = "; ".join(dict.fromkeys(map(repr, causes)))
        self._problem = f"{self.name} failed and restarts, other components continue: {causes_text}; see the log"
        self._healthy_from = clock.monotonic() + (pause + _HEALTHY_AFTER).total_seconds()
        log.error("%s failed and restarts in %s: %s", self.name, format_duration(pause), causes_text, exc_info=error)
        return True


def _root_causes(error: BaseException) -> list[BaseException]:
    """Return the leaf errors: an exception group itself has no useful message."""
    if isinstance(error, BaseExceptionGroup):
        return [cause for inner in error.exceptions for cause in _root_causes(inner)]
    return [error]
