"""Whether an agent is well, for its kubelet: `/healthz` and `/readyz`, as the operator has them, without aiohttp.

`/healthz` answers for as long as the event loop turns. `/readyz` answers 503, and why, while it does not hear what its
cloud says. `answering` has whoever wants it answer GET on a port of their own, such as for metrics.

A port has few connections at once. At the limit a new connection replaces the oldest one, as on the ports of the
operator (`haulout.web.connections`, which needs aiohttp): each waits for its peer, as answers are made at once. So
connections that send nothing keep no probe from being answered.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus
from typing import Protocol

import h11

from haulout.errors import HauloutError
from haulout.kube.network import wording

HOST = "127.0.0.1"  # in the network of the node: nobody else has to ask
PORT = 9817
_WITHIN_SECONDS = 5
_LONGEST = 8 << 10
_MOST_CONNECTIONS = 32
_TEXT = "text/plain; charset=utf-8"

Told = Callable[[bytes], tuple[HTTPStatus, Sequence[str]]]  # by the path: how it stands, and lines


class Standing(Protocol):
    """Somebody who is well or not."""

    @property
    def is_up(self) -> bool:
        """Tell whether it does its work."""
        ...

    def troubles(self) -> Sequence[str]:
        """Return what is wrong, a line each."""
        ...


def serving(agent: Standing, *, port: int) -> AbstractAsyncContextManager[int]:
    """Answer the kubelet while the context lasts; yields the port."""
    return answering(lambda path: _told(path, agent), host=HOST, port=port, what="health checks")


@contextlib.asynccontextmanager
async def answering(told: Told, *, host: str | None, port: int, what: str, kind: str = _TEXT) -> AsyncIterator[int]:
    """Answer while the context lasts, on all addresses if there is no host; yields the port."""
    waiting: dict[asyncio.StreamWriter, None] = {}  # the oldest first

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(waiting) >= _MOST_CONNECTIONS:
            oldest = next(iter(waiting))
            del waiting[oldest]
            oldest.transport.abort()
        waiting[writer] = None
        with contextlib.suppress(OSError, TimeoutError, h11.RemoteProtocolError):
            async with asyncio.timeout(_WITHIN_SECONDS):
                await _answer(reader, writer, told, kind=kind)
        waiting.pop(writer, None)
        writer.close()

    try:
        server = await asyncio.start_server(answer, host, port, limit=_LONGEST)
    except OSError as error:
        raise HauloutError(f"{what} on {host or 'all addresses'}:{port}: {wording.words(error)}") from error
    async with server:
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            for writer in waiting:
                writer.transport.abort()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, told: Told, *, kind: str) -> None:
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=_LONGEST)
    while (request := connection.next_event()) is h11.NEED_DATA:
        connection.receive_data(await reader.read(_LONGEST))
    if not isinstance(request, h11.Request):
        return  # it was closed
    status, lines = told(request.target.partition(b"?")[0])
    body = "".join(f"{it}\n" for it in lines).encode()
    headers = [
        ("Content-Type", kind),
        ("Content-Length", str(len(body))),
        ("X-Content-Type-Options", "nosniff"),
        ("Connection", "close"),
    ]
    writer.write(connection.send(h11.Response(status_code=status, headers=headers, reason=status.phrase)))
    if request.method != b"HEAD":
        writer.write(connection.send(h11.Data(body)))
    await writer.drain()


def _told(path: bytes, agent: Standing) -> tuple[HTTPStatus, Sequence[str]]:
    if path not in (b"/healthz", b"/readyz"):
        return HTTPStatus.NOT_FOUND, ("not found",)
    if path == b"/healthz" or agent.is_up:
        return HTTPStatus.OK, ("ok", *agent.troubles())
    return HTTPStatus.SERVICE_UNAVAILABLE, agent.troubles() or ("it has just begun",)
