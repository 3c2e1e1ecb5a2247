"""Whether an agent is well, for its kubelet: `/healthz` and `/readyz`, as the operator has them, without aiohttp.

`/healthz` answers for as long as the event loop turns. `/readyz` answers 503, and why, while it does not hear what its
cloud says. `answering` has whoever wants it answer GET on a port of their own, such as for metrics.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus
from typing import Protocol

from haulout.errors import HauloutError
from haulout.kube.network import wording

HOST = "127.0.0.1"  # in the network of the node: nobody else has to ask
PORT = 9817
_WITHIN_SECONDS = 5
_LONGEST = 8 << 10
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

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_WITHIN_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_answer(*told(_path(head)), kind=kind))
                await writer.drain()
        writer.close()

    try:
        server = await asyncio.start_server(answer, host, port, limit=_LONGEST)
    except OSError as error:
        raise HauloutError(f"{what} on {host or 'all addresses'}:{port}: {wording.words(error)}") from error
    async with server:
        yield server.sockets[0].getsockname()[1]


def _path(head: bytes) -> bytes:
    _, _, rest = head.partition(b" ")
    return rest.partition(b" ")[0].partition(b"?")[0]


def _answer(status: HTTPStatus, lines: Sequence[str], *, kind: str) -> bytes:
    body = "".join(f"{it}\n" for it in lines).encode()
    fields = (
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
    )
    return "".join(f"{it}\r\n" for it in (*fields, "")).encode() + body


def _told(path: bytes, agent: Standing) -> tuple[HTTPStatus, Sequence[str]]:
    if path not in (b"/healthz", b"/readyz"):
        return HTTPStatus.NOT_FOUND, ("not found",)
    if path == b"/healthz" or agent.is_up:
        return HTTPStatus.OK, ("ok", *agent.troubles())
    return HTTPStatus.SERVICE_UNAVAILABLE, agent.troubles() or ("it has just begun",)
