"""A port that listens while a context lasts, and an error that says why it cannot.

We accept connections ourselves, on asyncio's loop and on uvloop, so that each is counted before its TLS handshake
(`haulout.web.connections`). An error of a handshake comes back to us, and not to the loop's exception handler.
"""

import asyncio
import contextlib
import errno
import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from aiohttp import web

from haulout.errors import UsageError
from haulout.web.api.pace import seconds_of_life
from haulout.web.connections import CLOSED_WITHIN, Connection, Connections, Limits, Slot, harden

log = logging.getLogger(__name__)

_MOST_PORT = 65_535
_FAREWELL = timedelta(seconds=5)  # for requests that are being answered when we are told to stop
_BACKLOG = 1024  # connections that the kernel keeps until we accept them
_BATCH = 32  # accepted in one turn of the loop, so that other ports have theirs
_RECEIVED_BYTES, _SENT_BYTES = 32 << 10, 128 << 10  # that the kernel keeps for a connection; it doubles them
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_NO_SUCH_FAMILY = {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}
_EXHAUSTED_FOR = timedelta(seconds=1)


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
    limits: Limits,
    tls: ssl.SSLContext | None = None,
    farewell: timedelta = _FAREWELL,
) -> AsyncIterator[int]:
    """Listen on `host`, or on all addresses; yields the port. Leaving lets those finish who are being answered."""
    harden(app)
    runner = web.AppRunner(app, shutdown_timeout=farewell.total_seconds(), handler_cancellation=True)
    await runner.setup()
    if runner.server is None:
        raise RuntimeError("the runner is not set up")
    try:
        with contextlib.ExitStack() as stack:
            try:
                sockets = await _bind(stack, host, port)
            except OSError as error:
                reason = (os.strerror(error.errno) if error.errno else str(error)).lower()
                raise UsageError(f"cannot listen on port {port} for {what}: {reason}; name another") from None
            async with _Acceptor(runner.server, Connections(limits), tls).accepting(sockets):
                yield sockets[0].getsockname()[1]
    finally:
        await runner.cleanup()


class _Acceptor:
    """Accepts connections and has each of them served."""

    def __init__(self, server: web.Server, connections: Connections, tls: ssl.SSLContext | None) -> None:
        self._server = server
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        # Not a TaskGroup: it would wrap what is raised while the port listens into an ExceptionGroup.
        self._tasks: set[asyncio.Task[None]] = set()
        self._retries: dict[socket.socket, asyncio.TimerHandle] = {}
        self._tls: dict[str, Any] = {}
        if tls is not None:
            self._tls = {"ssl": tls, "ssl_shutdown_timeout": seconds_of_life(CLOSED_WITHIN)}

    @contextlib.asynccontextmanager
    async def accepting(self, sockets: list[socket.socket]) -> AsyncIterator[None]:
        """Accept while the context lasts. All that was accepted is known to the server, or closed, when it ends."""
        self._connections.open()
        for it in sockets:
            self._loop.add_reader(it, self._accept, it)
        try:
            yield
        finally:
            for it in sockets:
                self._loop.remove_reader(it)
            for timer in self._retries.values():
                timer.cancel()
            self._connections.close()
            while self._tasks:
                await asyncio.wait(self._tasks)

    def _accept(self, door: socket.socket) -> None:
        for _ in range(_BATCH):
            try:
                accepted, peer = door.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(door, error)
                return
            accepted.setblocking(False)
            slot = self._connections.admit(accepted, str(peer[0]))
            if slot is None:
                accepted.close()
                continue
            task = self._loop.create_task(self._serve(accepted, slot))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _pause(self, door: socket.socket, error: OSError) -> None:
        """Wait before the next accept: the process or its machine has no more files or memory for sockets."""
        if error.errno not in _EXHAUSTED:
            raise error
        log.error("no connection can be accepted: %s; trying again", os.strerror(error.errno))
        self._loop.remove_reader(door)
        later = seconds_of_life(_EXHAUSTED_FOR)
        self._retries[door] = self._loop.call_later(later, self._loop.add_reader, door, self._accept, door)

    async def _serve(self, accepted: socket.socket, slot: Slot) -> None:
        """Bring a connection to where it has a protocol that speaks with its peer."""
        try:
            await self._loop.connect_accepted_socket(partial(Connection, self._server, slot), accepted, **self._tls)
        except OSError as error:
            log.debug("a TLS handshake with %s failed: %s", slot.address, type(error).__name__)
            error.__traceback__ = None  # a frame in it refers to the error: until a collection both would keep 256 KiB
            self._connections.discard(slot)
        except Exception:
            log.exception("a connection cannot be served")
            self._connections.discard(slot)
            accepted.close()


async def _bind(stack: contextlib.ExitStack, host: str | None, port: int) -> list[socket.socket]:
    """Return sockets that listen until the stack is closed: one for each address of `host`; raises `OSError`."""
    found: list[socket.socket] = []
    loop = asyncio.get_running_loop()
    infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    for family, kind, protocol, _, address in dict.fromkeys(infos):
        try:
            it = stack.enter_context(socket.socket(family, kind, protocol))
            _prepare(it, (address[0], port, *address[2:]))
        except OSError as error:
            if host is None and error.errno in _NO_SUCH_FAMILY:  # a machine without IPv6, or without IPv4
                continue
            raise
        found.append(it)
        port = it.getsockname()[1]  # if any port will do, the same one on all addresses
    if not found:
        raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    return found


def _prepare(it: socket.socket, address: tuple[Any, ...]) -> None:
    it.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if it.family == socket.AF_INET6:
        it.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    it.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVED_BYTES)
    it.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SENT_BYTES)
    it.setblocking(False)
    it.bind(address)
    it.listen(_BACKLOG)
