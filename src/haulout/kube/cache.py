"""A copy of part of a cluster that follows it, in an indexed store.

The copy is a hint. It may be seconds old, and a decision that disrupts anything is confirmed by its write's
precondition. What it does promise:

- After any disconnect it converges to what the server has: no object lost, none left that is gone.
- It never goes back. An older state of an object, a repeated or a late event, a list served from an older revision
  change nothing. Only when a server insists on an older state (etcd restored from a backup) is that accepted.
- Handlers get the row before and after, once per change, when the store already shows it. An object replaced by another
  of the same name is seen to go and then to come.
- An object that does not fit its kind is left out and named in `misfits`; it holds up nothing else.

How the connection is kept is `haulout.kube.follow`'s business.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from sys import getsizeof
from typing import Any, Generic, NoReturn, TypeVar

import msgspec

from haulout.errors import GarbledAnswer, KubeError, LimitExceeded
from haulout.kube.client import Client
from haulout.kube.follow import Follower, Selection
from haulout.kube.objects import Metadata, Misfit, Object, WatchEvent
from haulout.kube.store import Indexer, R, Store

T = TypeVar("T")
Handler = Callable[[R | None, R | None], None]

log = logging.getLogger(__name__)

_INSISTENCE = 5  # times in a row that a server must show an older state before it is believed
_MOST_DIGITS = 20  # of a resource version, which has 64 bits
_FAILED = "a handler for %s failed; going on"
_GRAVES = 1024  # objects that went are remembered, so that a late event cannot bring one back
_LONGEST_UID = 253  # characters of one that is remembered
_UNCHECKED = 1000  # objects that may come before a cache that does not measure them asks its budget again
_MISFIT_BYTES = 1024  # of a misfit, besides its name and problem
_MISFITS_LOGGED = 100  # after each list


def as_is(thing: T) -> T:
    """Keep the whole object as its own row."""
    return thing


@dataclass(frozen=True, slots=True)
class CacheHealth:
    """How well a cache follows its cluster."""

    synced: bool  # it has been complete at least once, and was not emptied since
    heard_at: datetime | None  # when the server last said anything
    problem: str | None  # why it is not following now
    is_missing: bool  # the server knows no such kind of object
    misfits: Mapping[str, str]  # objects left out, and why


class StaleList(KubeError):
    """The server's list shows a state that is older than one already seen."""


class Cache(Generic[R]):
    """Rows of the selected objects, kept up to date by `run`, which belongs into its owner's task group.

    With `keeps` only some of them take room. When it comes to say yes to what is there already, that has to be asked
    for and `note`d.

    All caches of a client share a budget (`haulout.kube.limits`) of objects and, with `size`, which measures a row, of
    bytes. When other clusters need the bytes, the cache is emptied, as if the server had exceeded a limit: handlers
    are not told, and everything is listed anew later. `observe` is called with each failure to follow, and with None
    when it follows again.
    """

    def __init__(
        self,
        client: Client,
        selection: Selection[T],
        *,
        row: Callable[[T], R],
        indexes: Mapping[str, Indexer[R]] | None = None,
        stays: Callable[[R, R], bool] | None = None,
        keeps: Callable[[R], bool] | None = None,
        size: Callable[[R], int] | None = None,
        observe: Callable[[KubeError | None], None] = lambda _: None,
    ) -> None:
        self.resource = selection.resource
        self.misfits: dict[str, str] = {}
        self._clock = client.clock
        self._meters = client.meters
        self._row: Callable[[Any], R] = row
        self._keeps = keeps
        self._size = size
        self._budget = client.cached
        self._store: Store[R] = Store(indexes, stays=stays, size=size)
        self._collected: dict[str, R] = {}
        self._collected_misfits: dict[str, str] = {}
        self._collected_bytes = self._misfit_bytes = self._collected_misfit_bytes = 0
        self._unchanged_bytes = 0  # of what is collected: rows that the store has, too
        self._evicted: str | None = None  # why; since then nothing may be taken in but a whole list
        self._check_at = 0  # objects
        self._misfits_logged = 0
        self._handlers: list[Handler[R]] = []
        self._graves: dict[str, int] = {}  # by uid: the revision at which it went
        self._newest = 0
        self._times_stale = 0
        self._synced = asyncio.Event()
        self._readers: list[tuple[int, asyncio.Future[None]]] = []
        self._follower: Follower[Any] = Follower(client, selection, self, observe=observe)

    async def run(self) -> NoReturn:
        """Follow the cluster until cancelled."""
        self._budget.register(self, self._evict)
        try:
            with self._meters.following(self):
                await self._follower.run()
        finally:
            self._budget.release(self)

    # For readers

    def __len__(self) -> int:
        return len(self._store)

    def get(self, key: str) -> R | None:
        """Return the row with this key (`namespace/name`, or the name)."""
        return self._store.get(key)

    def all(self) -> Collection[R]:
        """Return all rows; a live view, so copy it before you wait for anything."""
        return self._store.all()

    def by(self, index: str, value: str) -> Collection[R]:
        """Return the rows that `index` puts under `value`; a live view as well."""
        return self._store.by(index, value)

    def subscribe(self, handler: Handler[R]) -> Callable[[], None]:
        """Call `handler(old, new)` once for each row there is, then for each change; returns what ends that.

        A handler must not wait for anything. One that raises is logged, and the cache goes on.
        """
        self._handlers.append(handler)
        for row in list(self._store.all()):
            self._tell(handler, None, row)
        return lambda: self._handlers.remove(handler)

    async def wait_synced(self) -> None:
        """Return when the cache is complete."""
        while not self._synced.is_set():  # it may be emptied before this task gets to run
            await self._synced.wait()

    async def read_after_write(self, resource_version: str) -> None:
        """Return when the cache has seen all up to `resource_version`: what one of our writes was answered with.

        For an object outside of the cache's selection that is at the next bookmark, within a minute or so.
        """
        wanted = revision(resource_version)
        if self.has_seen(wanted):
            return
        reader = wanted, asyncio.get_running_loop().create_future()
        self._readers.append(reader)
        try:
            await reader[1]
        finally:
            self._readers.remove(reader)

    def has_seen(self, at: int) -> bool:
        """Tell whether the cache has seen all up to this revision."""
        return self._newest >= at

    async def has_seen_by_now(self, at: int) -> bool:
        """Tell the same after all who are runnable had their turn.

        Where the server is in the same process, that is when the cache has heard: no need to set a timer for it.
        """
        await self._clock.sleep(timedelta())
        return self.has_seen(at)

    def health(self) -> CacheHealth:
        """Return how well the cache follows."""
        heard = self._follower.heard
        ago = None if heard is None else timedelta(seconds=asyncio.get_running_loop().time() - heard)
        return CacheHealth(
            synced=self._synced.is_set(),
            heard_at=None if ago is None else self._clock.now() - ago,
            problem=self._follower.problem,
            is_missing=self._follower.is_missing,
            misfits=dict(self.misfits),
        )

    def note(self, thing: Any) -> None:
        """Take what the server answered to somebody else's question, unless something newer is known."""
        if self._evicted is not None:
            return
        row = self._made(thing)
        at = revision(row.resource_version)
        if self._graves.get(row.uid, 0) < at:
            self._apply_state(row.key, row, at)

    def forget(self, rows: Iterable[R]) -> None:
        """Forget rows that are not to be kept any more; nobody is told."""
        for row in tuple(rows):
            self._store.drop(row.key)

    # For the follower

    @property
    def position(self) -> str:
        """The resource version from which a watch continues."""
        return str(self._newest)

    def begin(self) -> None:
        """Expect all objects there are."""
        self._evicted = None
        self._drop_collected()

    def _drop_collected(self) -> None:
        self._collected = {}
        self._collected_misfits = {}
        self._collected_bytes = self._collected_misfit_bytes = self._unchanged_bytes = self._check_at = 0

    def collect(self, thing: Any) -> None:
        """Take one of the objects there are."""
        if self._evicted is not None:  # what was under way when the rows were freed is not the state of things
            raise LimitExceeded(self._evicted)
        row = self._made(thing)
        if isinstance(row, Misfit):
            self._collected.pop(row.key, None)
            self._collected_misfits[row.key] = row.problem
            self._collected_misfit_bytes += _misfit_size(row)
            if self._size is not None:
                self._check_collected()
            return
        self._collected_misfits.pop(row.key, None)
        if self._keeps is not None and not self._keeps(row):
            self._collected.pop(row.key, None)
            return
        known = self._store.get(row.key)
        # The very same state again: keep the row we have, so that loading anew does not hold everything twice.
        same = known is not None and known.uid == row.uid and known.resource_version == row.resource_version
        self._collected[row.key] = known if same and known is not None else row
        if self._size is not None:
            size = self._size(row)
            self._collected_bytes += size
            self._unchanged_bytes += size if same else 0
            self._check_collected()

    def discard(self, thing: Any) -> None:
        """Take back one that was collected."""
        row = self._made(thing)
        self._collected.pop(row.key, None)
        self._collected_misfits.pop(row.key, None)

    def complete(self, resource_version: str) -> None:
        """Make what was collected the state of things, and tell the handlers what is different."""
        if self._evicted is not None:  # what was under way when the rows were freed is not the state of things
            raise LimitExceeded(self._evicted)
        self._refuse_stale(resource_version)
        self._check_collected()  # what is not measured is bounded by the limits of a list until now
        collected, self._collected = self._collected, {}
        self._misfits_logged = 0
        self._log_misfits(self._collected_misfits)
        self.misfits, self._misfit_bytes = self._collected_misfits, self._collected_misfit_bytes
        self._collected_misfits = {}
        now = revision(resource_version)
        gone = [row for row in self._store.all() if row.key not in collected]
        changes: list[tuple[R | None, R | None]] = []
        for row in gone:
            self._store.drop(row.key)
            self._bury(row.uid, now)
            changes.append((row, None))
        for row in collected.values():
            old = self._store.get(row.key)
            if old is not row:
                self._store.put(row)
                changes += _steps(old, row)
        self._drop_collected()
        if self._size is not None:
            self._check_kept(len(self._store) + len(self.misfits), self._store.size)
        self._budget.settle()
        self._newest = 0
        self._synced.set()
        self.advance(resource_version)
        handlers = tuple(self._handlers)  # who subscribes while these are told has been told the new state already
        for old, new in changes:
            for handler in handlers:
                self._tell(handler, old, new)

    def apply(self, event: WatchEvent[Any]) -> None:
        """Take one change, unless it is older than what is known already."""
        if self._evicted is not None:  # what was under way when the rows were freed is not the state of things
            raise LimitExceeded(self._evicted)
        row = self._made(event.object)
        key = row.key
        if not key:
            log.warning("%s: an object without a name, which nobody can use, is left out", self.resource)
            return
        at = revision(row.resource_version)
        if event.type == "DELETED":
            self._apply_deletion(key, row, at)
        elif self._graves.get(row.uid, 0) < at:
            self._apply_state(key, row, at)
        self._advance(at)

    def advance(self, resource_version: str) -> None:
        """Note that all changes up to `resource_version` are known."""
        self._advance(revision(resource_version))

    def _advance(self, at: int) -> None:
        self._newest = max(self._newest, at)
        if self._readers:
            for wanted, seen in self._readers:
                if wanted <= self._newest and not seen.done():
                    seen.set_result(None)

    def is_ahead_of(self, resource_version: str) -> bool:
        """Tell whether something newer than `resource_version` was seen."""
        return self._newest > revision(resource_version)

    # How changes are taken in

    def _made(self, thing: Any) -> R | Misfit:
        """Return the row for `thing`; whatever no row can be made of is a misfit, too."""
        if isinstance(thing, Misfit):
            return thing
        try:
            return self._row(thing)
        except Exception as error:  # noqa: BLE001 - one odd object must not end the cache, whatever it breaks
            return Misfit(metadata=_metadata_of(thing), problem=f"no row can be made of it: {error!r}")

    def _apply_state(self, key: str, row: R | Misfit, at: int) -> None:
        old = self._store.get(key)
        if old is not None and revision(old.resource_version) >= at:
            return
        if isinstance(row, Misfit):
            self._misfit_bytes += _misfit_size(row)
            self._check_kept(len(self._store) + len(self.misfits) + 1, self._store.size)
            self._log_misfits({key: row.problem})
            self.misfits[key] = row.problem
            self._store.drop(key)
            steps: list[tuple[R | None, R | None]] = [(old, None)] if old is not None else []
        elif self._keeps is not None and not self._keeps(row):
            self._store.drop(key)
            steps = [(old, None)] if old is not None else []
        else:
            if self._size is not None:
                self._check_kept(len(self._store) + 1, self._store.size + self._size(row))
            elif old is None and len(self._store) >= self._check_at:
                self._check_kept(len(self._store) + 1, 0)
            if self.misfits:
                self.misfits.pop(key, None)
            self._store.put(row)
            if old is None or old.uid == row.uid:
                self._tell_all(old, row)
                return
            steps = _steps(old, row)
        for before, after in steps:
            if before is not None and after is None and before.uid != row.uid:
                self._bury(before.uid, at)
            self._tell_all(before, after)

    def _apply_deletion(self, key: str, row: R | Misfit, at: int) -> None:
        self._bury(row.uid, at)
        known = self._store.get(key)
        if known is None:
            self.misfits.pop(key, None)
        elif known.uid == row.uid and revision(known.resource_version) <= at:
            self._store.drop(key)
            self._tell_all(known, None)

    def _log_misfits(self, misfits: Mapping[str, str]) -> None:
        for key, problem in misfits.items():
            if self.misfits.get(key) != problem and self._misfits_logged < _MISFITS_LOGGED:
                self._misfits_logged += 1
                log.warning("leaving out %s %s, which does not fit its kind: %s", self.resource, key, problem)

    def _check_collected(self) -> None:
        if self._size is None:
            self._check(len(self._collected) + len(self._collected_misfits), 0)
            return
        size = self._collected_bytes + self._collected_misfit_bytes
        replaced = max(self._store.size + self._misfit_bytes - self._unchanged_bytes, 0)
        self._check(len(self._collected) + len(self._collected_misfits), size, replaced=replaced)

    def _check_kept(self, objects: int, size: int) -> None:
        self._check(objects, 0 if self._size is None else size + self._misfit_bytes)

    def _check(self, objects: int, size: int, *, replaced: int = 0) -> None:
        """Raise `LimitExceeded` if this much is more than the caches of a cluster may keep."""
        self._budget.keep(self, objects=objects, size=size, replaced=replaced, doing=f"following {self.resource}")
        self._check_at = objects + _UNCHECKED

    def _evict(self, error: LimitExceeded) -> None:
        """Free all rows at once: other clusters need the memory. Handlers are not told, `observe` is."""
        self._evicted = str(error)  # not the error: its traceback keeps rows in memory
        self._synced.clear()
        self._drop_collected()
        for key in tuple(it.key for it in self._store.all()):
            self._store.drop(key)
        self.misfits, self._misfit_bytes = {}, 0
        self._follower.interrupt(error)

    def _refuse_stale(self, resource_version: str) -> None:
        if revision(resource_version) >= self._newest:
            self._times_stale = 0
            return
        self._times_stale += 1
        story = f"listing {self.resource}: the server shows revision {resource_version}, {self._newest} was seen before"
        if self._times_stale < _INSISTENCE:
            raise StaleList(story)
        log.warning("%s; it insists, so etcd was restored from a backup: starting over", story)
        self._times_stale = 0
        self._graves.clear()

    def _bury(self, uid: str, at: int) -> None:
        if len(uid) > _LONGEST_UID:
            return
        self._graves[uid] = max(at, self._graves.get(uid, 0))
        if len(self._graves) > _GRAVES:
            del self._graves[next(iter(self._graves))]

    def _tell_all(self, old: R | None, new: R | None) -> None:
        for handler in tuple(self._handlers):
            try:
                handler(old, new)
            except Exception:
                log.exception(_FAILED, self.resource)

    def _tell(self, handler: Handler[R], old: R | None, new: R | None) -> None:
        try:
            handler(old, new)
        except Exception:
            log.exception(_FAILED, self.resource)


def _misfit_size(misfit: Misfit) -> int:
    return getsizeof(misfit.key) + getsizeof(misfit.problem) + _MISFIT_BYTES


def _metadata_of(thing: Any) -> Metadata:
    if isinstance(thing, Object):
        return thing.metadata
    try:
        return msgspec.convert(thing["metadata"], Metadata)
    except (LookupError, TypeError, msgspec.ValidationError):
        return Metadata()


def revision(resource_version: str) -> int:
    """Return a resource version as the number that it is; two of one resource compare as they followed each other."""
    if not resource_version.isdecimal() or len(resource_version) > _MOST_DIGITS:
        raise GarbledAnswer(f"the resource version {resource_version[:_MOST_DIGITS]!r} is not a number")
    return int(resource_version)


def _steps(old: R | None, new: R) -> list[tuple[R | None, R | None]]:
    """Return the change from `old` to `new`; if they are two objects of one name, that one went and the other came."""
    if old is None or old.uid == new.uid:
        return [(old, new)]
    return [(old, None), (None, new)]
