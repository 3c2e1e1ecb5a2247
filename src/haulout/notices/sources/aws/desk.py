"""Where readings become notices: it knows what notices there are, and takes what is news into the inbox.

Its memory is only a hint, which spares writes that would change nothing. It is read from the cluster at the start and
before each round of looks. What matters is in the notices themselves.

What the API server refuses for good is put aside: it must not keep what else is said from being written.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from weakref import WeakValueDictionary

from haulout.errors import BadRequest, Invalid
from haulout.kinds.notice import MaintenanceNotice
from haulout.kinds.reports import Report
from haulout.notices.inbox import Inbox
from haulout.notices.sources.aws.joining import Known
from haulout.notices.sources.aws.readings import SOURCE, Reading
from haulout.notices.sources.aws.statuses import Status
from haulout.notices.sources.quarantine import Quarantine


class Desk:
    """Takes readings; `hears` is called when some notice may be another than it was."""

    def __init__(self, inbox: Inbox, *, hears: Callable[[], object], quarantine: Quarantine) -> None:
        self._inbox = inbox
        self._quarantine = quarantine
        self._hears = hears
        self._known = Known()
        self._written: list[MaintenanceNotice] = []  # since we began to read last
        self._busy_with: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def refresh(self) -> None:
        """Read what notices there are."""
        self._written.clear()
        found = await self._inbox.of(SOURCE)
        self._known = Known((*found, *self._written))  # the list may be older than what was written meanwhile

    def open(self) -> Iterator[tuple[str, MaintenanceNotice]]:
        """Yield the notices that are not over, and their instances."""
        yield from self._known.open()

    async def take(self, readings: Iterable[Reading]) -> None:
        """Return when notices say all that is said."""
        for reading in readings:
            async with self._alone_with(reading.instance):
                await self._write(list(self._known.reports(reading)))

    async def settle(self, status: Status, *, at: datetime, has_node: bool) -> None:
        """Return when notices say all that EC2 says about an instance, and what it does not say any more."""
        await self.take(status.readings)
        async with self._alone_with(status.instance):
            await self._write(list(self._known.leftovers(status, at=at, has_node=has_node)))

    def has_leftovers(self, status: Status, *, at: datetime, has_node: bool) -> bool:
        """Tell whether some notice would be over by what EC2 does not say."""
        return any(True for _ in self._known.leftovers(status, at=at, has_node=has_node))

    async def report(self, report: Report) -> None:
        """Return when a notice says what is reported."""
        await self._write([report])

    def _alone_with(self, instance: str) -> asyncio.Lock:
        """Return what has others wait: of two who open a notice at once, neither would know of the other's."""
        return self._busy_with.setdefault(instance, asyncio.Lock())

    async def _write(self, reports: Iterable[Report]) -> None:
        for report in reports:
            try:
                notice = await self._inbox.take(report)
            except (BadRequest, Invalid) as refused:
                self._quarantine.put(where=f"notice {report.name}", why=str(refused), what=report)
                continue
            self._known.put(notice)
            self._written.append(notice)
            self._hears()
