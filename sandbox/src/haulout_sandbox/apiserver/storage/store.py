"""The etcd of the API server: one revision counter, and every write is recorded.

A stored object is immutable: history, watches and readers share it, and its JSON is encoded once. Tests can inspect all
writes, unless the store is told to keep only those that clients may still ask for. `compacted_revision` is that limit,
as after an etcd compaction.

A custom resource is stored in one version and read in any, and so are Events: readers get the version they ask for,
while the writes in the history hold the stored form.
"""

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from typing import Literal, NamedTuple

import msgspec

from haulout.core.clock import Clock
from haulout_sandbox.apiserver.kinds.kind import JsonObject, Kind
from haulout_sandbox.apiserver.patch.json_patch import equal_json
from haulout_sandbox.apiserver.storage.stored_object import PartPool, StoredObject

FIRST_REVISION = 100
_DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
_revision = attrgetter("revision")
_write_time = attrgetter("written_at")


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """One write, with its revision. `verb` is the request (create, patch, evict, …); do not change the objects."""

    revision: int
    written_at: datetime
    username: str
    verb: str
    kind: Kind
    key: str
    before: JsonObject | None
    after: JsonObject | None

    @property
    def path(self) -> str:
        """Return the URL path of the object."""
        return self.kind.path(self.key)

    @property
    def type(self) -> Literal["ADDED", "MODIFIED", "DELETED"]:
        """Return the type of the event in an unfiltered watch."""
        if self.after is None:
            return "DELETED"
        return "MODIFIED" if self.before else "ADDED"


class _Expiry(NamedTuple):
    """When an object expires, if this is still its latest write."""

    due_at: float  # in seconds of the clock's `monotonic`
    write: Write


class Listeners:
    """Calls its subscribers in the order in which they subscribed."""

    def __init__(self) -> None:
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._next_id = 0

    def notify(self) -> None:
        for callback in tuple(self._callbacks.values()):
            callback()

    @contextmanager
    def subscribe(self, callback: Callable[[], None]) -> Iterator[None]:
        """Call `callback` at every `notify` while the context lasts."""
        callback_id = self._next_id
        self._next_id += 1
        self._callbacks[callback_id] = callback
        try:
            yield
        finally:
            del self._callbacks[callback_id]


@dataclass(slots=True)
class _KindStorage:
    objects: dict[str, StoredObject] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)  # sorted
    writes: list[Write] = field(default_factory=list)
    forgotten_revision: int = FIRST_REVISION  # writes up to this revision may be dropped from the history
    listeners: Listeners = field(default_factory=Listeners)


class Store:
    """Objects by kind and key at every revision; without `keep_history`, only at those of the last `window` writes."""

    def __init__(self, clock: Clock, *, window: int, keep_history: bool = True) -> None:
        self._clock = clock
        self._window = window
        self._keep_history = keep_history
        self._kinds: defaultdict[str, _KindStorage] = defaultdict(_KindStorage)  # by the name that kinds are stored as
        self._pool = PartPool()
        self.revision = FIRST_REVISION
        self.compacted_revision = FIRST_REVISION
        self._restart_revision = FIRST_REVISION
        self.history: list[Write] = []
        # per kind in the order of expiry, since all objects of a kind have the same ttl
        self._expiries: deque[_Expiry] = deque()
        # called synchronously after each write; may write themselves
        self.observers: list[Callable[[Write], None]] = []

    def seed(self, kind: Kind, obj: JsonObject) -> None:
        """Store an object as if it existed before the first revision."""
        storage, key = self._kinds[kind.stored_as], kind.key_of(obj)
        insort(storage.keys, key)
        storage.objects[key] = StoredObject(with_resource_version(kind.to_storage(obj), FIRST_REVISION))

    def get(self, kind: Kind, key: str) -> JsonObject | None:
        stored = self._kinds[kind.stored_as].objects.get(key)
        return None if stored is None else kind.from_storage(stored)

    def is_unchanged(self, kind: Kind, key: str, obj: JsonObject) -> bool:
        """Return whether writing `obj` changes nothing, not even the stored form."""
        stored = self._kinds[kind.stored_as].objects.get(key)
        return stored is not None and equal_json(kind.to_storage(obj), stored)

    def keys(self, kind: Kind) -> list[str]:
        return list(self._kinds[kind.stored_as].keys)

    def current_objects(self, kind: Kind) -> Mapping[str, JsonObject]:
        """Return all objects of the kind as stored, unordered. Do not change or keep the mapping."""
        return self._kinds[kind.stored_as].objects

    def objects_at(self, kind: Kind, revision: int) -> dict[str, JsonObject]:
        """Return all objects of the kind at `revision`, sorted by key."""
        storage = self._kinds[kind.stored_as]
        later = self.writes_since(kind, revision)
        if not later and not kind.is_converted:
            return {key: storage.objects[key] for key in storage.keys}
        if not later:
            return {key: kind.from_storage(storage.objects[key]) for key in storage.keys}
        objects: dict[str, JsonObject] = dict(storage.objects)
        for write in reversed(later):
            if write.before is None:
                del objects[write.key]
            else:
                objects[write.key] = write.before
        return {key: kind.from_storage(obj) for key, obj in sorted(objects.items())}

    def writes_since(self, kind: Kind, revision: int) -> Sequence[Write]:
        """Return the writes to objects of the kind after `revision`."""
        writes = self._kinds[kind.stored_as].writes
        if not writes or writes[-1].revision <= revision:
            return ()
        if len(writes) > 1 and writes[-2].revision <= revision:
            return writes[-1:]
        return writes[bisect_right(writes, revision, key=_revision) :]

    def has_changed(self, kind: Kind, *, since: int) -> bool:
        """Return whether objects of the kind may have been written after the revision `since`."""
        return not self.has_writes_since(kind, since) or bool(self.writes_since(kind, since))

    def has_writes_since(self, kind: Kind, revision: int) -> bool:
        """Return whether all writes to objects of the kind after `revision` are still recorded."""
        return revision >= self._kinds[kind.stored_as].forgotten_revision

    @contextmanager
    def subscribe(self, kind: Kind, callback: Callable[[], None]) -> Iterator[None]:
        """Call `callback` at each write that a watch of the kind must see, while the context lasts."""
        with ExitStack() as stack:
            stack.enter_context(self._kinds[kind.stored_as].listeners.subscribe(callback))
            if kind.custom_resource is not None:  # the definition determines whether the kind is still served
                stack.enter_context(self._kinds[_DEFINITIONS].listeners.subscribe(callback))
            yield

    @property
    def oldest_watch_revision(self) -> int:
        """Return the oldest revision from which a watch may start."""
        return max(self.compacted_revision, self._restart_revision)

    def revision_at(self, instant: datetime) -> int:
        count = bisect_right(self.history, instant, key=_write_time)
        return self.history[count - 1].revision if count else FIRST_REVISION

    def restart(self) -> None:
        """Forget what a restarted server does not know: the recent events that serve watches of older revisions."""
        self._restart_revision = self.revision

    def compact(self) -> None:
        """Drop all revisions so far, the latest included, since compaction increases the revision itself."""
        self.revision += 1
        self.compacted_revision = self.revision

    def expire_objects(self) -> None:
        """Delete objects whose ttl since their last change has passed, as etcd's leases do."""
        while self._expiries and self._expiries[0].due_at <= self._clock.monotonic():
            last = self._expiries.popleft().write
            if self._kinds[last.kind.stored_as].objects.get(last.key) is last.after:
                self.write(last.kind, last.key, None, username="etcd", verb="expire")

    def write(
        self, kind: Kind, key: str, obj: JsonObject | None, *, username: str, verb: str, has_shared_parts: bool = False
    ) -> JsonObject:
        """Store `obj`, which then belongs to the store, or delete; return the object as stored, or as it last was.

        A new object shares its parts with similar ones; one with `has_shared_parts` already does.
        """
        storage = self._kinds[kind.stored_as]
        before = storage.objects.get(key)
        self.revision += 1
        if obj is None:
            before = storage.objects.pop(key)
            del storage.keys[bisect_left(storage.keys, key)]
            result = StoredObject(with_resource_version(before, self.revision))
        else:
            stored = kind.to_storage(obj)
            if before is None:
                insort(storage.keys, key)
                stored = stored if has_shared_parts else self._pool.share_parts(stored)
            result = storage.objects[key] = StoredObject(with_resource_version(stored, self.revision))
        write = Write(
            revision=self.revision,
            written_at=self._clock.now(),
            username=username,
            verb=verb,
            kind=kind,
            key=key,
            before=before,
            after=None if obj is None else result,
        )
        if before is not None:
            before.drop_json()
        self.history.append(write)
        storage.writes.append(write)
        if obj is not None and kind.ttl is not None:
            self._expiries.append(_Expiry(self._clock.monotonic() + kind.ttl.total_seconds(), write))
        self.compacted_revision = max(self.compacted_revision, self.revision - self._window)
        if not self._keep_history and len(self.history) > 2 * self._window:
            self._forget_writes()
        storage.listeners.notify()
        for observer in self.observers:
            observer(write)
        return kind.from_storage(result)

    def _forget_writes(self) -> None:
        """Drop writes that no client may ask for any more, in batches, since each batch is expensive."""
        del self.history[: bisect_right(self.history, self.compacted_revision, key=_revision)]
        for storage in self._kinds.values():
            if outdated := bisect_right(storage.writes, self.compacted_revision, key=_revision):
                storage.forgotten_revision = storage.writes[outdated - 1].revision
                del storage.writes[:outdated]


def with_resource_version(obj: JsonObject, revision: int) -> JsonObject:
    """Return `obj` with another resourceVersion, sharing the other parts."""
    return obj | {"metadata": obj["metadata"] | {"resourceVersion": str(revision)}}
