"""Listen on a port while a context lasts, with an error that says why the port is not available.

We accept connections ourselves, on asyncio's loop and on uvloop, so that each connection counts before its TLS
handshake (`haulout.httpserver.connections`). Errors of a handshake then reach us and not the loop's exception handler.
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

from haulout.core.clock import real_seconds
from haulout.errors import UsageError
from haulout.httpserver.connections import (
    CLOSE_TIMEOUT,
    Connection,
    ConnectionLimits,
    ConnectionSlot,
    ConnectionTable,
    harden,
)

log = logging.getLogger(__name__)

_MAX_PORT = 65_535
_SHUTDOWN_TIMEOUT = timedelta(seconds=5)  # for requests in progress at shutdown
_BACKLOG = 1024  # connections that the kernel queues until they are accepted
_BATCH = 32  # connections accepted per turn of the loop, so that other ports get their turn
_RECEIVED_BYTES, _SENT_BYTES = 32 << 10, 128 << 10  # socket buffers of a connection; the kernel doubles them
_EXHAUSTED_ERRNOS = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_NO_SUCH_FAMILY = {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}
_EXHAUSTED_RETRY_DELAY = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """The address to listen on, as flags of Go programs have it."""

    port: int
    host: str | None = None  # None: all addresses

    @classmethod
    def parse(cls, text: str) -> "ListenAddress":
        """Parse an address as Go writes it: `:8080`, `127.0.0.1:8080` or `[::1]:8080`. Raise `UsageError`."""
        host, colon, port = text.rpartition(":")
        if not colon or not port.isascii() or not port.isdecimal() or not 1 <= int(port) <= _MAX_PORT:
            raise UsageError(f"expected an address with a port such as :8080, found {text!r}")
        return cls(int(port), host.removeprefix("[").removesuffix("]") or None)


@contextlib.asynccontextmanager
async def listen(
    app: web.Application,
    *,
    host: str | None,
    port: int,
    what: str,
    limits: ConnectionLimits,
    tls: ssl.SSLContext | None = None,
    shutdown_timeout: timedelta = _SHUTDOWN_TIMEOUT,
) -> AsyncIterator[int]:
    """Listen on `host`, or on all addresses; yield the port. On exit, finish the requests in progress."""
    harden(app)
    runner = web.AppRunner(app, shutdown_timeout=shutdown_timeout.total_seconds(), handler_cancellation=True)
    await runner.setup()
    if runner.server is None:
        raise RuntimeError("the runner is not set up")
    try:
        with contextlib.ExitStack() as stack:
            try:
                sockets = await _bind(stack, host, port)
            except OSError as error:
                reason = (os.strerror(error.errno) if error.errno else str(error)).lower()
                raise UsageError(f"cannot listen on port {port} for {what}: {reason}; choose another port") from None
            async with _Acceptor(runner.server, ConnectionTable(limits), tls).accepting(sockets):
                yield sockets[0].getsockname()[1]
    finally:
        await runner.cleanup()


class _Acceptor:
    """Accepts connections and starts to serve each of them."""

    def __init__(self, server: web.Server, connections: ConnectionTable, tls: ssl.SSLContext | None) -> None:
        self._server = server
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        # Not a TaskGroup: it would wrap an exception raised inside the context into an ExceptionGroup.
        self._tasks: set[asyncio.Task[None]] = set()
        self._retries: dict[socket.socket, asyncio.TimerHandle] = {}
        self._tls: dict[str, Any] = {}
        if tls is not None:
            self._tls = {"ssl": tls, "ssl_shutdown_timeout": real_seconds(CLOSE_TIMEOUT)}

    @contextlib.asynccontextmanager
    async def accepting(self, sockets: list[socket.socket]) -> AsyncIterator[None]:
        """Accept while the context lasts. On exit, each accepted connection is closed or known to aiohttp."""
        self._connections.open()
        for listener in sockets:
            self._loop.add_reader(listener, self._accept, listener)
        try:
            yield
        finally:
            for listener in sockets:
                self._loop.remove_reader(listener)
            for timer in self._retries.values():
                timer.cancel()
            self._connections.close()
            while self._tasks:
                await asyncio.wait(self._tasks)

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_BATCH):
            try:
                accepted, peer = listener.accept()
            # Nothing more to accept, or the peer has closed its connection already.
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(listener, error)
                return
            accepted.setblocking(False)
            slot = self._connections.admit(accepted, str(peer[0]))
            if slot is None:
                accepted.close()
                continue
            task = self._loop.create_task(self._serve(accepted, slot))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _pause(self, listener: socket.socket, error: OSError) -> None:
        """Pause accepting: the process or the machine is out of file descriptors or memory for sockets."""
        if error.errno not in _EXHAUSTED_ERRNOS:
            raise error
        log.error("no connection can be accepted: %s; trying again", os.strerror(error.errno))
        self._loop.remove_reader(listener)
        # The socket stays readable, so without a pause the loop would call `_accept` without end.
        delay = real_seconds(_EXHAUSTED_RETRY_DELAY)
        self._retries[listener] = self._loop.call_later(delay, self._loop.add_reader, listener, self._accept, listener)

    async def _serve(self, accepted: socket.socket, slot: ConnectionSlot) -> None:
        """Perform the TLS handshake and attach the protocol to a connection."""
        try:
            await self._loop.connect_accepted_socket(partial(Connection, self._server, slot), accepted, **self._tls)
        except OSError as error:
            log.debug("a TLS handshake with %s failed: %s", slot.address, type(error).__name__)
            error.__traceback__ = None  # a frame refers to the error: until a collection the cycle keeps 256 KiB
            self._connections.discard(slot)
        except Exception:
            log.exception("a connection cannot be served")
            self._connections.discard(slot)
            accepted.close()


async def _bind(stack: contextlib.ExitStack, host: str | None, port: int) -> list[socket.socket]:
    """Return listening sockets, one per address of `host`; the stack closes them. Raise `OSError`."""
    listeners: list[socket.socket] = []
    loop = asyncio.get_running_loop()
    infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    for family, kind, protocol, _, address in dict.fromkeys(infos):
        try:
            listener = stack.enter_context(socket.socket(family, kind, protocol))
            _prepare(listener, (address[0], port, *address[2:]))
        except OSError as error:
            if host is None and error.errno in _NO_SUCH_FAMILY:  # a machine without IPv6 or without IPv4
                continue
            raise
        listeners.append(listener)
        port = listener.getsockname()[1]  # for port 0: use the same port on all addresses
    if not listeners:
        raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    return listeners


def _prepare(listener: socket.socket, address: tuple[Any, ...]) -> None:
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if listener.family == socket.AF_INET6:
        # IPv4 has a socket of its own. One socket for both would depend on a setting of the system.
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    # Accepted connections inherit these. The kernel would otherwise let the buffers of each connection grow to
    # megabytes, outside of `BufferLimit`.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVED_BYTES)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SENT_BYTES)
    listener.setblocking(False)
    listener.bind(address)
    listener.listen(_BACKLOG)
