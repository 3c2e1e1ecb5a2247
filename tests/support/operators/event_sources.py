"""Event sources with scripted notices, and the operator that uses them."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES, MaintenanceKind
from haulout.api.notice_reports import NoticeReport
from haulout.api.objects import Node, RawObject
from haulout.core.clock import Clock
from haulout.core.timestamps import micro_time
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.providers.component import EventSourceComponent
from haulout.providers.event_source import EventSource
from haulout.providers.notice_writer import NoticeWriter
from haulout.providers.quarantine import Quarantine


class FakeCloud:
    """A cloud that reports what a test defines."""

    def __init__(self, name: str = "cloud") -> None:
        self.name = name
        self.reports: asyncio.Queue[NoticeReport | Exception] = asyncio.Queue()
        self.runs = 0

    def report(self, notice_id: str, *, at: datetime, **more: Any) -> None:
        """Report a notice."""
        self.reports.put_nowait(NoticeReport(source=self.name, notice_id=notice_id, at=at, **more))


class FakeEventSource:
    """An event source of the fake cloud."""

    def __init__(self, cloud: FakeCloud, clock: Clock) -> None:
        self.name = cloud.name
        self.quarantine = Quarantine(cloud.name, clock)
        self.messages_processed = 0
        self.is_up = True
        self._cloud = cloud

    def problems(self) -> Sequence[str]:
        """Return its problems."""
        return self.quarantine.problems()

    def time_since_last_answer(self) -> timedelta | None:
        """Return how long ago it answered."""
        return timedelta(seconds=7)

    async def run(self, notice_writer: NoticeWriter) -> None:
        """Write the reported notices, and raise the scripted errors."""
        self._cloud.runs += 1
        while True:
            report = await self._cloud.reports.get()
            if isinstance(report, Exception):
                raise report
            await notice_writer.write(report)
            self.messages_processed += 1


def event_sources_of(*clouds: FakeCloud) -> tuple[EventSourceComponent, ...]:
    """Return the event sources as components."""

    def make(cloud: FakeCloud, client: Client, nodes: Informer[Node]) -> EventSource:
        del nodes
        return FakeEventSource(cloud, client.clock)

    return tuple(EventSourceComponent(cloud.name, partial(make, cloud)) for cloud in clouds)


def a_notice(
    name: str, node: str, *, start: datetime, duration: timedelta = timedelta(hours=1), **spec: Any
) -> RawObject:
    """Return a notice, as a user would write it."""
    end = micro_time(start + duration)
    return {
        "apiVersion": MAINTENANCE_NOTICES.api_version,
        "kind": MAINTENANCE_NOTICES.kind,
        "metadata": {"name": name},
        "spec": {"nodeName": node, "kind": MaintenanceKind.REBOOT, "start": micro_time(start), "end": end, **spec},
    }
