"""A limit on what many holders take together: when it is exceeded, the largest holder loses its share first.

    budget = SharedBudget(100 << 20, what="the caches of all workload clusters", clock=clock)
    with budget.share(evict) as share:
        share.resize(1 << 20, doing="following nodes")

`evict` is called with the reason when another holder needs the bytes: it must free them before it returns. `resize`
raises `LimitExceeded` if the caller itself is the largest.

A share that was evicted must not evict a smaller one when it comes back, or both would take turns. So for `_PROBATION`
after the last eviction it counts as large as it was then, and it comes back only if a tenth of the limit stays free.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import TracebackType
from typing import Final

from haulout.core.clock import Clock
from haulout.errors import LimitExceeded

Evict = Callable[[LimitExceeded], None]

_PROBATION: Final = timedelta(minutes=10).total_seconds()


class Share:
    """What one holder takes."""

    __slots__ = ("_budget", "_evicted_size", "_evicted_until", "doing", "evict", "is_returning", "size")

    def __init__(self, budget: "SharedBudget", evict: Evict) -> None:
        self.size = 0
        self.doing = ""  # what it takes the bytes for, in messages
        self.evict = evict
        self.is_returning = False  # after an eviction, until it has all that it needs
        self._budget = budget
        self._evicted_size = 0
        self._evicted_until = 0.0

    def resize(self, size: int, *, doing: str) -> None:
        """Take `size` bytes from now on; raises `LimitExceeded`, and takes none then."""
        self.doing = doing
        self._budget.resize(self, size)

    def claim(self, now: float) -> int:
        """Return the size by which it is compared with others."""
        return max(self.size, self._evicted_size) if now < self._evicted_until else self.size

    def note_eviction(self, now: float) -> None:
        """Take note that it has to go: nothing is left of it."""
        self._evicted_size, self._evicted_until = self.claim(now), now + _PROBATION
        self.size, self.is_returning = 0, True


class SharedBudget:
    """`limit` bytes for all shares together; `what` names them in messages."""

    def __init__(self, limit: int, *, what: str, clock: Clock) -> None:
        self.limit = limit
        self.taken = 0
        self._what = what
        self._clock = clock
        self._shares: dict[Share, None] = {}  # in the order in which they came

    @contextmanager
    def share(self, evict: Evict) -> Iterator[Share]:
        """Have a share for as long as the context lasts."""
        share = self.new_share(evict)
        try:
            yield share
        finally:
            self.release(share)

    def new_share(self, evict: Evict) -> Share:
        """Return a share, until it is released."""
        share = Share(self, evict)
        self._shares[share] = None
        return share

    def release(self, share: Share) -> None:
        """Give a share back."""
        if share in self._shares:
            del self._shares[share]
            self.taken -= share.size

    def resize(self, share: Share, size: int) -> None:
        """See `Share.resize`."""
        more = size - share.size
        self.taken += more
        share.size = size
        limit = self.limit * 9 // 10 if share.is_returning else self.limit
        if more <= 0 or self.taken <= limit:
            return
        now = self._clock.monotonic()
        while self.taken > limit:
            largest = max((it for it in self._shares if it.size), key=lambda it: it.claim(now))
            if largest.claim(now) <= share.claim(now):
                largest = share
            reason = f"more than {self.limit >> 20} MiB in {self._what}, and this is the largest"
            text = f"{largest.doing}: {reason} ({largest.claim(now) >> 10} KiB)"
            self.taken -= largest.size
            largest.note_eviction(now)
            if largest is share:
                raise LimitExceeded(text)
            largest.evict(LimitExceeded(text))


class Interruption:
    """Ends what runs in its context with an error that comes from outside of it. Not to be entered twice at once."""

    def __init__(self) -> None:
        self._error: Exception | None = None
        self._scope: asyncio.Timeout | None = None

    def end(self, error: Exception) -> None:
        """End what runs in the context now; nothing, if nothing does."""
        if self._scope is not None and self._error is None:
            self._error = error
            self._scope.reschedule(asyncio.get_running_loop().time())

    async def __aenter__(self) -> None:
        self._error = None
        self._scope = asyncio.timeout(None)
        await self._scope.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        scope, self._scope = self._scope, None
        error, self._error = self._error, None
        if scope is None:
            return
        try:
            await scope.__aexit__(kind, raised, trace)
        except TimeoutError:
            if error is None:
                raise
            try:
                raise error from None
            finally:
                del error  # a cycle with its traceback would keep what ended in memory
