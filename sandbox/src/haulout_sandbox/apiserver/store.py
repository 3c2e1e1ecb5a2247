"""The etcd of the sandbox's API server: one revision counter, every write remembered.

An object in the store is a value: it is never changed in place, so history and watches share it, and so does everybody
who wants its JSON, which is made once. All writes are kept for tests to look at, unless the store is told to keep only
those that clients may still ask for; that is bounded by `compacted`, as etcd's compaction does.

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
from haulout_sandbox.apiserver.kinds import JsonObject, Kind
from haulout_sandbox.apiserver.patches import same_json
from haulout_sandbox.apiserver.values import Pool, Stored

FIRST_REVISION = 100
_DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
_revision = attrgetter("revision")
_instant = attrgetter("at")


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """One write, one revision. `verb` is what was asked (create, patch, evict, …); do not change the objects."""

    revision: int
    at: datetime
    who: str
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


class _Mortal(NamedTuple):
    """The latest write to an object, perhaps, and when the object goes if it was."""

    due: float  # on the clock's `monotonic`
    write: Write


class Bells:
    """Calls whoever wants to hear of something, in the order in which they came."""

    def __init__(self) -> None:
        self._hearers: dict[int, Callable[[], None]] = {}
        self._next = 0

    def ring(self) -> None:
        """Call all."""
        for hear in tuple(self._hearers.values()):
            hear()

    @contextmanager
    def heard_by(self, hear: Callable[[], None]) -> Iterator[None]:
        """Call `hear` at every ring while the context lasts."""
        number = self._next
        self._next += 1
        self._hearers[number] = hear
        try:
            yield
        finally:
            del self._hearers[number]


@dataclass(slots=True)
class _Shelf:
    """All objects of one kind."""

    objects: dict[str, Stored] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)  # sorted
    writes: list[Write] = field(default_factory=list)
    forgotten: int = FIRST_REVISION  # writes up to this revision may not be remembered any more
    bells: Bells = field(default_factory=Bells)


class Store:
    """Objects by kind and key, at every revision; without `keep_history`, at those of the last `window` writes."""

    def __init__(self, clock: Clock, *, window: int, keep_history: bool = True) -> None:
        self._clock = clock
        self._window = window
        self._keep_history = keep_history
        self._shelves: defaultdict[str, _Shelf] = defaultdict(_Shelf)  # by what kinds are stored as
        self._pool = Pool()
        self.revision = FIRST_REVISION
        self.compacted = FIRST_REVISION
        self._watched_since = FIRST_REVISION
        self.history: list[Write] = []
        self._mortal: deque[_Mortal] = deque()  # those of one kind die in the order in which they were written
        self.observers: list[Callable[[Write], None]] = []  # hear of each write at once, and may write themselves

    def seed(self, kind: Kind, obj: JsonObject) -> None:
        """Let the object have been there before the first revision."""
        shelf, key = self._shelves[kind.stored_as], kind.key_of(obj)
        insort(shelf.keys, key)
        shelf.objects[key] = Stored(stamped(kind.stored(obj), FIRST_REVISION))

    def get(self, kind: Kind, key: str) -> JsonObject | None:
        """Return the object, or None."""
        found = self._shelves[kind.stored_as].objects.get(key)
        return None if found is None else kind.shown(found)

    def holds(self, kind: Kind, key: str, obj: JsonObject) -> bool:
        """Tell whether to write `obj` would change nothing, not even how the object is stored."""
        found = self._shelves[kind.stored_as].objects.get(key)
        return found is not None and same_json(kind.stored(obj), found)

    def keys(self, kind: Kind) -> list[str]:
        """Return where the objects of the kind lie."""
        return list(self._shelves[kind.stored_as].keys)

    def current(self, kind: Kind) -> Mapping[str, JsonObject]:
        """Return all objects of the kind as they are stored now, in no order, to look at and not to keep."""
        return self._shelves[kind.stored_as].objects

    def at(self, kind: Kind, revision: int) -> dict[str, JsonObject]:
        """Return all objects of the kind as they were at `revision`, in the order of their keys."""
        shelf = self._shelves[kind.stored_as]
        later = self.since(kind, revision)
        if not later and not kind.is_converted:
            return {key: shelf.objects[key] for key in shelf.keys}
        if not later:
            return {key: kind.shown(shelf.objects[key]) for key in shelf.keys}
        objects: dict[str, JsonObject] = dict(shelf.objects)
        for write in reversed(later):
            if write.before is None:
                del objects[write.key]
            else:
                objects[write.key] = write.before
        return {key: kind.shown(obj) for key, obj in sorted(objects.items())}

    def since(self, kind: Kind, revision: int) -> Sequence[Write]:
        """Return the writes to objects of the kind after `revision`."""
        writes = self._shelves[kind.stored_as].writes
        if not writes or writes[-1].revision <= revision:
            return ()
        if len(writes) > 1 and writes[-2].revision <= revision:
            return writes[-1:]
        return writes[bisect_right(writes, revision, key=_revision) :]

    def has_changed(self, kind: Kind, *, since: int) -> bool:
        """Tell whether objects of the kind may have been written after the revision `since`."""
        return not self.remembers(kind, since) or bool(self.since(kind, since))

    def remembers(self, kind: Kind, revision: int) -> bool:
        """Tell whether all writes to objects of the kind after `revision` are known."""
        return revision >= self._shelves[kind.stored_as].forgotten

    @contextmanager
    def heard_by(self, kind: Kind, hear: Callable[[], None]) -> Iterator[None]:
        """Call `hear` at each write that a watch of the kind must know of, while the context lasts."""
        with ExitStack() as stack:
            stack.enter_context(self._shelves[kind.stored_as].bells.heard_by(hear))
            if kind.rules is not None:  # whether it is still served, its definition says
                stack.enter_context(self._shelves[_DEFINITIONS].bells.heard_by(hear))
            yield

    @property
    def oldest_watch(self) -> int:
        """Return the oldest revision from which a watch may start."""
        return max(self.compacted, self._watched_since)

    def revision_at(self, instant: datetime) -> int:
        """Return the revision that was the latest at `instant`."""
        before = bisect_right(self.history, instant, key=_instant)
        return self.history[before - 1].revision if before else FIRST_REVISION

    def restart(self) -> None:
        """Forget what a server that starts does not know: its memory of recent events, from which watches are told."""
        self._watched_since = self.revision

    def compact(self) -> None:
        """Forget every revision that anyone has seen: also the latest, since compaction takes a revision itself."""
        self.revision += 1
        self.compacted = self.revision

    def expire(self) -> None:
        """Delete what has outlived its time, counted from its last change, as the leases of etcd do."""
        while self._mortal and self._mortal[0].due <= self._clock.monotonic():
            last = self._mortal.popleft().write
            if self._shelves[last.kind.stored_as].objects.get(last.key) is last.after:
                self.write(last.kind, last.key, None, who="etcd", verb="expire")

    def write(
        self, kind: Kind, key: str, obj: JsonObject | None, *, who: str, verb: str, is_shared: bool = False
    ) -> JsonObject:
        """Store `obj`, which now belongs to the store, or delete; return the object as it now is, or last was.

        A new one shares its parts with others that are alike; one that `is_shared` does so already.
        """
        shelf = self._shelves[kind.stored_as]
        before = shelf.objects.get(key)
        self.revision += 1
        if obj is None:
            before = shelf.objects.pop(key)
            del shelf.keys[bisect_left(shelf.keys, key)]
            result = Stored(stamped(before, self.revision))
        else:
            kept = kind.stored(obj)
            if before is None:
                insort(shelf.keys, key)
                kept = kept if is_shared else self._pool.sharing(kept)
            result = shelf.objects[key] = Stored(stamped(kept, self.revision))
        write = Write(
            revision=self.revision,
            at=self._clock.now(),
            who=who,
            verb=verb,
            kind=kind,
            key=key,
            before=before,
            after=None if obj is None else result,
        )
        if before is not None:
            before.forget_json()
        self.history.append(write)
        shelf.writes.append(write)
        if obj is not None and kind.lifetime is not None:
            self._mortal.append(_Mortal(self._clock.monotonic() + kind.lifetime.total_seconds(), write))
        self.compacted = max(self.compacted, self.revision - self._window)
        if not self._keep_history and len(self.history) > 2 * self._window:
            self._forget()
        shelf.bells.ring()
        for observer in self.observers:
            observer(write)
        return kind.shown(result)

    def _forget(self) -> None:
        """Forget the writes that no client may ask for any more; many at a time, since each time takes a while."""
        del self.history[: bisect_right(self.history, self.compacted, key=_revision)]
        for shelf in self._shelves.values():
            if outdated := bisect_right(shelf.writes, self.compacted, key=_revision):
                shelf.forgotten = shelf.writes[outdated - 1].revision
                del shelf.writes[:outdated]


def stamped(obj: JsonObject, revision: int) -> JsonObject:
    """Return `obj` with another resourceVersion, sharing the rest."""
    return obj | {"metadata": obj["metadata"] | {"resourceVersion": str(revision)}}
