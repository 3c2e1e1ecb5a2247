"""HTTP/1.1 in its plainest form, over asyncio's streams: one connection for each request.

    async with asking(place, "GET", "/metadata/instance", headers={"Metadata": "true"}) as answer:
        body = await answer.read(limit=1 << 20)

For a process that asks for little and must be small, as the agent on each node: aiohttp takes more memory than all the
rest of it. h11 reads and writes HTTP here, and takes half a megabyte. No proxies, no redirects, no compression, no
connection that is kept: where one of these matters, aiohttp it is. It raises `OSError` (also for TLS), `EOFError` when
an answer breaks off, and `NotHttp`.
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

from haulout.kube.network import framing
from haulout.kube.network.bounded import read_beginning, read_body

_LONGEST_HEAD: Final = 64 << 10
_READ: Final = 64 << 10
_SHOWN: Final = 120
_GOODBYE_SECONDS: Final = 0.5
_BASES: Final = {"http": 80, "https": 443}


class NotHttp(Exception):
    """What came back is not an answer of HTTP."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where requests go."""

    host: str
    port: int
    base: str = ""  # of paths, without a slash at its end
    secure: ssl.SSLContext | None = None
    server_name: str | None = None  # in its certificate, if not the host

    @classmethod
    def at(cls, url: str, *, secure: ssl.SSLContext | None = None, server_name: str | None = None) -> "Place":
        """Return the place that an address names."""
        parts = urlsplit(url)
        port = parts.port or _BASES[parts.scheme]
        return cls(parts.hostname or "", port, parts.path.rstrip("/"), secure, server_name)

    @property
    def authority(self) -> str:
        """How the Host header names it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class Fetched(NamedTuple):
    """An answer, read to its end; names of headers are lower-case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Answer:
    """An answer as it comes; names of headers are lower-case."""

    __slots__ = ("_conversation", "headers", "status")

    def __init__(self, conversation: "_Conversation", response: h11.Response) -> None:
        self.status = response.status_code
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in response.headers}
        self.headers: Mapping[str, str] = headers
        self._conversation = conversation

    async def read(self, *, limit: int) -> bytes:
        """Return the whole of its body; raises `TooLarge`."""
        pieces = self.pieces()
        return await read_body(lambda: anext(pieces, b""), limit=limit)

    async def read_beginning(self, *, limit: int) -> bytes:
        """Return the beginning of its body."""
        pieces = self.pieces()
        return await read_beginning(lambda: anext(pieces, b""), limit=limit)

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield its body as it arrives."""
        while isinstance(event := await self._conversation.event(), h11.Data):
            yield bytes(event.data)


@asynccontextmanager
async def asking(
    place: Place,
    method: str,
    target: str,
    *,
    headers: Iterable[tuple[str, str]] = (),
    body: bytes | None = None,
    leaving: Callable[[], None] = lambda: None,
) -> AsyncGenerator[Answer]:
    """Send a request; leaving the context ends the connection. `leaving` is called as the first byte goes out."""
    own = [("Host", place.authority), ("Connection", "close")]
    own += [] if body is None else [("Content-Length", str(len(body)))]
    try:
        request = h11.Request(method=method, target=f"{place.base}{target}", headers=[*own, *headers])
    except h11.LocalProtocolError:  # it would repeat what may be a secret
        raise ValueError("the address or a header has characters that HTTP does not allow") from None
    reader, writer = await asyncio.open_connection(
        place.host,
        place.port,
        ssl=place.secure,
        server_hostname=(place.server_name or place.host) if place.secure else None,
        limit=_READ,
    )
    try:
        framing.keep_alive(writer.get_extra_info("socket"))
        conversation = _Conversation(reader)
        leaving()
        writer.write(conversation.said(request, body or b""))
        await writer.drain()
        yield Answer(conversation, await conversation.response())
    finally:
        writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_GOODBYE_SECONDS):
                await writer.wait_closed()


class _Conversation:
    """One request and its answer, as h11 reads them from a connection."""

    __slots__ = ("_h11", "_reader")

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=_LONGEST_HEAD)
        self._reader = reader

    def said(self, request: h11.Request, body: bytes) -> bytes:
        """Return a request as it goes over the wire."""
        return b"".join(self._h11.send(it) for it in (request, h11.Data(body), h11.EndOfMessage()))

    async def response(self) -> h11.Response:
        """Return the head of the answer, after those that only say that it is yet to come."""
        while not isinstance(event := await self.event(), h11.Response):
            pass
        return event

    async def event(self) -> object:
        """Return the next part of the answer."""
        while True:
            has_begun = self._h11.their_state is not h11.SEND_RESPONSE
            try:
                event = self._h11.next_event()
            except h11.RemoteProtocolError as error:
                unread, is_over = self._h11.trailing_data
                if is_over and (has_begun or b"HTTP/1.".startswith(unread[:7])):
                    raise EOFError("the connection was closed before the answer was complete") from None
                raise NotHttp(str(error)[:_SHOWN]) from None
            if event is not h11.NEED_DATA:
                return event
            self._h11.receive_data(await self._reader.read(_READ))
