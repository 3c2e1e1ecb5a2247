"""Token buckets per key, with bounded memory."""

import math
from collections import OrderedDict
from datetime import timedelta

from haulout.core.clock import Clock

_MAX_KEYS = 10_000


class TokenBuckets:
    """A bucket per key: `burst` tokens, and one more every `refill`."""

    def __init__(self, clock: Clock, *, burst: int, refill: timedelta, max_keys: int = _MAX_KEYS) -> None:
        self._clock = clock
        self._burst = burst
        self._refill = refill.total_seconds()
        self._max_keys = max_keys
        self._full_at: OrderedDict[str, float] = OrderedDict()  # the least recently used key first

    def __len__(self) -> int:
        return len(self._full_at)

    def retry_after(self, key: str) -> int:
        """Return the seconds until a token is available; 0: now."""
        missing = self._full_at.get(key, 0.0) - self._clock.monotonic() - self._refill * (self._burst - 1)
        return max(math.ceil(missing), 0)

    def take(self, key: str) -> int:
        """Take a token if there is one; return 0, or the seconds until there is one."""
        if wait := self.retry_after(key):
            return wait
        now = self._clock.monotonic()
        self._full_at[key] = max(self._full_at.get(key, now), now) + self._refill
        self._full_at.move_to_end(key)
        if len(self._full_at) > self._max_keys:
            self._full_at.popitem(last=False)
        return 0

    def refund(self, key: str) -> None:
        """Put back a token."""
        if key in self._full_at:
            self._full_at[key] -= self._refill
