"""Health checks of an agent for its kubelet: `/healthz` and `/readyz` as in the operator, without aiohttp.

`/healthz` succeeds while the event loop runs. `/readyz` returns 503 and the reason while the source receives nothing
from its cloud. `serve` is also used for other GET handlers on a port of their own, such as metrics.

The number of connections is limited. At the limit a new connection replaces the oldest one, as on the ports of the
operator (`haulout.httpserver.connections`, which needs aiohttp). Responses are written at once, so an old connection
only waits for its peer; idle connections cannot block a probe.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus
from typing import Protocol

import h11

from haulout.errors import HauloutError
from haulout.kube.transports import connection_errors

HOST = "127.0.0.1"  # the agent uses the host network: do not expose the port outside the node
PORT = 9817
_REQUEST_TIMEOUT_SECONDS = 5
_MAX_REQUEST_BYTES = 8 << 10
_MAX_CONNECTIONS = 32
_TEXT = "text/plain; charset=utf-8"

# from the path to the status and the lines of the body
PathHandler = Callable[[bytes], tuple[HTTPStatus, Sequence[str]]]


class HealthReporter(Protocol):
    """What the probes report: the agent, or its event source."""

    @property
    def is_up(self) -> bool: ...

    def problems(self) -> Sequence[str]: ...


def serve_health(agent: HealthReporter, *, port: int) -> AbstractAsyncContextManager[int]:
    """Serve health checks while the context lasts; yield the port."""
    return serve(lambda path: _health_response(path, agent), host=HOST, port=port, what="health checks")


@contextlib.asynccontextmanager
async def serve(
    handler: PathHandler, *, host: str | None, port: int, what: str, content_type: str = _TEXT
) -> AsyncIterator[int]:
    """Serve `handler` while the context lasts, on all addresses if `host` is None; yield the port."""
    connections: dict[asyncio.StreamWriter, None] = {}  # the oldest first

    async def handle_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(connections) >= _MAX_CONNECTIONS:
            oldest = next(iter(connections))
            # At once, not after its task: a connection that is closed politely may wait for its peer, and a probe would
            # not get in.
            del connections[oldest]
            oldest.transport.abort()
        connections[writer] = None
        with contextlib.suppress(OSError, TimeoutError, h11.RemoteProtocolError):
            async with asyncio.timeout(_REQUEST_TIMEOUT_SECONDS):
                await _respond(reader, writer, handler, content_type=content_type)
        connections.pop(writer, None)
        writer.close()

    try:
        server = await asyncio.start_server(handle_connection, host, port, limit=_MAX_REQUEST_BYTES)
    except OSError as error:
        raise HauloutError(
            f"{what} on {host or 'all addresses'}:{port}: {connection_errors.error_text(error)}"
        ) from error
    async with server:
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            for writer in connections:
                writer.transport.abort()


async def _respond(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handler: PathHandler, *, content_type: str
) -> None:
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_REQUEST_BYTES)
    while (request := connection.next_event()) is h11.NEED_DATA:
        connection.receive_data(await reader.read(_MAX_REQUEST_BYTES))
    if not isinstance(request, h11.Request):
        return  # the peer closed the connection
    status, lines = handler(request.target.partition(b"?")[0])
    body = "".join(f"{line}\n" for line in lines).encode()
    headers = [
        ("Content-Type", content_type),
        ("Content-Length", str(len(body))),
        ("X-Content-Type-Options", "nosniff"),
        ("Connection", "close"),
    ]
    writer.write(connection.send(h11.Response(status_code=status, headers=headers, reason=status.phrase)))
    if request.method != b"HEAD":
        writer.write(connection.send(h11.Data(body)))
    await writer.drain()


def _health_response(path: bytes, agent: HealthReporter) -> tuple[HTTPStatus, Sequence[str]]:
    if path not in (b"/healthz", b"/readyz"):
        return HTTPStatus.NOT_FOUND, ("not found",)
    if path == b"/healthz" or agent.is_up:
        return HTTPStatus.OK, ("ok", *agent.problems())
    return HTTPStatus.SERVICE_UNAVAILABLE, agent.problems() or ("no answer from the cloud yet",)
