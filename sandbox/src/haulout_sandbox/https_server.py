"""The sandbox's API server on the network: HTTPS in front of the in-process API server, for kubectl and other clients.

This module only translates between HTTP and the in-process transport. A bearer token identifies the client: one that
was given to the server, or one that the API server issued to a service account. Each user has its own in-process
transport, so that faults injected for one user affect no other.

Memory stays bounded whatever a client sends: a body is read up to the API server's limit, and a little further to keep
the connection usable. A client that sends more is disconnected after the answer. aiohttp answers malformed HTTP.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import parse_qsl

import msgspec
from aiohttp import web

from haulout.errors import Unreachable
from haulout.kube.transport import Request, Response, Stream
from haulout_sandbox.apiserver import ApiServer, InProcessTransport, User
from haulout_sandbox.apiserver.auth.access_control import admin_user
from haulout_sandbox.apiserver.request_paths import is_watch
from haulout_sandbox.apiserver.serializer.request_body import MAX_BODY_BYTES
from haulout_sandbox.apiserver.status import StatusError, json_response

_MAX_HEADER_BYTES = 1 << 20  # of a request, as Go's DefaultMaxHeaderBytes
_MAX_HEADERS = 10_000
_MAX_DRAINED_BYTES = 256 << 10  # how much of an unread body Go discards before it closes the connection
_IDLE = 3630.0
_HANDSHAKE = 60.0
_SHUTDOWN = 1.0
_DEFAULT_WATCH_SECONDS = 3600.0  # for watches without `timeoutSeconds`; the real server's default is random, up to this
_FORWARDED_HEADERS = ("impersonate-", "user-agent")  # the headers that the API server reads


@dataclass(frozen=True, slots=True)
class HttpTimeouts:
    """HTTP timeouts of a sandbox that listens on the network, in seconds of the event loop.

    Clients measure time on the machine's clock, while the event loop may run faster
    (`event_loops.accelerated_loop`): `speed` seconds pass on the loop for each second of the machine.
    """

    speed: float = 1.0

    @property
    def idle(self) -> float:
        """Return how long an idle keep-alive connection stays open."""
        return _IDLE * self.speed

    @property
    def handshake(self) -> float:
        """Return how long a TLS handshake, or a TLS shutdown, may take."""
        return _HANDSHAKE * self.speed

    @property
    def shutdown(self) -> float:
        """Return how long connections have to close by themselves at shutdown."""
        return _SHUTDOWN * self.speed

    def scale_watch_timeout(self, query: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        """Return the query with `timeoutSeconds` converted from the client's clock to the event loop's."""
        timeout = dict(query).get("timeoutSeconds") or "0"
        if self.speed == 1 or not timeout.isdecimal():
            return query
        seconds = round((int(timeout) or _DEFAULT_WATCH_SECONDS) * self.speed)
        return (*(pair for pair in query if pair[0] != "timeoutSeconds"), ("timeoutSeconds", str(seconds)))


class HttpsServer:
    """Serves `api` to clients with one of the `tokens` or a token that it issued; a plain name means an administrator.

    Each user's transport is taken from `transports`, or added there, so that the owner of `transports` can inject
    faults. `speed` is how many seconds of the event loop pass per second of the machine.
    """

    def __init__(
        self,
        api: ApiServer,
        *,
        tokens: Mapping[str, str | User],
        transports: dict[str, InProcessTransport] | None = None,
        speed: float = 1.0,
    ) -> None:
        self._api = api
        self._transports = {} if transports is None else transports
        self._users: dict[str, None] = {}  # an ordered set
        self._timeouts = HttpTimeouts(speed)
        for token, user in tokens.items():
            api.add_token(token, admin_user(user) if isinstance(user, str) else user)

    @asynccontextmanager
    async def serve(self, *, host: str, port: int = 0, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
        """Listen while the context lasts; yields the port. Leaving the context ends all watches at once."""
        async with self.serve_on(listen(host, port), tls=tls) as bound_port:
            yield bound_port

    @asynccontextmanager
    async def serve_on(self, listener: socket.socket, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
        """Serve on a socket that already listens, while the context lasts; yields the port."""
        handler = web.Server(
            self._handle,
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=self._timeouts.idle,
            lingering_time=self._timeouts.shutdown,  # a client that is cut off can still read the reason
            max_line_size=_MAX_HEADER_BYTES,
            max_field_size=_MAX_HEADER_BYTES,
            max_headers=_MAX_HEADERS,
        )
        runner = web.ServerRunner(handler, shutdown_timeout=self._timeouts.shutdown)
        await runner.setup()
        seconds = self._timeouts.handshake if tls else None
        server = await asyncio.get_running_loop().create_server(
            handler, sock=listener, ssl=tls, ssl_handshake_timeout=seconds, ssl_shutdown_timeout=seconds
        )
        try:
            yield listener.getsockname()[1]
        finally:
            server.close()
            for user in self._users:
                await self._transports[user].close()
            await runner.cleanup()

    async def _handle(self, http_request: web.BaseRequest) -> web.StreamResponse:
        path, _, query = http_request.raw_path.partition("?")
        try:
            user = self._api.authenticate(http_request.headers.get("Authorization", ""))
        except StatusError as error:
            response = json_response(error.status["code"], error.status)
            return await _respond(http_request, response)
        request = Request(
            method=http_request.method,
            path=path,
            query=tuple(parse_qsl(query, keep_blank_values=True)),
            body=await _read_body(http_request),
            content_type=http_request.headers.get("Content-Type", ""),
            accept=http_request.headers.get("Accept", "application/json"),
            headers=tuple(
                (name, value)
                for name, value in http_request.headers.items()
                if name.lower().startswith(_FORWARDED_HEADERS)
            ),
        )
        transport = self._transport(user)
        try:
            if not is_watch(request):
                return await _respond(http_request, await transport.send(request))
            request = msgspec.structs.replace(request, query=self._timeouts.scale_watch_timeout(request.query))
            async with transport.stream(request) as stream:
                return await _stream_watch(http_request, stream)
        except Unreachable:
            return _abort(http_request)

    def _transport(self, user: User) -> InProcessTransport:
        self._users[user.name] = None
        transport = self._transports.get(user.name)
        if transport is None:
            # No simulated latency: the network adds its own.
            transport = self._api.transport(user=user, latency=timedelta(), request_log_size=0)
            self._transports[user.name] = transport
        return transport if transport.user == user else transport.acting_as(user)


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket, on a free port if `port` is 0. Raise OSError if the port is taken."""
    listener = socket.create_server((host, port), backlog=128)
    listener.setblocking(False)
    return listener


async def _read_body(http_request: web.BaseRequest) -> bytes | None:
    """Return the body, or enough of it to show that it exceeds the limit."""
    if not http_request.body_exists:
        return None
    parts: list[bytes] = []
    size = 0
    while size <= MAX_BODY_BYTES and (part := await http_request.content.readany()):
        parts.append(part)
        size += len(part)
    return b"".join(parts) or None


async def _respond(http_request: web.BaseRequest, response: Response) -> web.Response:
    web_response = _web_response(response)
    if http_request.body_exists and not await _drain_body(http_request):
        web_response.force_close()
    return web_response


def _web_response(response: Response) -> web.Response:
    return web.Response(status=response.status, headers=response.headers, body=response.body)


async def _drain_body(http_request: web.BaseRequest) -> bool:
    """Read the rest of a body if it is small; return whether the body is complete."""
    remaining = _MAX_DRAINED_BYTES
    while remaining > 0 and (part := await http_request.content.readany()):
        remaining -= len(part)
    return http_request.content.at_eof()


def _abort(http_request: web.BaseRequest) -> web.Response:
    """Close the connection without an answer, as a server that is down does."""
    if http_request.transport is not None:
        http_request.transport.abort()
    return web.Response()


async def _stream_watch(http_request: web.BaseRequest, stream: Stream) -> web.StreamResponse:
    """Send watch events line by line until the client or the server ends the watch."""
    web_response = web.StreamResponse(status=stream.status, headers=stream.headers)
    await web_response.prepare(http_request)
    try:
        async for line in stream.lines():
            await web_response.write(line + b"\n")
    except (Unreachable, ConnectionError):
        # Either side closed the connection: a broken connection looks to a client like a stream that stops.
        _abort(http_request)
    return web_response
