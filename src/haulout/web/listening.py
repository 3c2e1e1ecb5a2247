"""A server that listens while a context lasts, and says in words why it cannot."""

import contextlib
import ssl
from collections.abc import AsyncIterator

from aiohttp import web

from haulout.errors import UsageError


@contextlib.asynccontextmanager
async def listening(
    runner: web.AppRunner, *, host: str | None, port: int, what: str, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Listen on `host`, or on all addresses; yields the port. Leaving lets those finish who are being answered."""
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port, ssl_context=tls, reuse_address=True).start()
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise UsageError(f"cannot listen on port {port} for {what}: {reason}; name another") from None
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
