"""The HTTP/1.1 transport, on aiohttp.

One `HttpTransport` serves one cluster. It gets the current identity before each request, so rotated tokens take effect
at once. A changed client certificate opens new connections; the old ones are closed when their streams end. A 401
refreshes the credentials and repeats the request once. Nothing else is repeated, except a GET on a kept-alive
connection that the server closed at the same moment.

Streams are the hot path: a busy cluster sends tens of thousands of watch events a second, and single lines of several
megabytes (`http_common.read_lines`). Streams do not count toward the connection limit: watches stay open for hours, and
must not block other requests.
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
from haulout.core.limited_reader import BodyTooLarge, QuotaReader, read_body, read_body_within_quota, read_prefix
from haulout.core.memory import MemoryQuota
from haulout.errors import LimitExceeded, Unreachable
from haulout.kube.limits import OWN_CLUSTER, Limits
from haulout.kube.transport import Request, Response
from haulout.kube.transports import aiohttp_errors, connection_errors, http_common, tls
from haulout.kube.transports.config import Connection
from haulout.kube.transports.credentials import Identity
from haulout.kube.transports.tls import ClientCertificate

log = logging.getLogger(__name__)

_OK: Final = 200
_FIRST_NON_SUCCESS: Final = 300
_SAFE_METHODS: Final = {"GET", "HEAD"}
# Less than the 90 s after which an API server closes an idle connection (IdleTimeout in
# staging/src/k8s.io/apiserver/pkg/server/secure_serving.go), and the 60 s of common load balancers. Whoever closes
# first never sends a request into a connection that the other side is closing.
_IDLE_SECONDS: Final = 50
# How long `close` waits for the shutdown of TLS connections, and how often it checks.
_CLOSE_TIMEOUT: Final = timedelta(milliseconds=500)
_CLOSE_POLL_INTERVAL: Final = timedelta(milliseconds=5)


class HttpTransport(http_common.AuthenticatingTransport):
    """Sends requests to the cluster of `connection`. `reads` is the quota of responses being read from all clusters."""

    def __init__(
        self,
        connection: Connection,
        *,
        clock: Clock,
        user_agent: str = f"haulout/{__version__}",
        connections: int = 100,
        limits: Limits = OWN_CLUSTER,
        reads: MemoryQuota | None = None,
    ) -> None:
        super().__init__(connection, clock=clock, user_agent=user_agent, limits=limits)
        self._reads = reads
        self._connection_semaphore = asyncio.Semaphore(connections)
        self._base_url = str(URL(connection.server)).rstrip("/")
        # the last one is in use, earlier ones are closed when their streams end
        self._pools: list[_ConnectionPool] = []
        self._closed = False

    async def close(self) -> None:
        """Close all connections. Current requests fail, and so do later ones."""
        self._closed = True
        pools, self._pools = self._pools, []
        for pool in pools:
            await pool.close(self._clock)

    async def _send_as(self, identity: Identity, request: Request) -> Response:
        exchange = _Exchange(request, self._connection)
        async with self._pool_for(identity) as pool:
            with exchange:
                async with asyncio.timeout(request.timeout.total_seconds()), self._connection_semaphore:
                    response = await self._start_request(pool, identity, request, exchange)
                    try:
                        body = await self._body(response, doing=exchange.doing)
                    finally:
                        response.close()
        return Response(response.status, _headers(response), body)

    @asynccontextmanager
    async def _stream_as(self, identity: Identity, request: Request) -> AsyncGenerator["HttpStream"]:
        exchange = _Exchange(request, self._connection)
        async with self._pool_for(identity) as pool:
            with exchange:
                async with asyncio.timeout(request.timeout.total_seconds()):
                    response = await self._start_request(pool, identity, request, exchange)
            try:
                with HttpStream(
                    response, exchange, limits=self._limits, reads=self._reads, clock=self._clock
                ) as stream:
                    yield stream
            finally:
                response.close()

    async def _body(self, response: aiohttp.ClientResponse, *, doing: str) -> bytes:
        if not _OK <= response.status < _FIRST_NON_SUCCESS:
            return await read_prefix(response.content.readany, limit=self._limits.error_bytes)
        read, limit = response.content.readany, self._limits.response_bytes
        if self._reads is None:
            return await read_body(read, limit=limit)
        return await read_body_within_quota(read, limit=limit, quota=self._reads, doing=doing)

    async def _start_request(
        self, pool: "_ConnectionPool", identity: Identity, request: Request, exchange: "_Exchange"
    ) -> aiohttp.ClientResponse:
        if pool.session.closed:
            raise Unreachable(f"the connection to {self.server} was closed", sent=False)
        started = self._clock.monotonic()
        response = await pool.session.request(
            request.method,
            self._url(request),
            headers=self._request_headers(identity, request),
            data=request.body,
            server_hostname=self._connection.tls.server_name,
            proxy=self._connection.proxy,
            # An API server redirects nobody. A login page in front of it does, and must not get our token.
            allow_redirects=False,
            middlewares=(exchange.middleware,),
        )
        elapsed_ms = 1000 * (self._clock.monotonic() - started)
        log.debug("%s %s: %s after %.0f ms", request.method, request.path, response.status, elapsed_ms)
        return response

    def _url(self, request: Request) -> URL:
        return URL(f"{self._base_url}{http_common.request_target(request)}", encoded=True)

    def _request_headers(self, identity: Identity, request: Request) -> CIMultiDict[str]:
        # Set on the request, not on the session: aiohttp sends the headers of a session to the proxy, too.
        headers = CIMultiDict(request.headers)
        is_other_identity = request.token is not None or any(
            name.lower().startswith("impersonate-") for name in headers
        )
        if not is_other_identity:  # never mix two identities
            headers.extend(self._connection.impersonation)
        headers["Accept"] = request.accept
        headers["Accept-Encoding"] = "gzip"
        headers["User-Agent"] = self._user_agent
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        if identity.authorization is not None:
            headers["Authorization"] = identity.authorization
        return headers

    @asynccontextmanager
    async def _pool_for(self, identity: Identity) -> AsyncGenerator["_ConnectionPool"]:
        if self._closed:
            raise Unreachable(f"the connection to {self.server} was closed", sent=False)
        if not self._pools or self._pools[-1].certificate != identity.certificate:
            self._pools.append(_ConnectionPool(self._connection, identity.certificate))
        pool = self._pools[-1]
        pool.users += 1
        try:
            await self._close_outdated_pools()
            yield pool
        finally:
            pool.users -= 1
            await self._close_outdated_pools()

    async def _close_outdated_pools(self) -> None:
        outdated = [pool for pool in self._pools[:-1] if not pool.users]
        if outdated:
            # before the next await, so that no other task closes them as well
            self._pools = [pool for pool in self._pools if pool not in outdated]
        for pool in outdated:
            await pool.session.close()


class HttpStream:
    """A streaming response, as `haulout.kube.transport.Stream` describes it."""

    __slots__ = ("_clock", "_exchange", "_limits", "_quota_reader", "_response", "headers", "status")

    def __init__(
        self,
        response: aiohttp.ClientResponse,
        exchange: "_Exchange",
        *,
        limits: Limits,
        clock: Clock,
        reads: MemoryQuota | None = None,
    ) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = _headers(response)
        self._response = response
        self._exchange = exchange
        self._limits = limits
        self._clock = clock
        self._quota_reader = None if reads is None else QuotaReader(self._read, quota=reads, doing=exchange.doing)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._quota_reader is not None:
            self._quota_reader.close()

    def lines(self) -> AsyncIterator[bytes]:
        if self.status != _OK:
            return self._error_body()
        read_lines = partial(http_common.read_lines, doing=self._exchange.doing, limits=self._limits, clock=self._clock)
        return (
            read_lines(self._read)
            if self._quota_reader is None
            else read_lines(self._quota_reader.read, on_buffered=self._quota_reader.set_buffered)
        )

    async def _error_body(self) -> AsyncIterator[bytes]:
        with self._exchange:
            async with asyncio.timeout(self._exchange.seconds):
                body = await read_prefix(self._response.content.readany, limit=self._limits.error_bytes)
        yield body

    async def _read(self) -> bytes:
        try:
            return await self._response.content.readany()
        except (aiohttp.ClientError, OSError, RuntimeError) as error:  # RuntimeError: we closed it ourselves
            raise connection_errors.stream_broken(self._exchange.doing, "because the connection was lost") from error


class _ConnectionPool:
    """Connections with one client certificate, or without."""

    def __init__(self, connection: Connection, certificate: ClientCertificate | None) -> None:
        self.certificate = certificate
        self.users = 0
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        owner = f"user {connection.user!r} in {connection.source}"
        secure = connection.server.startswith("https://")
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                ssl=tls.client_context(connection.tls, certificate, owner=owner) if secure else True,
                # No limit here, since streams would count. `_connection_semaphore` limits the other requests.
                limit=0,
                keepalive_timeout=_IDLE_SECONDS,
                socket_factory=self._new_socket,
            ),
            # A load balancer's session cookie would pin all requests to one API server.
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None),  # our own timeout knows whether the request was sent
            request_class=_GuardedRequest,
        )

    async def close(self, clock: Clock) -> None:
        """Close all connections, and wait briefly for those that are already closing.

        aiohttp does not track a TLS connection that it has begun to close. If the event loop ends before that is
        complete, uvloop logs errors.
        """
        await self.session.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_TIMEOUT.total_seconds()):
                while any(sock.fileno() >= 0 for sock in self._sockets):
                    await clock.sleep(_CLOSE_POLL_INTERVAL)

    def _new_socket(self, address: AddrInfoType) -> socket.socket:
        sock = _open_socket(address)
        self._sockets.add(sock)
        return sock


class _Exchange:
    """The state of one request: whether it was sent, and the conversion of errors."""

    __slots__ = ("_before_send", "_connection", "doing", "seconds", "sent")

    def __init__(self, request: Request, connection: Connection) -> None:
        self.doing = f"{request.method} {connection.server}{request.path}"
        self.sent = False
        self.seconds = request.timeout.total_seconds()
        self._before_send = request.before_send
        self._connection = connection

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, TimeoutError):
            raise connection_errors.timeout_error(self.doing, self.seconds, self._connection, sent=self.sent) from None
        if isinstance(error, BodyTooLarge):
            raise LimitExceeded(f"{self.doing}: {error}") from None
        if isinstance(error, (aiohttp.ClientError, OSError)):
            raise aiohttp_errors.explain(
                error, doing=self.doing, connection=self._connection, sent=self.sent
            ) from error

    async def middleware(self, request: aiohttp.ClientRequest, handler: ClientHandlerType) -> aiohttp.ClientResponse:
        """Run one attempt, and prevent aiohttp from repeating it unless that is safe."""
        if isinstance(request, _GuardedRequest):
            request.before_send = self._before_send
        try:
            return await handler(request)
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
            if request.method in _SAFE_METHODS or isinstance(error, aiohttp.ClientConnectorError):
                raise
            # aiohttp also repeats PUT and DELETE, but only for these two errors (ClientSession._request).
            raise _NotRepeatedError(str(error)) from error
        finally:
            self.sent = self.sent or request.response is not None


class _GuardedRequest(aiohttp.ClientRequest):
    """A request that calls `before_send` on an open connection.

    Opening a connection (credentials, TCP, TLS) takes long enough for leadership to end after an earlier check.
    """

    before_send: Callable[[], None] | None = None

    async def send(self, conn: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        if self.before_send:
            self.before_send()
        return await super().send(conn)


class _NotRepeatedError(aiohttp.ClientError):
    """The connection was lost during a request that must not be sent twice."""


def _headers(response: aiohttp.ClientResponse) -> dict[str, str]:
    return {name.lower(): value for name, value in response.headers.items()}


def _open_socket(address: AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = address
    sock = socket.socket(family, kind, protocol)
    http_common.enable_keepalive(sock)
    return sock
