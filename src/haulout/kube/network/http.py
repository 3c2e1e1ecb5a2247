"""The transport over the network: HTTP/1.1 with aiohttp.

One `HttpTransport` serves one cluster. It asks for the current identity before each request, so rotated tokens take
effect at once; a changed client certificate opens new connections, and the old ones end with the streams that still
use them. A 401 refreshes the credentials and repeats the request once; nothing else is repeated, save a GET that met a
kept-alive connection in the moment the server closed it.

Streams are the hot path: a busy cluster sends tens of thousands of watch events a second, and single lines of
megabytes (`framing.lines`). They do not count against the limit of connections: watches stay open for hours, and must
not leave the requests without any.
"""

import asyncio
import contextlib
import logging
import socket
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Final, Self

import aiohttp
from aiohttp import AddrInfoType, ClientHandlerType
from multidict import CIMultiDict
from yarl import URL

from haulout import __version__
from haulout.core.clock import Clock
from haulout.errors import CredentialsError, LimitExceeded, Unreachable
from haulout.kube.limits import OWN_CLUSTER, Limits
from haulout.kube.network import failures, framing, tls, wording
from haulout.kube.network.bounded import CountedReads, TooLarge, read_beginning, read_body, read_shared
from haulout.kube.network.config import Connection
from haulout.kube.network.credentials import Identity, holder
from haulout.kube.network.tls import ClientCertificate
from haulout.kube.shared_budget import SharedBudget
from haulout.kube.transport import Request, Response

log = logging.getLogger(__name__)

_OK: Final = 200
_REFUSED: Final = 300
_UNAUTHORIZED: Final = 401
_HARMLESS: Final = {"GET", "HEAD"}
# Below the 90 s after which an API server closes an idle connection, and the 60 s of common load balancers.
_IDLE_SECONDS: Final = 50
# How long `close` waits for TLS connections to say goodbye, and how often it looks.
_GOODBYE: Final = timedelta(milliseconds=500)
_GLANCE: Final = timedelta(milliseconds=5)


class HttpTransport:
    """Moves requests to the cluster that `connection` describes; `reads` counts what is being read of all clusters."""

    def __init__(
        self,
        connection: Connection,
        *,
        clock: Clock,
        user_agent: str = f"haulout/{__version__}",
        connections: int = 100,
        limits: Limits = OWN_CLUSTER,
        reads: SharedBudget | None = None,
    ) -> None:
        self.server = connection.server
        self._connection = connection
        self._clock = clock
        self._user_agent = user_agent
        self._limits = limits
        self._reads = reads
        self._free = asyncio.Semaphore(connections)
        self._base = str(URL(connection.server)).rstrip("/")
        self._lanes: list[_Lane] = []  # the last one is in use, those before it end with their streams
        self._closed = False

    async def send(self, request: Request) -> Response:
        """Send `request` and read the whole answer."""
        if request.token is not None:
            return await self._send_as(holder(request.token), request)
        identity = await self._connection.credentials.current()
        response = await self._send_as(identity, request)
        if response.status == _UNAUTHORIZED and (fresh := await self._refreshed(identity)):
            identity, response = fresh, await self._send_as(fresh, request)
        if response.status == _UNAUTHORIZED:
            self._blame_expired_certificate(identity)
        return response

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator["HttpStream"]:
        """Send `request` and read the answer as it comes; leaving the context ends it."""
        if request.token is not None:
            async with self._stream_as(holder(request.token), request) as stream:
                yield stream
            return
        identity = await self._connection.credentials.current()
        async with self._stream_as(identity, request) as stream:
            fresh = await self._refreshed(identity) if stream.status == _UNAUTHORIZED else None
            if fresh is None:
                if stream.status == _UNAUTHORIZED:
                    self._blame_expired_certificate(identity)
                yield stream
                return
        async with self._stream_as(fresh, request) as stream:
            if stream.status == _UNAUTHORIZED:
                self._blame_expired_certificate(fresh)
            yield stream

    async def close(self) -> None:
        """Give up all connections; requests under way fail."""
        self._closed = True
        lanes, self._lanes = self._lanes, []
        for lane in lanes:
            await lane.close(self._clock)

    async def _send_as(self, identity: Identity, request: Request) -> Response:
        exchange = _Exchange(request, self._connection)
        async with self._lane_for(identity) as lane:
            with exchange:
                async with asyncio.timeout(request.timeout.total_seconds()), self._free:
                    answer = await self._begin(lane, identity, request, exchange)
                    try:
                        body = await self._body(answer, doing=exchange.doing)
                    finally:
                        answer.close()
        return Response(answer.status, _headers(answer), body)

    @asynccontextmanager
    async def _stream_as(self, identity: Identity, request: Request) -> AsyncGenerator["HttpStream"]:
        exchange = _Exchange(request, self._connection)
        async with self._lane_for(identity) as lane:
            with exchange:
                async with asyncio.timeout(request.timeout.total_seconds()):
                    answer = await self._begin(lane, identity, request, exchange)
            try:
                with HttpStream(answer, exchange, limits=self._limits, reads=self._reads, clock=self._clock) as stream:
                    yield stream
            finally:
                answer.close()

    async def _body(self, answer: aiohttp.ClientResponse, *, doing: str) -> bytes:
        if not _OK <= answer.status < _REFUSED:
            return await read_beginning(answer.content.readany, limit=self._limits.error_bytes)
        read, limit = answer.content.readany, self._limits.response_bytes
        if self._reads is None:
            return await read_body(read, limit=limit)
        return await read_shared(read, limit=limit, budget=self._reads, doing=doing)

    async def _begin(
        self, lane: "_Lane", identity: Identity, request: Request, exchange: "_Exchange"
    ) -> aiohttp.ClientResponse:
        if lane.session.closed:
            raise Unreachable(f"the connection to {self.server} was closed", sent=False)
        began = self._clock.monotonic()
        answer = await lane.session.request(
            request.method,
            self._url(request),
            headers=self._request_headers(identity, request),
            data=request.body,
            server_hostname=self._connection.tls.server_name,
            proxy=self._connection.proxy,
            allow_redirects=False,
            middlewares=(exchange.follow,),
        )
        took = 1000 * (self._clock.monotonic() - began)
        log.debug("%s %s: %s after %.0f ms", request.method, request.path, answer.status, took)
        return answer

    def _url(self, request: Request) -> URL:
        return URL(f"{self._base}{framing.target(request)}", encoded=True)

    def _request_headers(self, identity: Identity, request: Request) -> CIMultiDict[str]:
        # Per request and not per session: aiohttp shows the headers of a session to the proxy, too.
        headers = CIMultiDict(request.headers)
        is_other = request.token is not None or any(name.lower().startswith("impersonate-") for name in headers)
        if not is_other:  # never half of one, half of the other
            headers.extend(self._connection.impersonation)
        headers["Accept"] = request.accept
        headers["Accept-Encoding"] = "gzip"
        headers["User-Agent"] = self._user_agent
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        if identity.authorization is not None:
            headers["Authorization"] = identity.authorization
        return headers

    async def _refreshed(self, rejected: Identity) -> Identity | None:
        """Return another identity than the one the server refused, if there is one."""
        await self._connection.credentials.refresh(rejected)
        fresh = await self._connection.credentials.current()
        return fresh if fresh != rejected else None

    def _blame_expired_certificate(self, identity: Identity) -> None:
        """Say what the server does not: a 401 for an expired certificate reads like any other."""
        ends = tls.expiry(identity.certificate.cert_pem) if identity.certificate else None
        if ends and ends <= self._clock.now() and identity.authorization is None:
            raise CredentialsError(
                f"{self.server} refused us: the client certificate of user {self._connection.user!r} in "
                f"{self._connection.source} expired on {ends:%Y-%m-%d %H:%M:%S} UTC; get a new one"
            )

    @asynccontextmanager
    async def _lane_for(self, identity: Identity) -> AsyncGenerator["_Lane"]:
        """Lend the connections that present the identity's certificate."""
        if self._closed:
            raise Unreachable(f"the connection to {self.server} was closed", sent=False)
        if not self._lanes or self._lanes[-1].certificate != identity.certificate:
            self._lanes.append(_Lane(self._connection, identity.certificate))
        lane = self._lanes[-1]
        lane.users += 1
        try:
            await self._close_outdated_lanes()
            yield lane
        finally:
            lane.users -= 1
            await self._close_outdated_lanes()

    async def _close_outdated_lanes(self) -> None:
        outdated = [lane for lane in self._lanes[:-1] if not lane.users]
        if outdated:
            self._lanes = [lane for lane in self._lanes if lane not in outdated]  # before others get to run
        for lane in outdated:
            await lane.session.close()


class HttpStream:
    """An answer that goes on. See `haulout.kube.transport.Stream`."""

    __slots__ = ("_answer", "_clock", "_exchange", "_held", "_limits", "headers", "status")

    def __init__(
        self,
        answer: aiohttp.ClientResponse,
        exchange: "_Exchange",
        *,
        limits: Limits,
        clock: Clock,
        reads: SharedBudget | None = None,
    ) -> None:
        self.status = answer.status
        self.headers: Mapping[str, str] = _headers(answer)
        self._answer = answer
        self._exchange = exchange
        self._limits = limits
        self._clock = clock
        self._held = None if reads is None else CountedReads(self._read, budget=reads, doing=exchange.doing)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._held is not None:
            self._held.close()

    def lines(self) -> AsyncIterator[bytes]:
        """Yield each line as it arrives."""
        if self.status != _OK:
            return self._refusal()
        cut = partial(framing.lines, doing=self._exchange.doing, limits=self._limits, clock=self._clock)
        return cut(self._read) if self._held is None else cut(self._held.read, hold=self._held.hold)

    async def _refusal(self) -> AsyncIterator[bytes]:
        with self._exchange:
            async with asyncio.timeout(self._exchange.seconds):
                body = await read_beginning(self._answer.content.readany, limit=self._limits.error_bytes)
        yield body

    async def _read(self) -> bytes:
        try:
            return await self._answer.content.readany()
        except (aiohttp.ClientError, OSError, RuntimeError) as error:  # RuntimeError: we closed it ourselves
            raise wording.broke_off(self._exchange.doing, "because the connection was lost") from error


class _Lane:
    """Connections that present one client certificate, or none."""

    def __init__(self, connection: Connection, certificate: ClientCertificate | None) -> None:
        self.certificate = certificate
        self.users = 0
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        owner = f"user {connection.user!r} in {connection.source}"
        secure = connection.server.startswith("https://")
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                ssl=tls.context_for(connection.tls, certificate, owner=owner) if secure else True,
                limit=0,
                keepalive_timeout=_IDLE_SECONDS,
                socket_factory=self._new_socket,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None),  # ours knows whether the request had left
            request_class=_GuardedRequest,
        )

    async def close(self, clock: Clock) -> None:
        """End the connections, and give those that are closing already a moment to finish.

        aiohttp forgets a TLS connection that it began to close; if the event loop ends before that is done, uvloop
        complains aloud.
        """
        await self.session.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GOODBYE.total_seconds()):
                while any(each.fileno() >= 0 for each in self._sockets):
                    await clock.sleep(_GLANCE)

    def _new_socket(self, address: AddrInfoType) -> socket.socket:
        made = _socket(address)
        self._sockets.add(made)
        return made


class _Exchange:
    """Follows one request: knows whether it has left, and turns what ends it into our errors."""

    __slots__ = ("_connection", "_may_leave", "doing", "seconds", "sent")

    def __init__(self, request: Request, connection: Connection) -> None:
        self.doing = f"{request.method} {connection.server}{request.path}"
        self.sent = False
        self.seconds = request.timeout.total_seconds()
        self._may_leave = request.may_leave
        self._connection = connection

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, TimeoutError):
            raise wording.timed_out(self.doing, self.seconds, self._connection, sent=self.sent) from None
        if isinstance(error, TooLarge):
            raise LimitExceeded(f"{self.doing}: {error}") from None
        if isinstance(error, (aiohttp.ClientError, OSError)):
            raise failures.explain(error, doing=self.doing, connection=self._connection, sent=self.sent) from error

    async def follow(self, request: aiohttp.ClientRequest, handler: ClientHandlerType) -> aiohttp.ClientResponse:
        """Pass on one attempt; keep aiohttp from making another one unless that is harmless."""
        if isinstance(request, _GuardedRequest):
            request.may_leave = self._may_leave
        try:
            return await handler(request)
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
            if request.method in _HARMLESS or isinstance(error, aiohttp.ClientConnectorError):
                raise
            # aiohttp repeats PUT and DELETE, too, for these two errors only (ClientSession._request).
            raise _NotRepeatedError(str(error)) from error
        finally:
            self.sent = self.sent or request.response is not None


class _GuardedRequest(aiohttp.ClientRequest):
    """A request that asks, with its connection in hand, whether it may still be sent.

    Getting a connection takes long enough (credentials, TCP, TLS) for the leave that was given before to be void.
    """

    may_leave: Callable[[], None] | None = None

    async def send(self, conn: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        if self.may_leave:
            self.may_leave()
        return await super().send(conn)


class _NotRepeatedError(aiohttp.ClientError):
    """The connection was lost in the middle of a request that must not be sent twice."""


def _headers(answer: aiohttp.ClientResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in answer.headers.items()}


def _socket(address: AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    framing.keep_alive(made)
    return made
