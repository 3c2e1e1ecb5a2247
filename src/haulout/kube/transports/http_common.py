"""Code that all network transports share: authentication, request targets, stream lines, TCP keepalive."""

import socket
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Final
from urllib.parse import quote, urlencode

from haulout.core.clock import Clock
from haulout.core.limited_reader import ReadChunk
from haulout.errors import CredentialsError, LimitExceeded
from haulout.kube.limits import Limits, WatchRateLimiter
from haulout.kube.transport import Request, Response, Stream
from haulout.kube.transports import connection_errors, tls
from haulout.kube.transports.config import Connection
from haulout.kube.transports.credentials import Identity, identity_of_token

# `Client` encodes path segments; this encodes only characters that are never valid in a path.
_PATH_CHARACTERS: Final = "/%:@!$&'()*+,;=-._~"
_UNAUTHORIZED: Final = 401
_YIELD_AFTER_BYTES: Final = 64 << 10  # bytes of a stream after which other tasks get to run
# Detects a dead peer (its node lost power) after about a minute.
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPALIVE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}


class AuthenticatingTransport(ABC):
    """Sends requests as the current identity of `connection`.

    A 401 refreshes the credentials and repeats the request once.
    """

    def __init__(self, connection: Connection, *, clock: Clock, user_agent: str, limits: Limits) -> None:
        self.server = connection.server
        self._connection = connection
        self._clock = clock
        self._user_agent = user_agent
        self._limits = limits

    async def send(self, request: Request) -> Response:
        if request.token is not None:
            return await self._send_as(identity_of_token(request.token), request)
        identity = await self._connection.credentials.current()
        response = await self._send_as(identity, request)
        if response.status == _UNAUTHORIZED and (renewed := await self._refreshed(identity)):
            identity, response = renewed, await self._send_as(renewed, request)
        self._raise_if_certificate_expired(response.status, identity)
        return response

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[Stream]:
        if request.token is not None:
            async with self._stream_as(identity_of_token(request.token), request) as stream:
                yield stream
            return
        identity = await self._connection.credentials.current()
        async with self._stream_as(identity, request) as stream:
            renewed = await self._refreshed(identity) if stream.status == _UNAUTHORIZED else None
            if renewed is None:
                self._raise_if_certificate_expired(stream.status, identity)
                yield stream
                return
        async with self._stream_as(renewed, request) as stream:
            self._raise_if_certificate_expired(stream.status, renewed)
            yield stream

    @abstractmethod
    async def _send_as(self, identity: Identity, request: Request) -> Response: ...

    @abstractmethod
    def _stream_as(self, identity: Identity, request: Request) -> AbstractAsyncContextManager[Stream]: ...

    async def _refreshed(self, rejected: Identity) -> Identity | None:
        """Return the new identity after a rejection; None if it is the same."""
        await self._connection.credentials.refresh(rejected)
        current = await self._connection.credentials.current()
        return current if current != rejected else None

    def _raise_if_certificate_expired(self, status: int, identity: Identity) -> None:
        """Raise after a 401 if the client certificate has expired: the server does not say so."""
        if status != _UNAUTHORIZED or identity.authorization is not None or identity.certificate is None:
            return
        expires_at = tls.expiry(identity.certificate.cert_pem)
        if expires_at and expires_at <= self._clock.now():
            raise CredentialsError(
                f"{self.server} refused us: the client certificate of user {self._connection.user!r} in "
                f"{self._connection.source} expired on {expires_at:%Y-%m-%d %H:%M:%S} UTC; get a new one"
            )


def request_target(request: Request) -> str:
    """Return the path with its query, relative to the server's address."""
    query = f"?{urlencode(request.query, quote_via=quote)}" if request.query else ""
    return f"{quote(request.path, safe=_PATH_CHARACTERS)}{query}"


async def read_lines(
    read: ReadChunk, *, doing: str, limits: Limits, clock: Clock, on_buffered: Callable[[int], None] | None = None
) -> AsyncIterator[bytes]:
    """Yield complete lines from chunks, until `read` returns an empty chunk.

    Chunks are split with `bytes.split`, and only a line that spans several chunks is copied. Other tasks run after each
    large chunk, because the next one may be available at once, decompressed from a few bytes. `on_buffered` is called
    with the length of the incomplete line.
    """
    allowance = WatchRateLimiter(limits)
    unfinished: list[bytes] = []  # the parts of the incomplete line
    length = 0
    while chunk := await read():
        first, *rest = chunk.split(b"\n")
        unfinished.append(first)
        length += len(first)
        if length > limits.line_bytes:
            raise LimitExceeded(f"{doing}: a line of the stream is longer than {limits.line_bytes} bytes")
        allowance.take(lines=len(rest), size=len(chunk), doing=doing)
        if rest:
            yield b"".join(unfinished)
            unfinished = [rest.pop()]
            length = len(unfinished[0])
            for line in rest:
                yield line
        if on_buffered is not None:
            on_buffered(length)
        if len(chunk) >= _YIELD_AFTER_BYTES:
            await clock.sleep(timedelta())
    if any(unfinished):
        raise connection_errors.stream_broken(doing, "in the middle of a line")


def enable_keepalive(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
