"""Writes down what happened to nodes: in the background, a node at a time, and never in the way of what happens.

    keeper.note(node, Note(Entry(…)))        # returns at once
    await keeper.run()                       # until cancelled

**Cost.** Nothing while nothing happens. What happens to a node within a second is one read and one write: the record is
read when it is needed and forgotten again, and a JSON patch appends to it, bound to the version that was read. Of two
who write at once, one is refused and looks again. No record is watched.

**Taking over.** `stands` hears at the beginning where everything stands, and `completes` how to learn whether an object
is gone. All records are then listed once, without their entries, and only those that say something else are read and
completed.

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
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

import msgspec

from haulout.core.backoff import Backoff
from haulout.errors import (
    AlreadyExists,
    BadRequest,
    Conflict,
    Forbidden,
    GarbledAnswer,
    Invalid,
    KubeError,
    LeadershipLost,
    NotFound,
    Unauthorized,
)
from haulout.history import record as records
from haulout.history import survey
from haulout.history.record import (
    ENDED,
    MAINTENANCE_RECORDS,
    MOST_ENTRIES,
    STANDING,
    Content,
    Entry,
    Note,
    Record,
    Stand,
)
from haulout.kube import discovery, patches
from haulout.kube.client import Client
from haulout.kube.meters import HISTORY
from haulout.kube.objects import Node, Object, RawObject
from haulout.kube.patches import Operation, Patch
from haulout.kube.queue import Queue
from haulout.kube.resources import NODES

log = logging.getLogger(__name__)

GATHERED_FOR = timedelta(seconds=1)  # so that what happens together is written together
OFF_AFTER = timedelta(minutes=1)  # without the definition
ASKED_EVERY = timedelta(minutes=1)  # whether there is a definition by now
_CONFIRMED_AFTER = timedelta(seconds=5)  # that there is none when it begins
_SURVEY = ""  # the key of the look at all records: no node is called so
_WORKERS = 4
_TRIES = 5
_PAUSE = Backoff(first=timedelta(milliseconds=50), limit=timedelta(seconds=1), jitter=0.5)
_TRIED_AGAIN = Backoff(first=timedelta(seconds=1), limit=timedelta(seconds=30), jitter=0.5)
_MOST_NODES = 10_000
_MOST_NOTES = 20_000  # of all nodes together
_COUNTED_EVERY = 500  # notes
_REFUSED = (BadRequest, Invalid)  # for what an entry says
_OF_ONE_RECORD = (AlreadyExists, BadRequest, Conflict, GarbledAnswer, Invalid, NotFound)

IsGone = Callable[[str, str], Awaitable[bool]]  # by name and instance


class History(Protocol):
    """Where controllers tell what happened."""

    def note(self, node: Node, *notes: Note) -> None:
        """Have it written down some time soon."""
        ...

    def stands(self, node: Node, *claims: Note) -> None:
        """Have it completed, if it says something else about where things stand."""
        ...

    def completes(self, kind: str, is_gone: IsGone) -> None:
        """Have the end written down of objects of this kind that are gone, and of whose end nobody knows."""
        ...

    def subscribe(self, callback: Callable[[], object]) -> None:
        """Have `callback` called when history is switched on, so that it is told where everything stands."""
        ...

    def waits(self, node: str) -> bool:
        """Tell whether something of a node is not written down yet."""
        ...

    def troubles(self) -> Iterable[str]:
        """Return why entries cannot be written, in a line each."""
        ...

    async def settle(self, node: str, *, within: timedelta) -> None:
        """Return when all that was noted of a node is written down, or cannot be for now, or after `within`."""
        ...


class NoHistory:
    """Remembers nothing."""

    def note(self, node: Node, *notes: Note) -> None:
        """Forget it."""

    def stands(self, node: Node, *claims: Note) -> None:
        """Forget it."""

    def completes(self, kind: str, is_gone: IsGone) -> None:
        """Forget it."""

    def subscribe(self, callback: Callable[[], object]) -> None:
        """Forget it."""

    def waits(self, node: str) -> bool:
        """Tell that nothing ever will."""
        del node
        return False

    def troubles(self) -> Iterable[str]:
        """Return nothing."""
        return ()

    async def settle(self, node: str, *, within: timedelta) -> None:
        """Return at once."""


class _NoDefinition(Exception):
    """The server does not know the kind."""

    def __init__(self, why: KubeError) -> None:
        super().__init__(why)
        self.why = why


@dataclass(slots=True)
class _Waiting:
    """What waits to be written about a node, and what of it was given up before that."""

    uid: str
    notes: list[Note] = field(default_factory=list)
    lost: Note | None = None

    def all(self) -> tuple[Note, ...]:
        """Return what is to be written, in its order."""
        return tuple(self.notes) if self.lost is None else (self.lost, *self.notes)

    def done(self, written: Collection[Note]) -> None:
        """Forget what is written; more may have been given up meanwhile."""
        self.notes = [it for it in self.notes if it not in written]
        gap = next((it.entry for it in written if it.entry.is_gap), None)
        if self.lost is not None and gap is not None:
            left, last = self.lost.entry.missing - gap.missing, self.lost.entry.time
            self.lost = Note(entry=_overflow(left, gap.time, last)) if left > 0 else None


class Backlog(dict[str, _Waiting]):
    """What waits, by node, the one that has waited longest first.

    It may outlive the one who keeps the history: a process that leads again goes on with what it could not write
    before. What another leader has written meanwhile is known by its identity.
    """


@dataclass(slots=True)
class _Trouble:
    """Why nothing can be written, for how many tries in a row, and until when the next is put off."""

    why: KubeError
    tries: int = 0
    until: float = 0  # on the monotonic clock


class Keeper:
    """Keeps the history of nodes; the owner runs `run`."""

    def __init__(self, client: Client, backlog: Backlog | None = None) -> None:
        self.dropped = 0  # notes that were given up
        self._client = client
        self._clock = client.clock
        self._waiting = Backlog() if backlog is None else backlog
        self._claims = Backlog()  # until all records were looked at
        self._is_gone: dict[str, IsGone] = {}  # by kind
        self._subscribers: list[Callable[[], object]] = []
        self._uncounted = 0  # notes since all that wait were counted
        self._is_surveyed = False
        self._off = asyncio.Event()  # set while there is no definition
        self._missing_since: float | None = None  # the definition, on the monotonic clock
        self._trouble: _Trouble | None = None
        self._stuck: dict[str, KubeError] = {}  # by node: why its record cannot be written, though others can
        self._writing: dict[str, asyncio.Lock] = {}
        self._queue: Queue[str] = Queue(
            self._work,
            clock=client.clock,
            random=client.random,
            workers=_WORKERS,
            backoff=_TRIED_AGAIN,
            meters=client.meters,
            name="history",
        )
        for node in self._waiting:
            self._queue.add(node)

    @property
    def is_off(self) -> bool:
        """Tell whether there is no definition, as far as is known."""
        return self._off.is_set()

    def troubles(self) -> Iterator[str]:
        """Yield why entries cannot be written, in a line each."""
        if self._trouble is not None:
            yield f"history cannot be written, {_entries(self._count())} waiting: {self._trouble.why}"
        for node, why in self._stuck.items():
            yield f"the history of node {node} cannot be written: {why}"

    async def run(self) -> None:
        """Write until cancelled."""
        await self._learn_whether_on()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._queue.run())
            group.create_task(self._await_definition())

    def note(self, node: Node, *notes: Note) -> None:
        """Have it written down some time soon."""
        if not notes or self.is_off:
            return
        claims = self._claims.pop(node.name, None)  # they come first, and the record is read anyway
        before = claims.all() if claims is not None and claims.uid == node.uid else ()
        self._wait(self._waiting, node, (*before, *notes))
        self._queue.wake_at(node.name, self._clock.now() + GATHERED_FOR)

    def stands(self, node: Node, *claims: Note) -> None:
        """Have it completed, if it says something else about where things stand."""
        if not claims or self.is_off:
            return
        if self._is_surveyed or node.name in self._waiting:
            self.note(node, *claims)
            return
        self._wait(self._claims, node, claims)
        self._queue.wake_at(_SURVEY, self._clock.now() + GATHERED_FOR)

    def completes(self, kind: str, is_gone: IsGone) -> None:
        """Have the end written down of objects of this kind that are gone, and of whose end nobody knows."""
        self._is_gone[kind] = is_gone
        self._is_surveyed = False
        self._queue.wake_at(_SURVEY, self._clock.now() + GATHERED_FOR)

    def subscribe(self, callback: Callable[[], object]) -> None:
        """Have `callback` called when history is switched on, so that it is told where everything stands."""
        self._subscribers.append(callback)

    def waits(self, node: str) -> bool:
        """Tell whether something of a node is not written down yet, and can be."""
        return not self.is_off and (node in self._waiting or node in self._claims)

    async def settle(self, node: str, *, within: timedelta) -> None:
        """Return when all that was noted of a node is written down, or cannot be for now, or after `within`."""
        if node in self._waiting:
            await self._hurry([node], within)

    async def flush(self, within: timedelta) -> None:
        """Write all that waits; give up after `within`. For the end of a process."""
        if self._waiting:
            if self._trouble is not None:
                self._trouble.until = 0  # it is now or never
            await self._hurry(list(self._waiting), within)

    # What waits

    def _wait(self, waiting: Backlog, node: Node, notes: Sequence[Note]) -> None:
        known = waiting.get(node.name)
        if known is None or known.uid != node.uid:
            known = waiting[node.name] = _Waiting(node.uid)
        known.notes += notes
        self._lose(known, len(known.notes) - MOST_ENTRIES)
        self._uncounted += len(notes)
        if self._uncounted >= _COUNTED_EVERY:  # counting is not for every note of thousands of nodes
            self._uncounted = 0
            self._lose_surplus(self._count() - _MOST_NOTES)
        if len(waiting) > _MOST_NODES:
            self._drop(len(waiting.pop(next(iter(waiting))).notes))

    def _count(self) -> int:
        return sum(len(it.notes) for it in self._waiting.values())

    def _lose_surplus(self, surplus: int) -> None:
        """Give up this many notes, of the nodes that have waited longest."""
        for waiting in self._waiting.values():
            if surplus <= 0:
                return
            before = len(waiting.notes)
            self._lose(waiting, min(surplus, before))
            surplus -= before

    def _lose(self, waiting: _Waiting, number: int) -> None:
        """Give up the oldest notes of a node, and remember how many: that is written in their place."""
        lost = waiting.notes[: max(number, 0)]
        if not lost:
            return
        del waiting.notes[: len(lost)]
        self._drop(len(lost))
        before = 0 if waiting.lost is None else waiting.lost.entry.missing
        first = lost[0].entry.time if waiting.lost is None else waiting.lost.entry.since
        waiting.lost = Note(entry=_overflow(len(lost) + before, first or lost[0].entry.time, lost[-1].entry.time))

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
        """Write what waits for a node; return when to try again. What concerns this node alone is raised."""
        if (put_off := self._put_off()) is not None:
            return put_off
        lock = self._writing.setdefault(node, asyncio.Lock())
        try:
            async with lock:
                has_answer = await (self._look_around() if node == _SURVEY else self._write(node))
        except LeadershipLost:
            return None  # all that we do is about to be cancelled
        except _NoDefinition as error:
            return await self._miss_definition(error.why)
        except _OF_ONE_RECORD as error:
            if node == _SURVEY:
                return self._suffer(error)
            self._complain(node, error)
            raise  # the queue backs off, for this node alone
        except KubeError as error:
            return self._suffer(error)
        finally:
            if not lock.locked():
                self._writing.pop(node, None)
        if has_answer:
            self._recover(node)
        return None

    # Trouble

    def _put_off(self) -> datetime | None:
        """Return when to try, if not now: at another moment for each, so that none is always the first."""
        wait = 0 if self._trouble is None else self._trouble.until - self._clock.monotonic()
        if wait <= 0:
            return None
        return self._clock.now() + timedelta(seconds=wait + self._client.random.random())

    def _suffer(self, error: KubeError) -> datetime:
        """Put off all writes for a while, after a failure that may concern all of them."""
        known = self._trouble
        if known is not None and (put_off := self._put_off()) is not None:
            return put_off  # another worker was faster
        if known is None or type(known.why) is not type(error):
            level = logging.WARNING if isinstance(error, Forbidden | Unauthorized) else logging.INFO
            log.log(level, "history cannot be written for now, and what happens is kept until it can: %s", error)
        trouble = self._trouble = _Trouble(error, 1 if known is None else known.tries + 1)
        delay = _TRIED_AGAIN.delay(trouble.tries, self._client.random)
        delay = max(delay, getattr(error, "retry_after", None) or delay)
        trouble.until = self._clock.monotonic() + delay.total_seconds()
        return self._clock.now() + delay

    def _complain(self, node: str, error: KubeError) -> None:
        if type(self._stuck.get(node)) is not type(error) and not isinstance(error, Conflict | AlreadyExists):
            log.warning(
                "what happened to node %s cannot be written down for now, and is tried again: %s",
                node,
                error,
                extra={"node": node},
            )
        self._stuck[node] = error

    def _recover(self, node: str) -> None:
        self._stuck.pop(node, None)
        self._missing_since = None
        if self._trouble is None:
            return
        self._trouble = None
        log.info("history is written again: %s waiting", _entries(self._count()))
        for name in (*self._waiting, *((_SURVEY,) if self._claims else ())):
            self._queue.add(name)

    # The definition

    async def _learn_whether_on(self) -> None:
        """Be off from the start without a definition, but not because of a server that has just started itself."""
        try:
            if await discovery.serves(self._client, MAINTENANCE_RECORDS):
                return
        except KubeError as error:
            log.debug("whether a history is kept is not known yet: %s", error)
            return
        await self._clock.sleep(_CONFIRMED_AFTER)
        await self._ask_whether_on()

    async def _await_definition(self) -> None:
        while True:
            await self._off.wait()
            await self._clock.sleep(ASKED_EVERY)
            await self._ask_whether_on()

    async def _ask_whether_on(self) -> None:
        try:
            is_on = await discovery.serves(self._client, MAINTENANCE_RECORDS)
        except KubeError as error:
            log.debug("whether a history is kept is not known yet: %s", error)
            return
        if is_on and self.is_off:
            self._turn_on()
        elif not is_on and not self.is_off:
            self._turn_off()

    async def _miss_definition(self, why: KubeError) -> datetime | None:
        """Wait for a definition that is missing; be off if it has been for a while. A server that starts has none."""
        now = self._clock.monotonic()
        if self._missing_since is None:
            self._missing_since = now
        if now - self._missing_since < OFF_AFTER.total_seconds():
            return self._suffer(why)
        await self._ask_whether_on()
        return None if self.is_off else self._suffer(why)

    def _turn_off(self) -> None:
        log.info("%s is not installed: no history is kept", MAINTENANCE_RECORDS)
        self._off.set()
        self._waiting.clear()
        self._claims.clear()
        self._stuck.clear()
        self._trouble = None

    def _turn_on(self) -> None:
        log.info("%s is installed: a history is kept from now on", MAINTENANCE_RECORDS)
        self._off.clear()
        self._missing_since = None
        self._is_surveyed = False
        if self._is_gone:
            self._queue.add(_SURVEY)
        for callback in self._subscribers:
            callback()

    # Reading and writing

    async def _look_around(self) -> bool:
        """Look at all records, and have those completed that say something else than is so; tell whether it did."""
        if self.is_off or self._is_surveyed or not (self._claims or self._is_gone):
            return False
        try:
            found = await survey.standings(self._client)
        except NotFound as error:
            raise _NoDefinition(error) from error
        ends = {name: [it async for it in self._ends(about.standing)] for name, about in found.items()}
        claims, self._claims = self._claims, Backlog()
        self._is_surveyed = True
        for name, notes in ends.items():
            if notes:
                self._again(name, found[name].uid, notes, is_first=False)  # how it ended may be waiting
        for name, waiting in claims.items():
            about = found.get(name)
            known = about.standing if about is not None and about.uid == waiting.uid else {}
            if not all(records.is_told(it, known) for it in waiting.all()):
                # All of them: what is told by where things stand now may not be after the others are written.
                self._again(name, waiting.uid, list(waiting.all()))
        return True

    async def _ends(self, standing: Mapping[str, Stand]) -> AsyncIterator[Note]:
        """Yield the ends of what is open by a record, and gone."""
        for what, stand in standing.items():
            kind, _, name = what.partition("/")
            is_gone = self._is_gone.get(kind)
            if is_gone is not None and stand.state != ENDED and await is_gone(name, stand.instance):
                yield Note(entry=records.ended_unseen(what, stand, at=self._clock.now()), is_claim=True)

    def _again(self, name: str, uid: str, notes: list[Note], *, is_first: bool = True) -> None:
        known = self._waiting.setdefault(name, _Waiting(uid))
        if known.uid == uid:
            known.notes = [*notes, *known.notes] if is_first else [*known.notes, *notes]
        self._queue.add(name)

    async def _write(self, node: str) -> bool:
        """Write what waits for a node; tell whether anything did."""
        waiting = self._waiting.get(node)
        if waiting is None or self.is_off:
            return False
        notes = waiting.all()
        try:
            await self._store(node, waiting.uid, notes)
            waiting.done(notes)
        except _REFUSED:
            for note in notes:
                await self._store_alone(node, waiting.uid, note)
                waiting.done((note,))
        if not waiting.all() and self._waiting.get(node) is waiting:
            del self._waiting[node]
        return True

    async def _store_alone(self, node: str, uid: str, note: Note) -> None:
        """Write one entry; if the server refuses what it says, a gap in its place."""
        try:
            await self._store(node, uid, (note,))
        except _REFUSED as error:
            await self._store(node, uid, (Note(entry=_refused(note.entry, error)),))
            self._drop(1)
            log.warning("an entry in the history of node %s is refused: %s", node, error, extra={"node": node})

    async def _store(self, node: str, uid: str, notes: Sequence[Note]) -> None:
        for attempt in range(1, _TRIES + 1):
            try:
                await self._add(node, uid, notes)
            except (AlreadyExists, Conflict, NotFound):  # somebody was faster
                if attempt == _TRIES:
                    raise
            else:
                return
            await self._clock.sleep(_PAUSE.delay(attempt, self._client.random))

    async def _add(self, node: str, uid: str, notes: Sequence[Note]) -> None:
        found, is_readable = await self._find(node)
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
            patch = change(found, after) if is_readable else rewritten(found, after)
            await self._client.patch(MAINTENANCE_RECORDS, node, patch)

    async def _find(self, node: str) -> tuple[Record | None, bool]:
        """Return a record, and whether all of it can be read: what cannot be is a gap."""
        try:
            return await self._client.get(MAINTENANCE_RECORDS, node), True
        except NotFound:
            return None, True
        except GarbledAnswer:
            # Half an answer is no JSON, and is raised once more.
            stored = await self._client.get(MAINTENANCE_RECORDS.of(_Stored), node)
            return readable(stored, now=self._clock.now()), False

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
            raise _NoDefinition(error) from error


class _Stored(Object, frozen=True):
    """A record of which somebody wrote something that we do not understand."""

    total: Any = 0
    entries: Any = ()
    past: Any = ()


def readable(stored: _Stored, *, now: datetime) -> Record:
    """Return a record with a gap in place of each entry that cannot be read."""
    found = stored.entries if isinstance(stored.entries, list) else []
    entries = tuple(_read(it, now) for it in found)
    total = stored.total if isinstance(stored.total, int) else 0
    return Record(metadata=stored.metadata, total=max(total, len(entries)), entries=entries)


def _read(raw: Any, now: datetime) -> Entry:
    try:
        return msgspec.convert(raw, Entry)
    except msgspec.ValidationError as error:
        return records.gap(f"an entry cannot be read: {error}", time=now, missing=1)


def _entries(count: int) -> str:
    return f"{count} {'entry' if count == 1 else 'entries'}"


def _overflow(missing: int, first: datetime, last: datetime) -> Entry:
    between = f"between {records.instant(first)} and {records.instant(last)}"
    why = f"{_entries(missing)} missing {between}: more waited to be written than can be kept"
    return msgspec.structs.replace(records.gap(why, time=last, missing=missing), since=first)


def _refused(entry: Entry, error: KubeError) -> Entry:
    about = f" about {entry.what}" if entry.what else ""
    return records.gap(f"1 entry{about} missing: the API server refuses it: {error}", time=entry.time, missing=1)


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
        "past": content.past,
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
        *_forget(found, after),
        patches.add("/total", after.total),
        _annotate(found, standing),
    ]
    return patches.json_patch(*operations)


def rewritten(found: Record, after: Content) -> Patch:
    """Return the patch that replaces all entries of a record of which some cannot be read."""
    return patches.json_patch(
        patches.replace("/metadata/resourceVersion", found.resource_version),
        patches.add("/entries", after.entries),
        patches.add("/past", after.past),
        patches.add("/total", after.total),
        _annotate(found, records.write_standing(after.standing)),
    )


def _forget(found: Record, after: Content) -> Iterator[Operation]:
    """Yield what makes the digests of entries that have given way those that they are to be."""
    if after.past == found.past:
        return
    gone = len(found.past) + (after.total - found.total) + len(found.entries) - len(after.entries) - len(after.past)
    if not found.past:
        yield patches.add("/past", after.past)
        return
    kept = max(len(found.past) - gone, 0)
    yield from (patches.remove("/past/0") for _ in range(len(found.past) - kept))
    yield from (patches.add("/past/-", it) for it in after.past[kept:])


def _annotate(found: Record, standing: str) -> Operation:
    if not found.metadata.annotations:
        return patches.add(patches.pointer("metadata", "annotations"), {STANDING: standing})
    return patches.add(patches.pointer("metadata", "annotations", STANDING), standing)
