"""HTTP servers of simulated clouds: one for an application, and routes that pass requests to a model."""

import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

from aiohttp import web

from haulout.errors import CloudError
from haulout_sandbox.https_server import HttpTimeouts, listen

C = TypeVar("C")


class Answer(Protocol):
    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def body(self) -> bytes: ...


@asynccontextmanager
async def serve_app(
    app: web.Application, listener: socket.socket, *, speed: float = 1.0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serve an application while the context lasts; yields the port.

    `speed` is how many seconds of the event loop pass per second of the machine.
    """
    timeouts = HttpTimeouts(speed)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=timeouts.shutdown, keepalive_timeout=timeouts.idle)
    await runner.setup()
    await web.SockSite(runner, listener, ssl_context=tls).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@asynccontextmanager
async def serve_routes(
    add_routes: Callable[[web.Application, C], object], cloud: C, *, host: str, port: int = 0
) -> AsyncIterator[int]:
    """Serve the routes of one cloud while the context lasts; yields the port."""
    app = web.Application()
    add_routes(app, cloud)
    async with serve_app(app, listen(host, port)) as bound_port:
        yield bound_port


def add_forwarding_route(app: web.Application, path: str, answer: Callable[[web.Request], Awaitable[Answer]]) -> None:
    """Pass requests at `path` to `answer`, which raises `CloudError` if no response must be sent."""

    async def handle(request: web.Request) -> web.Response:
        try:
            found = await answer(request)
        except CloudError:
            return abort(request)
        return web.Response(status=found.status, headers=dict(found.headers), body=found.body)

    app.router.add_route("*", path, handle)


def abort(request: web.Request) -> web.Response:
    """Close the connection without a response."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
