"""The state of one client's connection to the sandbox's API server, and how requests under way wait on it.

Waiting is what a simulated day consists of, so it costs as little as can be: one future and one timer. Who waits is
woken early only when the line changes.
"""

import asyncio
from collections.abc import Callable, Generator
from types import coroutine
from typing import NamedTuple

from haulout_sandbox.apiserver.store import Bells


class BrokeOff(Exception):
    """The line broke while somebody waited on it."""


def _never() -> bool:
    return False


class Line:
    """The connection. `breaks` counts: what began before a break is broken, also after it is mended."""

    def __init__(self) -> None:
        self.is_cut = False
        self.is_frozen = False
        self.breaks = 0
        self.bells = Bells()
        self._sleepers: dict[asyncio.Future[bool], None] = {}  # a set with an order, so that runs repeat themselves

    def change(self, *, is_cut: bool | None = None, is_frozen: bool | None = None) -> None:
        """Change state and wake whoever waits on the line."""
        if is_cut is not None:
            self.breaks += is_cut
            self.is_cut = is_cut
        if is_frozen is not None:
            self.is_frozen = is_frozen
        self.nudge()
        self.bells.ring()

    def drop(self) -> None:
        """Break what is under way; what begins from now on is not concerned."""
        self.breaks += 1
        self.nudge()
        self.bells.ring()

    def nudge(self) -> None:
        """Have whoever waits for something look whether it has come."""
        for sleeper in self._sleepers:
            _wake(sleeper, by_change=True)

    async def wait(self, seconds: float | None, *, breaks: int, until: Callable[[], bool] = _never) -> bool:
        """Let time pass (None: for ever) unless `until` comes before; return False if the line broke."""
        loop = asyncio.get_running_loop()
        ends_at = None if seconds is None else loop.time() + seconds
        left = seconds
        while self.breaks == breaks and not until():
            if not await self._sleep(loop, left):
                return True
            left = None if ends_at is None else max(ends_at - loop.time(), 0)
        return self.breaks == breaks

    async def _sleep(self, loop: asyncio.AbstractEventLoop, seconds: float | None) -> bool:
        """Return when the line changes or the time is up, and whether it was the former."""
        sleeper: asyncio.Future[bool] = loop.create_future()
        timer = None if seconds is None else loop.call_later(seconds, _wake, sleeper)
        self._sleepers[sleeper] = None
        try:
            return await sleeper
        finally:
            del self._sleepers[sleeper]
            if timer is not None:
                timer.cancel()


def _wake(sleeper: asyncio.Future[bool], *, by_change: bool = False) -> None:
    if not sleeper.done():
        sleeper.set_result(by_change)


@coroutine
def _others() -> Generator[None, None, None]:
    yield


class Way(NamedTuple):
    """One request under way: it ends when the line breaks, or its time is up."""

    line: Line
    breaks: int
    deadline: float  # on the loop's clock

    async def yield_once(self) -> None:
        """Let others run; raises `BrokeOff` if one of them broke the line."""
        await _others()
        if self.line.breaks != self.breaks:
            raise BrokeOff

    async def wait(self, seconds: float | None, *, until: Callable[[], bool] = _never) -> None:
        """Let time pass (None: for ever) unless `until` comes before; raises `BrokeOff` or `TimeoutError`."""
        left = max(self.deadline - asyncio.get_running_loop().time(), 0)
        in_time = seconds is not None and seconds < left
        if not await self.line.wait(seconds if in_time else left, breaks=self.breaks, until=until):
            raise BrokeOff
        if not in_time and not until():
            raise TimeoutError
