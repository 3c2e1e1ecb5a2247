"""Where readings become notices: it knows what notices there are, and takes what is news into the inbox.

Its memory is only a hint, which spares writes that would change nothing. It is read from the cluster at the start and
before each round of looks. What matters is in the notices themselves.

Agents write notices of their nodes, too. So before anything is written, what they may have written meanwhile is read:
the notice of the same name, and all of the node where the names differ. A notice names its node as soon as that is
known, since an agent sees and changes only those that name its own.

What the API server refuses for good is put aside: it must not keep what else is said from being written.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from weakref import WeakValueDictionary

from haulout.api.maintenancenotice import MaintenanceKind, MaintenanceNotice
from haulout.api.notice_reports import NoticeReport
from haulout.errors import BadRequest, Invalid
from haulout.providers.aws.correlation import KnownNotices, NodeOfInstance, no_node
from haulout.providers.aws.instance_events import SOURCE, EventType, InstanceEvent
from haulout.providers.aws.instance_status import InstanceStatus
from haulout.providers.notice_writer import NoticeWriter
from haulout.providers.quarantine import Quarantine

_EARLIEST = datetime.min.replace(tzinfo=UTC)
_NAMED_DIFFERENTLY = (
    EventType.HEALTH,
    EventType.STATE_CHANGE,
)  # than what the metadata service of an instance tells of the same


class AwsNoticeWriter:
    """Takes readings; `on_change` is called when some notice may be another than it was.

    With a `node` it knows only the notices of that node, as an agent does.
    With `drains_for_network` maintenance of the network counts as a reboot, which profiles drain nodes for.
    """

    def __init__(
        self,
        notice_writer: NoticeWriter,
        *,
        on_change: Callable[[], object],
        quarantine: Quarantine,
        node_of: NodeOfInstance = no_node,
        node: str = "",
        drains_for_network: bool = False,
    ) -> None:
        self._notice_writer = notice_writer
        self._quarantine = quarantine
        self._on_change = on_change
        self._node_of = node_of
        self._node = node
        self._known_notices = KnownNotices(node_of=node_of)
        self._can_select = True
        self._drains_for_network = drains_for_network
        self._written_since_refresh: list[MaintenanceNotice] = []  # since we began to read last
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def refresh(self) -> None:
        """Read what notices there are."""
        self._written_since_refresh.clear()
        found = await self._notice_writer.list_by_source(SOURCE, node=self._node)
        # The list may be older than what was written meanwhile.
        self._known_notices = KnownNotices((*found, *self._written_since_refresh), node_of=self._node_of)

    async def set_node_names(self) -> None:
        """Have the open notices name their nodes, also those of nodes that joined later."""
        for instance, notice in list(self.open_notices()):
            if not notice.spec.node_name and self._node_of(instance):
                report = NoticeReport(
                    source=SOURCE, notice_id=notice.spec.notice_id, at=notice.spec.reported_at or _EARLIEST
                )
                await self._write([replace(report, provider_id=instance)])

    def open_notices(self) -> Iterator[tuple[str, MaintenanceNotice]]:
        """Yield the notices that are not over, and their instances."""
        yield from self._known_notices.open_notices()

    def remember(self, notice: MaintenanceNotice) -> None:
        """Note how a notice is that somebody else has written."""
        self._known_notices.remember(notice)

    def notices_of(self, instance: str) -> tuple[MaintenanceNotice, ...]:
        """Return the notices of an instance, those that are not over first."""
        return self._known_notices.notices_of(instance)

    async def write(self, events: Iterable[InstanceEvent]) -> None:
        """Return when notices say all that is said."""
        for event in events:
            async with self._lock_for(event.instance):
                await self._write(await self._new_reports(self._adjusted(event)))

    async def write_status(self, status: InstanceStatus, *, at: datetime, has_node: bool) -> None:
        """Return when notices say all that EC2 says about an instance, and what it does not say any more."""
        await self.write(status.events)
        async with self._lock_for(status.instance):
            await self._write(list(self._known_notices.stale_reports(status, at=at, has_node=has_node)))

    def has_stale_notices(self, status: InstanceStatus, *, at: datetime, has_node: bool) -> bool:
        """Tell whether some notice would be over by what EC2 does not say."""
        return any(True for _ in self._known_notices.stale_reports(status, at=at, has_node=has_node))

    async def write_report(self, report: NoticeReport) -> None:
        """Return when a notice says what is reported."""
        await self._write([report])

    def _adjusted(self, event: InstanceEvent) -> InstanceEvent:
        """Return a reading of the kind that it counts as; only maintenance of the network is a Freeze in AWS."""
        if not self._drains_for_network or event.plan is None or event.plan.kind is not MaintenanceKind.FREEZE:
            return event
        return replace(event, plan=replace(event.plan, kind=MaintenanceKind.REBOOT))

    def _lock_for(self, instance: str) -> asyncio.Lock:
        """Return what has others wait: of two who open a notice at once, neither would know of the other's."""
        return self._locks.setdefault(instance, asyncio.Lock())

    async def _new_reports(self, event: InstanceEvent) -> list[NoticeReport]:
        """Return what is news, in the light of what others have written meanwhile."""
        if not any(True for _ in self._known_notices.new_reports(event)):
            return []
        if self._node or event.event_type in _NAMED_DIFFERENTLY:
            await self._read_node(self._node_of(event.instance))
        while True:
            reports = list(self._known_notices.new_reports(event))
            unknown = [report.name for report in reports if not self._known_notices.has(report.name)]
            existing = [found for name in unknown if (found := await self._notice_writer.find(name)) is not None]
            if not existing:
                return reports
            for notice in existing:
                self._known_notices.remember(notice)

    async def _read_node(self, node: str) -> None:
        if not node or not self._can_select:
            return
        try:
            found = await self._notice_writer.list_by_source(SOURCE, node=node)
        except BadRequest:  # before Kubernetes 1.32, where no agent runs either
            self._can_select = False
            return
        for notice in found:
            self._known_notices.remember(notice)

    async def _write(self, reports: Iterable[NoticeReport]) -> None:
        for report in reports:
            try:
                notice = await self._notice_writer.write(replace(report, node_name=self._node_of(report.provider_id)))
            except (BadRequest, Invalid) as error:
                self._quarantine.add(where=f"notice {report.name}", why=str(error), what=report)
                continue
            self._known_notices.remember(notice)
            self._written_since_refresh.append(notice)
            self._on_change()
