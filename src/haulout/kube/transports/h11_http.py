"""A transport for small processes: like `haulout.kube.transports.http`, without aiohttp.

    transport = minimal_transport(config.load(), clock=clock, user_agent=user_agent)

It opens a connection for each request, which suits a process that keeps one watch open and writes occasionally. It
supports neither proxies nor impersonation. `minimal_transport` returns the aiohttp transport for these, which needs
more memory.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urlsplit

from haulout.core.clock import Clock
from haulout.core.limited_reader import BodyTooLarge
from haulout.errors import KubeError, LimitExceeded, MalformedResponse, Unreachable
from haulout.kube.limits import OWN_CLUSTER, Limits
from haulout.kube.transport import Request, Response, Transport
from haulout.kube.transports import connection_errors, http_common, tls
from haulout.kube.transports.config import Connection
from haulout.kube.transports.credentials import Identity
from haulout.kube.transports.h11_client import Endpoint, H11Response, InvalidHttpResponse, open_request
from haulout.kube.transports.tls import ClientCertificate

_OK: Final = 200
_FIRST_NON_SUCCESS: Final = 300


def minimal_transport(connection: Connection, *, clock: Clock, user_agent: str) -> Transport:
    """Return the smallest transport that supports the connection."""
    if connection.proxy or connection.impersonation:
        from haulout.kube.transports.http import HttpTransport

        return HttpTransport(connection, clock=clock, user_agent=user_agent)
    return H11Transport(connection, clock=clock, user_agent=user_agent)


class H11Transport(http_common.AuthenticatingTransport):
    """Sends requests to the cluster of `connection`."""

    def __init__(self, connection: Connection, *, clock: Clock, user_agent: str, limits: Limits = OWN_CLUSTER) -> None:
        super().__init__(connection, clock=clock, user_agent=user_agent, limits=limits)
        self._endpoint: tuple[ClientCertificate | None, Endpoint] | None = None

    async def close(self) -> None:
        """Do nothing: each request closes its own connection."""

    async def _send_as(self, identity: Identity, request: Request) -> Response:
        exchange = _Exchange(request, self._connection)
        with exchange:
            async with asyncio.timeout(exchange.seconds), self._open_request(identity, request, exchange) as response:
                return Response(response.status, response.headers, await self._body(response))

    async def _body(self, response: H11Response) -> bytes:
        if not _OK <= response.status < _FIRST_NON_SUCCESS:
            return await response.read_prefix(limit=self._limits.error_bytes)
        return await response.read(limit=self._limits.response_bytes)

    @asynccontextmanager
    async def _stream_as(self, identity: Identity, request: Request) -> AsyncGenerator["H11Stream"]:
        exchange = _Exchange(request, self._connection)
        request_context = self._open_request(identity, request, exchange)
        with exchange:
            async with asyncio.timeout(exchange.seconds):
                response = await request_context.__aenter__()
        try:
            yield H11Stream(response, exchange, limits=self._limits, clock=self._clock)
        finally:
            await request_context.__aexit__(None, None, None)

    @asynccontextmanager
    async def _open_request(
        self, identity: Identity, request: Request, exchange: "_Exchange"
    ) -> AsyncGenerator[H11Response]:
        headers = [("Accept", request.accept), ("User-Agent", self._user_agent), *request.headers]
        if request.body is not None:
            headers.append(("Content-Type", request.content_type))
        if identity.authorization is not None:
            headers.append(("Authorization", identity.authorization))
        async with open_request(
            self._endpoint_for(identity.certificate),
            request.method,
            http_common.request_target(request),
            headers=headers,
            body=request.body,
            on_send=exchange.mark_sent,
        ) as response:
            yield response

    def _endpoint_for(self, certificate: ClientCertificate | None) -> Endpoint:
        if self._endpoint is None or self._endpoint[0] != certificate:
            connection = self._connection
            owner = f"user {connection.user!r} in {connection.source}"
            is_secure = connection.server.startswith("https://")
            ssl_context = tls.client_context(connection.tls, certificate, owner=owner) if is_secure else None
            endpoint = Endpoint.from_url(
                connection.server, ssl_context=ssl_context, server_name=connection.tls.server_name
            )
            self._endpoint = certificate, endpoint
        return self._endpoint[1]


class H11Stream:
    """A streaming response, as `haulout.kube.transport.Stream` describes it."""

    __slots__ = ("_chunks", "_clock", "_exchange", "_limits", "_response", "headers", "status")

    def __init__(self, response: H11Response, exchange: "_Exchange", *, limits: Limits, clock: Clock) -> None:
        self.status = response.status
        self.headers = response.headers
        self._response = response
        self._chunks = response.chunks()
        self._exchange = exchange
        self._limits = limits
        self._clock = clock

    def lines(self) -> AsyncIterator[bytes]:
        if self.status != _OK:
            return self._error_body()
        return http_common.read_lines(self._read, doing=self._exchange.doing, limits=self._limits, clock=self._clock)

    async def _error_body(self) -> AsyncIterator[bytes]:
        with self._exchange:
            async with asyncio.timeout(self._exchange.seconds):
                body = await self._response.read_prefix(limit=self._limits.error_bytes)
        yield body

    async def _read(self) -> bytes:
        try:
            return await anext(self._chunks, b"")
        except (OSError, EOFError, InvalidHttpResponse) as error:
            raise connection_errors.stream_broken(self._exchange.doing, "because the connection was lost") from error


class _Exchange:
    """The state of one request: whether it was sent, and the conversion of errors."""

    __slots__ = ("_before_send", "_connection", "_sent", "doing", "seconds")

    def __init__(self, request: Request, connection: Connection) -> None:
        self.doing = f"{request.method} {connection.server}{request.path}"
        self.seconds = request.timeout.total_seconds()
        self._before_send = request.before_send
        self._connection = connection
        self._sent = False

    def mark_sent(self) -> None:
        """Record that the request is sent. `before_send` may prevent it."""
        if self._before_send is not None:
            self._before_send()
        self._sent = True

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        # ETIMEDOUT of the operating system is a TimeoutError with an errno. It is a lost connection, not our timeout.
        if isinstance(error, TimeoutError) and error.errno is None:
            raise connection_errors.timeout_error(self.doing, self.seconds, self._connection, sent=self._sent) from None
        if isinstance(error, BodyTooLarge):
            raise LimitExceeded(f"{self.doing}: {error}") from None
        if isinstance(error, (OSError, EOFError, InvalidHttpResponse)):
            raise self._explain(error) from error

    def _explain(self, error: OSError | EOFError | InvalidHttpResponse) -> KubeError:
        server = self.doing if self._sent else f"cannot connect to {self._connection.server}"
        if isinstance(error, ssl.SSLError):
            host = urlsplit(self._connection.server).hostname or ""
            is_sent = self._sent and not tls.is_certificate_rejected(error)
            return Unreachable(f"{server}: {tls.explain(error, self._connection.tls, host=host)}", sent=is_sent)
        if isinstance(error, InvalidHttpResponse):
            return MalformedResponse(
                f"{self.doing}: the answer is not HTTP; is {self._connection.server} an API server?"
            )
        if not self._sent:
            reason = (
                connection_errors.error_text(error) if isinstance(error, OSError) else "the connection was lost at once"
            )
            return Unreachable(
                f"{server}: {reason}; {connection_errors.connection_advice(self._connection)}", sent=False
            )
        reason = f" ({connection_errors.error_text(error)})" if isinstance(error, OSError) else ""
        return Unreachable(f"{self.doing}: the connection was lost before the answer came{reason}", sent=True)
