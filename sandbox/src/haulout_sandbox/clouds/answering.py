"""How a cloud answers over HTTP."""

import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from haulout_sandbox.patience import Patience


@asynccontextmanager
async def answering(
    app: web.Application, listener: socket.socket, *, pace: float = 1.0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Answer what comes in while the context lasts; yields the port.

    `pace` is how many seconds of the loop pass in one of the machine's.
    """
    patience = Patience(pace)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=patience.farewell, keepalive_timeout=patience.idle)
    await runner.setup()
    await web.SockSite(runner, listener, ssl_context=tls).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
