"""Keeps those out who come only to take up room: connections on which nobody asks anything, and too many of them.

Whoever is let in must have asked something, headers and all, within a while; who then stays silent is closed by the
server itself. And there is a limit to how many may be inside at once: the operator needs files and memory for its work.
"""

import asyncio
from datetime import timedelta

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from haulout.core.clock import RealClock

_ASKS_WITHIN = timedelta(seconds=15)
_MOST_INSIDE = 2_000  # many times as many as ask at once, with all who look on


class Doorkeeper:
    """Stands before the server of an application that has not been started yet."""

    def __init__(self, app: web.Application, *, within: timedelta = _ASKS_WITHIN, most: int = _MOST_INSIDE) -> None:
        self._within = within.total_seconds()
        self._most = most
        self._clock = RealClock()
        self._silent: dict[asyncio.BaseProtocol, asyncio.TimerHandle] = {}
        app.middlewares.insert(0, self._listener())

    def let_in(self, server: web.Server) -> asyncio.Protocol:
        """Return who speaks with the next one who comes."""
        if len(server.connections) >= self._most:
            return _Refusal()
        handler = server()
        self._wait_for(handler, since=self._clock.monotonic())
        return handler

    def leave(self) -> None:
        """Have nobody sent away any more: the server does that when it ends."""
        for timer in self._silent.values():
            timer.cancel()
        self._silent.clear()

    def _listener(self) -> Middleware:
        @web.middleware
        async def hear(request: web.Request, handler: Handler) -> web.StreamResponse:
            timer = self._silent.pop(request.protocol, None)
            if timer is not None:
                timer.cancel()
            return await handler(request)

        return hear

    def _wait_for(self, handler: web.RequestHandler, *, since: float) -> None:
        loop = asyncio.get_running_loop()
        self._silent[handler] = loop.call_later(self._within, self._look, handler, since)

    def _look(self, handler: web.RequestHandler, since: float) -> None:
        del self._silent[handler]
        if handler.transport is None:
            return  # they have left by themselves
        if self._clock.monotonic() - since < self._within:  # a loop may be faster than life; people are not
            self._wait_for(handler, since=since)
        else:
            handler.force_close()


class _Refusal(asyncio.Protocol):
    """Has no time for anybody."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close it."""
        transport.close()
