"""Writes the history of nodes in the background, one node at a time, and never blocks a maintenance.

    writer.add(node, NewEntry(entry=Entry(…)))      # returns at once
    await writer.run()                              # until cancelled

**Cost.** None while nothing happens. All entries of a node within a second cost one read and one write: the record is
read when needed, not cached, and a JSON patch appends to it with the resourceVersion that was read as precondition. If
two processes write at once, one gets a conflict and tries again. Records are not watched.

**Takeover.** At the start, `ensure_state` supplies the current state of each object, and `register_kind` a function
that tells whether an object is gone. All records are then listed once, without their entries, and only those that
differ are read and completed.

**Failures** are retried, whatever they are: no response, an incomplete response, 403, 5xx. No pending entry is dropped
because of them. After a failure that may concern all nodes, a few writes are tried with backoff until one succeeds;
then all are tried. Pending entries are bounded per node and in total. What exceeds a bound becomes a gap: an entry with
the number of missing entries, written before the remaining ones. An entry that the API server rejects as invalid
becomes a gap, too, so that it does not block others.

**Without the CRD** history is disabled, and entries are dropped. A CRD that is missing for a short time (the API server
has just started) is a failure like any other. While history is disabled, discovery is queried once a minute; when the
CRD is installed, subscribers supply the current states again.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from datetime import datetime, timedelta

from haulout.api import maintenancerecord as records
from haulout.api.maintenancerecord import ENDED, MAINTENANCE_RECORDS, Entry, LastState, NewEntry
from haulout.api.objects import Node
from haulout.core.backoff import RECONNECT
from haulout.errors import (
    AlreadyExists,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    LeadershipLost,
    NotFound,
    Unauthorized,
)
from haulout.history import record_store
from haulout.history.availability import SINGLE_RECORD_ERRORS, CrdProbe, WriteBackoff
from haulout.history.interface import IsGone
from haulout.history.pending_entries import Backlog, PendingEntries, PendingQueue, format_entries
from haulout.history.record_store import CrdMissing, RecordStore
from haulout.kube.client import Client
from haulout.kube.workqueue import WorkQueue

log = logging.getLogger(__name__)

BATCH_DELAY = timedelta(seconds=1)  # batches entries of the same moment
DISABLED_AFTER = timedelta(minutes=1)  # time without the CRD
WARNING_INTERVAL = timedelta(hours=1)  # for missing permissions
_RELIST_KEY = ""  # work queue key for listing all records; no node has an empty name
_WORKERS = 4
_REFUSED = (BadRequest, Invalid)  # because of the content of an entry


class HistoryWriter:
    """Writes the history of nodes. The caller runs `run`.

    `warn` is called for missing permissions, at most once an hour. `on_created` is called with the name of each node
    whose record was created; the node may be deleted by then.
    """

    def __init__(
        self,
        client: Client,
        backlog: Backlog | None = None,
        *,
        warn: Callable[[str], Awaitable[object]] | None = None,
        on_created: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._client = client
        self._clock = client.clock
        self._pending = PendingQueue(Backlog() if backlog is None else backlog, client.metrics)
        self._is_gone: dict[str, IsGone] = {}  # by kind
        self._subscribers: list[Callable[[], object]] = []
        self._is_relisted = False
        self._crd_probe = CrdProbe(client, on_installed=self._enable, on_missing=self._disable)
        self._crd_missing_since: float | None = None  # monotonic
        self._write_backoff = WriteBackoff(client.clock, client.random)
        self._store = RecordStore(client, on_created=on_created)
        self._warn = warn
        self._warned_at: float | None = None  # monotonic
        self._failing_nodes: dict[str, KubeError] = {}  # by node: why its record cannot be written although others can
        self._write_locks: dict[str, asyncio.Lock] = {}
        self._queue: WorkQueue[str] = WorkQueue(
            self._reconcile,
            clock=client.clock,
            random=client.random,
            workers=_WORKERS,
            backoff=RECONNECT,
            metrics=client.metrics,
            name="history",
        )
        for node in self._pending.backlog:
            self._queue.add(node)

    @property
    def dropped(self) -> int:
        return self._pending.dropped

    @property
    def is_off(self) -> bool:
        """Whether the CRD is missing as far as known."""
        return self._crd_probe.is_missing

    def problems(self) -> Iterator[str]:
        """Yield one line for each reason why entries cannot be written."""
        if self._write_backoff.failure is not None:
            yield (
                f"history cannot be written, {format_entries(self._pending.count())} "
                f"waiting: {self._write_backoff.failure.error}"
            )
        for node, error in self._failing_nodes.items():
            yield f"the history of node {node} cannot be written: {error}"

    async def run(self) -> None:
        await self._crd_probe.probe_at_start()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._queue.run())
            group.create_task(self._crd_probe.run())

    def add(self, node: Node, *notes: NewEntry) -> None:
        """Append entries to a node's record soon. Entries are dropped while history is disabled."""
        if not notes or self.is_off:
            return
        claims = self._pending.claims.pop(node.name, None)  # earlier claims go first, since the record is read anyway
        before = claims.all() if claims is not None and claims.uid == node.uid else ()
        self._pending.add(self._pending.backlog, node, (*before, *notes))
        self._queue.add_at(node.name, self._clock.now() + BATCH_DELAY)

    def ensure_state(self, node: Node, *claims: NewEntry) -> None:
        """Append those claims that the node's record does not contain yet."""
        if not claims or self.is_off:
            return
        # The record will be read anyway, and the read tells whether the claim is needed.
        if self._is_relisted or node.name in self._pending.backlog:
            self.add(node, *claims)
            return
        self._pending.add(self._pending.claims, node, claims)
        self._queue.add_at(_RELIST_KEY, self._clock.now() + BATCH_DELAY)

    def register_kind(self, kind: str, is_gone: IsGone) -> None:
        """Register a kind whose objects may end unobserved: their end is recorded when `is_gone` is true."""
        self._is_gone[kind] = is_gone
        self._is_relisted = False
        self._queue.add_at(_RELIST_KEY, self._clock.now() + BATCH_DELAY)

    def subscribe(self, callback: Callable[[], object]) -> None:
        """Call `callback` whenever history becomes enabled, so that it supplies the current states again."""
        self._subscribers.append(callback)

    def has_pending(self, node: str) -> bool:
        """Return whether entries of a node are pending and can be written."""
        return not self.is_off and (node in self._pending.backlog or node in self._pending.claims)

    async def wait_written(self, node: str, *, within: timedelta) -> None:
        """Wait until all entries of a node are written, cannot be written for now, or `within` has passed."""
        if node in self._pending.backlog:
            await self._write_now([node], within)

    async def flush(self, within: timedelta) -> None:
        """Write all pending entries at the end of the process; give up after `within`."""
        if self._pending.backlog:
            if self._write_backoff.failure is not None:
                self._write_backoff.failure.until = 0  # last chance, so ignore the backoff
            await self._write_now(list(self._pending.backlog), within)

    # Work queue

    async def _write_now(self, nodes: Collection[str], within: timedelta) -> None:
        try:
            # Not asyncio.timeout: see haulout.kube.recorder.
            await asyncio.wait_for(self._reconcile_all(nodes), within.total_seconds())
        except TimeoutError:
            log.info("the history of %s could not be written within %s", ", ".join(nodes), within)

    async def _reconcile_all(self, nodes: Collection[str]) -> None:
        for node in nodes:
            try:
                await self._reconcile(node)
            except KubeError as error:
                log.info("cannot write the history of node %s: %s", node, error)
            except Exception:  # the history must never fail a maintenance
                log.exception("cannot write the history of node %s", node)

    async def _reconcile(self, node: str) -> datetime | None:
        """Write the pending entries of a node; return when to try again. Raise errors that concern this node only."""
        if (retry_at := self._write_backoff.retry_at()) is not None:
            return retry_at
        # `wait_written` and `flush` run beside the queue. Without the lock, both would append the same entries.
        lock = self._write_locks.setdefault(node, asyncio.Lock())
        try:
            async with lock:
                was_written = await (self._relist() if node == _RELIST_KEY else self._write(node))
        except LeadershipLost:
            return None  # the process is about to cancel everything
        except CrdMissing as error:
            return await self._handle_missing_crd(error.cause)
        except SINGLE_RECORD_ERRORS as error:
            if node == _RELIST_KEY:
                return self._write_backoff.record_failure(error)
            self._log_failure(node, error)
            raise  # the work queue backs off for this node only
        except KubeError as error:
            await self._warn_if_forbidden(error)
            return self._write_backoff.record_failure(error)
        finally:
            if not lock.locked():
                self._write_locks.pop(node, None)
        if was_written:
            self._record_success(node)
        return None

    # Failures

    async def _warn_if_forbidden(self, error: KubeError) -> None:
        """Warn of missing permissions, at most once per `WARNING_INTERVAL`."""
        if not isinstance(error, Forbidden | Unauthorized):
            return
        now = self._clock.monotonic()
        is_known = self._warned_at is not None and now - self._warned_at < WARNING_INTERVAL.total_seconds()
        if self._warn is None or is_known:
            return
        self._warned_at = now
        advice = "`haulout cluster-info` shows what to grant"
        await self._warn(
            f"the history of nodes cannot be written: {error}; entries are kept in memory until it can; {advice}"
        )

    def _log_failure(self, node: str, error: KubeError) -> None:
        if type(self._failing_nodes.get(node)) is not type(error) and not isinstance(error, Conflict | AlreadyExists):
            log.warning(
                "cannot write the history of node %s, retrying: %s",
                node,
                error,
                extra={"node": node},
            )
        self._failing_nodes[node] = error

    def _record_success(self, node: str) -> None:
        self._failing_nodes.pop(node, None)
        self._crd_missing_since = None
        if self._write_backoff.failure is None:
            return
        self._write_backoff.failure = None
        log.info("history is written again: %s waiting", format_entries(self._pending.count()))
        # Their retries were delayed by the common backoff, which is over.
        for name in (*self._pending.backlog, *((_RELIST_KEY,) if self._pending.claims else ())):
            self._queue.add(name)

    # The CRD

    async def _handle_missing_crd(self, error: KubeError) -> datetime | None:
        """Wait for a missing CRD, and disable history after `DISABLED_AFTER`.

        A starting API server serves no CRDs yet.
        """
        now = self._clock.monotonic()
        if self._crd_missing_since is None:
            self._crd_missing_since = now
        if now - self._crd_missing_since < DISABLED_AFTER.total_seconds():
            return self._write_backoff.record_failure(error)
        await self._crd_probe.probe()
        return None if self.is_off else self._write_backoff.record_failure(error)

    def _disable(self) -> None:
        log.info("%s is not installed: no history is kept", MAINTENANCE_RECORDS)
        self._crd_probe.missing.set()
        self._pending.backlog.clear()
        self._pending.claims.clear()
        self._failing_nodes.clear()
        self._write_backoff.failure = None

    def _enable(self) -> None:
        log.info("%s is installed: a history is kept from now on", MAINTENANCE_RECORDS)
        self._crd_probe.missing.clear()
        self._crd_missing_since = None
        self._is_relisted = False
        if self._is_gone:
            self._queue.add(_RELIST_KEY)
        for callback in self._subscribers:
            callback()

    # Reading and writing

    async def _relist(self) -> bool:
        """List all records and queue entries for those that differ from the current state.

        Return whether the records were listed.
        """
        if self.is_off or self._is_relisted or not (self._pending.claims or self._is_gone):
            return False
        try:
            summaries = await record_store.list_summaries(self._client)
        except NotFound as error:
            raise CrdMissing(error) from error
        ends = {
            name: [new_entry async for new_entry in self._unobserved_ends(summary.last_states)]
            for name, summary in summaries.items()
        }
        claims, self._pending.claims = self._pending.claims, Backlog()
        self._is_relisted = True
        for name, new_entries in ends.items():
            if new_entries:
                # Appended, because the observed end may be pending already.
                self._requeue(name, summaries[name].node_uid, new_entries, is_first=False)
        for name, pending in claims.items():
            summary = summaries.get(name)
            known = summary.last_states if summary is not None and summary.node_uid == pending.uid else {}
            if not all(records.is_recorded(new_entry, known) for new_entry in pending.all()):
                # Requeue all of them: an entry that matches the current state may not match after the others are
                # written.
                self._requeue(name, pending.uid, list(pending.all()))
        return True

    async def _unobserved_ends(self, last_states: Mapping[str, LastState]) -> AsyncIterator[NewEntry]:
        """Yield an end for each object that is gone and whose record has no end."""
        for what, last_state in last_states.items():
            kind, _, name = what.partition("/")
            is_gone = self._is_gone.get(kind)
            if is_gone is not None and last_state.state != ENDED and await is_gone(name, last_state.instance):
                yield NewEntry(
                    entry=records.ended_unobserved(what, last_state, at=self._clock.now()), is_state_claim=True
                )

    def _requeue(self, name: str, uid: str, new_entries: list[NewEntry], *, is_first: bool = True) -> None:
        known = self._pending.backlog.setdefault(name, PendingEntries(uid))
        if known.uid == uid:
            known.new_entries = [*new_entries, *known.new_entries] if is_first else [*known.new_entries, *new_entries]
        self._queue.add(name)

    async def _write(self, node: str) -> bool:
        """Write the pending entries of a node; return whether there were any."""
        pending = self._pending.backlog.get(node)
        if pending is None or self.is_off:
            return False
        new_entries = pending.all()
        try:
            await self._store.append(node, pending.uid, new_entries)
            pending.discard_written(new_entries)
        except _REFUSED:
            for new_entry in new_entries:
                # One by one: the API server does not say which entry of a patch it refuses.
                await self._write_one(node, pending.uid, new_entry)
                pending.discard_written((new_entry,))
        if not pending.all() and self._pending.backlog.get(node) is pending:
            del self._pending.backlog[node]
        return True

    async def _write_one(self, node: str, uid: str, new_entry: NewEntry) -> None:
        """Write one entry. If the API server rejects its content, write a gap instead."""
        try:
            await self._store.append(node, uid, (new_entry,))
        except _REFUSED as error:
            await self._store.append(node, uid, (NewEntry(entry=_refused_gap(new_entry.entry, error)),))
            self._pending.count_dropped(1)
            log.warning(
                "the API server refused an entry in the history of node %s: %s", node, error, extra={"node": node}
            )


def _refused_gap(entry: Entry, error: KubeError) -> Entry:
    about = f" about {entry.object}" if entry.object else ""
    return records.gap(f"1 entry{about} missing: the API server refuses it: {error}", time=entry.time, missing=1)
