"""Write notices from the labels of nodes, and ask GKE to begin early through another label.

There are no requests while nothing changes: nodes are watched anyway, and only a relevant change triggers a reconcile.
While maintenance is planned, notices are also reconciled periodically, since a user may have deleted one.
"""

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta

from haulout.api.maintenancenotice import MaintenanceNotice
from haulout.api.notice_reports import NoticeReport
from haulout.api.objects import Node
from haulout.api.resources import NODES
from haulout.core.backoff import Backoff
from haulout.errors import Conflict, Invalid, KubeError, NotFound, RescheduleRefused
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.patches import merge_patch
from haulout.providers import deduplication
from haulout.providers.gke import SOURCE
from haulout.providers.gke.labels import (
    PERFORM,
    UnreadableLabel,
    end_report,
    is_finished,
    parse_labels,
    relevant_fields,
    reports,
)
from haulout.providers.notice_writer import NoticeWriter
from haulout.providers.quarantine import Quarantine

log = logging.getLogger(__name__)

_RESYNC_AFTER = timedelta(minutes=10)
_BACKOFF = Backoff(first=timedelta(seconds=1), limit=timedelta(minutes=1), jitter=0.3)


class GkeEventSource:
    """Maintenance from labels of nodes. The caller runs the node informer."""

    name = SOURCE
    messages_processed = 0  # labels are not messages

    def __init__(self, client: Client, nodes: Informer[Node]) -> None:
        self.quarantine = Quarantine(SOURCE, client.clock)
        self._client = client
        self._nodes = nodes
        self._changed = asyncio.Event()
        self._is_idle = False  # nothing is planned, and no notice is open
        self._problem = ""

    @property
    def is_up(self) -> bool:
        """Whether notices can be read and written."""
        return not self._problem

    def problems(self) -> Sequence[str]:
        """Return one line per problem."""
        return (*([self._problem] if self._problem else ()), *self.quarantine.problems())

    def time_since_last_answer(self) -> timedelta | None:
        """Return None: no cloud API is called."""
        return None

    async def run(self, notice_writer: NoticeWriter) -> None:
        """Write the maintenance in labels as notices, until cancelled."""
        await self._nodes.wait_synced()
        unsubscribe = self._nodes.subscribe(self._on_node)
        failures = 0
        try:
            while True:
                self._changed.clear()
                try:
                    await self._reconcile(notice_writer)
                except KubeError as error:
                    failures += 1
                    self._report_problem(error)
                    await self._client.clock.sleep(_BACKOFF.delay(failures, self._client.random))
                else:
                    failures, self._problem = 0, ""
                    await self._wait()
        finally:
            unsubscribe()

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if relevant_fields(old) != relevant_fields(new):
            self._changed.set()

    async def _wait(self) -> None:
        try:
            async with asyncio.timeout(None if self._is_idle else _RESYNC_AFTER.total_seconds()):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _reconcile(self, notice_writer: NoticeWriter) -> None:
        found = await notice_writer.list_by_source(SOURCE)
        at, nodes = self._client.clock.now(), {item.name: item for item in self._nodes.all()}
        by_node: dict[str, list[MaintenanceNotice]] = {}
        for notice in found:
            by_node.setdefault(notice.spec.node_name, []).append(notice)
        known = {item.name: item for item in found}
        is_idle = all(map(is_finished, found))
        for node in nodes.values():
            for report in self._reports_of(node, by_node.get(node.name, ()), at):
                is_idle = False
                await deduplication.write_if_changed(notice_writer, known.get(report.name), report, self.quarantine)
        for notice in found:
            name = notice.spec.node_name
            if name not in nodes and name not in self._nodes.undecodable and not is_finished(notice):
                await deduplication.write_if_changed(notice_writer, notice, end_report(notice, at=at), self.quarantine)
        self._is_idle = is_idle

    def _reports_of(self, node: Node, notices: Sequence[MaintenanceNotice], at: datetime) -> Sequence[NoticeReport]:
        try:
            return list(reports(node, parse_labels(node), notices, at=at))
        except UnreadableLabel as error:
            self.quarantine.add(where=f"node {node.name}", why=str(error), what=dict(node.metadata.labels))
            return ()  # the previous report holds

    def _report_problem(self, error: KubeError) -> None:
        problem = f"{SOURCE}: MaintenanceNotices cannot be read or written, retrying: {error}"
        if problem != self._problem:
            log.warning("%s", problem)
        self._problem = problem


class GkeEarlyStartSource(GkeEventSource):
    """A `GkeEventSource` that can also begin maintenance early."""

    async def start_early(self, notice: MaintenanceNotice) -> None:
        """Ask GKE to begin now through a label; raise `RescheduleRefused` if the node does not exist any more."""
        uid = notice.spec.notice_id.rpartition("-")[0]
        patch = merge_patch({"metadata": {"uid": uid, "labels": {PERFORM: "true"}}})
        try:
            await self._client.patch(NODES, notice.spec.node_name, patch)
        except (Conflict, Invalid, NotFound) as error:  # a patch with another uid is Invalid
            raise RescheduleRefused(f"the node no longer exists: {error}") from error
