"""A delaying queue: calls back with each key at its instant, with one timer for the earliest of them.

Thousands of keys are delayed at a time, and an event requeues most of them long before their instant. So `add_at` and
`discard` are cheap (a heap whose outdated entries are skipped), and the clock has only one alarm, which it adjusts when
the wall clock is set. When the wall clock is set back, all keys are released: most instants were computed from `now()`,
so a delay of seconds would last hours. A key that waits for a time of day is added again by its reconciler.
"""

import heapq
from collections.abc import Callable, Hashable
from datetime import datetime
from itertools import count
from typing import Generic, TypeVar

from haulout.core.clock import Alarm, Clock

K = TypeVar("K", bound=Hashable)


class DelayingQueue(Generic[K]):
    """Calls `on_due` with each key and its instant when the instant comes, between `start` and `stop`."""

    def __init__(self, clock: Clock, on_due: Callable[[K, datetime], object]) -> None:
        self._clock = clock
        self._on_due = on_due
        self._entries: dict[K, tuple[datetime, int, K]] = {}  # the current entries
        self._heap: list[tuple[datetime, int, K]] = []  # may contain outdated entries
        self._tie_breaker = count()  # keys need not be comparable
        self._alarm: Alarm | None = None
        self._started = False

    def __len__(self) -> int:
        return len(self._entries)

    def start(self) -> None:
        """Call `on_due` from now on. Requires a running event loop."""
        self._started = True
        self._set_alarm()

    def stop(self) -> None:
        """Stop calling `on_due`. Pending keys stay pending until the next `start`."""
        self._started = False
        self._set_alarm()

    def add_at(self, key: K, instant: datetime) -> None:
        """Release `key` at `instant`, unless an earlier instant is pending."""
        pending = self._entries.get(key)
        if pending is None or instant < pending[0]:
            entry = self._entries[key] = (instant, next(self._tie_breaker), key)
            heapq.heappush(self._heap, entry)
            self._set_alarm()

    def discard(self, key: K) -> None:
        """Remove the pending instant of `key`, if there is one."""
        if self._entries.pop(key, None) is not None:
            self._set_alarm()

    def _set_alarm(self) -> None:
        self._drop_outdated()
        earliest = self._heap[0][0] if self._heap and self._started else None
        if self._alarm and self._alarm.instant != earliest:
            self._alarm.cancel()
            self._alarm = None
        if earliest and not self._alarm:
            self._alarm = self._clock.call_at(earliest, self._on_alarm, on_set_back=self._release_all)

    def _drop_outdated(self) -> None:
        # A key that an event requeues before its instant leaves an outdated entry each time.
        # Rebuilding costs O(n), and only after n outdated entries: amortized, it is constant for each `add_at`. The
        # constant keeps small heaps from being rebuilt all the time.
        if len(self._heap) > 2 * len(self._entries) + 64:
            self._heap = list(self._entries.values())
            heapq.heapify(self._heap)
        while self._heap and not self._is_current(self._heap[0]):
            heapq.heappop(self._heap)

    def _is_current(self, entry: tuple[datetime, int, K]) -> bool:
        # Compare the entry, not its instant: many keys repeat the same instant, for example the end of a time window.
        return self._entries.get(entry[-1]) is entry

    def _release_all(self) -> None:
        self._alarm = None
        self._heap.clear()
        # `on_due` may add keys again. They must go into the new dictionary, not into the one being iterated.
        entries, self._entries = self._entries, {}
        for instant, _, key in entries.values():
            self._on_due(key, instant)
        self._set_alarm()

    def _on_alarm(self) -> None:
        self._alarm = None
        now = self._clock.now()
        while self._heap and self._heap[0][0] <= now:
            entry = heapq.heappop(self._heap)
            if self._is_current(entry):
                key = entry[-1]
                del self._entries[key]
                self._on_due(key, entry[0])
        self._set_alarm()
