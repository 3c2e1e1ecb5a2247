"""The state of one client's connection to the API server, and how requests in flight wait on it.

Simulated time consists mostly of waiting, so a wait costs only one future and one timer. A waiter is woken early only
when the state of the connection changes.
"""

import asyncio
from collections.abc import Callable, Generator
from types import coroutine
from typing import NamedTuple

from haulout_sandbox.apiserver.storage.store import Listeners


class ConnectionBroken(Exception):
    """The connection broke while a request waited on it."""


def _never() -> bool:
    return False


class Connection:
    """A connection. `break_count` marks requests: one started before a break stays broken after `mend`."""

    def __init__(self) -> None:
        self.is_cut = False
        self.is_frozen = False
        self.break_count = 0
        self.listeners = Listeners()
        self._waiters: dict[asyncio.Future[bool], None] = {}  # an ordered set, so that runs are reproducible

    def set_state(self, *, is_cut: bool | None = None, is_frozen: bool | None = None) -> None:
        """Change the state and wake all waiters."""
        if is_cut is not None:
            self.break_count += is_cut
            self.is_cut = is_cut
        if is_frozen is not None:
            self.is_frozen = is_frozen
        self.wake_waiters()
        self.listeners.notify()

    def break_requests(self) -> None:
        """Break requests in flight; later ones are not affected."""
        self.break_count += 1
        self.wake_waiters()
        self.listeners.notify()

    def wake_waiters(self) -> None:
        """Wake all waiters, so that they check their condition."""
        for waiter in self._waiters:
            _wake(waiter, by_change=True)

    async def wait(self, seconds: float | None, *, break_count: int, until: Callable[[], bool] = _never) -> bool:
        """Wait (None: without limit) unless `until` becomes true before; return False if the connection broke."""
        loop = asyncio.get_running_loop()
        ends_at = None if seconds is None else loop.time() + seconds
        remaining = seconds
        while self.break_count == break_count and not until():
            if not await self._sleep(loop, remaining):
                return True
            remaining = None if ends_at is None else max(ends_at - loop.time(), 0)
        return self.break_count == break_count

    async def _sleep(self, loop: asyncio.AbstractEventLoop, seconds: float | None) -> bool:
        """Return True if woken by a change, False if the time is over."""
        waiter: asyncio.Future[bool] = loop.create_future()
        timer = None if seconds is None else loop.call_later(seconds, _wake, waiter)
        self._waiters[waiter] = None
        try:
            return await waiter
        finally:
            del self._waiters[waiter]
            if timer is not None:
                timer.cancel()


def _wake(waiter: asyncio.Future[bool], *, by_change: bool = False) -> None:
    if not waiter.done():
        waiter.set_result(by_change)


@coroutine
def _yield_to_others() -> Generator[None, None, None]:
    yield


class InFlightRequest(NamedTuple):
    """A request in flight: it ends when the connection breaks or its deadline passes."""

    connection: Connection
    break_count: int
    deadline: float  # in seconds of the loop's clock

    async def yield_once(self) -> None:
        """Let other tasks run; raise `ConnectionBroken` if one of them broke the connection."""
        await _yield_to_others()
        if self.connection.break_count != self.break_count:
            raise ConnectionBroken

    async def wait(self, seconds: float | None, *, until: Callable[[], bool] = _never) -> None:
        """Wait (None: without limit) unless `until` becomes true before; raise `ConnectionBroken` or `TimeoutError`."""
        remaining = max(self.deadline - asyncio.get_running_loop().time(), 0)
        in_time = seconds is not None and seconds < remaining
        if not await self.connection.wait(seconds if in_time else remaining, break_count=self.break_count, until=until):
            raise ConnectionBroken
        if not in_time and not until():
            raise TimeoutError
