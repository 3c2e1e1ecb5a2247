"""The transport without aiohttp, against real servers on loopback: the same behaviour as the aiohttp transport."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import pytest
from aiohttp import web

from haulout.core.clock import RealClock
from haulout.errors import CloudError, KubeError, LeadershipLost, MalformedResponse, Unreachable
from haulout.kube.transport import Request
from haulout.kube.transports.config import IN_CLUSTER, Connection
from haulout.kube.transports.credentials import ANONYMOUS, Credentials, TokenFile
from haulout.kube.transports.h11_http import H11Transport, minimal_transport
from haulout.kube.transports.http import HttpTransport
from haulout.kube.transports.tls import TlsClientConfig
from haulout.providers.http_fetch import http_fetch
from support.servers.certificates import Authority

pytestmark = pytest.mark.real_time

AUTHORITY = Authority()
LOCAL = AUTHORITY.issue("127.0.0.1", "localhost")
NODES = Request(method="GET", path="/api/v1/nodes")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Raw = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class World:
    """Servers that live as long as the test."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self.folder = folder
        self._stack = stack

    async def serve(self, handler: Handler, *, secure: bool = True) -> str:
        """Serve `handler` for all paths, and return the address."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handler)
        runner = web.AppRunner(app, shutdown_timeout=0.01, access_log=None)
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        context = LOCAL.server_context(self.folder) if secure else None
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        return f"{'https' if secure else 'http'}://127.0.0.1:{runner.addresses[0][1]}"

    async def serve_raw(self, handler: Raw) -> str:
        """Serve bytes over plain HTTP, and return the address."""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await handler(reader, writer)
            except OSError:
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        self._stack.callback(server.close)
        return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Yield a world."""
    async with AsyncExitStack() as stack:
        yield World(tmp_path, stack)


def transport_to(
    server: str, *, credentials: Credentials = ANONYMOUS, ca: bytes | None = AUTHORITY.pem
) -> H11Transport:
    connection = Connection(
        server=server,
        context=IN_CLUSTER,
        source="test",
        user="test",
        credentials=credentials,
        tls=TlsClientConfig(ca_pem=ca),
    )
    return H11Transport(connection, clock=RealClock(), user_agent="test/1")


async def test_request_is_sent_unchanged_and_its_response_is_returned(world: World) -> None:
    received: list[tuple[str, str, str, bytes, str]] = []

    async def handle(request: web.Request) -> web.Response:
        headers = request.headers
        received.append(
            (request.method, request.path_qs, headers["Content-Type"], await request.read(), headers["User-Agent"])
        )
        return web.Response(status=201, body=b"x" * 200_000, headers={"X-Seen": "yes"})

    transport = transport_to(await world.serve(handle))
    request_to_send = Request(
        method="PATCH",
        path="/api/v1/nodes/a%2Fb",
        query=(("fieldManager", "a b"),),
        body=b'{"a": 1}',
        content_type="application/merge-patch+json",
    )
    response = await transport.send(request_to_send)
    assert (response.status, response.headers["x-seen"], len(response.body)) == (201, "yes", 200_000)
    target = "/api/v1/nodes/a%2Fb?fieldManager=a%20b"
    assert received == [("PATCH", target, "application/merge-patch+json", b'{"a": 1}', "test/1")]


async def test_stream_yields_whole_lines_and_ends_with_the_response(world: World) -> None:
    lines = [b"{}", b"x" * 300_000, b"last"]

    async def handle(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        for line in lines:
            await answer.write(line[:1])
            await answer.write(line[1:] + b"\n")
        return answer

    transport = transport_to(await world.serve(handle))
    async with transport.stream(NODES) as stream:
        assert [line async for line in stream.lines()] == lines


async def test_closing_a_stream_closes_its_connection(world: World) -> None:
    closed = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{}\n\r\n")
        await reader.read()
        closed.set()

    transport = transport_to(await world.serve_raw(handle))
    async with transport.stream(NODES) as stream:
        assert await anext(stream.lines()) == b"{}"
    async with asyncio.timeout(5):
        await closed.wait()


async def test_rotated_token_is_used_after_unauthorized(world: World) -> None:
    tokens: list[str] = []
    token = world.folder / "token"
    token.write_text("old")

    async def handle(request: web.Request) -> web.Response:
        tokens.append(request.headers["Authorization"])
        return web.Response(status=401 if tokens[-1] == "Bearer old" else 200)

    transport = transport_to(await world.serve(handle), credentials=TokenFile(token, clock=RealClock()))
    assert (await transport.send(NODES)).status == 401
    token.write_text("new")
    assert (await transport.send(NODES)).status == 200
    token.write_text("old")
    async with transport.stream(NODES) as stream:
        assert stream.status == 200  # the last token that was read is used for a minute
    assert tokens == ["Bearer old", "Bearer old", "Bearer new", "Bearer new"]


async def test_server_with_an_unknown_authority_receives_no_request(world: World) -> None:
    async def handle(_: web.Request) -> web.Response:
        raise AssertionError

    transport = transport_to(await world.serve(handle), ca=Authority().pem)
    with pytest.raises(Unreachable, match="signed by an unknown authority") as caught:
        await transport.send(NODES)
    assert not caught.value.sent


async def test_refused_connection_is_unsent_and_its_error_gives_advice() -> None:
    with pytest.raises(Unreachable, match="connection refused; is the API server up") as caught:
        await transport_to("http://127.0.0.1:9").send(NODES)
    assert not caught.value.sent


async def test_before_send_is_called_after_connecting_and_before_sending(world: World) -> None:
    async def handle(_: web.Request) -> web.Response:
        raise AssertionError

    def refuse() -> None:
        raise LeadershipLost("no more")

    transport = transport_to(await world.serve(handle))
    with pytest.raises(LeadershipLost):
        await transport.send(Request(method="PATCH", path="/x", body=b"{}", before_send=refuse))


@pytest.mark.parametrize(
    ("sent_bytes", "error"),
    [
        (b"", Unreachable),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", MalformedResponse),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", Unreachable),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", MalformedResponse),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx" + b"x" * 200_000, MalformedResponse),
        (b"HTTP/1.1 2x0 OK\r\n\r\n", MalformedResponse),
        (b"HTTP/1.1 200 OK\r\n" + b"x" * 100_000, MalformedResponse),
    ],
)
async def test_malformed_or_truncated_response_is_an_error(
    world: World, sent_bytes: bytes, error: type[KubeError]
) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(sent_bytes)
        await writer.drain()

    transport = transport_to(await world.serve_raw(handle))
    with pytest.raises(error) as caught:
        await transport.send(NODES)
    assert not isinstance(caught.value, Unreachable) or caught.value.sent
    with pytest.raises(CloudError) as cloud_error:
        await http_fetch(transport.server)("GET", "/x", headers={})
    assert cloud_error.value.status == 0


async def test_missing_response_times_out_as_sent(world: World) -> None:
    async def handle(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    address = await world.serve_raw(handle)
    with pytest.raises(Unreachable, match=r"no answer within 0\.1 s") as caught:
        await transport_to(address).send(Request(method="GET", path="/x", timeout=timedelta(seconds=0.1)))
    assert caught.value.sent
    with pytest.raises(CloudError, match=r"no answer within 0\.1 s"):
        await http_fetch(address)("GET", "/x", headers={}, within=timedelta(seconds=0.1))


async def test_truncated_stream_raises_unreachable(world: World) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nline\n\r\n9\r\nhal")
        await writer.drain()

    transport = transport_to(await world.serve_raw(handle))
    async with transport.stream(NODES) as stream:
        lines = stream.lines()
        assert await anext(lines) == b"line"
        with pytest.raises(Unreachable, match="broke off"):
            await anext(lines)


async def test_error_response_of_a_stream_is_one_line(world: World) -> None:
    async def handle(_: web.Request) -> web.Response:
        return web.Response(status=410, text='{"kind":\n"Status"}')

    transport = transport_to(await world.serve(handle))
    async with transport.stream(NODES) as stream:
        assert [line async for line in stream.lines()] == [b'{"kind":\n"Status"}']


async def test_metadata_service_requests_ignore_proxy_environment_variables(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def handle(request: web.Request) -> web.Response:
        return web.Response(text=f"{request.method} {request.path_qs} {request.headers['Metadata']}")

    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    address = await world.serve(handle, secure=False)
    answer = await http_fetch(f"{address}/azure/vm")("POST", "/x?a=b", headers={"Metadata": "true"}, body=b"")
    assert answer.body == b"POST /azure/vm/x?a=b true"


async def test_invalid_header_value_is_not_in_the_error(world: World) -> None:
    async def handle(_: web.Request) -> web.Response:
        raise AssertionError

    transport = transport_to(await world.serve(handle))
    with pytest.raises(ValueError, match="characters that HTTP does not allow") as caught:
        await transport.send(Request(method="GET", path="/x", headers=(("X-Token", "secret\r\nX: y"),)))
    assert "secret" not in repr(caught.value)


def test_minimal_transport_with_a_proxy_is_the_aiohttp_transport() -> None:
    connection = Connection(
        server="https://x", context="x", source="x", user="x", credentials=ANONYMOUS, proxy="http://proxy:1"
    )
    assert isinstance(minimal_transport(connection, clock=RealClock(), user_agent="x"), HttpTransport)


def test_agent_imports_neither_aiohttp_nor_drain_modules() -> None:
    """Its imports take memory on every node."""
    code = (
        "import sys, haulout.cli.agent, haulout.app.agent, haulout.app.logs, haulout.cli.asyncio_runner;"
        "import haulout.providers.azure.event_source, haulout.httpserver.metrics;"
        "print(*sorted(it for it in sys.modules if it in ('aiohttp', 'uvloop', 'email')"
        " or it.startswith(('haulout.drain', 'haulout.controllers.profiles', "
        "'haulout_sandbox', 'haulout.httpserver.', 'haulout.dashboard', 'haulout.webhook'))))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["haulout.httpserver.metrics"]  # with --metrics-port
