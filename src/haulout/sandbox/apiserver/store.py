"""The etcd of the sandbox's API server: one revision counter, every write remembered.

An object in the store is a value: it is never changed in place, so history and watches share it. All writes are kept
for tests to look at; what clients may still see of them is bounded by `compacted`, as etcd's compaction does.

A custom resource is stored in one version and read in any, and so are events: readers get what the kind they name
shows, while the writes of the history hold what is stored.
"""

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from haulout.core.clock import Clock
from haulout.sandbox.apiserver.kinds import JsonObject, Kind
from haulout.sandbox.apiserver.patches import same_json

FIRST_REVISION = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
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
    """Wakes whoever waits for something to change."""

    def __init__(self) -> None:
        self._bells: dict[asyncio.Event, None] = {}  # a set with an order, so that runs repeat themselves

    def ring(self) -> None:
        """Wake all."""
        for bell in self._bells:
            bell.set()

    @contextmanager
    def heard_by(self, bell: asyncio.Event) -> Iterator[None]:
        """Set `bell` at every ring while the context lasts."""
        self._bells[bell] = None
        try:
            yield
        finally:
            del self._bells[bell]


class Store:
    """Objects by kind and key, at every revision."""

    def __init__(self, clock: Clock, *, window: int) -> None:
        self._clock = clock
        self._window = window
        self._objects: dict[str, dict[str, JsonObject]] = {}
        self.revision = FIRST_REVISION
        self.compacted = FIRST_REVISION
        self._watched_since = FIRST_REVISION
        self.history: list[Write] = []
        self._mortal: deque[_Mortal] = deque()  # those of one kind die in the order in which they were written
        self.bells = Bells()
        self.observers: list[Callable[[Write], None]] = []  # hear of each write at once, and may write themselves

    def seed(self, kind: Kind, obj: JsonObject) -> None:
        """Let the object have been there before the first revision."""
        self._objects.setdefault(kind.stored_as, {})[kind.key_of(obj)] = stamped(obj, FIRST_REVISION)

    def get(self, kind: Kind, key: str) -> JsonObject | None:
        """Return the object, or None."""
        found = self._objects.get(kind.stored_as, {}).get(key)
        return None if found is None else kind.shown(found)

    def holds(self, kind: Kind, key: str, obj: JsonObject) -> bool:
        """Tell whether to write `obj` would change nothing, not even how the object is stored."""
        found = self._objects.get(kind.stored_as, {}).get(key)
        return found is not None and same_json(kind.stored(obj), found)

    def keys(self, kind: Kind) -> list[str]:
        """Return where the objects of the kind lie."""
        return sorted(self._objects.get(kind.stored_as, ()))

    def current(self, kind: Kind) -> Mapping[str, JsonObject]:
        """Return all objects of the kind as they are stored now, in no order, to look at and not to keep."""
        return self._objects.get(kind.stored_as, {})

    def at(self, kind: Kind, revision: int) -> dict[str, JsonObject]:
        """Return all objects of the kind as they were at `revision`, in the order of their keys."""
        objects = dict(self._objects.get(kind.stored_as, {}))
        for write in reversed(self.since(revision)):
            if write.kind.stored_as != kind.stored_as:
                continue
            if write.before is None:
                del objects[write.key]
            else:
                objects[write.key] = write.before
        return {key: kind.shown(obj) for key, obj in sorted(objects.items())}

    def since(self, revision: int) -> list[Write]:
        """Return the writes after `revision`."""
        return self.history[bisect_right(self.history, revision, key=lambda write: write.revision) :]

    @property
    def oldest_watch(self) -> int:
        """Return the oldest revision from which a watch may start."""
        return max(self.compacted, self._watched_since)

    def revision_at(self, instant: datetime) -> int:
        """Return the revision that was the latest at `instant`."""
        before = bisect_right(self.history, instant, key=lambda write: write.at)
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
            if self._objects.get(last.kind.stored_as, {}).get(last.key) is last.after:
                self.write(last.kind, last.key, None, who="etcd", verb="expire")

    def write(self, kind: Kind, key: str, obj: JsonObject | None, *, who: str, verb: str) -> JsonObject:
        """Store `obj`, which now belongs to the store, or delete; return the object as it now is, or last was."""
        objects = self._objects.setdefault(kind.stored_as, {})
        before = objects.get(key)
        self.revision += 1
        if obj is None:
            before = objects.pop(key)
            result = stamped(before, self.revision)
        else:
            result = objects[key] = stamped(kind.stored(obj), self.revision)
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
        self.history.append(write)
        if obj is not None and kind.lifetime is not None:
            self._mortal.append(_Mortal(self._clock.monotonic() + kind.lifetime.total_seconds(), write))
        self.compacted = max(self.compacted, self.revision - self._window)
        self.bells.ring()
        for observer in self.observers:
            observer(write)
        return kind.shown(result)


def stamped(obj: JsonObject, revision: int) -> JsonObject:
    """Return `obj` with another resourceVersion, sharing the rest."""
    return obj | {"metadata": obj["metadata"] | {"resourceVersion": str(revision)}}
