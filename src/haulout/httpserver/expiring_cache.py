"""A bounded cache whose entries expire; the oldest entry is evicted first."""

from collections import OrderedDict
from collections.abc import Hashable
from datetime import timedelta
from typing import Generic, TypeVar

from haulout.core.clock import Clock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class ExpiringCache(Generic[K, V]):
    """Holds at most `max_size` entries, each with its own TTL."""

    def __init__(self, clock: Clock, *, max_size: int) -> None:
        self._clock = clock
        self._max_size = max_size
        self._entries: OrderedDict[K, tuple[float, V]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """Return the value of an entry that has not expired, else None."""
        found = self._entries.get(key)
        return found[1] if found is not None and self._clock.monotonic() < found[0] else None

    def put(self, key: K, value: V, *, ttl: timedelta) -> V:
        """Store a value and return it."""
        self._entries[key] = self._clock.monotonic() + ttl.total_seconds(), value
        self._entries.move_to_end(key)
        if len(self._entries) > self._max_size:
            self._entries.popitem(last=False)
        return value

    def delete(self, key: K) -> None:
        self._entries.pop(key, None)
