"""Stalls simulated processes while others continue, in one event loop.

    with process_context("a"):                # tasks started here belong to process a
        group.create_task(…)
    loop.stall("a", timedelta(seconds=20))    # nothing of a runs for 20 s; then everything that is due, in order

This simulates a long garbage collection, a paused container or a swapping machine: afterwards, callbacks that were
ready run before timers that are long overdue. Data on the network is not stalled: send through `DelayedNetwork`.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from contextvars import Context, ContextVar, copy_context
from datetime import timedelta
from typing import TypeVarTuple, Unpack

import msgspec

from haulout.core.clock import Clock
from haulout.kube.transport import Request, Response, Stream, Transport
from haulout_sandbox.event_loops.virtual_time import VirtualLoop

Ts = TypeVarTuple("Ts")

_PROCESS = ContextVar("process", default="")


@contextmanager
def process_context(name: str) -> Iterator[None]:
    """Let what is started in the context belong to the process `name`."""
    token = _PROCESS.set(name)
    try:
        yield
    finally:
        _PROCESS.reset(token)


class StallingLoop(VirtualLoop):
    """Simulated time for several processes, each of which can be stalled."""

    def __init__(self) -> None:
        super().__init__()
        self._held_back: dict[str, list[_StallableCallback]] = {}

    def stall(self, name: str, duration: timedelta) -> None:
        """Run nothing of the process `name` for `duration`; one that is stalled already stays so until its time."""
        if name in self._held_back:
            return
        self._held_back[name] = []
        super().call_at(self.time() + duration.total_seconds(), self._resume, name, context=Context())

    def hold_back_if_stalled(self, gate: "_StallableCallback") -> bool:
        """Keep `gate` for later if its process is stalled."""
        held = self._held_back.get(_PROCESS.get())
        if held is not None:
            held.append(gate)
        return held is not None

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Call when nothing that was there before is left to do and the process is not stalled."""
        gate = _StallableCallback(self, lambda: callback(*args), copy_context() if context is None else context)
        gate.handle = super().call_soon(gate, context=gate.context)
        return gate.handle

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call at `when`, or as soon after it as the process is not stalled."""
        gate = _StallableCallback(self, lambda: callback(*args), copy_context() if context is None else context)
        handle = super().call_at(when, gate, context=gate.context)
        gate.handle = handle
        return handle

    def _resume(self, name: str) -> None:
        for gate in self._held_back.pop(name):
            super().call_soon(gate, context=gate.context)


class _StallableCallback:
    """A callback that waits while its process is stalled, and that can still be cancelled meanwhile."""

    handle: asyncio.Handle

    def __init__(self, loop: StallingLoop, callback: Callable[[], object], context: Context) -> None:
        self.context = context
        self._loop = loop
        self._callback = callback

    def __call__(self) -> None:
        if not self.handle.cancelled() and not self._loop.hold_back_if_stalled(self):
            self._callback()


class DelayedNetwork:
    """A transport whose requests travel on while their sender is stalled.

    With `connect_delay` it takes that long to get a connection, time in which a sender may well be stalled; and what
    was written on it cannot be called back by a sender that gives up, as it mostly can otherwise.
    """

    def __init__(self, transport: Transport, *, clock: Clock, connect_delay: timedelta = timedelta()) -> None:
        self.server = transport.server
        self._transport = transport
        self._clock = clock
        self._connect_delay = connect_delay
        self._written: list[asyncio.Task[Response]] = []
        self.connecting_paths: list[str] = []  # the paths of requests that have no connection yet

    async def send(self, request: Request) -> Response:
        """Send `request` and read the whole answer."""
        if self._connect_delay:
            self.connecting_paths.append(request.path)
            await self._clock.sleep(self._connect_delay)
            self.connecting_paths.remove(request.path)
        if request.before_send:
            request.before_send()
        left = msgspec.structs.replace(request, before_send=None)
        loop = asyncio.get_running_loop()
        task: asyncio.Task[Response] = loop.create_task(self._transport.send(left), context=Context())
        if self._connect_delay:
            self._written.append(task)
            return await asyncio.shield(task)
        try:
            return await task
        finally:
            task.cancel()

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        """Send `request` and read the answer as it comes."""
        return self._transport.stream(request)

    async def close(self) -> None:
        """Give up all connections."""
        await self._transport.close()
