"""Sources of notices that say what a test has them say, and the operator that listens to them."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from haulout.app.notices import Sources
from haulout.core.clock import Clock
from haulout.kinds.notice import MAINTENANCE_NOTICES, Kind
from haulout.kinds.reports import Report
from haulout.kube.cache import Cache
from haulout.kube.client import Client
from haulout.kube.objects import Node, RawObject
from haulout.kube.timestamps import micro_time
from haulout.notices.inbox import Inbox
from haulout.notices.sources import Source
from haulout.notices.sources.quarantine import Quarantine


class Cloud:
    """A cloud that says what a test has it say."""

    def __init__(self, name: str = "cloud") -> None:
        self.name = name
        self.reports: asyncio.Queue[Report | Exception] = asyncio.Queue()
        self.runs = 0

    def says(self, notice_id: str, *, at: datetime, **more: Any) -> None:
        """Say it."""
        self.reports.put_nowait(Report(source=self.name, notice_id=notice_id, at=at, **more))


class Hearing:
    """Listens to it."""

    def __init__(self, cloud: Cloud, clock: Clock) -> None:
        self.name = cloud.name
        self.quarantine = Quarantine(cloud.name, clock)
        self.taken = 0
        self.is_up = True
        self._cloud = cloud

    def troubles(self) -> Sequence[str]:
        """Return what it could not read."""
        return self.quarantine.troubles()

    def silence(self) -> timedelta | None:
        """Return how long ago it answered."""
        return timedelta(seconds=7)

    async def run(self, inbox: Inbox) -> None:
        """Report what is said, and break if that is an error."""
        self._cloud.runs += 1
        while True:
            said = await self._cloud.reports.get()
            if isinstance(said, Exception):
                raise said
            await inbox.take(said)
            self.taken += 1


def listening_to(*clouds: Cloud) -> Sources:
    """Return what makes the sources."""

    def sources(client: Client, nodes: Cache[Node]) -> Sequence[Source]:
        del nodes
        return [Hearing(it, client.clock) for it in clouds]

    return sources


def a_notice(name: str, node: str, *, start: datetime, last: timedelta = timedelta(hours=1), **spec: Any) -> RawObject:
    """Return a notice, as a person would write it."""
    end = micro_time(start + last)
    return {
        "apiVersion": MAINTENANCE_NOTICES.api_version,
        "kind": MAINTENANCE_NOTICES.kind,
        "metadata": {"name": name},
        "spec": {"nodeName": node, "kind": Kind.REBOOT, "start": micro_time(start), "end": end, **spec},
    }
