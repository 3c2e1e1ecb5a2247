"""A server that listens while a context lasts, and says in words why it cannot."""

import asyncio
import contextlib
import os
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from aiohttp import web

from haulout.core.clock import RealClock
from haulout.errors import UsageError
from haulout.web.doorkeeper import Doorkeeper

_MOST_PORT = 65_535
_IDLE = timedelta(seconds=90)
_FAREWELL = timedelta(seconds=5)  # for requests that are being answered when we are told to stop
_TURNS = 3  # of the loop, until whoever was accepted is known


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
    app: web.Application,
    *,
    host: str | None,
    port: int,
    what: str,
    tls: ssl.SSLContext | None = None,
    farewell: timedelta = _FAREWELL,
) -> AsyncIterator[int]:
    """Listen on `host`, or on all addresses; yields the port. Leaving lets those finish who are being answered."""
    doorkeeper = Doorkeeper(app)
    runner = web.AppRunner(
        app,
        access_log=None,
        keepalive_timeout=_IDLE.total_seconds(),
        shutdown_timeout=farewell.total_seconds(),
        handler_cancellation=True,
    )
    await runner.setup()
    try:
        async with _let_in(runner, doorkeeper, host=host, port=port, what=what, tls=tls) as found:
            yield found
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def _let_in(
    runner: web.AppRunner,
    doorkeeper: Doorkeeper,
    *,
    host: str | None,
    port: int,
    what: str,
    tls: ssl.SSLContext | None,
) -> AsyncIterator[int]:
    """Let callers in while the context lasts; whoever was let in is known to the runner when it ends."""
    loop = asyncio.get_running_loop()
    if runner.server is None:
        raise RuntimeError("the runner is not set up")
    let_in = partial(doorkeeper.let_in, runner.server)
    try:
        server = await loop.create_server(let_in, host, port, ssl=tls, reuse_address=True)
    except OSError as error:
        # An event loop's own words for it name the address once more.
        reason = (os.strerror(error.errno) if error.errno else str(error)).lower()
        raise UsageError(f"cannot listen on port {port} for {what}: {reason}; name another") from None
    door = server.sockets
    try:
        yield door[0].getsockname()[1]
    finally:
        # A connection that was accepted when its server closes is lost: nobody would ever close it.
        for it in door:
            loop.remove_reader(it)
        for _ in range(_TURNS):
            await RealClock().sleep(timedelta())
        server.close()
        doorkeeper.leave()
