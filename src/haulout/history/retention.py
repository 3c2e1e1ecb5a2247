"""Keeps the records of deleted nodes for a time, and a bounded number of them.

    retention = Retention(client, nodes, is_off=lambda: writer.is_off, settings=RetentionSettings())
    writer = HistoryWriter(client, on_created=retention.enqueue)
    await retention.run()                    # until cancelled; the caller runs the node informer

**What it writes.** When a node is deleted, its record, if there is one, gets an entry and an annotation with the time.
That is one write per node with entries. When the retention time is over, or newer records of deleted nodes exceed the
limit, the record is deleted. Both writes have the resourceVersion that was read as precondition: a node of the same
name that continues the record meanwhile makes them fail, and the record is read again.

**No polling.** The node informer reports deletions, and each record is requeued for the exact time at which it expires.
A new leader lists all records once, without entries: it finds nodes that were deleted while no operator ran, and what
its predecessor did not finish. Records of older versions have an owner reference to their Node, so that they would be
garbage-collected with it: it is removed then.

**What it must never do**: delete the record of a node that exists. Before a record is marked, the API server confirms
that the node is gone, because a cache may be stale.
"""

import bisect
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from haulout.api import maintenancerecord as records
from haulout.api.maintenancerecord import MaintenanceRecord
from haulout.api.objects import Node
from haulout.api.resources import NODES
from haulout.core.backoff import RECONNECT
from haulout.errors import KubeError, LeadershipLost, NotFound
from haulout.history import record_store
from haulout.history.availability import PROBE_INTERVAL, SINGLE_RECORD_ERRORS, WriteBackoff
from haulout.history.record_store import RecordStore, RecordSummary
from haulout.history.writer import BATCH_DELAY
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout.kube.workqueue import WorkQueue

log = logging.getLogger(__name__)

RETENTION = timedelta(days=90)
MAX_DELETED = 1_000
_RELIST_KEY = ""  # work queue key for listing all records; no node has an empty name
_WORKERS = 2
# Entries from right before the deletion of a node are written first.
_DELETION_DELAY = 2 * BATCH_DELAY


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionSettings:
    """How long the record of a deleted node is kept, and how many of them; 0: none."""

    keep_for: timedelta = RETENTION
    most: int = MAX_DELETED


class RetentionAction(StrEnum):
    """What to do with the record of a node that exists or not."""

    KEEP = "keep"
    RELEASE = "release"  # remove the owner reference to its Node
    MARK_DELETED = "mark"  # the node was deleted
    UNMARK_DELETED = "unmark"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class RetentionDecision:
    """What to do with a record, and when to decide again."""

    action: RetentionAction
    requeue_at: datetime | None = None


def decide(
    record: MaintenanceRecord,
    node_uid: str | None,
    *,
    now: datetime,
    settings: RetentionSettings,
    is_surplus: bool = False,
) -> RetentionDecision:
    """Decide about a record. `node_uid` is that of the current node of this name, None if there is none."""
    exists = node_uid is not None and record.is_about(node_uid)
    if record.node_deleted is None:
        if exists:
            return RetentionDecision(
                RetentionAction.RELEASE if records.node_owner_indexes(record.metadata) else RetentionAction.KEEP
            )
        # With retention 0 there is nothing to mark: delete at once.
        is_kept = settings.keep_for > timedelta() and settings.most > 0
        return RetentionDecision(RetentionAction.MARK_DELETED if is_kept else RetentionAction.DELETE)
    if exists and record.node_uid:  # etcd was restored from a backup, or the annotation was edited
        return RetentionDecision(RetentionAction.UNMARK_DELETED)
    expires = expires_at(record.node_deleted, settings)
    if is_surplus or (expires is not None and now >= expires):
        return RetentionDecision(RetentionAction.DELETE)
    return RetentionDecision(RetentionAction.KEEP, expires)


def expires_at(deleted: datetime, settings: RetentionSettings) -> datetime | None:
    """Return when the record of a deleted node expires; None: never."""
    try:
        return deleted + settings.keep_for
    # `keep_for` of thousands of years means for ever.
    except OverflowError:
        return None


class DeletedNodes:
    """The records of deleted nodes, ordered by time of deletion."""

    def __init__(self) -> None:
        self._deleted_at: dict[str, datetime] = {}
        self._order: list[tuple[datetime, str]] = []

    def __len__(self) -> int:
        return len(self._order)

    def put(self, name: str, deleted: datetime) -> None:
        self.discard(name)
        self._deleted_at[name] = deleted
        bisect.insort(self._order, (deleted, name))

    def discard(self, name: str) -> None:
        if (deleted := self._deleted_at.pop(name, None)) is not None:
            del self._order[bisect.bisect_left(self._order, (deleted, name))]

    def surplus(self, limit: int) -> Iterator[str]:
        """Yield the names beyond the limit, the oldest deletion first."""
        for _, name in self._order[: max(len(self._order) - limit, 0)]:
            yield name

    def is_surplus(self, name: str, limit: int) -> bool:
        deleted = self._deleted_at.get(name)
        return deleted is not None and bisect.bisect_left(self._order, (deleted, name)) < len(self._order) - limit


class Retention:
    """Applies the retention to the records of deleted nodes. The caller runs `run` and the node informer."""

    def __init__(
        self,
        client: Client,
        nodes: Informer[Node],
        *,
        is_off: Callable[[], bool],
        settings: RetentionSettings | None = None,
    ) -> None:
        self._client = client
        self._clock = client.clock
        self._nodes = nodes
        self._is_off = is_off
        self._settings = settings or RetentionSettings()
        self._store = RecordStore(client)
        self._write_backoff = WriteBackoff(client.clock, client.random)
        self._deleted = DeletedNodes()
        self._deleted_at: dict[str, datetime] = {}  # by node: deletions observed but not yet written to the record
        self._queue: WorkQueue[str] = WorkQueue(
            self._reconcile_or_relist,
            clock=client.clock,
            random=client.random,
            workers=_WORKERS,
            backoff=RECONNECT,
            metrics=client.metrics,
            name="history retention",
        )

    async def run(self) -> None:
        await self._nodes.wait_synced()
        unsubscribe = self._nodes.subscribe(self._on_node_change)
        self.relist()
        try:
            await self._queue.run()
        finally:
            unsubscribe()

    def enqueue(self, node: str) -> None:
        self._queue.add(node)

    def relist(self) -> None:
        """Enqueue a list of all records, which finds what happened while nobody watched."""
        self._queue.add(_RELIST_KEY)

    def problems(self) -> Iterator[str]:
        """Yield one line for each reason why retention does not work."""
        if self._write_backoff.failure is not None:
            yield f"cannot update the history of deleted nodes: {self._write_backoff.failure.error}"

    def _on_node_change(self, old: Node | None, new: Node | None) -> None:
        if old is not None and new is None:
            now = self._clock.now()
            # The time of the event, not of the write: that may be retried for hours.
            self._deleted_at[old.name] = now
            self._queue.add_at(old.name, now + _DELETION_DELAY)

    async def _reconcile_or_relist(self, name: str) -> datetime | None:
        if (retry_at := self._write_backoff.retry_at()) is not None:
            return retry_at
        if self._is_off():
            self._deleted_at.clear()
            self._write_backoff.failure = None
            return None  # `relist` is called when history becomes enabled
        try:
            requeue_at = await (self._relist() if name == _RELIST_KEY else self._reconcile(name))
        # The successor lists all records, and continues.
        except LeadershipLost:
            return None
        except SINGLE_RECORD_ERRORS:
            raise  # such as a conflict: the work queue backs off for this record only
        except KubeError as error:
            return self._write_backoff.record_failure(error)
        self._write_backoff.failure = None
        return requeue_at

    async def _relist(self) -> datetime | None:
        """List all records without entries, and enqueue those that may need an action."""
        try:
            summaries = await record_store.list_summaries(self._client)
        except NotFound:  # the CRD is missing, perhaps for a moment only
            return self._clock.now() + PROBE_INTERVAL
        for name, summary in summaries.items():
            if summary.node_deleted is not None:
                self._deleted.put(name, summary.node_deleted)
            if summary.node_deleted is None and self._is_up_to_date(name, summary):
                continue
            expires = None if summary.node_deleted is None else expires_at(summary.node_deleted, self._settings)
            self._queue.add_at(name, expires or self._clock.now())
        self._enqueue_surplus()
        return None

    def _is_up_to_date(self, name: str, summary: RecordSummary) -> bool:
        node = self._nodes.get(name)
        return node is not None and summary.node_uid in ("", node.uid) and not summary.is_owned

    async def _reconcile(self, name: str) -> datetime | None:
        record, is_readable = await self._store.get(name)
        if record is None:
            self._deleted.discard(name)
            self._deleted_at.pop(name, None)
            return None
        node = self._nodes.get(name)
        # The cache agrees that the node exists and is the same: no request. In all other cases the API server decides,
        # since a deletion follows.
        if node is None or not record.is_about(node.uid) or record.node_deleted is not None:
            node = await self._client.find(NODES, name)
        decision = decide(
            record,
            None if node is None else node.uid,
            now=self._clock.now(),
            settings=self._settings,
            is_surplus=self._deleted.is_surplus(name, self._settings.most),
        )
        content = records.content_of(record)
        match decision.action:
            case RetentionAction.RELEASE:
                await self._store.update(record, content, is_readable=is_readable)
            case RetentionAction.UNMARK_DELETED:
                await self._store.update(record, replace(content, node_deleted=None), is_readable=is_readable)
            case RetentionAction.MARK_DELETED:
                observed_at = self._deleted_at.get(name)
                deleted_at = observed_at or self._latest_possible_deletion(node)
                marked = records.with_node_deleted(content, at=deleted_at, is_guess=observed_at is None)
                await self._store.update(record, marked, is_readable=is_readable)
                log.info("node %s was deleted: its history is kept", name, extra={"node": name})
                self._deleted.put(name, deleted_at)
                self._deleted_at.pop(name, None)
                self._enqueue_surplus()
                return expires_at(deleted_at, self._settings)
            case RetentionAction.DELETE:
                await self._store.delete(record)
                log.info("deleted the history of node %s, which no longer exists", name, extra={"node": name})
        self._deleted_at.pop(name, None)
        if decision.action is RetentionAction.KEEP and record.node_deleted is not None:
            self._deleted.put(name, record.node_deleted)
        else:
            self._deleted.discard(name)
        return decision.requeue_at

    def _latest_possible_deletion(self, successor: Node | None) -> datetime:
        """Return the latest time at which a node can have been deleted whose deletion was not observed."""
        created = None if successor is None else successor.metadata.creation_timestamp
        now = self._clock.now()
        return now if created is None else min(created, now)

    def _enqueue_surplus(self) -> None:
        for name in self._deleted.surplus(self._settings.most):
            self._queue.add(name)
