"""Write events as notices: keeps the existing notices in memory, and writes only what changes one.

The memory is only a hint that avoids writes without effect. It is listed at the start and before each poll. All state
is in the notices.

Agents write notices of their nodes, too. So before each write, what they may have written is read: the notice of the
same name, and all notices of the node if the names differ. A notice names its node as soon as that is known, since an
agent reads and changes only notices that name its node.

Reports that the API server rejects are quarantined: they must not block others.
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
)  # than in events of the metadata service


class AwsNoticeWriter:
    """Writes events; `on_change` is called after each write.

    With a `node` it lists only the notices of that node, as in an agent. With `drains_for_network` network maintenance
    counts as a reboot, for which profiles drain nodes.
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
        self._written_since_refresh: list[MaintenanceNotice] = []  # since the last list began
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def refresh(self) -> None:
        self._written_since_refresh.clear()
        found = await self._notice_writer.list_by_source(SOURCE, node=self._node)
        # The list may be older than the writes during the request.
        self._known_notices = KnownNotices((*found, *self._written_since_refresh), node_of=self._node_of)

    async def set_node_names(self) -> None:
        """Set the node name of open notices, also for nodes that joined later."""
        for instance, notice in list(self.open_notices()):
            if not notice.spec.node_name and self._node_of(instance):
                report = NoticeReport(
                    source=SOURCE, notice_id=notice.spec.notice_id, at=notice.spec.reported_at or _EARLIEST
                )
                await self._write([replace(report, provider_id=instance)])

    def open_notices(self) -> Iterator[tuple[str, MaintenanceNotice]]:
        """Yield the open notices, each with its instance."""
        yield from self._known_notices.open_notices()

    def remember(self, notice: MaintenanceNotice) -> None:
        """Add a notice that was read elsewhere."""
        self._known_notices.remember(notice)

    def notices_of(self, instance: str) -> tuple[MaintenanceNotice, ...]:
        """Return the notices of an instance, open ones first."""
        return self._known_notices.notices_of(instance)

    async def write(self, events: Iterable[InstanceEvent]) -> None:
        """Write events; return when the notices are written."""
        for event in events:
            async with self._lock_for(event.instance):
                await self._write(await self._new_reports(self._adjusted(event)))

    async def write_status(self, status: InstanceStatus, *, at: datetime, has_node: bool) -> None:
        """Write the events in a status, and end notices whose event it does not list."""
        await self.write(status.events)
        async with self._lock_for(status.instance):
            await self._write(list(self._known_notices.stale_reports(status, at=at, has_node=has_node)))

    def has_stale_notices(self, status: InstanceStatus, *, at: datetime, has_node: bool) -> bool:
        """Return whether some notice would be ended by this status."""
        return any(True for _ in self._known_notices.stale_reports(status, at=at, has_node=has_node))

    async def write_report(self, report: NoticeReport) -> None:
        await self._write([report])

    def _adjusted(self, event: InstanceEvent) -> InstanceEvent:
        """Return the event with its effective kind; for AWS only network maintenance is a Freeze."""
        if not self._drains_for_network or event.plan is None or event.plan.kind is not MaintenanceKind.FREEZE:
            return event
        return replace(event, plan=replace(event.plan, kind=MaintenanceKind.REBOOT))

    def _lock_for(self, instance: str) -> asyncio.Lock:
        """Return the lock of an instance: two concurrent writers of a new notice would not find each other's."""
        return self._locks.setdefault(instance, asyncio.Lock())

    async def _new_reports(self, event: InstanceEvent) -> list[NoticeReport]:
        """Return the reports that change a notice, after reading what agents have written meanwhile."""
        if not any(True for _ in self._known_notices.new_reports(event)):
            return []
        if self._node or event.event_type in _NAMED_DIFFERENTLY:
            await self._read_node(self._node_of(event.instance))
        while True:
            reports = list(self._known_notices.new_reports(event))
            unknown = [report.name for report in reports if not self._known_notices.has(report.name)]
            # A notice that our list did not contain may exist: a node agent, or the operator, has written it
            # meanwhile.
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
        except BadRequest:  # no field selector before Kubernetes 1.32, where agents do not run either
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
