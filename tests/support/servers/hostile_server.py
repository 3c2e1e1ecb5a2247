"""A server with excessive responses: gzip bombs, and endless bodies, lists and watches.

    async with bomb_server(Bomb.GZIP) as server:
        ...  # at server.url, for as long as the context lasts
        server.bomb = Bomb.NONE  # from now on it is the API server of a cluster with one node

It answers every path in the same way, so that it can replace a Kubernetes API server, Prometheus, Slack or a cloud.
"""

import asyncio
import contextlib
import itertools
import json
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from enum import StrEnum
from functools import cache
from typing import Any
from urllib.parse import parse_qs, urlsplit

from haulout.core.clock import RealClock

HOST = "127.0.0.1"
GZIP_BYTES = 917_000  # of gzip, which become 940 MB
_DEPTH = 100_000
_CHUNK_BYTES = 64 << 10
_DRIP_SECONDS = 0.05
_END_SECONDS = 5
_MEGABYTE = "x" * 1_000_000


class Bomb(StrEnum):
    """How the server responds."""

    NONE = "none"
    GZIP = "gzip"  # a small body that expands a thousand times
    STACKED_GZIP = "stacked-gzip"  # gzip in gzip
    ENDLESS_BODY = "endless-body"  # a list without an end
    ENDLESS_PAGES = "endless-pages"  # each with another token
    ENDLESS_EMPTY_PAGES = "endless-empty-pages"
    SAME_TOKEN = "same-token"
    LARGE_PAGES = "large-pages"  # valid pages of large objects
    UNDECODABLE_OBJECTS = "misfits"  # millions of objects that are none
    DEEP = "deep"  # JSON that is nested without an end
    ENDLESS_ERROR = "endless-error"  # status 500
    SLOW_BODY = "slow-body"  # a byte now and then
    ENDLESS_HEADERS = "endless-headers"
    LONG_LINE = "long-line"  # of a watch
    FLOOD = "flood"  # a watch that tells of the same node without an end
    GZIP_FLOOD = "gzip-flood"  # the same, compressed
    GROWTH = "growth"  # a watch that tells of ever new nodes
    LARGE_ROWS = "large-rows"  # the same, each with labels of a megabyte
    HEAVY = "heavy"  # a list within the limits of one cluster: 40 nodes, each with labels of a megabyte
    HALF_LIST = "half-list"  # two pages of 3 MB, of which the second one comes when `gate` is set
    STALL = "stall"  # 3 MB of a body or a line, and then nothing
    ORDINARY = "ordinary"  # a valid list: 50 nodes of some 10 KiB
    UIDS = "uids"  # a watch that deletes nodes with uids of a megabyte


_WATCH_BOMBS = {Bomb.LONG_LINE, Bomb.FLOOD, Bomb.GZIP_FLOOD, Bomb.GROWTH, Bomb.LARGE_ROWS, Bomb.UIDS}


class BombServer:
    """See above; `requested_paths` has the paths that were asked for."""

    def __init__(self, bomb: Bomb) -> None:
        self.bomb = bomb
        self.url = ""
        self.requested_paths: list[str] = []
        self.gate = asyncio.Event()
        self._open: dict[asyncio.StreamWriter, asyncio.Task[None] | None] = {}

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection."""
        self._open[writer] = asyncio.current_task()
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                while True:
                    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                    await reader.readexactly(_length(head))
                    self.requested_paths.append(head.split()[1])
                    await self._answer(writer, head.split()[1])
        finally:
            self._open.pop(writer, None)
            writer.close()

    def close(self) -> None:
        """End all connections."""
        for writer in tuple(self._open):
            writer.transport.abort()

    async def shut_down(self) -> None:
        """End all connections, and wait for that."""
        self.gate.set()
        answering = [task for task in self._open.values() if task is not None]
        self.close()
        if answering:
            await asyncio.wait(answering, timeout=_END_SECONDS)

    async def _answer(self, writer: asyncio.StreamWriter, target: str) -> None:
        url = urlsplit(target)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        is_list = url.path.endswith("/nodes")
        if query.get("sendInitialEvents"):
            await _send(writer, {"kind": "Status", "code": 400, "message": "no streaming list"}, status=400)
        elif url.path == "/version":
            await _send(writer, {"gitVersion": "v1.34.0"})
        elif query.get("watch") == "true":
            await self._watch(writer)
        elif self.bomb is Bomb.NONE or (is_list and self.bomb in _WATCH_BOMBS):
            await _send(writer, _list([_node("n1")]))
        else:
            await self._send_bomb(writer, query)

    async def _send_bomb(self, writer: asyncio.StreamWriter, query: dict[str, str]) -> None:  # noqa: C901, PLR0912 - a list
        at, limit = int(query.get("continue") or 0), int(query.get("limit") or 500)
        match self.bomb:
            case Bomb.GZIP | Bomb.STACKED_GZIP:
                is_stacked = self.bomb is Bomb.STACKED_GZIP
                body = gzip_compressed(gzip_bomb()) if is_stacked else gzip_bomb()
                await _send_bytes(writer, body, encoding="gzip, gzip" if is_stacked else "gzip")
            case Bomb.ENDLESS_BODY:
                batch = (json.dumps(_node("n1")).encode() + b",") * 500
                await _send_chunks(writer, itertools.chain([b'{"metadata":{},"items":['], itertools.repeat(batch)))
            case Bomb.ENDLESS_PAGES:
                await _send(
                    writer, _list([_node(f"n{at + candidate}") for candidate in range(limit)], token=str(at + limit))
                )
            case Bomb.ENDLESS_EMPTY_PAGES:
                await _send(writer, _list([], token=str(at + 1)))
            case Bomb.SAME_TOKEN:
                await _send(writer, _list([_node("n1")], token="1"))
            case Bomb.LARGE_PAGES:
                nodes = [_node(f"n{candidate}", note="x" * 100_000) for candidate in range(at, min(at + limit, 300))]
                await _send(writer, _list(nodes, token=str(at + limit) if at + limit < 300 else ""))
            case Bomb.HEAVY:
                await _send_bytes(writer, _heavy_page(at, limit))
            case Bomb.HALF_LIST:
                if at:
                    await self.gate.wait()
                nodes = [_node(f"n{candidate}", managed=_MEGABYTE) for candidate in range(at, at + 3)]
                await _send(writer, _list(nodes, token="" if at else "3"))
            case Bomb.STALL:
                await _stall(writer)
            case Bomb.ORDINARY:
                nodes = list(_ordinary_nodes()[at : at + limit])
                body = json.dumps(_list(nodes, token=str(at + limit) if at + limit < 50 else "")).encode()
                await _send_chunks(
                    writer,
                    [body[candidate : candidate + _CHUNK_BYTES] for candidate in range(0, len(body), _CHUNK_BYTES)],
                )
            case Bomb.UNDECODABLE_OBJECTS:
                await _send_bytes(writer, b'{"metadata":{},"items":[' + b"0," * 1_900_000 + b"0]}")
            case Bomb.DEEP:
                body = b'{"metadata":{},"items":[' + b'{"a":' * _DEPTH + b"0" + b"}" * _DEPTH + b"]}"
                await _send_bytes(writer, body)
            case Bomb.ENDLESS_ERROR:
                await _send_chunks(writer, itertools.repeat(b"x" * _CHUNK_BYTES), status=500)
            case Bomb.SLOW_BODY:
                await _send_chunks(writer, itertools.repeat(b" "), seconds=_DRIP_SECONDS)
            case _:
                writer.write(b"HTTP/1.1 200 OK\r\n")
                for number in itertools.count():
                    writer.write(b"X-%d: %s\r\n" % (number, b"x" * 1000))
                    await writer.drain()

    async def _watch(self, writer: asyncio.StreamWriter) -> None:
        match self.bomb:
            case Bomb.STALL:
                await _stall(writer)
            case Bomb.LONG_LINE:
                await _send_chunks(writer, itertools.repeat(b"x" * _CHUNK_BYTES))
            case Bomb.FLOOD:
                lines = (_watch_line("MODIFIED", _node("n1", at=at)) for at in itertools.count(2))
                await _send_chunks(writer, _batches(lines))
            case Bomb.GZIP_FLOOD:
                line = _watch_line("MODIFIED", _node("n1", at=2))
                squeeze = zlib.compressobj(wbits=31)
                pieces = (squeeze.compress(line * 5000) + squeeze.flush(zlib.Z_SYNC_FLUSH) for _ in itertools.count())
                await _send_chunks(writer, pieces, encoding="gzip")
            case Bomb.GROWTH:
                lines = (_watch_line("ADDED", _node(f"n{at}", at=at)) for at in itertools.count(2))
                await _send_chunks(writer, _batches(lines))
            case Bomb.LARGE_ROWS:
                lines = (_watch_line("ADDED", _node(f"n{at}", at=at, managed=_MEGABYTE)) for at in itertools.count(2))
                await _send_chunks(writer, lines)
            case Bomb.UIDS:
                lines = (
                    _watch_line("DELETED", _node("n0", at=at, uid=f"{at}{'x' * 1_000_000}"))
                    for at in itertools.count(2)
                )
                await _send_chunks(writer, lines)
            case _:
                await _send_chunks(writer, [], ends=False)


@asynccontextmanager
async def bomb_server(bomb: Bomb) -> AsyncIterator[BombServer]:
    """Serve while the context lasts."""
    served = BombServer(bomb)
    server = await asyncio.start_server(served.handle, HOST, 0)
    served.url = f"http://{HOST}:{server.sockets[0].getsockname()[1]}"
    try:
        yield served
    finally:
        server.close()
        await served.shut_down()


@cache
def gzip_bomb() -> bytes:
    """Return gzip of a list of nodes with spaces in it."""
    squeeze = zlib.compressobj(9, wbits=31)
    spaces, body = b" " * (1 << 20), squeeze.compress(b'{"metadata":{},"items":[')
    while len(body) < GZIP_BYTES:
        body += squeeze.compress(spaces)
    return body + squeeze.compress(b"]}") + squeeze.flush()


def gzip_compressed(body: bytes) -> bytes:
    """Return gzip of anything."""
    squeeze = zlib.compressobj(wbits=31)
    return squeeze.compress(body) + squeeze.flush()


def _node(name: str, *, at: int = 1, uid: str = "", note: str = "", managed: str = "operational") -> dict[str, Any]:
    labels, notes = {"cloud.sap/maintenance-state": managed}, {"note": note} if note else {}
    metadata = {"name": name, "uid": uid or f"u-{name}", "resourceVersion": str(at), "labels": labels}
    return {"metadata": {**metadata, "annotations": notes}, "spec": {}, "status": {}}


@cache
def _heavy_page(at: int, limit: int) -> bytes:
    nodes = [_node(f"n{number}", managed=_MEGABYTE) for number in range(at, min(at + limit, 40))]
    return json.dumps(_list(nodes, token=str(at + limit) if at + limit < 40 else "")).encode()


@cache
def _ordinary_nodes() -> list[dict[str, Any]]:
    return [_ordinary_node(f"node-{number:03d}.region-1.example.org") for number in range(50)]


def _ordinary_node(name: str) -> dict[str, Any]:
    node = _node(name, uid="0f8fad5b-d9cb-469f-a165-70867728950e", at=123_456_789)
    node["metadata"]["labels"] |= {f"topology.example.org/label-{item}": f"value-{item}" for item in range(25)}
    node["metadata"]["annotations"] |= {f"node.example.org/annotation-{item}": "v" * 60 for item in range(15)}
    digest = "registry.example.org/team/image@sha256:" + "0" * 64
    images = [
        {"names": [digest, f"registry.example.org/team/image:{item}"], "sizeBytes": 1 << 24} for item in range(40)
    ]
    kinds = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
    conditions = [{"type": item, "status": "False", "reason": "Kubelet", "message": "m" * 60} for item in kinds]
    node["status"] = {"images": images, "conditions": conditions}
    return node


def _list(nodes: list[dict[str, Any]], *, token: str = "") -> dict[str, Any]:
    return {"kind": "NodeList", "metadata": {"resourceVersion": "1", "continue": token}, "items": nodes}


def _watch_line(kind: str, node: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": node}, separators=(",", ":")).encode() + b"\n"


def _batches(lines: Iterator[bytes]) -> Iterator[bytes]:
    return (b"".join(itertools.islice(lines, 500)) for _ in itertools.count())


def _length(head: str) -> int:
    found = [part.partition(":")[2] for part in head.split("\r\n") if part.lower().startswith("content-length:")]
    return int(found[0]) if found else 0


async def _send(writer: asyncio.StreamWriter, content: object, *, status: int = 200) -> None:
    await _send_bytes(writer, json.dumps(content).encode(), status=status)


async def _send_bytes(writer: asyncio.StreamWriter, body: bytes, *, status: int = 200, encoding: str = "") -> None:
    writer.write(_head(status, encoding) + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    await writer.drain()


async def _send_chunks(
    writer: asyncio.StreamWriter,
    pieces: Iterator[bytes] | list[bytes],
    *,
    status: int = 200,
    encoding: str = "",
    seconds: float = 0,
    ends: bool = True,
) -> None:
    writer.write(_head(status, encoding) + b"Transfer-Encoding: chunked\r\n\r\n")
    for piece in pieces:
        writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        await writer.drain()
        await RealClock().sleep(timedelta(seconds=seconds))
    if ends:
        writer.write(b"0\r\n\r\n")
    await writer.drain()


async def _stall(writer: asyncio.StreamWriter) -> None:
    await _send_chunks(writer, [b"x" * _CHUNK_BYTES] * 48, ends=False)
    await writer.wait_closed()


def _head(status: int, encoding: str) -> bytes:
    encoded = f"Content-Encoding: {encoding}\r\n" if encoding else ""
    return f"HTTP/1.1 {status} Said\r\nContent-Type: application/json\r\n{encoded}".encode()
