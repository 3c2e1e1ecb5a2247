"""The state of one client's connection to the sandbox's API server, and how requests under way wait on it.

Waiting is what a simulated day consists of, so it costs as little as can be: one future and one timer. Who waits is
woken early only when the line changes.
"""

import asyncio
from collections.abc import Callable, Generator
from types import coroutine
from typing import NamedTuple

from haulout_sandbox.apiserver.storage.store import Listeners


class ConnectionBroken(Exception):
    """The line broke while somebody waited on it."""


def _never() -> bool:
    return False


class Connection:
    """The connection. `break_count` counts: what began before a break is broken, also after it is mended."""

    def __init__(self) -> None:
        self.is_cut = False
        self.is_frozen = False
        self.break_count = 0
        self.listeners = Listeners()
        self._waiters: dict[asyncio.Future[bool], None] = {}  # a set with an order, so that runs repeat themselves

    def set_state(self, *, is_cut: bool | None = None, is_frozen: bool | None = None) -> None:
        """Change state and wake whoever waits on the line."""
        if is_cut is not None:
            self.break_count += is_cut
            self.is_cut = is_cut
        if is_frozen is not None:
            self.is_frozen = is_frozen
        self.wake_waiters()
        self.listeners.notify()

    def break_requests(self) -> None:
        """Break what is under way; what begins from now on is not concerned."""
        self.break_count += 1
        self.wake_waiters()
        self.listeners.notify()

    def wake_waiters(self) -> None:
        """Have whoever waits for something look whether it has come."""
        for waiter in self._waiters:
            _wake(waiter, by_change=True)

    async def wait(self, seconds: float | None, *, break_count: int, until: Callable[[], bool] = _never) -> bool:
        """Let time pass (None: for ever) unless `until` comes before; return False if the line broke."""
        loop = asyncio.get_running_loop()
        ends_at = None if seconds is None else loop.time() + seconds
        remaining = seconds
        while self.break_count == break_count and not until():
            if not await self._sleep(loop, remaining):
                return True
            remaining = None if ends_at is None else max(ends_at - loop.time(), 0)
        return self.break_count == break_count

    async def _sleep(self, loop: asyncio.AbstractEventLoop, seconds: float | None) -> bool:
        """Return when the line changes or the time is up, and whether it was the former."""
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
    """One request under way: it ends when the line breaks, or its time is up."""

    connection: Connection
    break_count: int
    deadline: float  # on the loop's clock

    async def yield_once(self) -> None:
        """Let others run; raises `ConnectionBroken` if one of them broke the line."""
        await _yield_to_others()
        if self.connection.break_count != self.break_count:
            raise ConnectionBroken

    async def wait(self, seconds: float | None, *, until: Callable[[], bool] = _never) -> None:
        """Let time pass (None: for ever) unless `until` comes before; raises `ConnectionBroken` or `TimeoutError`."""
        remaining = max(self.deadline - asyncio.get_running_loop().time(), 0)
        in_time = seconds is not None and seconds < remaining
        if not await self.connection.wait(seconds if in_time else remaining, break_count=self.break_count, until=until):
            raise ConnectionBroken
        if not in_time and not until():
            raise TimeoutError
