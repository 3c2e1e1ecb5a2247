"""An informer: an indexed cache of one resource, kept up to date by list and watch.

The cache is a hint. It may be seconds old, so the precondition of a write must confirm every disruptive decision. The
cache guarantees:

- After any disconnect it converges to the server's state: no object is missing, and no deleted object remains.
- It never goes back. An older version of an object, a repeated or late event and a list at an older revision change
  nothing. It accepts an older state only when the server repeats it (etcd was restored from a backup).
- Handlers get the row before and after, once per change, after the store was updated. An object that was replaced by
  another one of the same name is reported as a deletion and then a creation.
- An object that cannot be decoded is left out and listed in `undecodable`. All other objects are unaffected.

`haulout.kube.reflector` maintains the connection.
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

# A load balancer in front of several API servers may reach one that is behind. Five lists with backoff take
# about 15 seconds, in which that server catches up. If the revision is still old, the history of etcd has changed.
_MAX_STALE_LISTS = 5  # times in a row that a server must list an older revision before it is accepted
_MAX_DIGITS = 20  # of a resource version, which is an unsigned 64-bit number
_HANDLER_FAILED = "a handler for %s failed; going on"
# A late event arrives within seconds of the deletion (a response that overtook the watch). 1024 deletions in that time
# are more than a large cluster has.
_MAX_TOMBSTONES = 1024  # deleted objects to remember, so that a late event does not bring one back
_MAX_UID_LENGTH = 253  # characters; a longer UID is not remembered
_QUOTA_CHECK_INTERVAL = 1000  # objects added before a cache without `size` checks its quota again
_UNDECODABLE_BYTES = 1024  # of an undecodable object, besides its key and problem
_MAX_UNDECODABLE_LOGGED = 100  # after each list


def as_is(obj: T) -> T:
    """Return the whole object: the transform of an informer that keeps objects unchanged."""
    return obj


@dataclass(frozen=True, slots=True)
class InformerHealth:
    """The state of an informer's cache and connection."""

    has_synced: bool  # complete at least once, and not emptied since
    last_received_at: datetime | None  # when the server last sent anything
    problem: str | None  # why the informer is disconnected now
    is_missing: bool  # the server does not serve this resource
    undecodable: Mapping[str, str]  # objects left out: key to problem


class StaleList(KubeError):
    """The server's list is at an older revision than one already seen."""


class Informer(Generic[R]):
    """A cache of the selected objects, as rows that `transform` makes of them.

    The owner runs `run` in its task group.

    `keep` drops rows that it does not select. When `keep` changes to select an object that already exists, the owner
    must get that object and `update` the cache.

    All caches of a client share a quota (`haulout.kube.limits`) of objects and, with `size`, which returns the bytes of
    a row, of bytes. When other clusters need the bytes, the cache is emptied as if the server had exceeded a limit:
    handlers are not called, and the objects are listed again later. `on_health_change` is called with each connection
    failure, and with None on recovery.
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
        self._unchanged_bytes = 0  # of the rows listed so far: those that the store already has
        # set when the quota evicted the rows: only a new list may fill the cache
        self._eviction_reason: str | None = None
        self._check_quota_at = 0  # in objects
        self._undecodable_logged = 0
        self._handlers: list[Handler[R]] = []
        self._tombstones: dict[str, int] = {}  # by UID: the revision of the deletion
        self._last_revision = 0
        self._times_stale = 0
        self._synced = asyncio.Event()
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._reflector: Reflector[Any] = Reflector(client, list_watch, self, on_health_change=on_health_change)

    async def run(self) -> NoReturn:
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
        """Return all rows. This is a live view: copy it before an `await`."""
        return self._store.all()

    def by_index(self, index: str, value: str) -> Collection[R]:
        """Return the rows that `index` maps to `value`. This is a live view: copy it before an `await`."""
        return self._store.by_index(index, value)

    def subscribe(self, handler: Handler[R]) -> Callable[[], None]:
        """Call `handler(old, new)` once for each existing row, then for each change.

        Return a function that unsubscribes.

        A handler must not block. An exception of a handler is logged, and the informer continues.
        """
        self._handlers.append(handler)
        # A copy: a handler may `update` or `remove` rows.
        for row in list(self._store.all()):
            self._notify(handler, None, row)
        return lambda: self._handlers.remove(handler)

    async def wait_for(self, predicate: Callable[[R], bool]) -> None:
        """Return when the predicate holds for a row."""
        found = asyncio.Event()
        unsubscribe = self.subscribe(lambda _, new: found.set() if new is not None and predicate(new) else None)
        try:
            await found.wait()
        finally:
            unsubscribe()

    async def wait_synced(self) -> None:
        while not self._synced.is_set():  # the quota may empty the cache before this task runs
            await self._synced.wait()

    async def wait_for_resource_version(self, resource_version: str) -> None:
        """Return when the cache has seen `resource_version`, which one of our writes returned.

        For an object outside the cache's selection, that is at the next bookmark: within about a minute.
        """
        wanted = revision(resource_version)
        if self.has_observed(wanted):
            return
        waiter = wanted, asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter[1]
        finally:
            self._waiters.remove(waiter)

    def has_observed(self, wanted: int) -> bool:
        """Return whether the cache has seen all changes up to this revision."""
        return self._last_revision >= wanted

    async def has_observed_after_yield(self, wanted: int) -> bool:
        """Yield to all runnable tasks, then return whether the cache has seen all changes up to this revision.

        If the server runs in the same process, the cache is up to date then, and no timer is needed.
        """
        await self._clock.sleep(timedelta())
        return self.has_observed(wanted)

    def health(self) -> InformerHealth:
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
        """Store an object from the response to another request, unless the cache has a newer version."""
        if self._eviction_reason is not None:
            return
        row = self._transformed(obj)
        at = revision(row.resource_version)
        # The object may have been deleted after the response was sent, and the watch may have reported that first. To
        # store it would bring it back until the next list.
        if self._tombstones.get(row.uid, 0) < at:
            self._apply_update(row.key, row, at)

    def remove(self, rows: Iterable[R]) -> None:
        """Drop rows that `keep` no longer selects. Handlers are not called."""
        for row in tuple(rows):
            self._store.drop(row.key)

    # ReflectorStore

    @property
    def last_resource_version(self) -> str:
        return str(self._last_revision)

    def begin_list(self) -> None:
        self._eviction_reason = None
        self._drop_listed()

    def _drop_listed(self) -> None:
        self._listed = {}
        self._listed_undecodable = {}
        self._listed_bytes = self._listed_undecodable_bytes = self._unchanged_bytes = self._check_quota_at = 0

    def add_listed(self, obj: Any) -> None:
        if self._eviction_reason is not None:  # a list in progress during an eviction is incomplete
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
        # Same version: keep the existing row, so that a relist does not hold every object twice.
        same = known is not None and known.uid == row.uid and known.resource_version == row.resource_version
        self._listed[row.key] = known if same and known is not None else row
        if self._size is not None:
            size = self._size(row)
            self._listed_bytes += size
            self._unchanged_bytes += size if same else 0
            self._check_listed_quota()

    def discard_listed(self, obj: Any) -> None:
        row = self._transformed(obj)
        self._listed.pop(row.key, None)
        self._listed_undecodable.pop(row.key, None)

    def finish_list(self, resource_version: str) -> None:
        """Replace the store with the collected list, and notify the handlers of the differences."""
        if self._eviction_reason is not None:  # a list in progress during an eviction is incomplete
            raise LimitExceeded(self._eviction_reason)
        # Before anything is replaced: a list that is older than the store must not undo changes that handlers have
        # seen.
        self._reject_stale(resource_version)
        self._check_listed_quota()  # without `size`, only the limits of a list apply until here
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
        # An accepted list may be older than the store (etcd was restored from a backup). `advance` never goes back, and
        # a watch from the higher revision would stay silent.
        self._last_revision = 0
        self._synced.set()
        self.advance(resource_version)
        handlers = tuple(self._handlers)  # a handler that subscribes during this loop has already received the new rows
        for old, new in changes:
            for handler in handlers:
                self._notify(handler, old, new)

    def apply(self, event: WatchEvent[Any]) -> None:
        """Apply one watch event, unless the cache has a newer version."""
        if self._eviction_reason is not None:  # the rows were evicted: only a new list may fill the cache
            raise LimitExceeded(self._eviction_reason)
        row = self._transformed(event.object)
        key = row.key
        if not key:
            log.warning("%s: ignoring an object without a name", self.resource)
            return
        at = revision(row.resource_version)
        if event.type == "DELETED":
            self._apply_deletion(key, row, at)
        elif self._tombstones.get(row.uid, 0) < at:
            self._apply_update(key, row, at)
        self._advance(at)

    def advance(self, resource_version: str) -> None:
        """Record that all changes up to `resource_version` are known."""
        self._advance(revision(resource_version))

    def _advance(self, at: int) -> None:
        self._last_revision = max(self._last_revision, at)
        if self._waiters:
            for wanted, future in self._waiters:
                if wanted <= self._last_revision and not future.done():
                    future.set_result(None)

    def is_ahead_of(self, resource_version: str) -> bool:
        return self._last_revision > revision(resource_version)

    # Applying changes

    def _transformed(self, obj: Any) -> R | UndecodableObject:
        """Return the row for `obj`, or an `UndecodableObject` if `transform` fails."""
        if isinstance(obj, UndecodableObject):
            return obj
        try:
            return self._transform(obj)
        except Exception as error:  # noqa: BLE001 - one malformed object must not end the informer, whatever it raises
            return UndecodableObject(metadata=_metadata_of(obj), problem=f"it cannot be transformed: {error!r}")

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
        # A late deletion of an earlier object must not remove its successor of the same name, which a StatefulSet's pod
        # has at once.
        elif known.uid == row.uid and revision(known.resource_version) <= at:
            self._store.drop(key)
            self._notify_all(known, None)

    def _log_undecodable(self, undecodable: Mapping[str, str]) -> None:
        for key, problem in undecodable.items():
            if self.undecodable.get(key) != problem and self._undecodable_logged < _MAX_UNDECODABLE_LOGGED:
                self._undecodable_logged += 1
                log.warning("ignoring %s %s, which cannot be decoded: %s", self.resource, key, problem)

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
        """Raise `LimitExceeded` if this is more than the caches of a cluster may hold."""
        self._quota.reserve(self, objects=objects, size=size, replaced=replaced, doing=f"following {self.resource}")
        self._check_quota_at = objects + _QUOTA_CHECK_INTERVAL

    def _evict(self, error: LimitExceeded) -> None:
        """Free all rows at once because other clusters need the memory.

        Handlers are not called; `on_health_change` is.
        """
        self._eviction_reason = str(error)  # not the exception: its traceback would keep rows in memory
        self._synced.clear()
        self._drop_listed()
        # One by one, because the indexes and the size of the store must follow.
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
            f"listing {self.resource}: the server returned revision "
            f"{resource_version}, but revision {self._last_revision} was seen before"
        )
        if self._times_stale < _MAX_STALE_LISTS:
            raise StaleList(problem)
        log.warning("%s; every retry confirms it, so etcd was restored from a backup: rebuilding the cache", problem)
        self._times_stale = 0
        # Their revisions belong to the lost history. They would hide objects that the backup contains.
        self._tombstones.clear()

    def _add_tombstone(self, uid: str, at: int) -> None:
        if len(uid) > _MAX_UID_LENGTH:
            return
        self._tombstones[uid] = max(at, self._tombstones.get(uid, 0))
        if len(self._tombstones) > _MAX_TOMBSTONES:
            del self._tombstones[next(iter(self._tombstones))]

    def _notify_all(self, old: R | None, new: R | None) -> None:
        # A handler may unsubscribe itself, or fail: neither may keep the other handlers from the change.
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
    """Return a resource version as a number. Numbers of one resource are ordered like its changes.

    Raise `MalformedResponse` if the version is not a number.
    """
    # Since Kubernetes 1.35, clients may compare versions of one resource (KEP-5504). client-go did so before
    # (tools/cache/mutation_cache.go), and without an order a late event cannot be told from a new one. `int` of a very
    # long text is slow.
    if not resource_version.isdecimal() or len(resource_version) > _MAX_DIGITS:
        raise MalformedResponse(f"the resource version {resource_version[:_MAX_DIGITS]!r} is not a number")
    return int(resource_version)


def _changes(old: R | None, new: R) -> list[tuple[R | None, R | None]]:
    """Return the changes from `old` to `new`: a deletion and a creation if their UIDs differ."""
    if old is None or old.uid == new.uid:
        return [(old, new)]
    return [(old, None), (None, new)]
