"""A server that listens while a context lasts, and says in words why it cannot."""

import contextlib
import os
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass

from aiohttp import web

from haulout.errors import UsageError

_MOST_PORT = 65_535


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen."""

    port: int
    host: str | None = None  # all addresses

    @classmethod
    def parse(cls, text: str) -> "Address":
        """Return what Go calls an address: `:8080`, `127.0.0.1:8080` or `[::1]:8080`; raises `UsageError`."""
        host, colon, port = text.rpartition(":")
        if not colon or not port.isascii() or not port.isdecimal() or not 1 <= int(port) <= _MOST_PORT:
            raise UsageError(f"expected an address with a port such as :8080, found {text!r}")
        return cls(int(port), host.removeprefix("[").removesuffix("]") or None)


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
            # An event loop's own words for it name the address once more.
            reason = (os.strerror(error.errno) if error.errno else str(error)).lower()
            raise UsageError(f"cannot listen on port {port} for {what}: {reason}; name another") from None
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
