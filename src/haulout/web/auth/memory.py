"""Answers that count for a while: a bounded number of them, of which the oldest goes first."""

from collections import OrderedDict
from collections.abc import Hashable
from datetime import timedelta
from typing import Generic, TypeVar

from haulout.core.clock import Clock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Memory(Generic[K, V]):
    """Remembers `most` answers."""

    def __init__(self, clock: Clock, *, most: int) -> None:
        self._clock = clock
        self._most = most
        self._known: OrderedDict[K, tuple[float, V]] = OrderedDict()

    def __len__(self) -> int:
        """Return how many are remembered."""
        return len(self._known)

    def get(self, key: K) -> V | None:
        """Return an answer that still counts."""
        found = self._known.get(key)
        return found[1] if found is not None and self._clock.monotonic() < found[0] else None

    def put(self, key: K, value: V, *, counts_for: timedelta) -> V:
        """Remember an answer; return it."""
        self._known[key] = self._clock.monotonic() + counts_for.total_seconds(), value
        self._known.move_to_end(key)
        if len(self._known) > self._most:
            self._known.popitem(last=False)
        return value

    def forget(self, key: K) -> None:
        """Ask anew the next time."""
        self._known.pop(key, None)
