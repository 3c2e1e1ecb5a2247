"""Asks the metadata service again and again, and keeps the notices of one node true.

While an event of this machine is open it asks once a second, which is as often as Azure allows: between the beginning
of an event and the restart that it is about there may be little more. Otherwise every few seconds, since Azure
announces that a machine is taken away 30 s before.

It remembers nothing that matters: after a restart it reads the notices of its node, and goes on from there. What is not
shown any more is over only if it was missing from all documents for some seconds, which all came whole. An error says
nothing.
"""

import logging
from collections.abc import Sequence
from datetime import timedelta
from random import Random

from haulout.core.backoff import Backoff
from haulout.core.clock import Clock
from haulout.errors import ApiError, CloudError, KubeError
from haulout.kinds.notice import MaintenanceNotice
from haulout.notices.inbox import Inbox
from haulout.notices.sources.azure.metadata import Metadata
from haulout.notices.sources.azure.reading import (
    SOURCE,
    Document,
    Unreadable,
    gone,
    is_open,
    missing,
    notice_id,
    read,
    reported,
)
from haulout.notices.sources.calls import Pulse
from haulout.notices.sources.fetching import Fetch
from haulout.notices.sources.news import take
from haulout.notices.sources.quarantine import Quarantine

log = logging.getLogger(__name__)

_OFTEN, _SELDOM = timedelta(seconds=1), timedelta(seconds=5)
_MISSED_FOR = timedelta(seconds=5)
_READS_AGAIN_AFTER = timedelta(minutes=5)  # notices: somebody else may have changed or deleted one
_LONGEST_PAUSE = timedelta(minutes=5)
_PAUSE = Backoff(first=timedelta(seconds=1), limit=timedelta(seconds=30), jitter=0.5)


class AzureSource:
    """Scheduled events of the machine that a node runs on; without its name the service is asked for it."""

    name = SOURCE

    def __init__(self, fetch: Fetch, *, node: str, clock: Clock, random: Random, machine: str = "") -> None:
        self.quarantine = Quarantine(SOURCE, clock)
        self.taken = 0
        self.machine = machine
        self.document: Document | None = None  # the last that came
        self._metadata = Metadata(fetch)
        self._pulse = Pulse(clock)
        self._node = node
        self._clock = clock
        self._random = random
        self._known: dict[str, MaintenanceNotice] | None = None  # by what they are called; None: not read yet
        self._known_since = 0.0
        self._missed: dict[str, float] = {}  # since when documents do not show them
        self._trouble = ""
        self._inbox: Inbox | None = None

    @property
    def is_up(self) -> bool:
        """Tell whether it hears what Azure says."""
        return not self._trouble and self.document is not None

    def troubles(self) -> Sequence[str]:
        """Return what keeps it from its work, and what makes no sense."""
        return (*([self._trouble] if self._trouble else ()), *self.quarantine.troubles())

    def silence(self) -> timedelta | None:
        """Return how long ago Azure last answered."""
        return self._pulse.ago()

    async def run(self, inbox: Inbox) -> None:
        """Report what Azure says, until cancelled."""
        self._inbox = inbox
        failures = 0
        while True:
            try:
                await self.look(inbox)
            except (CloudError, KubeError) as error:
                failures += 1
                self._complain(error)
                told = error.retry_after if isinstance(error, CloudError | ApiError) else None
                pause = max(_PAUSE.delay(failures, self._random), told or timedelta())
                await self._clock.sleep(min(pause, _LONGEST_PAUSE))
            else:
                if self._trouble:
                    log.info("azure: all is well again")
                failures, self._trouble = 0, ""
                await self._clock.sleep(_OFTEN if self._is_pressing() else _SELDOM)

    async def look(self, inbox: Inbox) -> None:
        """Ask once, and have notices say the same; raises `CloudError` or `KubeError`."""
        known = await self._notices(inbox)
        if not self.machine:
            self.machine = await self._metadata.machine()
            log.info("azure: this is machine %s", self.machine)
        body = await self._metadata.events()
        self._pulse.beat()
        try:
            document = self.document = read(body)
        except Unreadable as error:
            self.quarantine.put(where="scheduled events", why=str(error), what=body.decode("utf-8", "replace"))
            raise CloudError(str(error), doing="asking Azure for scheduled events", status=200) from None
        for what, why in (*document.nonsense, *document.odd):
            self.quarantine.put(where="scheduled events", why=why, what=what)
        await self._take(inbox, known, document)
        await self._settle(inbox, known, document)

    async def _take(self, inbox: Inbox, known: dict[str, MaintenanceNotice], document: Document) -> None:
        for event in document.events:
            if not event.is_about(self.machine):
                continue
            called = notice_id(event.event_id, self.machine)
            before = known.get(called)
            report = reported(event, machine=self.machine, node=self._node, at=self._clock.now(), known=before)
            after = await take(inbox, before, report, self.quarantine)
            self._note(known, before, after)

    async def _settle(self, inbox: Inbox, known: dict[str, MaintenanceNotice], document: Document) -> None:
        lost = {it.spec.notice_id: it for it in missing(document, list(known.values()))}
        now = self._clock.monotonic()
        self._missed = {called: self._missed.get(called, now) for called in lost}
        for called, notice in lost.items():
            if now - self._missed[called] < _MISSED_FOR.total_seconds():
                continue
            latest = await inbox.find(notice.name)  # whether it was told to begin was written by somebody else
            if latest is None:
                del known[called]
                continue
            self._note(known, notice, await inbox.take(gone(latest, at=self._clock.now())))

    def _note(
        self, known: dict[str, MaintenanceNotice], before: MaintenanceNotice | None, after: MaintenanceNotice | None
    ) -> None:
        if after is None or after is before:
            return
        self.taken += 1
        known[after.spec.notice_id] = after
        log.info("azure: %s is %s", after.name, after.spec.stage, extra={"node": self._node})

    async def _notices(self, inbox: Inbox) -> dict[str, MaintenanceNotice]:
        """Return the notices of this node; they are read anew now and then."""
        now = self._clock.monotonic()
        if self._known is None or now - self._known_since > _READS_AGAIN_AFTER.total_seconds():
            found = await inbox.of(SOURCE, node=self._node)
            self._known, self._known_since = {it.spec.notice_id: it for it in found}, now
        return self._known

    def _is_pressing(self) -> bool:
        return any(is_open(it) for it in (self._known or {}).values())

    def _complain(self, error: CloudError | KubeError) -> None:
        whose = "Azure does not answer" if isinstance(error, CloudError) else "notices cannot be read or written"
        trouble = f"azure: {whose}, which is tried again: {error}"
        if trouble != self._trouble:
            log.warning("%s", trouble, extra={"node": self._node})
        self._trouble = trouble
