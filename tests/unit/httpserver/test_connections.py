"""Connection limits: peers that only use connections, time or memory are closed, and requests are answered."""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta

import aiohttp
import pytest
from aiohttp import web

from haulout.core.clock import RealClock
from haulout.core.key_pair import KeyPair
from haulout.core.metrics import MetricVec
from haulout.httpserver import connections
from haulout.httpserver.connections import BufferLimit, ConnectionLimits
from haulout.httpserver.listener import listen
from support.expectations.eventually import eventually
from support.servers.certificates import Authority

HOST, ELSEWHERE = "127.0.0.1", "127.0.0.2"
REQUEST = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
A_MOMENT = timedelta(milliseconds=50)
EVER = timedelta(hours=1)
LARGE = 4 << 20

pytestmark = pytest.mark.every_loop


@pytest.fixture(autouse=True)
def _frequent_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check deadlines more often than once a second."""
    monkeypatch.setattr(connections, "SWEEP_EVERY", timedelta(milliseconds=50))


def limits(*, max_connections: int = 10, **deadlines: timedelta) -> ConnectionLimits:
    usual = dict.fromkeys(("handshake", "headers", "body", "read", "idle"), EVER)
    return ConnectionLimits(server="test", max_connections=max_connections, **usual | deadlines)


class Server:
    """Answers `/` at once, `/wait` when `may_respond` is set, `/large` with megabytes, `/echo` with the body's size."""

    def __init__(self) -> None:
        self.may_respond = asyncio.Event()
        self.requests = 0

    @asynccontextmanager
    async def listen(self, limits: ConnectionLimits, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
        """Listen while the context lasts; yields the port."""
        app = web.Application(client_max_size=2 * LARGE)
        app.router.add_get("/", self._hello)
        app.router.add_get("/wait", self._wait)
        app.router.add_get("/large", self._large)
        app.router.add_post("/echo", self._echo)
        async with listen(app, host=None, port=0, what="a test", limits=limits, tls=tls) as port:
            yield port

    async def _hello(self, _: web.Request) -> web.Response:
        return web.Response(text="hello")

    async def _wait(self, _: web.Request) -> web.Response:
        self.requests += 1
        await self.may_respond.wait()
        return web.Response(text="hello")

    async def _large(self, _: web.Request) -> web.Response:
        return web.Response(body=b"x" * LARGE)

    async def _echo(self, request: web.Request) -> web.Response:
        self.requests += 1
        return web.Response(text=f"{len(await request.read())} bytes")


class Peer:
    """One connection, which reads nothing by itself."""

    def __init__(self, port: int, *, address: str = HOST) -> None:
        self._socket = socket.create_connection((HOST, port), source_address=(address, 0))
        self._socket.setblocking(False)
        self._loop = asyncio.get_running_loop()

    async def send(self, data: bytes) -> None:
        """Send it all."""
        await self._loop.sock_sendall(self._socket, data)

    async def receive(self, end: bytes) -> bytes:
        """Return what comes, up to `end`."""
        received = b""
        async with asyncio.timeout(10):
            while not received.endswith(end):
                piece = await self._loop.sock_recv(self._socket, 1 << 16)
                assert piece, f"closed after {received!r}"
                received += piece
        return received

    async def is_closed(self) -> bool:
        """Read whatever comes, to its end."""
        async with asyncio.timeout(10):
            try:
                while await self._loop.sock_recv(self._socket, 1 << 16):
                    pass
            except ConnectionError:
                pass
        return True

    @property
    def is_open(self) -> bool:
        """Whether the server has not closed it."""
        try:
            return bool(self._socket.recv(1, socket.MSG_PEEK))
        except BlockingIOError:
            return True
        except ConnectionError:
            return False

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


@asynccontextmanager
async def peers(port: int, count: int = 1, *, address: str = HOST) -> AsyncIterator[list[Peer]]:
    opened_peers = [Peer(port, address=address) for _ in range(count)]
    try:
        yield opened_peers
    finally:
        for peer in opened_peers:
            peer.close()


async def is_answered(port: int, *, address: str = HOST) -> bool:
    async with peers(port, address=address) as (peer,):
        await peer.send(REQUEST)
        return (await peer.receive(b"hello")).startswith(b"HTTP/1.1 200")


def closed(reason: str) -> float:
    return metric_value(connections.collect(), "haulout_http_connections_closed_total", "test", reason)


def opened() -> float:
    return metric_value(connections.collect(), "haulout_http_connections", "test")


def metric_value(counters: Iterable[MetricVec], name: str, *labels: str) -> float:
    return next(counter.values.get(labels, 0) for counter in counters if counter.metric.name == name)


# Deadlines


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nX-Slow: "])
async def test_connection_without_a_request_is_closed(sent: bytes) -> None:
    before = closed("headers")
    async with Server().listen(limits(headers=A_MOMENT)) as port, peers(port) as (peer,):
        await peer.send(sent)
        assert await peer.is_closed()
        assert closed("headers") == before + 1


async def test_connection_with_incomplete_headers_of_a_second_request_is_closed() -> None:
    async with Server().listen(limits(headers=A_MOMENT)) as port, peers(port) as (peer,):
        await peer.send(REQUEST)
        await peer.receive(b"hello")
        await peer.send(REQUEST[:-2])
        assert await peer.is_closed()


async def test_idle_keep_alive_connection_is_closed_after_the_idle_timeout() -> None:
    async with Server().listen(limits(headers=A_MOMENT)) as port, peers(port) as (peer,):
        await peer.send(REQUEST)
        await peer.receive(b"hello")
        async with peers(port) as (silent,):
            assert await silent.is_closed()  # the header timeout has passed, too
        assert peer.is_open
        await peer.send(REQUEST)
        await peer.receive(b"hello")
    async with Server().listen(limits(idle=A_MOMENT)) as port, peers(port) as (peer,):
        await peer.send(REQUEST)
        assert await peer.is_closed()


@pytest.mark.parametrize("path", [b"/echo", b"/"])
async def test_connection_with_a_slow_request_body_is_closed(path: bytes) -> None:
    method = b"POST" if path == b"/echo" else b"GET"
    async with Server().listen(limits(body=A_MOMENT, headers=A_MOMENT)) as port, peers(port) as (peer,):
        await peer.send(method + b" " + path + b" HTTP/1.1\r\nHost: here\r\nContent-Length: 100\r\n\r\nhalf")
        assert await peer.is_closed()


async def test_connection_that_does_not_read_its_response_is_closed() -> None:
    before = closed("read")
    async with Server().listen(limits(read=A_MOMENT)) as port, peers(port) as (peer,):
        await peer.send(REQUEST.replace(b"/", b"/large", 1))
        await eventually(RealClock(), lambda: closed("read") == before + 1)
        await eventually(RealClock(), lambda: opened() == 0)


async def test_slow_handler_is_not_subject_to_connection_timeouts() -> None:
    server = Server()
    every = limits(headers=A_MOMENT, body=A_MOMENT, read=A_MOMENT, idle=A_MOMENT)
    async with server.listen(every) as port, peers(port) as (peer,):
        await peer.send(REQUEST.replace(b"/", b"/wait", 1))
        await eventually(RealClock(), lambda: server.requests)
        async with peers(port) as (silent,):
            assert await silent.is_closed()
        server.may_respond.set()
        assert (await peer.receive(b"hello")).startswith(b"HTTP/1.1 200")


# TLS


def a_context() -> ssl.SSLContext:
    issued = Authority().issue(HOST)
    return KeyPair(issued.cert_pem, issued.key_pem).server_context()


async def test_connection_without_a_tls_handshake_is_counted_and_closed() -> None:
    before = closed("handshake")
    async with (
        Server().listen(limits(handshake=A_MOMENT), tls=a_context()) as port,
        peers(port, 2) as (peer, other_peer),
    ):
        await eventually(RealClock(), lambda: opened() == 2)
        await other_peer.send(b"\x16\x03\x01")
        assert await peer.is_closed()
        assert await other_peer.is_closed()
        assert (closed("handshake"), opened()) == (before + 2, 0)


async def test_silent_connections_do_not_block_tls_handshakes() -> None:
    async with (
        Server().listen(limits(max_connections=4), tls=a_context()) as port,
        peers(port, 20),
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session,
        session.get(f"https://{HOST}:{port}/") as response,
    ):
        assert await response.text() == "hello"
        assert opened() <= 4


async def test_failed_tls_handshake_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A port scan, a plain request to a TLS port, a closed connection: none of these belongs into the log."""
    with caplog.at_level(logging.INFO):
        async with Server().listen(limits(), tls=a_context()) as port, peers(port, 2) as (plain, closed_peer):
            await plain.send(REQUEST)
            await closed_peer.send(b"\x16\x03\x01\x00\xff")
            closed_peer.close()
            assert await plain.is_closed()
            await eventually(RealClock(), lambda: opened() == 0)
    assert not caplog.records


# Number of connections


async def test_new_connection_replaces_the_longest_idle_one() -> None:
    async with Server().listen(limits(max_connections=6)) as port, peers(port, 3) as (first, second, third):
        for peer in (first, second, third):
            await peer.send(REQUEST)
            await peer.receive(b"hello")
        await first.send(REQUEST)
        await first.receive(b"hello")
        assert await is_answered(port)
        assert await second.is_closed()
        assert (first.is_open, third.is_open) == (True, True)


async def test_one_address_gets_at_most_half_of_the_connections() -> None:
    async with Server().listen(limits(max_connections=6)) as port, peers(port, 20):
        await eventually(RealClock(), lambda: opened() == 3)
        async with peers(port, 3, address=ELSEWHERE) as other_peers:
            await eventually(RealClock(), lambda: opened() == 6)
            assert await is_answered(port)
            assert all(peer.is_open for peer in other_peers)


async def test_full_port_closes_a_connection_of_the_address_with_the_most() -> None:
    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(Server().listen(limits(max_connections=6)))
        (oldest,) = await stack.enter_async_context(peers(port, address=ELSEWHERE))
        await stack.enter_async_context(peers(port, 3))
        await stack.enter_async_context(peers(port, 2, address="127.0.0.3"))
        await eventually(RealClock(), lambda: opened() == 6)
        assert await is_answered(port, address="127.0.0.4")
        assert oldest.is_open


async def test_connection_is_refused_only_if_all_others_are_active() -> None:
    server, before = Server(), closed("refused")
    async with server.listen(limits(max_connections=4)) as port, peers(port, 2) as busy:
        for peer in busy:
            await peer.send(REQUEST.replace(b"/", b"/wait", 1))
        await eventually(RealClock(), lambda: server.requests == 2)
        async with peers(port) as (refused,):
            assert await refused.is_closed()
        assert closed("refused") == before + 1
        server.may_respond.set()
        for peer in busy:
            assert (await peer.receive(b"hello")).startswith(b"HTTP/1.1 200")
        assert await is_answered(port)


async def test_slow_request_bodies_do_not_exhaust_the_connections() -> None:
    server = Server()
    async with server.listen(limits(max_connections=4)) as port, peers(port, 10) as slow:
        for peer in slow[-2:]:
            await peer.send(b"POST /echo HTTP/1.1\r\nHost: here\r\nContent-Length: 100\r\n\r\nhalf")
        await eventually(RealClock(), lambda: server.requests == 2)
        assert await is_answered(port)


# Memory


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> BufferLimit:
    memory = BufferLimit(LARGE)
    monkeypatch.setattr(connections, "_MEMORY", memory)
    return memory


async def test_largest_request_body_is_dropped_when_the_memory_limit_is_exceeded(memory: BufferLimit) -> None:
    def head(size: int) -> bytes:
        return b"POST /echo HTTP/1.1\r\nHost: here\r\nContent-Length: %d\r\n\r\n" % size

    server, before, quarter = Server(), closed("memory"), memory.max_bytes // 4
    async with server.listen(limits()) as port, peers(port, 3) as (small, *large):
        await small.send(head(quarter) + b"x" * (quarter - 1))
        for peer in large:
            with suppress(ConnectionError):
                await peer.send(head(LARGE) + b"x" * (2 * quarter))
        await eventually(RealClock(), lambda: closed("memory") == before + 1)
        assert sum(peer.is_open for peer in large) == 1
        await small.send(b"x")
        assert (await small.receive(b"bytes")).startswith(b"HTTP/1.1 200")


@pytest.mark.usefixtures("memory")
async def test_unread_responses_are_limited_in_memory() -> None:
    before = closed("memory")
    async with Server().listen(limits()) as port, peers(port, 4) as unread_peers:
        for peer in unread_peers:
            await peer.send(REQUEST.replace(b"/", b"/large", 1))
        await eventually(RealClock(), lambda: closed("memory") >= before + 2)
        assert await is_answered(port)


async def test_compressed_request_body_is_not_decompressed() -> None:
    """A body of some kilobytes would become gigabytes."""
    async with Server().listen(limits()) as port, aiohttp.ClientSession() as session:
        packed = {"Content-Encoding": "deflate"}
        async with session.post(f"http://{HOST}:{port}/echo", data=b"\x00" * 100, headers=packed) as response:
            assert (response.status, await response.text()) == (200, "100 bytes")
