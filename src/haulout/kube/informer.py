"""A copy of part of a cluster that follows it, in an indexed store.

The copy is a hint. It may be seconds old, and a decision that disrupts anything is confirmed by its write's
precondition. What it does promise:

- After any disconnect it converges to what the server has: no object lost, none left that is gone.
- It never goes back. An older state of an object, a repeated or a late event, a list served from an older revision
  change nothing. Only when a server insists on an older state (etcd restored from a backup) is that accepted.
- Handlers get the row before and after, once per change, when the store already shows it. An object replaced by another
  of the same name is seen to go and then to come.
- An object that does not fit its kind is left out and named in `undecodable`; it holds up nothing else.

How the connection is kept is `haulout.kube.reflector`'s business.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from sys import getsizeof
from typing import Any, Generic, NoReturn, TypeVar

import msgspec

from haulout.api.objects import Object, ObjectMeta, UndecodableObject, WatchEvent
from haulout.errors import KubeError, LimitExceeded, MalformedResponse
from haulout.kube.client import Client
from haulout.kube.indexer import IndexedStore, IndexFunc, R
from haulout.kube.reflector import ListWatch, Reflector

T = TypeVar("T")
Handler = Callable[[R | None, R | None], None]

log = logging.getLogger(__name__)

_MAX_STALE_LISTS = 5  # times in a row that a server must show an older state before it is believed
_MAX_DIGITS = 20  # of a resource version, which has 64 bits
_HANDLER_FAILED = "a handler for %s failed; going on"
_MAX_TOMBSTONES = 1024  # objects that went are remembered, so that a late event cannot bring one back
_MAX_UID_LENGTH = 253  # characters of one that is remembered
_QUOTA_CHECK_INTERVAL = 1000  # objects that may come before a cache that does not measure them asks its budget again
_UNDECODABLE_BYTES = 1024  # of a misfit, besides its name and problem
_MAX_UNDECODABLE_LOGGED = 100  # after each list


def as_is(obj: T) -> T:
    """Keep the whole object as its own row."""
    return obj


@dataclass(frozen=True, slots=True)
class InformerHealth:
    """How well a cache follows its cluster."""

    has_synced: bool  # it has been complete at least once, and was not emptied since
    last_received_at: datetime | None  # when the server last said anything
    problem: str | None  # why it is not following now
    is_missing: bool  # the server knows no such kind of object
    undecodable: Mapping[str, str]  # objects left out, and why


class StaleList(KubeError):
    """The server's list shows a state that is older than one already seen."""


class Informer(Generic[R]):
    """Rows of the selected objects, kept up to date by `run`, which belongs into its owner's task group.

    With `keep` only some of them take room. When it comes to say yes to what is there already, that has to be asked
    for and `update`d.

    All caches of a client share a budget (`haulout.kube.limits`) of objects and, with `size`, which measures a row, of
    bytes. When other clusters need the bytes, the cache is emptied, as if the server had exceeded a limit: handlers
    are not told, and everything is listed anew later. `on_health_change` is called with each failure to follow, and
    with None when it follows again.
    """

    def __init__(
        self,
        client: Client,
        list_watch: ListWatch[T],
        *,
        transform: Callable[[T], R],
        indexes: Mapping[str, IndexFunc[R]] | None = None,
        has_same_index_values: Callable[[R, R], bool] | None = None,
        keep: Callable[[R], bool] | None = None,
        size: Callable[[R], int] | None = None,
        on_health_change: Callable[[KubeError | None], None] = lambda _: None,
    ) -> None:
        self.resource = list_watch.resource
        self.undecodable: dict[str, str] = {}
        self._clock = client.clock
        self._metrics = client.metrics
        self._transform: Callable[[Any], R] = transform
        self._keep = keep
        self._size = size
        self._quota = client.cache_quota
        self._store: IndexedStore[R] = IndexedStore(indexes, has_same_index_values=has_same_index_values, size=size)
        self._listed: dict[str, R] = {}
        self._listed_undecodable: dict[str, str] = {}
        self._listed_bytes = self._undecodable_bytes = self._listed_undecodable_bytes = 0
        self._unchanged_bytes = 0  # of what is collected: rows that the store has, too
        self._eviction_reason: str | None = None  # why; since then nothing may be taken in but a whole list
        self._check_quota_at = 0  # objects
        self._undecodable_logged = 0
        self._handlers: list[Handler[R]] = []
        self._tombstones: dict[str, int] = {}  # by uid: the revision at which it went
        self._last_revision = 0
        self._times_stale = 0
        self._synced = asyncio.Event()
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._reflector: Reflector[Any] = Reflector(client, list_watch, self, on_health_change=on_health_change)

    async def run(self) -> NoReturn:
        """Follow the cluster until cancelled."""
        self._quota.register(self, self._evict)
        try:
            with self._metrics.track_informer(self):
                await self._reflector.run()
        finally:
            self._quota.release(self)

    # For readers

    def __len__(self) -> int:
        return len(self._store)

    def get(self, key: str) -> R | None:
        """Return the row with this key (`namespace/name`, or the name)."""
        return self._store.get(key)

    def all(self) -> Collection[R]:
        """Return all rows; a live view, so copy it before you wait for anything."""
        return self._store.all()

    def by_index(self, index: str, value: str) -> Collection[R]:
        """Return the rows that `index` puts under `value`; a live view as well."""
        return self._store.by_index(index, value)

    def subscribe(self, handler: Handler[R]) -> Callable[[], None]:
        """Call `handler(old, new)` once for each row there is, then for each change; returns what ends that.

        A handler must not wait for anything. One that raises is logged, and the cache goes on.
        """
        self._handlers.append(handler)
        for row in list(self._store.all()):
            self._notify(handler, None, row)
        return lambda: self._handlers.remove(handler)

    async def wait_synced(self) -> None:
        """Return when the cache is complete."""
        while not self._synced.is_set():  # it may be emptied before this task gets to run
            await self._synced.wait()

    async def wait_for_resource_version(self, resource_version: str) -> None:
        """Return when the cache has seen all up to `resource_version`: what one of our writes was answered with.

        For an object outside of the cache's selection that is at the next bookmark, within a minute or so.
        """
        wanted = revision(resource_version)
        if self.has_seen(wanted):
            return
        waiter = wanted, asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter[1]
        finally:
            self._waiters.remove(waiter)

    def has_seen(self, wanted: int) -> bool:
        """Tell whether the cache has seen all up to this revision."""
        return self._last_revision >= wanted

    async def has_seen_after_yield(self, wanted: int) -> bool:
        """Tell the same after all who are runnable had their turn.

        Where the server is in the same process, that is when the cache has heard: no need to set a timer for it.
        """
        await self._clock.sleep(timedelta())
        return self.has_seen(wanted)

    def health(self) -> InformerHealth:
        """Return how well the cache follows."""
        received = self._reflector.last_received
        age = None if received is None else timedelta(seconds=asyncio.get_running_loop().time() - received)
        return InformerHealth(
            has_synced=self._synced.is_set(),
            last_received_at=None if age is None else self._clock.now() - age,
            problem=self._reflector.problem,
            is_missing=self._reflector.is_missing,
            undecodable=dict(self.undecodable),
        )

    def update(self, obj: Any) -> None:
        """Take what the server answered to somebody else's question, unless something newer is known."""
        if self._eviction_reason is not None:
            return
        row = self._transformed(obj)
        at = revision(row.resource_version)
        if self._tombstones.get(row.uid, 0) < at:
            self._apply_update(row.key, row, at)

    def remove(self, rows: Iterable[R]) -> None:
        """Forget rows that are not to be kept any more; nobody is told."""
        for row in tuple(rows):
            self._store.drop(row.key)

    # For the follower

    @property
    def last_resource_version(self) -> str:
        """The resource version from which a watch continues."""
        return str(self._last_revision)

    def begin_list(self) -> None:
        """Expect all objects there are."""
        self._eviction_reason = None
        self._drop_listed()

    def _drop_listed(self) -> None:
        self._listed = {}
        self._listed_undecodable = {}
        self._listed_bytes = self._listed_undecodable_bytes = self._unchanged_bytes = self._check_quota_at = 0

    def add_listed(self, obj: Any) -> None:
        """Take one of the objects there are."""
        if self._eviction_reason is not None:  # what was under way when the rows were freed is not the state of things
            raise LimitExceeded(self._eviction_reason)
        row = self._transformed(obj)
        if isinstance(row, UndecodableObject):
            self._listed.pop(row.key, None)
            self._listed_undecodable[row.key] = row.problem
            self._listed_undecodable_bytes += _undecodable_size(row)
            if self._size is not None:
                self._check_listed_quota()
            return
        self._listed_undecodable.pop(row.key, None)
        if self._keep is not None and not self._keep(row):
            self._listed.pop(row.key, None)
            return
        known = self._store.get(row.key)
        # The very same state again: keep the row we have, so that loading anew does not hold everything twice.
        same = known is not None and known.uid == row.uid and known.resource_version == row.resource_version
        self._listed[row.key] = known if same and known is not None else row
        if self._size is not None:
            size = self._size(row)
            self._listed_bytes += size
            self._unchanged_bytes += size if same else 0
            self._check_listed_quota()

    def discard_listed(self, obj: Any) -> None:
        """Take back one that was collected."""
        row = self._transformed(obj)
        self._listed.pop(row.key, None)
        self._listed_undecodable.pop(row.key, None)

    def finish_list(self, resource_version: str) -> None:
        """Make what was collected the state of things, and tell the handlers what is different."""
        if self._eviction_reason is not None:  # what was under way when the rows were freed is not the state of things
            raise LimitExceeded(self._eviction_reason)
        self._reject_stale(resource_version)
        self._check_listed_quota()  # what is not measured is bounded by the limits of a list until now
        listed, self._listed = self._listed, {}
        self._undecodable_logged = 0
        self._log_undecodable(self._listed_undecodable)
        self.undecodable, self._undecodable_bytes = self._listed_undecodable, self._listed_undecodable_bytes
        self._listed_undecodable = {}
        now = revision(resource_version)
        gone = [row for row in self._store.all() if row.key not in listed]
        changes: list[tuple[R | None, R | None]] = []
        for row in gone:
            self._store.drop(row.key)
            self._add_tombstone(row.uid, now)
            changes.append((row, None))
        for row in listed.values():
            old = self._store.get(row.key)
            if old is not row:
                self._store.put(row)
                changes += _changes(old, row)
        self._drop_listed()
        if self._size is not None:
            self._check_stored_quota(len(self._store) + len(self.undecodable), self._store.size)
        self._quota.mark_synced()
        self._last_revision = 0
        self._synced.set()
        self.advance(resource_version)
        handlers = tuple(self._handlers)  # who subscribes while these are told has been told the new state already
        for old, new in changes:
            for handler in handlers:
                self._notify(handler, old, new)

    def apply(self, event: WatchEvent[Any]) -> None:
        """Take one change, unless it is older than what is known already."""
        if self._eviction_reason is not None:  # what was under way when the rows were freed is not the state of things
            raise LimitExceeded(self._eviction_reason)
        row = self._transformed(event.object)
        key = row.key
        if not key:
            log.warning("%s: an object without a name, which nobody can use, is left out", self.resource)
            return
        at = revision(row.resource_version)
        if event.type == "DELETED":
            self._apply_deletion(key, row, at)
        elif self._tombstones.get(row.uid, 0) < at:
            self._apply_update(key, row, at)
        self._advance(at)

    def advance(self, resource_version: str) -> None:
        """Note that all changes up to `resource_version` are known."""
        self._advance(revision(resource_version))

    def _advance(self, at: int) -> None:
        self._last_revision = max(self._last_revision, at)
        if self._waiters:
            for wanted, future in self._waiters:
                if wanted <= self._last_revision and not future.done():
                    future.set_result(None)

    def is_ahead_of(self, resource_version: str) -> bool:
        """Tell whether something newer than `resource_version` was seen."""
        return self._last_revision > revision(resource_version)

    # How changes are taken in

    def _transformed(self, obj: Any) -> R | UndecodableObject:
        """Return the row for `obj`; whatever no row can be made of is a misfit, too."""
        if isinstance(obj, UndecodableObject):
            return obj
        try:
            return self._transform(obj)
        except Exception as error:  # noqa: BLE001 - one odd object must not end the cache, whatever it breaks
            return UndecodableObject(metadata=_metadata_of(obj), problem=f"no row can be made of it: {error!r}")

    def _apply_update(self, key: str, row: R | UndecodableObject, at: int) -> None:
        old = self._store.get(key)
        if old is not None and revision(old.resource_version) >= at:
            return
        if isinstance(row, UndecodableObject):
            self._undecodable_bytes += _undecodable_size(row)
            self._check_stored_quota(len(self._store) + len(self.undecodable) + 1, self._store.size)
            self._log_undecodable({key: row.problem})
            self.undecodable[key] = row.problem
            self._store.drop(key)
            changes: list[tuple[R | None, R | None]] = [(old, None)] if old is not None else []
        elif self._keep is not None and not self._keep(row):
            self._store.drop(key)
            changes = [(old, None)] if old is not None else []
        else:
            if self._size is not None:
                self._check_stored_quota(len(self._store) + 1, self._store.size + self._size(row))
            elif old is None and len(self._store) >= self._check_quota_at:
                self._check_stored_quota(len(self._store) + 1, 0)
            if self.undecodable:
                self.undecodable.pop(key, None)
            self._store.put(row)
            if old is None or old.uid == row.uid:
                self._notify_all(old, row)
                return
            changes = _changes(old, row)
        for before, after in changes:
            if before is not None and after is None and before.uid != row.uid:
                self._add_tombstone(before.uid, at)
            self._notify_all(before, after)

    def _apply_deletion(self, key: str, row: R | UndecodableObject, at: int) -> None:
        self._add_tombstone(row.uid, at)
        known = self._store.get(key)
        if known is None:
            self.undecodable.pop(key, None)
        elif known.uid == row.uid and revision(known.resource_version) <= at:
            self._store.drop(key)
            self._notify_all(known, None)

    def _log_undecodable(self, undecodable: Mapping[str, str]) -> None:
        for key, problem in undecodable.items():
            if self.undecodable.get(key) != problem and self._undecodable_logged < _MAX_UNDECODABLE_LOGGED:
                self._undecodable_logged += 1
                log.warning("leaving out %s %s, which does not fit its kind: %s", self.resource, key, problem)

    def _check_listed_quota(self) -> None:
        if self._size is None:
            self._reserve_quota(len(self._listed) + len(self._listed_undecodable), 0)
            return
        size = self._listed_bytes + self._listed_undecodable_bytes
        replaced = max(self._store.size + self._undecodable_bytes - self._unchanged_bytes, 0)
        self._reserve_quota(len(self._listed) + len(self._listed_undecodable), size, replaced=replaced)

    def _check_stored_quota(self, objects: int, size: int) -> None:
        self._reserve_quota(objects, 0 if self._size is None else size + self._undecodable_bytes)

    def _reserve_quota(self, objects: int, size: int, *, replaced: int = 0) -> None:
        """Raise `LimitExceeded` if this much is more than the caches of a cluster may keep."""
        self._quota.reserve(self, objects=objects, size=size, replaced=replaced, doing=f"following {self.resource}")
        self._check_quota_at = objects + _QUOTA_CHECK_INTERVAL

    def _evict(self, error: LimitExceeded) -> None:
        """Free all rows at once: other clusters need the memory. Handlers are not told, `on_health_change` is."""
        self._eviction_reason = str(error)  # not the error: its traceback keeps rows in memory
        self._synced.clear()
        self._drop_listed()
        for key in tuple(row.key for row in self._store.all()):
            self._store.drop(key)
        self.undecodable, self._undecodable_bytes = {}, 0
        self._reflector.interrupt(error)

    def _reject_stale(self, resource_version: str) -> None:
        if revision(resource_version) >= self._last_revision:
            self._times_stale = 0
            return
        self._times_stale += 1
        problem = (
            f"listing {self.resource}: the server shows revision "
            f"{resource_version}, {self._last_revision} was seen before"
        )
        if self._times_stale < _MAX_STALE_LISTS:
            raise StaleList(problem)
        log.warning("%s; it insists, so etcd was restored from a backup: starting over", problem)
        self._times_stale = 0
        self._tombstones.clear()

    def _add_tombstone(self, uid: str, at: int) -> None:
        if len(uid) > _MAX_UID_LENGTH:
            return
        self._tombstones[uid] = max(at, self._tombstones.get(uid, 0))
        if len(self._tombstones) > _MAX_TOMBSTONES:
            del self._tombstones[next(iter(self._tombstones))]

    def _notify_all(self, old: R | None, new: R | None) -> None:
        for handler in tuple(self._handlers):
            try:
                handler(old, new)
            except Exception:
                log.exception(_HANDLER_FAILED, self.resource)

    def _notify(self, handler: Handler[R], old: R | None, new: R | None) -> None:
        try:
            handler(old, new)
        except Exception:
            log.exception(_HANDLER_FAILED, self.resource)


def _undecodable_size(undecodable: UndecodableObject) -> int:
    return getsizeof(undecodable.key) + getsizeof(undecodable.problem) + _UNDECODABLE_BYTES


def _metadata_of(obj: Any) -> ObjectMeta:
    if isinstance(obj, Object):
        return obj.metadata
    try:
        return msgspec.convert(obj["metadata"], ObjectMeta)
    except (LookupError, TypeError, msgspec.ValidationError):
        return ObjectMeta()


def revision(resource_version: str) -> int:
    """Return a resource version as the number that it is; two of one resource compare as they followed each other."""
    if not resource_version.isdecimal() or len(resource_version) > _MAX_DIGITS:
        raise MalformedResponse(f"the resource version {resource_version[:_MAX_DIGITS]!r} is not a number")
    return int(resource_version)


def _changes(old: R | None, new: R) -> list[tuple[R | None, R | None]]:
    """Return the change from `old` to `new`; if they are two objects of one name, that one went and the other came."""
    if old is None or old.uid == new.uid:
        return [(old, new)]
    return [(old, None), (None, new)]
