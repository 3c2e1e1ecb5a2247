"""HTTP server for simulated clouds."""

import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from haulout_sandbox.http_timeouts import HttpTimeouts


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
