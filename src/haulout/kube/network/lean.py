"""A transport for a process that must be small: the same as `haulout.kube.network.http`, without aiohttp.

    transport = lean_transport(config.load(), clock=clock)

It makes a connection for each request, which suits one that has a watch open and writes now and then. What it does not
know, a proxy and acting in the name of others, gets the other transport, at the price of its memory.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

from haulout.core.clock import Clock
from haulout.errors import GarbledAnswer, KubeError, LimitExceeded, Unreachable
from haulout.kube.limits import OWN_CLUSTER, Limits
from haulout.kube.network import framing, tls, wording
from haulout.kube.network.bounded import TooLarge
from haulout.kube.network.config import Connection
from haulout.kube.network.credentials import Identity, holder
from haulout.kube.network.plain import Answer, NotHttp, Place, asking
from haulout.kube.network.tls import ClientCertificate
from haulout.kube.transport import Request, Response, Transport

_OK: Final = 200
_REFUSED: Final = 300
_UNAUTHORIZED: Final = 401


def lean_transport(connection: Connection, *, clock: Clock, user_agent: str) -> Transport:
    """Return the smallest transport that serves a connection."""
    if connection.proxy or connection.impersonation:
        from haulout.kube.network.http import HttpTransport

        return HttpTransport(connection, clock=clock, user_agent=user_agent)
    return LeanTransport(connection, clock=clock, user_agent=user_agent)


class LeanTransport:
    """Moves requests to the cluster that `connection` describes."""

    def __init__(self, connection: Connection, *, clock: Clock, user_agent: str, limits: Limits = OWN_CLUSTER) -> None:
        self.server = connection.server
        self._connection = connection
        self._clock = clock
        self._user_agent = user_agent
        self._limits = limits
        self._place: tuple[ClientCertificate | None, Place] | None = None

    async def send(self, request: Request) -> Response:
        """Send `request` and read the whole answer."""
        if request.token is not None:
            return await self._send_as(holder(request.token), request)
        identity = await self._connection.credentials.current()
        response = await self._send_as(identity, request)
        if response.status == _UNAUTHORIZED and (fresh := await self._refreshed(identity)):
            return await self._send_as(fresh, request)
        return response

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator["LeanStream"]:
        """Send `request` and read the answer as it comes; leaving the context ends it."""
        if request.token is not None:
            async with self._stream_as(holder(request.token), request) as stream:
                yield stream
            return
        identity = await self._connection.credentials.current()
        async with self._stream_as(identity, request) as stream:
            fresh = await self._refreshed(identity) if stream.status == _UNAUTHORIZED else None
            if fresh is None:
                yield stream
                return
        async with self._stream_as(fresh, request) as stream:
            yield stream

    async def close(self) -> None:
        """Do nothing: each request ends its connection by itself."""

    async def _send_as(self, identity: Identity, request: Request) -> Response:
        exchange = _Exchange(request, self._connection)
        with exchange:
            async with asyncio.timeout(exchange.seconds), self._asking(identity, request, exchange) as answer:
                return Response(answer.status, answer.headers, await self._body(answer))

    async def _body(self, answer: Answer) -> bytes:
        if not _OK <= answer.status < _REFUSED:
            return await answer.read_beginning(limit=self._limits.error_bytes)
        return await answer.read(limit=self._limits.response_bytes)

    @asynccontextmanager
    async def _stream_as(self, identity: Identity, request: Request) -> AsyncGenerator["LeanStream"]:
        exchange = _Exchange(request, self._connection)
        opening = self._asking(identity, request, exchange)
        with exchange:
            async with asyncio.timeout(exchange.seconds):
                answer = await opening.__aenter__()
        try:
            yield LeanStream(answer, exchange, limits=self._limits, clock=self._clock)
        finally:
            await opening.__aexit__(None, None, None)

    @asynccontextmanager
    async def _asking(self, identity: Identity, request: Request, exchange: "_Exchange") -> AsyncGenerator[Answer]:
        headers = [("Accept", request.accept), ("User-Agent", self._user_agent), *request.headers]
        if request.body is not None:
            headers.append(("Content-Type", request.content_type))
        if identity.authorization is not None:
            headers.append(("Authorization", identity.authorization))
        async with asking(
            self._at(identity.certificate),
            request.method,
            framing.target(request),
            headers=headers,
            body=request.body,
            leaving=exchange.leave,
        ) as answer:
            yield answer

    def _at(self, certificate: ClientCertificate | None) -> Place:
        if self._place is None or self._place[0] != certificate:
            connection = self._connection
            owner = f"user {connection.user!r} in {connection.source}"
            is_secure = connection.server.startswith("https://")
            secure = tls.context_for(connection.tls, certificate, owner=owner) if is_secure else None
            place = Place.at(connection.server, secure=secure, server_name=connection.tls.server_name)
            self._place = certificate, place
        return self._place[1]

    async def _refreshed(self, rejected: Identity) -> Identity | None:
        """Return another identity than the one the server refused, if there is one."""
        await self._connection.credentials.refresh(rejected)
        fresh = await self._connection.credentials.current()
        return fresh if fresh != rejected else None


class LeanStream:
    """An answer that goes on. See `haulout.kube.transport.Stream`."""

    __slots__ = ("_answer", "_clock", "_exchange", "_limits", "_pieces", "headers", "status")

    def __init__(self, answer: Answer, exchange: "_Exchange", *, limits: Limits, clock: Clock) -> None:
        self.status = answer.status
        self.headers = answer.headers
        self._answer = answer
        self._pieces = answer.pieces()
        self._exchange = exchange
        self._limits = limits
        self._clock = clock

    def lines(self) -> AsyncIterator[bytes]:
        """Yield each line as it arrives."""
        if self.status != _OK:
            return self._refusal()
        return framing.lines(self._read, doing=self._exchange.doing, limits=self._limits, clock=self._clock)

    async def _refusal(self) -> AsyncIterator[bytes]:
        with self._exchange:
            async with asyncio.timeout(self._exchange.seconds):
                body = await self._answer.read_beginning(limit=self._limits.error_bytes)
        yield body

    async def _read(self) -> bytes:
        try:
            return await anext(self._pieces, b"")
        except (OSError, EOFError, NotHttp) as error:
            raise wording.broke_off(self._exchange.doing, "because the connection was lost") from error


class _Exchange:
    """Follows one request: knows whether it has left, and turns what ends it into our errors."""

    __slots__ = ("_connection", "_may_leave", "_sent", "doing", "seconds")

    def __init__(self, request: Request, connection: Connection) -> None:
        self.doing = f"{request.method} {connection.server}{request.path}"
        self.seconds = request.timeout.total_seconds()
        self._may_leave = request.may_leave
        self._connection = connection
        self._sent = False

    def leave(self) -> None:
        """Note that the request goes out, if it still may."""
        if self._may_leave is not None:
            self._may_leave()
        self._sent = True

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, TimeoutError) and error.errno is None:
            raise wording.timed_out(self.doing, self.seconds, self._connection, sent=self._sent) from None
        if isinstance(error, TooLarge):
            raise LimitExceeded(f"{self.doing}: {error}") from None
        if isinstance(error, (OSError, EOFError, NotHttp)):
            raise self._explained(error) from error

    def _explained(self, error: OSError | EOFError | NotHttp) -> KubeError:
        server = self.doing if self._sent else f"cannot connect to {self._connection.server}"
        if isinstance(error, ssl.SSLError):
            host = urlsplit(self._connection.server).hostname or ""
            is_sent = self._sent and not tls.is_refusal(error)
            return Unreachable(f"{server}: {tls.explain(error, self._connection.tls, host=host)}", sent=is_sent)
        if isinstance(error, NotHttp):
            return GarbledAnswer(f"{self.doing}: the answer is not HTTP; is {self._connection.server} an API server?")
        if not self._sent:
            why = wording.words(error) if isinstance(error, OSError) else "the connection was lost at once"
            return Unreachable(f"{server}: {why}; {wording.advice(self._connection)}", sent=False)
        why = f" ({wording.words(error)})" if isinstance(error, OSError) else ""
        return Unreachable(f"{self.doing}: the connection was lost before the answer came{why}", sent=True)
