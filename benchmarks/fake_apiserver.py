"""A server that looks like an API server to a client that lists, watches and gets, and is far faster than any client.

It exists to measure clients: objects are rendered before it is ready, and what it sends is joined from these. Requests
begin with the way lists are served and the size of the cluster:

    /streaming/150000/api/v1/pods       all pods; watches may begin with them (`sendInitialEvents`)
    /paged/20000/api/v1/pods            a smaller cluster, on a server that is too old for that
    /.../apis/coordination.k8s.io/v1/namespaces/N/leases/L      any lease
    POST /modify?count=200000           every open watch of pods now sees so many changes

As an API server does, it sends every object in an HTTP chunk of its own. Unlike one, it speaks plain HTTP and does not
compress.

    python server.py CORES PODS...      prints its port when it is ready; ends when its standard input does
"""

import asyncio
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from urllib.parse import parse_qsl, urlsplit

import uvloop

from fleet import FIRST_REVISION, REVISION_DIGITS, Fleet, fleet

_BLOCK = 64  # objects that are handed to the network at once
_STRIDE = 7919  # neighbouring changes hit distant pods
_FIELD = b'"resourceVersion":"'
_KINDS = {"pods": b"Pod", "nodes": b"Node"}
_LEASE = (
    b'{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"worker-00001","namespace":"kube-node-lease",'
    b'"uid":"5b0f8d6e-0004-4c1e-9d3a-000000000001","resourceVersion":"1000000001","creationTimestamp":"2026-03-02T07:14:09Z",'
    b'"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"worker-00001","uid":"9e3779b1-0003-4c1e-9d3a-000000000001"}],'
    b'"managedFields":[{"manager":"kubelet","operation":"Update","apiVersion":"coordination.k8s.io/v1","time":"2026-03-02T07:14:31Z",'
    b'"fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:ownerReferences":{".":{}}},"f:spec":{"f:holderIdentity":{},'
    b'"f:leaseDurationSeconds":{},"f:renewTime":{}}}}]},"spec":{"holderIdentity":"worker-00001","leaseDurationSeconds":40,'
    b'"renewTime":"2026-03-02T07:14:31.000000Z"}}'
)
_NO_STREAMING = (
    b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"sendInitialEvents is forbidden '
    b'for watch unless the WatchList feature gate is enabled","reason":"Invalid","code":422}'
)


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    parts: list[str]
    query: dict[str, str]


class Server:
    """Serves the fleets that it is given, by their number of pods."""

    def __init__(self, fleets: dict[int, Fleet]) -> None:
        self._fleets = fleets
        self._watches: set[asyncio.Queue[int]] = set()  # open ones of pods
        self._watched = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection until it closes."""
        try:
            while True:
                request = _parse_request(await reader.readuntil(b"\r\n\r\n"))
                if "watch" in request.query:
                    await self._watch(request, reader, writer)
                else:
                    await self._answer(request, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _answer(self, request: _Request, writer: asyncio.StreamWriter) -> None:
        if request.method == "POST":
            await self._watched.wait()
            for watch in self._watches:
                watch.put_nowait(int(request.query["count"]))
            _write(writer, 202, b"")
        elif request.parts[-2] == "leases":
            _write(writer, 200, _LEASE)
        else:
            await self._list(request, writer)

    async def _list(self, request: _Request, writer: asyncio.StreamWriter) -> None:
        kind, objects = self._objects(request)
        start = int(request.query.get("continue", "0"))
        end = start + int(request.query.get("limit", "0")) or len(objects)
        left = max(len(objects) - end, 0)
        more = b',"continue":"%d","remainingItemCount":%d' % (end, left) if left else b""
        begin = b'{"kind":"%bList","apiVersion":"v1","metadata":{"resourceVersion":"%d"%b},"items":['
        _begin(writer)
        writer.write(_chunk(begin % (kind, FIRST_REVISION + len(objects), more)))
        page = objects[start:end]
        await _send(writer, (_chunk(b"{", tail, b",") for tail in page[:-1]))
        writer.write(_chunk(b"{", page[-1], b"]}") + b"0\r\n\r\n")

    async def _watch(self, request: _Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kind, objects = self._objects(request)
        initial = request.query.get("sendInitialEvents") == "true"
        if initial and request.parts[0] == "paged":
            _write(writer, 422, _NO_STREAMING)
            return
        _begin(writer)
        if initial:
            begin = _event(b"ADDED", kind)
            await _send(writer, (_chunk(begin, tail, b"}\n") for tail in objects))
            writer.write(_bookmark(kind, FIRST_REVISION + len(objects)))
        async with asyncio.TaskGroup() as group:
            changing = group.create_task(self._change(objects, writer)) if kind == b"Pod" else None
            with suppress(ConnectionError):
                await reader.read()  # a client that watches says nothing more until it hangs up
            if changing:
                changing.cancel()
        writer.close()

    async def _change(self, objects: list[bytes], writer: asyncio.StreamWriter) -> None:
        counts: asyncio.Queue[int] = asyncio.Queue()
        self._watches.add(counts)
        self._watched.set()
        sent = 0
        try:
            with suppress(ConnectionError):  # noticed by who reads, too
                while True:
                    count = await counts.get()
                    await _send(writer, _modified(objects, range(sent, sent + count)))
                    sent += count
        finally:
            self._watches.remove(counts)
            if not self._watches:
                self._watched.clear()

    def _objects(self, request: _Request) -> tuple[bytes, list[bytes]]:
        served = self._fleets[int(request.parts[1])]
        plural = request.parts[-1]
        return _KINDS[plural], served.pods if plural == "pods" else served.nodes


def _parse_request(head: bytes) -> _Request:
    method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
    url = urlsplit(target)
    return _Request(method, url.path.strip("/").split("/"), dict(parse_qsl(url.query)))


def _modified(objects: list[bytes], numbers: range) -> Iterator[bytes]:
    begin = _event(b"MODIFIED", b"Pod")
    for number in numbers:
        tail = objects[number * _STRIDE % len(objects)]
        at = tail.index(_FIELD) + len(_FIELD)
        revision = b"%d" % (FIRST_REVISION + len(objects) + number + 1)
        yield _chunk(begin, tail[:at], revision, tail[at + REVISION_DIGITS :], b"}\n")


def _event(change: bytes, kind: bytes) -> bytes:
    return b'{"type":"%b","object":{"kind":"%b","apiVersion":"v1",' % (change, kind)


def _bookmark(kind: bytes, revision: int) -> bytes:
    annotations = b'{"k8s.io/initial-events-end":"true"}'
    metadata = b'"metadata":{"resourceVersion":"%d","annotations":%b}}}\n' % (revision, annotations)
    return _chunk(_event(b"BOOKMARK", kind), metadata)


async def _send(writer: asyncio.StreamWriter, chunks: Iterable[bytes]) -> None:
    remaining = iter(chunks)
    while block := b"".join(islice(remaining, _BLOCK)):
        writer.write(block)
        await writer.drain()


def _chunk(*pieces: bytes) -> bytes:
    return b"".join((b"%x\r\n" % sum(map(len, pieces)), *pieces, b"\r\n"))


def _begin(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")


def _write(writer: asyncio.StreamWriter, status: int, body: bytes) -> None:
    head = b"HTTP/1.1 %d -\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    writer.write(head % (status, len(body)) + body)


async def _main(sizes: list[int]) -> None:
    serving = Server({pods: fleet(pods) for pods in sizes})
    server = await asyncio.start_server(serving.serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)  # the parent process closes it to end this process
    os._exit(0)  # what is still open has nothing to lose


if __name__ == "__main__":
    os.sched_setaffinity(0, {int(core) for core in sys.argv[1].split(",")})
    uvloop.run(_main([int(pods) for pods in sys.argv[2:]]))
