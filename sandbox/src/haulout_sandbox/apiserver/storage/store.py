"""The etcd of the sandbox's API server: one revision counter, every write remembered.

An object in the store is a value: it is never changed in place, so history and watches share it, and so does everybody
who wants its JSON, which is made once. All writes are kept for tests to look at, unless the store is told to keep only
those that clients may still ask for; that is bounded by `compacted_revision`, as etcd's compaction does.

A custom resource is stored in one version and read in any, and so are events: readers get what the kind they name
shows, while the writes of the history hold what is stored.
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
    """One write, one revision. `verb` is what was asked (create, patch, evict, …); do not change the objects."""

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
        """Return the URL path of the object written."""
        return self.kind.path(self.key)

    @property
    def type(self) -> Literal["ADDED", "MODIFIED", "DELETED"]:
        """Return what a watcher of everything sees."""
        if self.after is None:
            return "DELETED"
        return "MODIFIED" if self.before else "ADDED"


class _Expiry(NamedTuple):
    """The latest write to an object, perhaps, and when the object goes if it was."""

    due_at: float  # on the clock's `monotonic`
    write: Write


class Listeners:
    """Calls whoever wants to hear of something, in the order in which they came."""

    def __init__(self) -> None:
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._next_id = 0

    def notify(self) -> None:
        """Call all."""
        for callback in tuple(self._callbacks.values()):
            callback()

    @contextmanager
    def subscribe(self, callback: Callable[[], None]) -> Iterator[None]:
        """Call `callback` at every ring while the context lasts."""
        callback_id = self._next_id
        self._next_id += 1
        self._callbacks[callback_id] = callback
        try:
            yield
        finally:
            del self._callbacks[callback_id]


@dataclass(slots=True)
class _KindStorage:
    """All objects of one kind."""

    objects: dict[str, StoredObject] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)  # sorted
    writes: list[Write] = field(default_factory=list)
    forgotten_revision: int = FIRST_REVISION  # writes up to this revision may not be remembered any more
    listeners: Listeners = field(default_factory=Listeners)


class Store:
    """Objects by kind and key, at every revision; without `keep_history`, at those of the last `window` writes."""

    def __init__(self, clock: Clock, *, window: int, keep_history: bool = True) -> None:
        self._clock = clock
        self._window = window
        self._keep_history = keep_history
        self._kinds: defaultdict[str, _KindStorage] = defaultdict(_KindStorage)  # by what kinds are stored as
        self._pool = PartPool()
        self.revision = FIRST_REVISION
        self.compacted_revision = FIRST_REVISION
        self._restart_revision = FIRST_REVISION
        self.history: list[Write] = []
        self._expiries: deque[_Expiry] = deque()  # those of one kind die in the order in which they were written
        self.observers: list[Callable[[Write], None]] = []  # hear of each write at once, and may write themselves

    def seed(self, kind: Kind, obj: JsonObject) -> None:
        """Let the object have been there before the first revision."""
        storage, key = self._kinds[kind.stored_as], kind.key_of(obj)
        insort(storage.keys, key)
        storage.objects[key] = StoredObject(with_resource_version(kind.to_storage(obj), FIRST_REVISION))

    def get(self, kind: Kind, key: str) -> JsonObject | None:
        """Return the object, or None."""
        stored = self._kinds[kind.stored_as].objects.get(key)
        return None if stored is None else kind.from_storage(stored)

    def is_unchanged(self, kind: Kind, key: str, obj: JsonObject) -> bool:
        """Tell whether to write `obj` would change nothing, not even how the object is stored."""
        stored = self._kinds[kind.stored_as].objects.get(key)
        return stored is not None and equal_json(kind.to_storage(obj), stored)

    def keys(self, kind: Kind) -> list[str]:
        """Return where the objects of the kind lie."""
        return list(self._kinds[kind.stored_as].keys)

    def current_objects(self, kind: Kind) -> Mapping[str, JsonObject]:
        """Return all objects of the kind as they are stored now, in no order, to look at and not to keep."""
        return self._kinds[kind.stored_as].objects

    def objects_at(self, kind: Kind, revision: int) -> dict[str, JsonObject]:
        """Return all objects of the kind as they were at `revision`, in the order of their keys."""
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
        """Tell whether objects of the kind may have been written after the revision `writes_since`."""
        return not self.has_writes_since(kind, since) or bool(self.writes_since(kind, since))

    def has_writes_since(self, kind: Kind, revision: int) -> bool:
        """Tell whether all writes to objects of the kind after `revision` are known."""
        return revision >= self._kinds[kind.stored_as].forgotten_revision

    @contextmanager
    def subscribe(self, kind: Kind, callback: Callable[[], None]) -> Iterator[None]:
        """Call `callback` at each write that a watch of the kind must know of, while the context lasts."""
        with ExitStack() as stack:
            stack.enter_context(self._kinds[kind.stored_as].listeners.subscribe(callback))
            if kind.custom_resource is not None:  # whether it is still served, its definition says
                stack.enter_context(self._kinds[_DEFINITIONS].listeners.subscribe(callback))
            yield

    @property
    def oldest_watch_revision(self) -> int:
        """Return the oldest revision from which a watch may start."""
        return max(self.compacted_revision, self._restart_revision)

    def revision_at(self, instant: datetime) -> int:
        """Return the revision that was the latest at `instant`."""
        count = bisect_right(self.history, instant, key=_write_time)
        return self.history[count - 1].revision if count else FIRST_REVISION

    def restart(self) -> None:
        """Forget what a server that starts does not know: its memory of recent events, from which watches are told."""
        self._restart_revision = self.revision

    def compact(self) -> None:
        """Forget every revision that anyone has seen: also the latest, since compaction takes a revision itself."""
        self.revision += 1
        self.compacted_revision = self.revision

    def expire_objects(self) -> None:
        """Delete what has outlived its time, counted from its last change, as the leases of etcd do."""
        while self._expiries and self._expiries[0].due_at <= self._clock.monotonic():
            last = self._expiries.popleft().write
            if self._kinds[last.kind.stored_as].objects.get(last.key) is last.after:
                self.write(last.kind, last.key, None, username="etcd", verb="expire")

    def write(
        self, kind: Kind, key: str, obj: JsonObject | None, *, username: str, verb: str, has_shared_parts: bool = False
    ) -> JsonObject:
        """Store `obj`, which now belongs to the store, or delete; return the object as it now is, or last was.

        A new one shares its parts with others that are alike; one that `has_shared_parts` does so already.
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
        """Forget the writes that no client may ask for any more; many at a time, since each time takes a while."""
        del self.history[: bisect_right(self.history, self.compacted_revision, key=_revision)]
        for storage in self._kinds.values():
            if outdated := bisect_right(storage.writes, self.compacted_revision, key=_revision):
                storage.forgotten_revision = storage.writes[outdated - 1].revision
                del storage.writes[:outdated]


def with_resource_version(obj: JsonObject, revision: int) -> JsonObject:
    """Return `obj` with another resourceVersion, sharing the rest."""
    return obj | {"metadata": obj["metadata"] | {"resourceVersion": str(revision)}}
