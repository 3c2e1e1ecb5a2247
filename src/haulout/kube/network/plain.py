"""HTTP/1.1 in its plainest form, over asyncio's streams: one connection for each request.

    async with asking(place, "GET", "/metadata/instance", headers={"Metadata": "true"}) as answer:
        body = await answer.read(limit=1 << 20)

For a process that asks for little and must be small, as the agent on each node: aiohttp takes more memory than all the
rest of it. No proxies, no redirects, no compression, no connection that is kept: where one of these matters, aiohttp it
is. It raises `OSError` (also for TLS), `EOFError` when an answer breaks off, and `NotHttp`.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from haulout.kube.network import framing
from haulout.kube.network.bounded import read_beginning, read_body

_LONGEST_HEAD: Final = 64 << 10
_READ: Final = 64 << 10
_GOODBYE_SECONDS: Final = 0.5
_CONTINUE: Final = 100
_FINAL: Final = 200  # what comes before says that the answer is yet to come
_BODILESS: Final = (204, 304)
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

    __slots__ = ("_reader", "headers", "status")

    def __init__(self, reader: asyncio.StreamReader, status: int, headers: Mapping[str, str]) -> None:
        self.status = status
        self.headers = headers
        self._reader = reader

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
        if self.status in _BODILESS:
            return
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            while size := await self._size():
                async for piece in self._exactly(size):
                    yield piece
                await _until(self._reader, b"\r\n")
        elif (length := self.headers.get("content-length")) is not None:
            async for piece in self._exactly(_number(length, base=10)):
                yield piece
        else:
            while piece := await self._reader.read(_READ):
                yield piece

    async def _size(self) -> int:
        line = await _until(self._reader, b"\r\n")
        return _number(line.partition(b";")[0].decode("latin-1"), base=16)

    async def _exactly(self, size: int) -> AsyncIterator[bytes]:
        while size:
            piece = await self._reader.read(min(size, _READ))
            if not piece:
                raise EOFError("the answer broke off")
            size -= len(piece)
            yield piece


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
    reader, writer = await asyncio.open_connection(
        place.host,
        place.port,
        ssl=place.secure,
        server_hostname=(place.server_name or place.host) if place.secure else None,
        limit=_LONGEST_HEAD,
    )
    try:
        framing.keep_alive(writer.get_extra_info("socket"))
        leaving()
        writer.write(_head(place, method, target, headers, body) + (body or b""))
        await writer.drain()
        yield await _begun(reader)
    finally:
        writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_GOODBYE_SECONDS):
                await writer.wait_closed()


def _head(place: Place, method: str, target: str, headers: Iterable[tuple[str, str]], body: bytes | None) -> bytes:
    own = [("Host", place.authority), ("Connection", "close")]
    own += [] if body is None else [("Content-Length", str(len(body)))]
    lines = [f"{method} {place.base}{target} HTTP/1.1", *(f"{name}: {value}" for name, value in (*own, *headers))]
    if any("\r" in it or "\n" in it for it in lines):
        raise ValueError("a header with a line end in it")
    return "".join(f"{it}\r\n" for it in (*lines, "")).encode("latin-1")


async def _begun(reader: asyncio.StreamReader) -> Answer:
    while True:
        first, *lines = (await _until(reader, b"\r\n\r\n")).decode("latin-1").split("\r\n")
        version, _, rest = first.partition(" ")
        if not version.startswith("HTTP/1."):
            raise NotHttp(f"it begins with {first[:40]!r}")
        status = _number(rest[:3], base=10)
        if not _CONTINUE <= status < _FINAL:
            named = (it.partition(":") for it in lines if it)
            return Answer(reader, status, {name.strip().lower(): value.strip() for name, _, value in named})


async def _until(reader: asyncio.StreamReader, end: bytes) -> bytes:
    try:
        return (await reader.readuntil(end)).removesuffix(end)
    except asyncio.LimitOverrunError:
        raise NotHttp(f"more than {_LONGEST_HEAD} bytes without an end") from None
    except asyncio.IncompleteReadError as error:
        if not error.partial:
            raise EOFError("the connection was closed without an answer") from None
        if not error.partial.startswith(b"HTTP/1."):
            raise NotHttp(f"it begins with {error.partial[:40]!r}") from None
        raise


def _number(text: str, *, base: int) -> int:
    try:
        found = int(text, base)
    except ValueError:
        found = -1
    if found < 0:
        raise NotHttp(f"expected a number, found {text[:40]!r}")
    return found
