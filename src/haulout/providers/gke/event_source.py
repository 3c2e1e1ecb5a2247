"""Write notices from the labels of nodes, and ask GKE to begin early through another label.

    labels = parse_labels(node)                         # None: nothing is planned; raises `UnreadableLabel`
    for report in reports_from_labels(node, labels, notices, at=now): …

There are no requests while nothing changes: nodes are watched anyway, and only a relevant change triggers a reconcile.
While maintenance is planned, notices are also reconciled periodically, since a user may have deleted one.

GKE labels nodes with accelerators some weeks ahead, with the time in seconds since 1970. It announces at most one
maintenance per node. A notice is named after the uid of the node and the first announced start; while it is open and
has not begun, another time means that it was moved. A removed label means that the maintenance is over or was
cancelled, which is recorded in the annotation `GONE_AT`. A finished notice stays finished: the same start never creates
another notice.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from haulout.api import annotations
from haulout.api.maintenancenotice import MaintenanceKind, MaintenanceNotice, NoticeStage, is_finished, may_have_started
from haulout.api.notice_reports import MaintenancePlan, NoticeReport
from haulout.api.objects import Node
from haulout.api.resources import NODES
from haulout.core.backoff import Backoff
from haulout.core.retry import Retry
from haulout.core.walltime import EARLIEST, LATEST
from haulout.errors import Conflict, Invalid, NotFound, RescheduleRefused
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.patches import merge_patch
from haulout.providers.event_source import BaseEventSource
from haulout.providers.gke import SOURCE
from haulout.providers.notice_writer import NoticeWriter, write_if_changed
from haulout.providers.poller import Poller

_RESYNC_AFTER = timedelta(minutes=10)
_BACKOFF = Backoff(first=timedelta(seconds=1), limit=timedelta(minutes=1), jitter=0.3)

_PREFIX = "cloud.google.com"
START, LATEST_START = f"{_PREFIX}/scheduled-maintenance-time", f"{_PREFIX}/scheduled-maintenance-time-latest"
ACTIVE, PERFORM = f"{_PREFIX}/active-node-maintenance", f"{_PREFIX}/perform-maintenance"
TERMINATING = f"{_PREFIX}/impending-node-termination"  # a taint

GONE_AT = annotations.GKE_GONE_AT

_SECONDS = re.compile(r"[0-9]{1,11}", re.ASCII)  # more digits are no valid year
_FALSE = "false"


class GkeEventSource(BaseEventSource):
    """Maintenance from labels of nodes. The caller runs the node informer."""

    def __init__(self, client: Client, nodes: Informer[Node]) -> None:
        super().__init__(SOURCE, client.clock)
        self._client = client
        self._nodes = nodes
        self._is_idle = False  # nothing is planned, and no notice is open
        self._poller = Poller(
            Retry(client.clock, client.random, _BACKOFF),
            self._current_problems,
            failure="GKE does not answer",
            interval=lambda: None if self._is_idle else _RESYNC_AFTER,
        )

    async def run(self, notice_writer: NoticeWriter) -> None:
        """Write the maintenance in labels as notices, until cancelled."""
        await self._nodes.wait_synced()
        unsubscribe = self._nodes.subscribe(self._on_node)
        try:
            await self._poller.run(lambda: self._reconcile(notice_writer))
        finally:
            unsubscribe()

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if relevant_fields(old) != relevant_fields(new):
            self._poller.wake()

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
                await write_if_changed(notice_writer, known.get(report.name), report, self.quarantine)
        for notice in found:
            name = notice.spec.node_name
            # A node that cannot be decoded exists. Its notice must not end.
            if name not in nodes and name not in self._nodes.undecodable and not is_finished(notice):
                await write_if_changed(notice_writer, notice, end_report(notice, at=at), self.quarantine)
        self._is_idle = is_idle

    def _reports_of(self, node: Node, notices: Sequence[MaintenanceNotice], at: datetime) -> Sequence[NoticeReport]:
        try:
            return list(reports_from_labels(node, parse_labels(node), notices, at=at))
        except UnreadableLabel as error:
            self.quarantine.add(where=f"node {node.name}", why=str(error), what=dict(node.metadata.labels))
            return ()  # the previous report holds


class GkeEarlyStartSource(GkeEventSource):
    """A `GkeEventSource` that can also begin maintenance early."""

    async def start_early(self, notice: MaintenanceNotice) -> None:
        """Ask GKE to begin now through a label; raise `RescheduleRefused` if the node does not exist any more."""
        uid = notice.spec.notice_id.rpartition("-")[0]
        # The uid is part of the notice's ID. A node that was repaired has the same name and another uid, and must not
        # be stopped.
        patch = merge_patch({"metadata": {"uid": uid, "labels": {PERFORM: "true"}}})
        try:
            await self._client.patch(NODES, notice.spec.node_name, patch)
        # Validation of ObjectMeta reports a changed uid as an invalid immutable field
        # (apimachinery/pkg/api/validation/objectmeta.go), and preconditions in the storage report it as a conflict.
        except (Conflict, Invalid, NotFound) as error:  # a patch with another uid is Invalid
            raise RescheduleRefused(f"the node no longer exists: {error}") from error


class UnreadableLabel(ValueError):
    """A label cannot be parsed: what was found, and what was expected."""


@dataclass(frozen=True, slots=True)
class MaintenanceLabels:
    """The maintenance in a node's labels, and in the taint that announces its termination."""

    start: datetime | None
    deadline: datetime | None
    has_started: bool


def relevant_fields(node: Node | None) -> tuple[object, ...]:
    """Return the fields of a node whose changes matter here."""
    if node is None:
        return ()
    labels = node.metadata.labels
    return (node.uid, *(labels.get(label) for label in (START, LATEST_START, ACTIVE)), _is_terminating(node))


def parse_labels(node: Node) -> MaintenanceLabels | None:
    """Parse the labels of a node; None if nothing is planned. Raise `UnreadableLabel`."""
    labels = node.metadata.labels
    is_active = labels.get(ACTIVE, _FALSE).lower() != _FALSE
    if START not in labels and not is_active:
        return None
    start = _instant(labels[START], START) if START in labels else None
    latest = _instant(labels[LATEST_START], LATEST_START) if LATEST_START in labels else None
    deadline = latest if latest is not None and start is not None and start <= latest else None
    # The taint announces any termination of the node. Only together with a planned start is it maintenance.
    is_due = start is not None and _is_terminating(node)
    return MaintenanceLabels(start, deadline, is_active or is_due)


def reports_from_labels(
    node: Node, labels: MaintenanceLabels | None, notices: Sequence[MaintenanceNotice], *, at: datetime
) -> Iterator[NoticeReport]:
    """Yield the reports for a node; `notices` are all of this source for nodes of its name."""
    own_notices = [item for item in notices if item.spec.notice_id.startswith(f"{node.uid}-")]
    known = [item for item in own_notices if not is_finished(item)]
    matching = None if labels is None else _matching_notice(known, labels)
    yield from (end_report(item, at=at) for item in notices if item is not matching and not is_finished(item))
    if labels is None:
        return
    if (
        matching is None
        and labels.start is None
        and any(GONE_AT not in item.metadata.annotations for item in own_notices)
    ):
        return  # a person ended the notice of a running maintenance, and it has no start to identify it
    notice_id = _new_notice_id(node, labels, at) if matching is None else matching.spec.notice_id
    yield NoticeReport(
        source=SOURCE,
        notice_id=notice_id,
        at=at,
        provider_id=node.spec.provider_id,
        node_name=node.name,
        stage=NoticeStage.STARTED if labels.has_started else NoticeStage.SCHEDULED,
        plan=None if labels.start is None and matching is not None else _plan(labels),
    )


def end_report(notice: MaintenanceNotice, *, at: datetime) -> NoticeReport:
    """Return the report for a maintenance that no label announces any more, or whose node was deleted."""
    spec = notice.spec
    is_ahead = spec.stage in ("", NoticeStage.SCHEDULED) and spec.start is not None and at < spec.start
    annotations = {GONE_AT: f"{at:%Y-%m-%dT%H:%M:%SZ}"}
    stage = NoticeStage.CANCELLED if is_ahead and not may_have_started(notice) else NoticeStage.ENDED
    return NoticeReport(
        source=SOURCE, notice_id=spec.notice_id, at=at, node_name=spec.node_name, stage=stage, notes=annotations
    )


def _matching_notice(known: Sequence[MaintenanceNotice], labels: MaintenanceLabels) -> MaintenanceNotice | None:
    # A notice with the same start comes first. Another one was moved, unless it has begun: then this is the next
    # maintenance.
    same = [item for item in known if labels.start is None or item.spec.start == labels.start]
    moved = [item for item in known if labels.has_started or item.spec.stage != NoticeStage.STARTED]
    return next(iter((*same, *moved)), None)


def _new_notice_id(node: Node, labels: MaintenanceLabels, at: datetime) -> str:
    return f"{node.uid}-{labels.start or at:%Y%m%dt%H%M%S}"


def _plan(labels: MaintenanceLabels) -> MaintenancePlan:
    return MaintenancePlan(
        kind=MaintenanceKind.REBOOT,  # machines with accelerators cannot migrate live
        reason="HostMaintenance",
        description="maintenance of the host, announced by GKE in node labels",
        start=labels.start,
        deadline=labels.deadline,
    )


def _is_terminating(node: Node) -> bool:
    return any(taint.key == TERMINATING for taint in node.spec.taints)


def _instant(text: str, label: str) -> datetime:
    found = datetime.fromtimestamp(int(text), UTC) if _SECONDS.fullmatch(text) else None
    if found is None or not EARLIEST <= found < LATEST:
        raise UnreadableLabel(f"expected seconds since 1970 as label {label}, found {text[:60]!r}")
    return found
