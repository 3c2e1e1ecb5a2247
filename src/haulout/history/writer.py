"""Writes down what happened to nodes: in the background, a node at a time, and never in the way of what happens.

    keeper.note(node, Note(Entry(…)))        # returns at once
    await keeper.run()                       # until cancelled

**Cost.** Nothing while nothing happens. What happens to a node within a second is one read and one write: the record is
read when it is needed and forgotten again, and a JSON patch appends to it, bound to the version that was read. Of two
who write at once, one is refused and looks again. No record is watched.

**Taking over.** `ensure_state` hears at the beginning where everything stands, and `register_kind` how to learn
whether an object is gone. All records are then listed once, without their entries, and only those that say something
else are read and completed.

**Trouble** is waited out, whatever it is: no answer, half an answer, 403, 5xx. Nothing that waits is dropped for it.
After a failure that may concern all nodes, a few writes are tried, less and less often, until one succeeds; then all
are tried. What waits is bounded for each node and for all of them together. What does not fit becomes a gap: an entry
that says how many are missing, written in front of those that are left. An entry that the server refuses as invalid
becomes a gap, too, so that it holds up no other.

**Without the definition** history is off: notes are dropped. A definition that is missing for a moment (a server that
has just started) is trouble like any other. While history is off, discovery is asked once a minute; when the definition
is there, whoever subscribed tells again where everything stands.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from datetime import datetime, timedelta

from haulout.api import maintenancerecord as records
from haulout.api.maintenancerecord import ENDED, MAINTENANCE_RECORDS, Entry, LastState, NewEntry
from haulout.api.objects import Node
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
from haulout.history import record_summaries
from haulout.history.crd_probe import CrdProbe
from haulout.history.interface import IsGone
from haulout.history.pending_entries import Backlog, PendingEntries, PendingQueue, format_entries
from haulout.history.record_store import CrdMissing, RecordStore
from haulout.history.write_backoff import RETRY_BACKOFF, SINGLE_RECORD_ERRORS, WriteBackoff
from haulout.kube.client import Client
from haulout.kube.workqueue import WorkQueue

log = logging.getLogger(__name__)

BATCH_DELAY = timedelta(seconds=1)  # so that what happens together is written together
DISABLED_AFTER = timedelta(minutes=1)  # without the definition
WARNING_INTERVAL = timedelta(hours=1)  # of permissions that are missing
_RELIST_KEY = ""  # the key of the look at all records: no node is called so
_WORKERS = 4
_REFUSED = (BadRequest, Invalid)  # for what an entry says


class HistoryWriter:
    """Keeps the history of nodes; the owner runs `run`. `warn` hears of missing permissions, at most once an hour.

    `on_created` hears of each node for which a record is made: the node may be gone by then.
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
        self._crd_missing_since: float | None = None  # the definition, on the monotonic clock
        self._write_backoff = WriteBackoff(client.clock, client.random)
        self._store = RecordStore(client, on_created=on_created)
        self._warn = warn
        self._warned_at: float | None = None  # on the monotonic clock
        self._failing_nodes: dict[str, KubeError] = {}  # by node: why its record cannot be written, though others can
        self._write_locks: dict[str, asyncio.Lock] = {}
        self._queue: WorkQueue[str] = WorkQueue(
            self._reconcile,
            clock=client.clock,
            random=client.random,
            workers=_WORKERS,
            backoff=RETRY_BACKOFF,
            metrics=client.metrics,
            name="history",
        )
        for node in self._pending.backlog:
            self._queue.add(node)

    @property
    def dropped(self) -> int:
        """How many notes were given up."""
        return self._pending.dropped

    @property
    def is_off(self) -> bool:
        """Tell whether there is no definition, as far as is known."""
        return self._crd_probe.is_missing

    def problems(self) -> Iterator[str]:
        """Yield why entries cannot be written, in a line each."""
        if self._write_backoff.failure is not None:
            yield (
                f"history cannot be written, {format_entries(self._pending.count())} "
                f"waiting: {self._write_backoff.failure.error}"
            )
        for node, error in self._failing_nodes.items():
            yield f"the history of node {node} cannot be written: {error}"

    async def run(self) -> None:
        """Write until cancelled."""
        await self._crd_probe.probe_at_start()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._queue.run())
            group.create_task(self._crd_probe.run())

    def add(self, node: Node, *notes: NewEntry) -> None:
        """Have it written down some time soon."""
        if not notes or self.is_off:
            return
        claims = self._pending.claims.pop(node.name, None)  # they come first, and the record is read anyway
        before = claims.all() if claims is not None and claims.uid == node.uid else ()
        self._pending.add(self._pending.backlog, node, (*before, *notes))
        self._queue.add_at(node.name, self._clock.now() + BATCH_DELAY)

    def ensure_state(self, node: Node, *claims: NewEntry) -> None:
        """Have it completed, if it says something else about where things stand."""
        if not claims or self.is_off:
            return
        if self._is_relisted or node.name in self._pending.backlog:
            self.add(node, *claims)
            return
        self._pending.add(self._pending.claims, node, claims)
        self._queue.add_at(_RELIST_KEY, self._clock.now() + BATCH_DELAY)

    def register_kind(self, kind: str, is_gone: IsGone) -> None:
        """Have the end written down of objects of this kind that are gone, and of whose end nobody knows."""
        self._is_gone[kind] = is_gone
        self._is_relisted = False
        self._queue.add_at(_RELIST_KEY, self._clock.now() + BATCH_DELAY)

    def subscribe(self, callback: Callable[[], object]) -> None:
        """Have `callback` called when history is switched on, so that it is told where everything stands."""
        self._subscribers.append(callback)

    def has_pending(self, node: str) -> bool:
        """Tell whether something of a node is not written down yet, and can be."""
        return not self.is_off and (node in self._pending.backlog or node in self._pending.claims)

    async def wait_written(self, node: str, *, within: timedelta) -> None:
        """Return when all that was noted of a node is written down, or cannot be for now, or after `within`."""
        if node in self._pending.backlog:
            await self._write_now([node], within)

    async def flush(self, within: timedelta) -> None:
        """Write all that waits; give up after `within`. For the end of a process."""
        if self._pending.backlog:
            if self._write_backoff.failure is not None:
                self._write_backoff.failure.until = 0  # it is now or never
            await self._write_now(list(self._pending.backlog), within)

    # Work

    async def _write_now(self, nodes: Collection[str], within: timedelta) -> None:
        try:
            # Not asyncio.timeout: see haulout.kube.recorder.
            await asyncio.wait_for(self._reconcile_all(nodes), within.total_seconds())
        except TimeoutError:
            log.info("history of %s is not written yet after %s", ", ".join(nodes), within)

    async def _reconcile_all(self, nodes: Collection[str]) -> None:
        for node in nodes:
            try:
                await self._reconcile(node)
            except KubeError as error:
                log.info("history of node %s: %s", node, error)
            except Exception:  # no history is worth failing for
                log.exception("history of node %s", node)

    async def _reconcile(self, node: str) -> datetime | None:
        """Write what waits for a node; return when to try again. What concerns this node alone is raised."""
        if (retry_at := self._write_backoff.retry_at()) is not None:
            return retry_at
        lock = self._write_locks.setdefault(node, asyncio.Lock())
        try:
            async with lock:
                was_written = await (self._relist() if node == _RELIST_KEY else self._write(node))
        except LeadershipLost:
            return None  # all that we do is about to be cancelled
        except CrdMissing as error:
            return await self._handle_missing_crd(error.cause)
        except SINGLE_RECORD_ERRORS as error:
            if node == _RELIST_KEY:
                return self._write_backoff.record_failure(error)
            self._log_failure(node, error)
            raise  # the queue backs off, for this node alone
        except KubeError as error:
            await self._warn_if_forbidden(error)
            return self._write_backoff.record_failure(error)
        finally:
            if not lock.locked():
                self._write_locks.pop(node, None)
        if was_written:
            self._record_success(node)
        return None

    # Trouble

    async def _warn_if_forbidden(self, error: KubeError) -> None:
        """Warn of missing permissions, unless that was done within the last hour."""
        if not isinstance(error, Forbidden | Unauthorized):
            return
        now = self._clock.monotonic()
        is_known = self._warned_at is not None and now - self._warned_at < WARNING_INTERVAL.total_seconds()
        if self._warn is None or is_known:
            return
        self._warned_at = now
        advice = "`haulout cluster-info` shows what to grant"
        await self._warn(f"the history of nodes cannot be written: {error}; entries are kept until it can; {advice}")

    def _log_failure(self, node: str, error: KubeError) -> None:
        if type(self._failing_nodes.get(node)) is not type(error) and not isinstance(error, Conflict | AlreadyExists):
            log.warning(
                "what happened to node %s cannot be written down for now, and is tried again: %s",
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
        for name in (*self._pending.backlog, *((_RELIST_KEY,) if self._pending.claims else ())):
            self._queue.add(name)

    # The definition

    async def _handle_missing_crd(self, error: KubeError) -> datetime | None:
        """Wait for a definition that is missing; be off if it has been for a while. A server that starts has none."""
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
        """Look at all records, and have those completed that say something else than is so; tell whether it did."""
        if self.is_off or self._is_relisted or not (self._pending.claims or self._is_gone):
            return False
        try:
            summaries = await record_summaries.list_summaries(self._client)
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
                self._requeue(
                    name, summaries[name].node_uid, new_entries, is_first=False
                )  # how it ended may be waiting
        for name, pending in claims.items():
            summary = summaries.get(name)
            known = summary.last_states if summary is not None and summary.node_uid == pending.uid else {}
            if not all(records.is_recorded(new_entry, known) for new_entry in pending.all()):
                # All of them: what is told by where things stand now may not be after the others are written.
                self._requeue(name, pending.uid, list(pending.all()))
        return True

    async def _unobserved_ends(self, last_states: Mapping[str, LastState]) -> AsyncIterator[NewEntry]:
        """Yield the ends of what is open by a record, and gone."""
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
        """Write what waits for a node; tell whether anything did."""
        pending = self._pending.backlog.get(node)
        if pending is None or self.is_off:
            return False
        new_entries = pending.all()
        try:
            await self._store.append(node, pending.uid, new_entries)
            pending.discard_written(new_entries)
        except _REFUSED:
            for new_entry in new_entries:
                await self._write_one(node, pending.uid, new_entry)
                pending.discard_written((new_entry,))
        if not pending.all() and self._pending.backlog.get(node) is pending:
            del self._pending.backlog[node]
        return True

    async def _write_one(self, node: str, uid: str, new_entry: NewEntry) -> None:
        """Write one entry; if the server refuses what it says, a gap in its place."""
        try:
            await self._store.append(node, uid, (new_entry,))
        except _REFUSED as error:
            await self._store.append(node, uid, (NewEntry(entry=_refused_gap(new_entry.entry, error)),))
            self._pending.count_dropped(1)
            log.warning("an entry in the history of node %s is refused: %s", node, error, extra={"node": node})


def _refused_gap(entry: Entry, error: KubeError) -> Entry:
    about = f" about {entry.what}" if entry.what else ""
    return records.gap(f"1 entry{about} missing: the API server refuses it: {error}", time=entry.time, missing=1)
