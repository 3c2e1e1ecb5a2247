"""Keeps the records of deleted nodes for a time, and a bounded number of them.

    retention = Retention(client, nodes, is_off=lambda: keeper.is_off, settings=RetentionSettings())
    keeper = Keeper(client, created=retention.add)
    await retention.run()                    # until cancelled; the owner runs the cache of nodes

**What it writes.** When a node is deleted, its record, if there is one, gets an entry and an annotation with the time.
That is one write for each node that had entries. When the time is over, or newer records of deleted nodes exceed the
limit, the record is deleted. Both carry the resourceVersion that was read: a node of the same name that continues the
record meanwhile makes them fail, and the record is read again.

**No polling.** The cache of nodes tells of deletions, and each record sleeps until the exact time at which it expires.
A new leader lists all records once, without entries: it finds nodes that were deleted while no operator ran, and what
its predecessor did not finish. Records of older versions belong to their Node object, so that the API server would
delete them with it: they are released then.

**What it must never do**: delete the record of a node that exists. That a node is gone is confirmed by the API server
before that is written down, because a cache may be old.
"""

import bisect
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from haulout.errors import KubeError, LeadershipLost, NotFound
from haulout.history import record as records
from haulout.history import survey
from haulout.history.definition import ASKED_EVERY
from haulout.history.keeper import GATHERED_FOR
from haulout.history.outage import OF_ONE_RECORD, TRIED_AGAIN, Outage
from haulout.history.record import Record
from haulout.history.storage import Storage
from haulout.history.survey import Standing
from haulout.kube.cache import Cache
from haulout.kube.client import Client
from haulout.kube.objects import Node
from haulout.kube.queue import Queue
from haulout.kube.resources import NODES

log = logging.getLogger(__name__)

RETENTION = timedelta(days=90)
MOST_DELETED = 1_000
_SURVEY = ""  # the key of the look at all records: no node is called so
_WORKERS = 2
# What was noted just before a node was deleted is written first.
_SETTLED_AFTER = 2 * GATHERED_FOR


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionSettings:
    """For how long the record of a deleted node is kept, and how many of these there may be; 0: none."""

    keep_for: timedelta = RETENTION
    most: int = MOST_DELETED


class Action(StrEnum):
    """What is done about a record."""

    KEEP = "keep"
    RELEASE = "release"  # from the Node object that owns it
    MARK = "mark"  # as one of a node that was deleted
    UNMARK = "unmark"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Decision:
    """What is done about a record, and when to decide again."""

    action: Action
    requeue_at: datetime | None = None


def decide(
    record: Record, node_uid: str | None, *, now: datetime, settings: RetentionSettings, is_surplus: bool = False
) -> Decision:
    """Decide about a record; `node_uid` is that of the node of this name, None if there is none."""
    exists = node_uid is not None and record.is_about(node_uid)
    if record.node_deleted is None:
        if exists:
            return Decision(Action.RELEASE if records.owner_nodes(record.metadata) else Action.KEEP)
        is_kept = settings.keep_for > timedelta() and settings.most > 0
        return Decision(Action.MARK if is_kept else Action.DELETE)
    if exists and record.node_uid:  # etcd was restored from a backup, or somebody wrote the annotation
        return Decision(Action.UNMARK)
    expires = expires_at(record.node_deleted, settings)
    if is_surplus or (expires is not None and now >= expires):
        return Decision(Action.DELETE)
    return Decision(Action.KEEP, expires)


def expires_at(deleted: datetime, settings: RetentionSettings) -> datetime | None:
    """Return when the record of a node that was deleted then expires; None: never."""
    try:
        return deleted + settings.keep_for
    except OverflowError:
        return None


class DeletedNodes:
    """Which records are of deleted nodes, the one deleted first at the front."""

    def __init__(self) -> None:
        self._times: dict[str, datetime] = {}
        self._order: list[tuple[datetime, str]] = []

    def __len__(self) -> int:
        return len(self._order)

    def put(self, name: str, deleted: datetime) -> None:
        """Know of one."""
        self.discard(name)
        self._times[name] = deleted
        bisect.insort(self._order, (deleted, name))

    def discard(self, name: str) -> None:
        """Forget one."""
        if (deleted := self._times.pop(name, None)) is not None:
            del self._order[bisect.bisect_left(self._order, (deleted, name))]

    def surplus(self, most: int) -> Iterator[str]:
        """Yield those that are too many, the one deleted first at the front."""
        for _, name in self._order[: max(len(self._order) - most, 0)]:
            yield name

    def is_surplus(self, name: str, most: int) -> bool:
        """Tell whether this one is among them."""
        deleted = self._times.get(name)
        return deleted is not None and bisect.bisect_left(self._order, (deleted, name)) < len(self._order) - most


class Retention:
    """Sees to the records of deleted nodes; the owner runs `run`, and the cache of nodes."""

    def __init__(
        self,
        client: Client,
        nodes: Cache[Node],
        *,
        is_off: Callable[[], bool],
        settings: RetentionSettings | None = None,
    ) -> None:
        self._client = client
        self._clock = client.clock
        self._nodes = nodes
        self._is_off = is_off
        self._settings = settings or RetentionSettings()
        self._storage = Storage(client)
        self._outage = Outage(client.clock, client.random)
        self._deleted = DeletedNodes()
        self._deleted_at: dict[str, datetime] = {}  # of nodes whose deletion was seen, until it is written down
        self._queue: Queue[str] = Queue(
            self._work,
            clock=client.clock,
            random=client.random,
            workers=_WORKERS,
            backoff=TRIED_AGAIN,
            meters=client.meters,
            name="history retention",
        )

    async def run(self) -> None:
        """See to them until cancelled."""
        await self._nodes.wait_synced()
        unsubscribe = self._nodes.subscribe(self._see)
        self.survey()
        try:
            await self._queue.run()
        finally:
            unsubscribe()

    def add(self, node: str) -> None:
        """Look at the record of a node soon."""
        self._queue.add(node)

    def survey(self) -> None:
        """Look at all records soon."""
        self._queue.add(_SURVEY)

    def troubles(self) -> Iterator[str]:
        """Yield why records of deleted nodes are not seen to, in a line each."""
        if self._outage.trouble is not None:
            yield f"the history of deleted nodes is not seen to: {self._outage.trouble.why}"

    def _see(self, old: Node | None, new: Node | None) -> None:
        if old is not None and new is None:
            now = self._clock.now()
            self._deleted_at[old.name] = now
            self._queue.wake_at(old.name, now + _SETTLED_AFTER)

    async def _work(self, name: str) -> datetime | None:
        if (put_off := self._outage.put_off()) is not None:
            return put_off
        if self._is_off():
            self._deleted_at.clear()
            self._outage.trouble = None
            return None  # `survey` is called when history is switched on
        try:
            requeue_at = await (self._survey() if name == _SURVEY else self._reconcile(name))
        except LeadershipLost:
            return None
        except OF_ONE_RECORD:
            raise  # such as a conflict: the queue backs off, for this one alone
        except KubeError as error:
            return self._outage.suffer(error)
        self._outage.trouble = None
        return requeue_at

    async def _survey(self) -> datetime | None:
        """List all records without entries, and have those looked at about which there may be something to do."""
        try:
            found = await survey.standings(self._client)
        except NotFound:  # there is no definition, or not yet
            return self._clock.now() + ASKED_EVERY
        for name, it in found.items():
            if it.deleted is not None:
                self._deleted.put(name, it.deleted)
            if it.deleted is None and self._is_settled(name, it):
                continue
            expires = None if it.deleted is None else expires_at(it.deleted, self._settings)
            self._queue.wake_at(name, expires or self._clock.now())
        self._trim()
        return None

    def _is_settled(self, name: str, found: Standing) -> bool:
        node = self._nodes.get(name)
        return node is not None and found.uid in ("", node.uid) and not found.is_owned

    async def _reconcile(self, name: str) -> datetime | None:
        record, is_readable = await self._storage.find(name)
        if record is None:
            self._deleted.discard(name)
            self._deleted_at.pop(name, None)
            return None
        node = self._nodes.get(name)
        if node is None or not record.is_about(node.uid) or record.node_deleted is not None:
            node = await self._confirmed(name)
        decision = decide(
            record,
            None if node is None else node.uid,
            now=self._clock.now(),
            settings=self._settings,
            is_surplus=self._deleted.is_surplus(name, self._settings.most),
        )
        content = records.content_of(record)
        match decision.action:
            case Action.RELEASE:
                await self._storage.write(record, content, is_readable=is_readable)
            case Action.UNMARK:
                await self._storage.write(record, replace(content, node_deleted=None), is_readable=is_readable)
            case Action.MARK:
                seen = self._deleted_at.get(name)
                at = seen or self._latest_end(node)
                marked = records.with_node_deleted(content, at=at, is_guess=seen is None)
                await self._storage.write(record, marked, is_readable=is_readable)
                log.info("node %s was deleted: its history is kept", name, extra={"node": name})
                self._deleted.put(name, at)
                self._deleted_at.pop(name, None)
                self._trim()
                return expires_at(at, self._settings)
            case Action.DELETE:
                await self._storage.remove(record)
                log.info("the history of node %s, which was deleted, is deleted", name, extra={"node": name})
        self._deleted_at.pop(name, None)
        if decision.action is Action.KEEP and record.node_deleted is not None:
            self._deleted.put(name, record.node_deleted)
        else:
            self._deleted.discard(name)
        return decision.requeue_at

    def _latest_end(self, successor: Node | None) -> datetime:
        """Return the latest time at which a node can have been deleted, of whose deletion nobody knows."""
        created = None if successor is None else successor.metadata.creation_timestamp
        now = self._clock.now()
        return now if created is None else min(created, now)

    async def _confirmed(self, name: str) -> Node | None:
        try:
            return await self._client.get(NODES, name)
        except NotFound:
            return None

    def _trim(self) -> None:
        for name in self._deleted.surplus(self._settings.most):
            self._queue.add(name)
