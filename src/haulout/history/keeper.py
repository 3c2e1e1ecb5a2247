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
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from datetime import datetime, timedelta

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
from haulout.history import record as records
from haulout.history import survey
from haulout.history.backlog import Backlog, Pending, Waiting, entries
from haulout.history.definition import Definition
from haulout.history.interface import IsGone
from haulout.history.outage import OF_ONE_RECORD, TRIED_AGAIN, Outage
from haulout.history.record import (
    ENDED,
    MAINTENANCE_RECORDS,
    Entry,
    Note,
    Stand,
)
from haulout.history.storage import NoDefinition, Storage
from haulout.kube.client import Client
from haulout.kube.objects import Node
from haulout.kube.queue import Queue

log = logging.getLogger(__name__)

GATHERED_FOR = timedelta(seconds=1)  # so that what happens together is written together
OFF_AFTER = timedelta(minutes=1)  # without the definition
WARNED_EVERY = timedelta(hours=1)  # of permissions that are missing
_SURVEY = ""  # the key of the look at all records: no node is called so
_WORKERS = 4
_REFUSED = (BadRequest, Invalid)  # for what an entry says


class Keeper:
    """Keeps the history of nodes; the owner runs `run`. `warn` hears of missing permissions, at most once an hour.

    `created` hears of each node for which a record is made: the node may be gone by then.
    """

    def __init__(
        self,
        client: Client,
        backlog: Backlog | None = None,
        *,
        warn: Callable[[str], Awaitable[object]] | None = None,
        created: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._client = client
        self._clock = client.clock
        self._pending = Pending(Backlog() if backlog is None else backlog, client.meters)
        self._is_gone: dict[str, IsGone] = {}  # by kind
        self._subscribers: list[Callable[[], object]] = []
        self._is_surveyed = False
        self._definition = Definition(client, turn_on=self._turn_on, turn_off=self._turn_off)
        self._missing_since: float | None = None  # the definition, on the monotonic clock
        self._outage = Outage(client.clock, client.random)
        self._storage = Storage(client, created=created)
        self._warn = warn
        self._warned_at: float | None = None  # on the monotonic clock
        self._stuck: dict[str, KubeError] = {}  # by node: why its record cannot be written, though others can
        self._writing: dict[str, asyncio.Lock] = {}
        self._queue: Queue[str] = Queue(
            self._work,
            clock=client.clock,
            random=client.random,
            workers=_WORKERS,
            backoff=TRIED_AGAIN,
            meters=client.meters,
            name="history",
        )
        for node in self._pending.waiting:
            self._queue.add(node)

    @property
    def dropped(self) -> int:
        """How many notes were given up."""
        return self._pending.dropped

    @property
    def is_off(self) -> bool:
        """Tell whether there is no definition, as far as is known."""
        return self._definition.is_off

    def troubles(self) -> Iterator[str]:
        """Yield why entries cannot be written, in a line each."""
        if self._outage.trouble is not None:
            yield f"history cannot be written, {entries(self._pending.count())} waiting: {self._outage.trouble.why}"
        for node, why in self._stuck.items():
            yield f"the history of node {node} cannot be written: {why}"

    async def run(self) -> None:
        """Write until cancelled."""
        await self._definition.learn()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._queue.run())
            group.create_task(self._definition.keep_asking())

    def note(self, node: Node, *notes: Note) -> None:
        """Have it written down some time soon."""
        if not notes or self.is_off:
            return
        claims = self._pending.claims.pop(node.name, None)  # they come first, and the record is read anyway
        before = claims.all() if claims is not None and claims.uid == node.uid else ()
        self._pending.wait(self._pending.waiting, node, (*before, *notes))
        self._queue.wake_at(node.name, self._clock.now() + GATHERED_FOR)

    def stands(self, node: Node, *claims: Note) -> None:
        """Have it completed, if it says something else about where things stand."""
        if not claims or self.is_off:
            return
        if self._is_surveyed or node.name in self._pending.waiting:
            self.note(node, *claims)
            return
        self._pending.wait(self._pending.claims, node, claims)
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
        return not self.is_off and (node in self._pending.waiting or node in self._pending.claims)

    async def settle(self, node: str, *, within: timedelta) -> None:
        """Return when all that was noted of a node is written down, or cannot be for now, or after `within`."""
        if node in self._pending.waiting:
            await self._hurry([node], within)

    async def flush(self, within: timedelta) -> None:
        """Write all that waits; give up after `within`. For the end of a process."""
        if self._pending.waiting:
            if self._outage.trouble is not None:
                self._outage.trouble.until = 0  # it is now or never
            await self._hurry(list(self._pending.waiting), within)

    # Work

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
        if (put_off := self._outage.put_off()) is not None:
            return put_off
        lock = self._writing.setdefault(node, asyncio.Lock())
        try:
            async with lock:
                has_answer = await (self._look_around() if node == _SURVEY else self._write(node))
        except LeadershipLost:
            return None  # all that we do is about to be cancelled
        except NoDefinition as error:
            return await self._miss_definition(error.why)
        except OF_ONE_RECORD as error:
            if node == _SURVEY:
                return self._outage.suffer(error)
            self._complain(node, error)
            raise  # the queue backs off, for this node alone
        except KubeError as error:
            await self._warn_of(error)
            return self._outage.suffer(error)
        finally:
            if not lock.locked():
                self._writing.pop(node, None)
        if has_answer:
            self._recover(node)
        return None

    # Trouble

    async def _warn_of(self, error: KubeError) -> None:
        """Warn of missing permissions, unless that was done within the last hour."""
        if not isinstance(error, Forbidden | Unauthorized):
            return
        now = self._clock.monotonic()
        is_known = self._warned_at is not None and now - self._warned_at < WARNED_EVERY.total_seconds()
        if self._warn is None or is_known:
            return
        self._warned_at = now
        advice = "`haulout cluster-info` shows what to grant"
        await self._warn(f"the history of nodes cannot be written: {error}; entries are kept until it can; {advice}")

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
        if self._outage.trouble is None:
            return
        self._outage.trouble = None
        log.info("history is written again: %s waiting", entries(self._pending.count()))
        for name in (*self._pending.waiting, *((_SURVEY,) if self._pending.claims else ())):
            self._queue.add(name)

    # The definition

    async def _miss_definition(self, why: KubeError) -> datetime | None:
        """Wait for a definition that is missing; be off if it has been for a while. A server that starts has none."""
        now = self._clock.monotonic()
        if self._missing_since is None:
            self._missing_since = now
        if now - self._missing_since < OFF_AFTER.total_seconds():
            return self._outage.suffer(why)
        await self._definition.ask()
        return None if self.is_off else self._outage.suffer(why)

    def _turn_off(self) -> None:
        log.info("%s is not installed: no history is kept", MAINTENANCE_RECORDS)
        self._definition.off.set()
        self._pending.waiting.clear()
        self._pending.claims.clear()
        self._stuck.clear()
        self._outage.trouble = None

    def _turn_on(self) -> None:
        log.info("%s is installed: a history is kept from now on", MAINTENANCE_RECORDS)
        self._definition.off.clear()
        self._missing_since = None
        self._is_surveyed = False
        if self._is_gone:
            self._queue.add(_SURVEY)
        for callback in self._subscribers:
            callback()

    # Reading and writing

    async def _look_around(self) -> bool:
        """Look at all records, and have those completed that say something else than is so; tell whether it did."""
        if self.is_off or self._is_surveyed or not (self._pending.claims or self._is_gone):
            return False
        try:
            found = await survey.standings(self._client)
        except NotFound as error:
            raise NoDefinition(error) from error
        ends = {name: [it async for it in self._ends(about.standing)] for name, about in found.items()}
        claims, self._pending.claims = self._pending.claims, Backlog()
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
        known = self._pending.waiting.setdefault(name, Waiting(uid))
        if known.uid == uid:
            known.notes = [*notes, *known.notes] if is_first else [*known.notes, *notes]
        self._queue.add(name)

    async def _write(self, node: str) -> bool:
        """Write what waits for a node; tell whether anything did."""
        waiting = self._pending.waiting.get(node)
        if waiting is None or self.is_off:
            return False
        notes = waiting.all()
        try:
            await self._storage.store(node, waiting.uid, notes)
            waiting.done(notes)
        except _REFUSED:
            for note in notes:
                await self._store_alone(node, waiting.uid, note)
                waiting.done((note,))
        if not waiting.all() and self._pending.waiting.get(node) is waiting:
            del self._pending.waiting[node]
        return True

    async def _store_alone(self, node: str, uid: str, note: Note) -> None:
        """Write one entry; if the server refuses what it says, a gap in its place."""
        try:
            await self._storage.store(node, uid, (note,))
        except _REFUSED as error:
            await self._storage.store(node, uid, (Note(entry=_refused(note.entry, error)),))
            self._pending.drop(1)
            log.warning("an entry in the history of node %s is refused: %s", node, error, extra={"node": node})


def _refused(entry: Entry, error: KubeError) -> Entry:
    about = f" about {entry.what}" if entry.what else ""
    return records.gap(f"1 entry{about} missing: the API server refuses it: {error}", time=entry.time, missing=1)
