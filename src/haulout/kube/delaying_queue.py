"""Wake-ups by key: who wants to be woken at which instant, and one alarm for the earliest of them.

Thousands of keys sleep at a time, and most are woken by an event long before their instant. Setting and dropping a
wake-up is therefore cheap (a heap whose outdated entries are skipped), and the clock knows of only one alarm, which it
keeps right when the wall clock is set. When that is set back, all are woken: most instants were reckoned from `now()`,
so that seconds would be hours now, and whoever waits for an hour of the day says so again.
"""

import heapq
from collections.abc import Callable, Hashable
from datetime import datetime
from itertools import count
from typing import Generic, TypeVar

from haulout.core.clock import Alarm, Clock

K = TypeVar("K", bound=Hashable)


class DelayingQueue(Generic[K]):
    """Calls `on_due` with each key and its instant when that comes, between `start` and `stop`."""

    def __init__(self, clock: Clock, on_due: Callable[[K, datetime], object]) -> None:
        self._clock = clock
        self._on_due = on_due
        self._entries: dict[K, tuple[datetime, int, K]] = {}  # those that count
        self._heap: list[tuple[datetime, int, K]] = []  # may hold entries that no longer count
        self._tie_breaker = count()  # keys need not be comparable
        self._alarm: Alarm | None = None
        self._started = False

    def __len__(self) -> int:
        return len(self._entries)

    def start(self) -> None:
        """Wake keys from now on; needs a running loop."""
        self._started = True
        self._set_alarm()

    def stop(self) -> None:
        """Wake nobody, but keep what is pending."""
        self._started = False
        self._set_alarm()

    def add_at(self, key: K, instant: datetime) -> None:
        """Wake `key` at `instant`, unless it is to be woken sooner."""
        pending = self._entries.get(key)
        if pending is None or instant < pending[0]:
            entry = self._entries[key] = (instant, next(self._tie_breaker), key)
            heapq.heappush(self._heap, entry)
            self._set_alarm()

    def discard(self, key: K) -> None:
        """Forget the pending wake-up of `key`, if there is one."""
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
        # A key that is woken by events long before its instant leaves an outdated entry each time.
        if len(self._heap) > 2 * len(self._entries) + 64:
            self._heap = list(self._entries.values())
            heapq.heapify(self._heap)
        while self._heap and not self._is_current(self._heap[0]):
            heapq.heappop(self._heap)

    def _is_current(self, entry: tuple[datetime, int, K]) -> bool:
        # Not the instant: many keys name the same one again and again, for example the end of a time window.
        return self._entries.get(entry[-1]) is entry

    def _release_all(self) -> None:
        self._alarm = None
        self._heap.clear()
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
