"""A minimal HTTP/1.1 client on asyncio streams: one connection per request.

    async with open_request(endpoint, "GET", "/metadata/instance", headers=[("Metadata", "true")]) as response:
        body = await response.read(limit=1 << 20)

For processes that send few requests and must be small, such as the agent on each node: aiohttp needs more memory than
the rest of the agent, h11 half a megabyte. There are no proxies, no redirects, no compression and no persistent
connections; use aiohttp where one of these is needed. Raises `OSError` (also for TLS), `EOFError` for a truncated
response, and `InvalidHttpResponse`.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import h11

from haulout.core.limited_reader import read_body, read_prefix
from haulout.kube.transports import http_common

_MAX_HEAD_BYTES: Final = 64 << 10
_READ_BYTES: Final = 64 << 10
_MAX_ERROR_LENGTH: Final = 120
_CLOSE_TIMEOUT_SECONDS: Final = 0.5
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class InvalidHttpResponse(Exception):
    """The server answered something that is not HTTP/1.1, for example TLS or a banner."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The server to which requests are sent."""

    host: str
    port: int
    base_path: str = ""  # prefix of all paths, without a trailing slash
    ssl_context: ssl.SSLContext | None = None
    server_name: str | None = None  # in its certificate, if it differs from the host

    @classmethod
    def from_url(
        cls, url: str, *, ssl_context: ssl.SSLContext | None = None, server_name: str | None = None
    ) -> "Endpoint":
        parts = urlsplit(url)
        port = parts.port or _DEFAULT_PORTS[parts.scheme]
        return cls(parts.hostname or "", port, parts.path.rstrip("/"), ssl_context, server_name)

    @property
    def authority(self) -> str:
        """The value of the Host header: with brackets around an IPv6 address (RFC 3986, 3.2.2)."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class FetchedResponse(NamedTuple):
    """A complete response. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class H11Response:
    """A response whose body has not been read. Header names are in lower case."""

    __slots__ = ("_exchange", "headers", "status")

    def __init__(self, exchange: "_H11Exchange", response: h11.Response) -> None:
        self.status = response.status_code
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in response.headers}
        self.headers: Mapping[str, str] = headers
        self._exchange = exchange

    async def read(self, *, limit: int) -> bytes:
        """Return the whole body. Raise `BodyTooLarge` if it is longer than `limit`."""
        chunks = self.chunks()
        return await read_body(lambda: anext(chunks, b""), limit=limit)

    async def read_prefix(self, *, limit: int) -> bytes:
        """Return up to `limit` bytes of the body. The rest is not read."""
        chunks = self.chunks()
        return await read_prefix(lambda: anext(chunks, b""), limit=limit)

    async def chunks(self) -> AsyncIterator[bytes]:
        while isinstance(event := await self._exchange.event(), h11.Data):
            yield bytes(event.data)


@asynccontextmanager
async def open_request(
    endpoint: Endpoint,
    method: str,
    target: str,
    *,
    headers: Iterable[tuple[str, str]] = (),
    body: bytes | None = None,
    on_send: Callable[[], None] = lambda: None,
) -> AsyncGenerator[H11Response]:
    """Send a request. Leaving the context closes the connection. `on_send` is called before the first byte is sent."""
    connection_headers = [("Host", endpoint.authority), ("Connection", "close")]
    connection_headers += [] if body is None else [("Content-Length", str(len(body)))]
    try:
        request = h11.Request(
            method=method, target=f"{endpoint.base_path}{target}", headers=[*connection_headers, *headers]
        )
    except h11.LocalProtocolError:  # h11's message would contain the value, which may be a secret
        raise ValueError("the address or a header has characters that HTTP does not allow") from None
    reader, writer = await asyncio.open_connection(
        endpoint.host,
        endpoint.port,
        ssl=endpoint.ssl_context,
        server_hostname=(endpoint.server_name or endpoint.host) if endpoint.ssl_context else None,
        limit=_READ_BYTES,
    )
    try:
        http_common.enable_keepalive(writer.get_extra_info("socket"))
        exchange = _H11Exchange(reader)
        on_send()
        writer.write(exchange.serialize(request, body or b""))
        await writer.drain()
        yield H11Response(exchange, await exchange.response())
    finally:
        writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            # The TLS close_notify of a server that is gone never comes. The response is complete, so nothing is lost.
            async with asyncio.timeout(_CLOSE_TIMEOUT_SECONDS):
                await writer.wait_closed()


class _H11Exchange:
    """One request and its response, as h11 parses them from a connection."""

    __slots__ = ("_h11", "_reader")

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD_BYTES)
        self._reader = reader

    def serialize(self, request: h11.Request, body: bytes) -> bytes:
        return b"".join(self._h11.send(event) for event in (request, h11.Data(body), h11.EndOfMessage()))

    async def response(self) -> h11.Response:
        """Return the head of the final response. Skip informational (1xx) responses."""
        while not isinstance(event := await self.event(), h11.Response):
            pass
        return event

    async def event(self) -> object:
        """Return the next h11 event of the response.

        Raise `EOFError` if it is truncated, `InvalidHttpResponse` if invalid.
        """
        while True:
            has_response_started = self._h11.their_state is not h11.SEND_RESPONSE
            try:
                event = self._h11.next_event()
            except h11.RemoteProtocolError as error:
                unread, is_closed = self._h11.trailing_data
                # A close before the status line, or within its version, is a lost connection. Other bytes are no HTTP.
                if is_closed and (has_response_started or b"HTTP/1.".startswith(unread[:7])):
                    raise EOFError("the connection was closed before the answer was complete") from None
                raise InvalidHttpResponse(str(error)[:_MAX_ERROR_LENGTH]) from None
            if event is not h11.NEED_DATA:
                return event
            self._h11.receive_data(await self._reader.read(_READ_BYTES))
