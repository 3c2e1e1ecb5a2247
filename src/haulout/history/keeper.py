"""Writes down what happened to nodes: in the background, a node at a time, and never in the way of what happens.

    keeper.note(node, Note(Entry(…)))        # returns at once
    await keeper.run()                       # until cancelled

**Cost.** Nothing while nothing happens. What happens to a node within a second is one read and one write: the record is
read when it is needed and forgotten again, and a JSON patch appends to it, bound to the version that was read. Of two
who write at once, one is refused and looks again. No record is watched.

**Taking over.** `stands` hears at the beginning where everything stands. All records are then listed once, without
their entries, and only those that say something else are read and completed.

**Without the definition** (or the permission) history is off: notes are dropped, silently but for one line in the log.
That is asked once at the beginning. Whether it has changed is tried with a note that comes later than a minute after,
so that nobody asks in vain.

**Trouble** with the server is waited out: notes are kept meanwhile, not more than a record could hold, and not of
more nodes than `_MOST_NODES`.
"""

import asyncio
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from haulout.core.backoff import Backoff
from haulout.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    GarbledAnswer,
    Invalid,
    KubeError,
    LeadershipLost,
    NotFound,
)
from haulout.history import record as records
from haulout.history import survey
from haulout.history.record import MAINTENANCE_RECORDS, MOST_ENTRIES, STANDING, Content, Note, Record
from haulout.kube import discovery, patches
from haulout.kube.client import Client
from haulout.kube.meters import HISTORY
from haulout.kube.objects import Node, RawObject
from haulout.kube.patches import Operation, Patch
from haulout.kube.queue import Queue
from haulout.kube.resources import NODES

log = logging.getLogger(__name__)

GATHERED_FOR = timedelta(seconds=1)  # so that what happens together is written together
OFF_FOR = timedelta(minutes=1)  # before it is tried again, if there is something to write then
_SURVEY = ""  # the key of the look at all records: no node is called so
_WORKERS = 4
_TRIES = 5
_PAUSE = Backoff(first=timedelta(milliseconds=50), limit=timedelta(seconds=1), jitter=0.5)
_MOST_NODES = 10_000


class History(Protocol):
    """Where controllers tell what happened."""

    def note(self, node: Node, *notes: Note) -> None:
        """Have it written down some time soon."""
        ...

    def stands(self, node: Node, *claims: Note) -> None:
        """Have it completed, if it says something else about where things stand."""
        ...

    def waits(self, node: str) -> bool:
        """Tell whether something of a node is not written down yet."""
        ...

    async def settle(self, node: str, *, within: timedelta) -> None:
        """Return when all that was noted of a node is written down, or cannot be, or after `within`."""
        ...


class NoHistory:
    """Remembers nothing."""

    def note(self, node: Node, *notes: Note) -> None:
        """Forget it."""

    def stands(self, node: Node, *claims: Note) -> None:
        """Forget it."""

    def waits(self, node: str) -> bool:
        """Tell that nothing ever will."""
        del node
        return False

    async def settle(self, node: str, *, within: timedelta) -> None:
        """Return at once."""


class _Off(Exception):
    """Nothing can be written here, for a reason that stays."""

    def __init__(self, why: KubeError) -> None:
        super().__init__(why)
        self.why = why


@dataclass(slots=True)
class _Waiting:
    """What waits to be written about a node."""

    uid: str
    notes: list[Note] = field(default_factory=list)


class Keeper:
    """Keeps the history of nodes; the owner runs `run`."""

    def __init__(self, client: Client) -> None:
        self.dropped = 0  # notes that were given up
        self._client = client
        self._clock = client.clock
        self._waiting: dict[str, _Waiting] = {}  # by node, the one that has waited longest first
        self._claims: dict[str, _Waiting] = {}  # until all records were looked at
        self._is_surveyed = False
        self._off_until: float | None = None  # on the monotonic clock; None: history is on, as far as is known
        self._complained_of: type[KubeError] | None = None
        self._writing: dict[str, asyncio.Lock] = {}
        self._queue: Queue[str] = Queue(
            self._work, clock=client.clock, random=client.random, workers=_WORKERS, meters=client.meters, name="history"
        )

    @property
    def is_off(self) -> bool:
        """Tell whether nothing can be written, as far as is known."""
        return self._off_until is not None and self._clock.monotonic() < self._off_until

    async def run(self) -> None:
        """Write until cancelled."""
        await self._ask_whether_on()
        await self._queue.run()

    def note(self, node: Node, *notes: Note) -> None:
        """Have it written down some time soon."""
        if not notes or self.is_off:
            return
        self._wait(self._waiting, node, notes)
        self._queue.wake_at(node.name, self._clock.now() + GATHERED_FOR)

    def stands(self, node: Node, *claims: Note) -> None:
        """Have it completed, if it says something else about where things stand."""
        if not claims or self.is_off:
            return
        if self._is_surveyed:
            self.note(node, *claims)
            return
        self._wait(self._claims, node, claims)
        self._queue.wake_at(_SURVEY, self._clock.now() + GATHERED_FOR)

    def waits(self, node: str) -> bool:
        """Tell whether something of a node is not written down yet, and can be."""
        return self._off_until is None and (node in self._waiting or node in self._claims)

    async def settle(self, node: str, *, within: timedelta) -> None:
        """Return when all that was noted of a node is written down, or cannot be, or after `within`."""
        if node in self._waiting:
            await self._hurry([node], within)

    async def flush(self, within: timedelta) -> None:
        """Write all that waits; give up after `within`. For the end of a process."""
        if self._waiting:
            await self._hurry(list(self._waiting), within)

    # What waits

    def _wait(self, waiting: dict[str, _Waiting], node: Node, notes: Sequence[Note]) -> None:
        known = waiting.get(node.name)
        if known is None or known.uid != node.uid:
            known = waiting[node.name] = _Waiting(node.uid)
        known.notes += notes
        self._drop(max(len(known.notes) - MOST_ENTRIES, 0))
        del known.notes[:-MOST_ENTRIES]
        if len(waiting) > _MOST_NODES:
            self._drop(len(waiting.pop(next(iter(waiting))).notes))

    def _drop(self, number: int) -> None:
        self.dropped += number
        self._client.meters.dropped.add(HISTORY, amount=number)

    async def _hurry(self, nodes: Collection[str], within: timedelta) -> None:
        try:
            # Not asyncio.timeout: see haulout.kube.events.
            await asyncio.wait_for(self._work_all(nodes), within.total_seconds())
        except TimeoutError:
            log.info("history of %s is not written yet after %s", ", ".join(nodes), within)

    async def _work_all(self, nodes: Collection[str]) -> None:
        for node in nodes:
            try:
                await self._work(node)
            except KubeError as error:
                log.info("history of node %s: %s", node, error)
            except Exception:  # no history is worth failing for
                log.exception("history of node %s", node)

    async def _work(self, node: str) -> datetime | None:
        """Write what waits for a node; what cannot be written ever is given up, anything else is raised."""
        lock = self._writing.setdefault(node, asyncio.Lock())
        try:
            async with lock:
                await (self._look_around() if node == _SURVEY else self._write(node))
        except LeadershipLost:
            return None  # all that we do is about to be cancelled
        except _Off as error:
            self._turn_off(error.why)
        finally:
            if not lock.locked():
                self._writing.pop(node, None)
        return None

    def _turn_off(self, why: KubeError | None) -> None:
        self._off_until = self._clock.monotonic() + OFF_FOR.total_seconds()
        self._waiting.clear()
        self._claims.clear()
        self._is_surveyed = True  # what is missing is completed when there is something to write
        kind = NotFound if why is None else type(why)
        if kind is self._complained_of:
            return
        self._complained_of = kind
        if kind is NotFound:
            log.info("%s is not installed: no history is kept", MAINTENANCE_RECORDS)
        else:
            log.warning("no history is kept: %s", why)

    async def _ask_whether_on(self) -> None:
        try:
            is_on = await discovery.serves(self._client, MAINTENANCE_RECORDS)
        except KubeError as error:
            log.debug("whether a history is kept is not known yet: %s", error)
            return
        if not is_on:
            self._turn_off(None)

    # Reading and writing

    async def _look_around(self) -> None:
        """Look at all records, and have those completed that say something else than is so."""
        if not self._claims:
            return
        try:
            found = await survey.standings(self._client)
        except (Forbidden, NotFound) as error:
            raise _Off(error) from error
        claims, self._claims = self._claims, {}
        self._is_surveyed = True
        for name, waiting in claims.items():
            about = found.get(name)
            known = about.standing if about is not None and about.uid == waiting.uid else {}
            missing = [it for it in waiting.notes if not records.is_told(it, known)]
            if missing:
                self._again(name, waiting.uid, missing)

    def _again(self, name: str, uid: str, notes: list[Note]) -> None:
        known = self._waiting.setdefault(name, _Waiting(uid))
        if known.uid == uid:
            known.notes[:0] = notes
        self._queue.add(name)

    async def _write(self, node: str) -> None:
        waiting = self._waiting.get(node)
        if waiting is None:
            return
        notes = tuple(waiting.notes)
        try:
            await self._store(node, waiting.uid, notes)
        except (GarbledAnswer, Invalid) as error:  # it would be so the next time
            self._drop(len(notes))
            log.warning(
                "what happened to node %s cannot be written down: %s; to begin anew: kubectl delete mr %s",
                node,
                error,
                node,
                extra={"node": node},
            )
        self._off_until, self._complained_of = None, None
        waiting.notes = [it for it in waiting.notes if it not in notes]
        if not waiting.notes and self._waiting.get(node) is waiting:
            del self._waiting[node]

    async def _store(self, node: str, uid: str, notes: Sequence[Note]) -> None:
        for attempt in range(1, _TRIES + 1):
            try:
                await self._add(node, uid, notes)
            except (AlreadyExists, Conflict, NotFound):  # somebody was faster
                if attempt == _TRIES:
                    raise
            except Forbidden as error:
                raise _Off(error) from error
            else:
                return
            await self._clock.sleep(_PAUSE.delay(attempt, self._client.random))

    async def _add(self, node: str, uid: str, notes: Sequence[Note]) -> None:
        found = await self._find(node)
        if found is not None and not found.is_about(uid):
            # Its node is gone, and so will it be: what is written into it would be lost.
            await self._remove(found)
            found = None
        before = Content() if found is None else records.content_of(found)
        after = records.added(before, notes)
        if after is before:
            return
        if found is None:
            await self._create(node, uid, after)
        else:
            await self._client.patch(MAINTENANCE_RECORDS, node, change(found, after))

    async def _find(self, node: str) -> Record | None:
        try:
            return await self._client.get(MAINTENANCE_RECORDS, node)
        except NotFound:
            return None

    async def _remove(self, found: Record) -> None:
        try:
            await self._client.delete(
                MAINTENANCE_RECORDS, found.name, uid=found.uid, resource_version=found.resource_version
            )
        except NotFound:
            log.debug("the record of a node %s that is gone has gone, too", found.name)

    async def _create(self, node: str, uid: str, content: Content) -> None:
        try:
            await self._client.create(MAINTENANCE_RECORDS, new(node, uid, content))
        except NotFound as error:  # there is no such kind: one object cannot be missed where it is made
            raise _Off(error) from error


def new(node: str, uid: str, content: Content) -> RawObject:
    """Return the record of a node as it is made."""
    owner = {"apiVersion": NODES.api_version, "kind": NODES.kind, "name": node, "uid": uid}
    return {
        "apiVersion": MAINTENANCE_RECORDS.api_version,
        "kind": MAINTENANCE_RECORDS.kind,
        "metadata": {
            "name": node,
            "ownerReferences": [owner],
            "annotations": {STANDING: records.write_standing(content.standing)},
        },
        "total": content.total,
        "entries": content.entries,
    }


def change(found: Record, after: Content) -> Patch:
    """Return the patch that makes this of a record, and of nothing else than it was: only what is new is sent."""
    kept = max(len(after.entries) - (after.total - found.total), 0)
    gone, fresh = len(found.entries) - kept, after.entries[kept:]
    standing = records.write_standing(after.standing)
    operations = [
        patches.replace("/metadata/resourceVersion", found.resource_version),  # another is a conflict
        *(patches.remove("/entries/0") for _ in range(gone)),
        *(patches.add("/entries/-", it) for it in fresh),
        patches.add("/total", after.total),
        _annotate(found, standing),
    ]
    return patches.json_patch(*operations)


def _annotate(found: Record, standing: str) -> Operation:
    if not found.metadata.annotations:
        return patches.add(patches.pointer("metadata", "annotations"), {STANDING: standing})
    return patches.add(patches.pointer("metadata", "annotations", STANDING), standing)
