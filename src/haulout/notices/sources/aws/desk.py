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

from haulout.errors import BadRequest, Invalid
from haulout.kinds.notice import Kind, MaintenanceNotice
from haulout.kinds.reports import Report
from haulout.notices.inbox import Inbox
from haulout.notices.sources.aws.joining import Known, NodeOf, no_node
from haulout.notices.sources.aws.readings import SOURCE, Family, Reading
from haulout.notices.sources.aws.statuses import Status
from haulout.notices.sources.quarantine import Quarantine

_EVER = datetime.min.replace(tzinfo=UTC)
_NAMED_OTHERWISE = (Family.HEALTH, Family.STATE)  # than what the metadata service of an instance tells of the same


class Desk:
    """Takes readings; `hears` is called when some notice may be another than it was.

    With a `node` it knows only the notices of that node, as an agent does.
    With `drains_for_network` maintenance of the network counts as a reboot, which profiles drain nodes for.
    """

    def __init__(
        self,
        inbox: Inbox,
        *,
        hears: Callable[[], object],
        quarantine: Quarantine,
        node_of: NodeOf = no_node,
        node: str = "",
        drains_for_network: bool = False,
    ) -> None:
        self._inbox = inbox
        self._quarantine = quarantine
        self._hears = hears
        self._node_of = node_of
        self._node = node
        self._known = Known(node_of=node_of)
        self._can_select = True
        self._drains_for_network = drains_for_network
        self._written: list[MaintenanceNotice] = []  # since we began to read last
        self._busy_with: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def refresh(self) -> None:
        """Read what notices there are."""
        self._written.clear()
        found = await self._inbox.of(SOURCE, node=self._node)
        # The list may be older than what was written meanwhile.
        self._known = Known((*found, *self._written), node_of=self._node_of)

    async def name_nodes(self) -> None:
        """Have the open notices name their nodes, also those of nodes that joined later."""
        for instance, notice in list(self.open()):
            if not notice.spec.node_name and self._node_of(instance):
                said = Report(source=SOURCE, notice_id=notice.spec.notice_id, at=notice.spec.reported_at or _EVER)
                await self._write([replace(said, provider_id=instance)])

    def open(self) -> Iterator[tuple[str, MaintenanceNotice]]:
        """Yield the notices that are not over, and their instances."""
        yield from self._known.open()

    def put(self, notice: MaintenanceNotice) -> None:
        """Note how a notice is that somebody else has written."""
        self._known.put(notice)

    def of(self, instance: str) -> tuple[MaintenanceNotice, ...]:
        """Return the notices of an instance, those that are not over first."""
        return self._known.of(instance)

    async def take(self, readings: Iterable[Reading]) -> None:
        """Return when notices say all that is said."""
        for reading in readings:
            async with self._alone_with(reading.instance):
                await self._write(await self._news(self._counted(reading)))

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

    def _counted(self, reading: Reading) -> Reading:
        """Return a reading of the kind that it counts as; only maintenance of the network is a Freeze in AWS."""
        if not self._drains_for_network or reading.plan is None or reading.plan.kind is not Kind.FREEZE:
            return reading
        return replace(reading, plan=replace(reading.plan, kind=Kind.REBOOT))

    def _alone_with(self, instance: str) -> asyncio.Lock:
        """Return what has others wait: of two who open a notice at once, neither would know of the other's."""
        return self._busy_with.setdefault(instance, asyncio.Lock())

    async def _news(self, reading: Reading) -> list[Report]:
        """Return what is news, in the light of what others have written meanwhile."""
        if not any(True for _ in self._known.reports(reading)):
            return []
        if self._node or reading.family in _NAMED_OTHERWISE:
            await self._read_node(self._node_of(reading.instance))
        while True:
            reports = list(self._known.reports(reading))
            unknown = [it.name for it in reports if not self._known.has(it.name)]
            met = [found for name in unknown if (found := await self._inbox.find(name)) is not None]
            if not met:
                return reports
            for notice in met:
                self._known.put(notice)

    async def _read_node(self, node: str) -> None:
        if not node or not self._can_select:
            return
        try:
            found = await self._inbox.of(SOURCE, node=node)
        except BadRequest:  # before Kubernetes 1.32, where no agent runs either
            self._can_select = False
            return
        for notice in found:
            self._known.put(notice)

    async def _write(self, reports: Iterable[Report]) -> None:
        for report in reports:
            try:
                notice = await self._inbox.take(replace(report, node_name=self._node_of(report.provider_id)))
            except (BadRequest, Invalid) as refused:
                self._quarantine.put(where=f"notice {report.name}", why=str(refused), what=report)
                continue
            self._known.put(notice)
            self._written.append(notice)
            self._hears()
