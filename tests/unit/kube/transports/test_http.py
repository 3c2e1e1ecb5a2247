"""The transport against real servers on loopback: the requests that arrive, and the errors of failures."""

import asyncio
import contextlib
import gzip
import itertools
import random
import re
import socket
import ssl
import threading
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from haulout.cli.asyncio_runner import run
from haulout.core.clock import Clock, RealClock
from haulout.errors import CredentialsError, KubeError, LeadershipLost, LimitExceeded, MalformedResponse, Unreachable
from haulout.kube.limits import OWN_CLUSTER, Limits
from haulout.kube.transport import Request, Transport
from haulout.kube.transports import http
from haulout.kube.transports.config import Connection
from haulout.kube.transports.credentials import (
    ANONYMOUS,
    CertificateFiles,
    Credentials,
    Identity,
    StaticCredentials,
    TokenFile,
)
from haulout.kube.transports.exec_plugin import ExecPlugin, ExecSpec
from haulout.kube.transports.http import HttpTransport
from haulout.kube.transports.tls import TlsClientConfig, client_context
from support.servers.certificates import Authority, IssuedCertificate

pytestmark = pytest.mark.real_time

AUTHORITY = Authority()
LOCAL = AUTHORITY.issue("127.0.0.1", "localhost")
ALICE, ALICE_LATER = AUTHORITY.issue("alice"), AUTHORITY.issue("alice")
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
LISTENING = "is the API server overloaded, or is something else listening there?"
NODES = Request(method="GET", path="/api/v1/nodes")
WATCH = Request(method="GET", path="/api/v1/nodes", query=(("watch", "true"),))

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
RawHandler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class World:
    """Servers and transports that live as long as the test."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self.folder = folder
        self._stack = stack

    async def serve(
        self, handler: Handler, *, certificate: IssuedCertificate | None = LOCAL, clients: Authority | None = None
    ) -> str:
        """Serve `handler` for all paths, and return the address."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handler)
        runner = web.AppRunner(app, shutdown_timeout=0.01, access_log=None)
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        context = certificate.server_context(self.folder, clients=clients) if certificate else None
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        return f"{'https' if certificate else 'http'}://127.0.0.1:{runner.addresses[0][1]}"

    async def serve_raw(self, handler: RawHandler, *, context: ssl.SSLContext | None = None) -> int:
        """Serve bytes, and return the port."""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await handler(reader, writer)
            except (OSError, asyncio.IncompleteReadError):
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
        self._stack.callback(server.close)
        return int(server.sockets[0].getsockname()[1])

    def transport(
        self,
        server: str,
        *,
        credentials: Credentials = ANONYMOUS,
        connections: int = 100,
        limits: Limits = OWN_CLUSTER,
        **more: Any,
    ) -> HttpTransport:
        """Return a transport that is closed when the test ends."""
        parts: dict[str, Any] = {
            "tls": TlsClientConfig(AUTHORITY.pem),
            "context": "dev",
            "source": "config",
            "user": "alice",
            **more,
        }
        connection = Connection(server=server, credentials=credentials, **parts)
        transport = HttpTransport(connection, clock=RealClock(), connections=connections, limits=limits)
        self._stack.push_async_callback(transport.close)
        return transport


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        yield World(tmp_path, stack)


async def failure_of(transport: Transport, request: Request = NODES) -> KubeError:
    with pytest.raises(KubeError) as caught:
        await transport.send(request)
    assert "\n" not in str(caught.value)
    return caught.value


async def unreachable(transport: Transport, request: Request = NODES) -> Unreachable:
    error = await failure_of(transport, request)
    assert isinstance(error, Unreachable)
    return error


async def ok(_: web.Request) -> web.Response:
    return web.json_response({})


async def read_request(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"\r\n\r\n")


# Requests


async def test_response_of_many_tls_records_is_complete(world: World) -> None:
    body = random.Random(1).randbytes(1_000_000)

    async def handler(_: web.Request) -> web.Response:
        return web.Response(body=body)

    assert (await world.transport(await world.serve(handler)).send(NODES)).body == body


def test_tls_read_allocates_at_most_one_record() -> None:
    connection = client_context(TlsClientConfig(AUTHORITY.pem), None, owner="alice").wrap_bio(
        ssl.MemoryBIO(), ssl.MemoryBIO()
    )
    tracemalloc.start()
    try:
        with pytest.raises(ssl.SSLWantReadError):
            connection.read(1 << 18)
        assert tracemalloc.get_traced_memory()[1] < 1 << 16
    finally:
        tracemalloc.stop()


async def test_request_is_sent_unchanged_with_its_headers(world: World) -> None:
    received: dict[str, Any] = {}

    async def handler(request: web.Request) -> web.Response:
        received.update(
            method=request.method, target=request.raw_path, body=await request.read(), headers=request.headers
        )
        return web.json_response({"kind": "Status"}, status=201, headers={"Retry-After": "1"})

    credentials = StaticCredentials(Identity("Bearer t"))
    transport = world.transport(await world.serve(handler), credentials=credentials)
    response = await transport.send(
        Request(
            method="PATCH",
            path="/api/v1/nodes/n1",
            query=(("dryRun", "All"),),
            body=b"[]",
            content_type="application/json-patch+json",
        )
    )
    assert (response.status, response.body, response.headers["retry-after"]) == (201, b'{"kind": "Status"}', "1")
    assert (received["method"], received["target"], received["body"]) == ("PATCH", "/api/v1/nodes/n1?dryRun=All", b"[]")
    assert received["headers"]["Authorization"] == "Bearer t"
    assert received["headers"]["Accept"] == "application/json"
    assert received["headers"]["Content-Type"] == "application/json-patch+json"
    assert received["headers"]["User-Agent"].startswith("haulout/")


async def test_paths_and_queries_are_sent_exactly(world: World) -> None:
    targets: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        targets.append(request.raw_path)
        return web.Response()

    transport = world.transport(await world.serve(handler))
    query = (("labelSelector", "a in (b,c),d!=é"), ("fieldSelector", "spec.nodeName=n+1&x"), ("x", ""), ("x", "%2F"))
    await transport.send(Request(method="GET", path="/r/system%3Anode:a/b%2Fc d", query=query))
    target, given = targets[0].split("?")
    assert target == "/r/system%3Anode:a/b%2Fc%20d"
    assert given.split("&") == [
        "labelSelector=a%20in%20%28b%2Cc%29%2Cd%21%3D%C3%A9",
        "fieldSelector=spec.nodeName%3Dn%2B1%26x",
        "x=",
        "x=%252F",
    ]


async def test_a_server_address_may_have_a_path(world: World) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(text=request.raw_path)

    transport = world.transport(await world.serve(handler) + "/k8s/clusters/c-abc")
    assert (await transport.send(NODES)).body == b"/k8s/clusters/c-abc/api/v1/nodes"


async def test_all_impersonation_headers_are_sent(world: World) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.json_response([request.headers["Impersonate-User"], request.headers.getall("Impersonate-Group")])

    headers = (("Impersonate-User", "bob"), ("Impersonate-Group", "a"), ("Impersonate-Group", "b"))
    transport = world.transport(await world.serve(handler), impersonation=headers)
    assert (await transport.send(NODES)).body == b'["bob", ["a", "b"]]'


async def test_impersonation_headers_of_a_request_replace_those_of_the_transport(world: World) -> None:
    async def handler(request: web.Request) -> web.Response:
        names = [name for name in request.headers if name.lower().startswith(("impersonate-", "x-"))]
        found = [[str(name), request.headers.getall(name)] for name in dict.fromkeys(names)]
        return web.Response(body=msgspec.json.encode(found) + b"\n")

    headers = (("Impersonate-User", "bob"), ("Impersonate-Group", "a"))
    transport = world.transport(await world.serve(handler), impersonation=headers)
    as_eve = msgspec.structs.replace(NODES, headers=(("impersonate-user", "eve"), ("X-A", "1"), ("X-A", "2")))
    sent = msgspec.json.decode((await transport.send(as_eve)).body)
    assert sent == [["impersonate-user", ["eve"]], ["X-A", ["1", "2"]]]
    tagged = msgspec.structs.replace(NODES, headers=(("X-A", "1"),))
    async with transport.stream(tagged) as stream:
        (line,) = [msgspec.json.decode(line) async for line in stream.lines()]
    assert line == [["X-A", ["1"]], ["Impersonate-User", ["bob"]], ["Impersonate-Group", ["a"]]]


async def test_compressed_responses_are_decompressed(world: World) -> None:
    async def handler(request: web.Request) -> web.Response:
        assert request.headers["Accept-Encoding"] == "gzip"
        return web.Response(body=gzip.compress(b"plain"), headers={"Content-Encoding": "gzip"})

    assert (await world.transport(await world.serve(handler)).send(NODES)).body == b"plain"


async def test_redirects_are_not_followed_and_cookies_not_kept(world: World) -> None:
    async def handler(request: web.Request) -> web.Response:
        assert "Cookie" not in request.headers
        answer = web.Response(status=302, headers={"Location": "/login"})
        answer.set_cookie("session", "1")
        return answer

    server = await world.serve(handler, certificate=None)
    transport = world.transport(server.replace("127.0.0.1", "localhost"))  # addresses never get cookies
    assert (await transport.send(NODES)).status == 302
    assert (await transport.send(NODES)).headers["location"] == "/login"


# Identity


async def test_client_certificate_is_sent_to_the_server(world: World) -> None:
    async def handler(request: web.Request) -> web.Response:
        assert request.transport is not None
        return web.Response(text=str(request.transport.get_extra_info("peercert")["subject"]))

    server = await world.serve(handler, clients=AUTHORITY)
    transport = world.transport(server, credentials=StaticCredentials(Identity(None, ALICE.client_certificate)))
    assert b"alice" in (await transport.send(NODES)).body


async def test_private_keys_leave_no_temporary_file(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = world.folder / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    server = await world.serve(ok, clients=AUTHORITY)
    assert (
        await world.transport(server, credentials=StaticCredentials(Identity(None, ALICE.client_certificate))).send(
            NODES
        )
    ).status == 200
    assert list(folder.iterdir()) == []


async def test_changed_certificate_is_used_at_once_and_open_streams_continue(world: World) -> None:
    """The old connections end with the last stream that uses them."""
    serials: list[str] = []
    may_continue = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        serials.append(request.transport.get_extra_info("peercert")["serialNumber"])
        answer = web.StreamResponse()
        await answer.prepare(request)
        if "watch" in request.query:
            await answer.write(b"one\n")
            await may_continue.wait()
            await answer.write(b"two\n")
        return answer

    cert, key = world.folder / "tls.crt", world.folder / "tls.key"
    cert.write_bytes(ALICE.cert_pem)
    key.write_bytes(ALICE.key_pem)
    credentials = CertificateFiles(cert, key, owner="alice", clock=RealClock())
    transport = world.transport(await world.serve(handler, clients=AUTHORITY), credentials=credentials)
    async with transport.stream(WATCH) as stream:
        lines = stream.lines()
        assert await anext(lines) == b"one"
        cert.write_bytes(ALICE_LATER.cert_pem)
        key.write_bytes(ALICE_LATER.key_pem)
        await credentials.refresh(await credentials.current())
        await transport.send(NODES)
        assert len(set(serials)) == 2
        assert len(transport._pools) == 2
        may_continue.set()
        assert [line async for line in lines] == [b"two"]
    assert len(transport._pools) == 1
    await transport.send(NODES)
    assert serials[-1] == serials[-2]


async def test_rotated_token_is_used_after_unauthorized(world: World) -> None:
    token = world.folder / "token"
    token.write_text("new")

    async def handler(request: web.Request) -> web.Response:
        if request.headers["Authorization"] == "Bearer new":
            return web.Response(text="welcome")
        token.write_text("new")
        return web.Response(status=401, text="who?")

    token.write_text("old")
    credentials = TokenFile(token, clock=RealClock())
    transport = world.transport(await world.serve(handler), credentials=credentials)
    assert (await transport.send(NODES)).body == b"welcome"
    token.write_text("old")
    transport = world.transport(transport.server, credentials=TokenFile(token, clock=RealClock()))
    async with transport.stream(NODES) as stream:
        assert stream.status == 200


@pytest.mark.parametrize("request_", [NODES, Request(method="POST", path="/api/v1/nodes", body=b"{}")])
async def test_unauthorized_with_fresh_credentials_is_returned(world: World, request_: Request) -> None:
    requests: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        requests.append(request.headers["Authorization"])
        (world.folder / "token").write_text(f"t{len(requests)}")
        return web.Response(status=401, text="no")

    (world.folder / "token").write_text("t0")
    credentials = TokenFile(world.folder / "token", clock=RealClock())
    transport = world.transport(await world.serve(handler), credentials=credentials)
    assert (await transport.send(request_)).status == 401
    assert requests == ["Bearer t0", "Bearer t1"]
    async with transport.stream(NODES) as stream:
        assert (stream.status, [line async for line in stream.lines()]) == (401, [b"no"])
    assert len(requests) == 4


async def test_unauthorized_is_not_retried_with_the_same_credentials(world: World) -> None:
    requests: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        requests.append(request.path)
        return web.Response(status=401)

    transport = world.transport(await world.serve(handler), credentials=StaticCredentials(Identity("Bearer t")))
    assert (await transport.send(NODES)).status == 401
    async with transport.stream(NODES) as stream:
        assert stream.status == 401
    assert len(requests) == 2


async def test_concurrent_unauthorized_responses_run_the_exec_plugin_once(world: World) -> None:
    plugin = world.folder / "plugin"
    answer = '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"t%s"}}'
    plugin.write_text(f"#!/bin/sh\ncd {world.folder}; printf x >> runs; printf '{answer}' $(wc -c < runs)\n")
    plugin.chmod(0o700)
    spec = ExecSpec(command=str(plugin), api_version="client.authentication.k8s.io/v1")
    all_arrived = asyncio.Barrier(30)

    async def handler(request: web.Request) -> web.Response:
        if request.headers["Authorization"] == "Bearer t1":
            await all_arrived.wait()
            return web.Response(status=401)
        return web.Response()

    credentials = ExecPlugin(spec, clock=RealClock())
    transport = world.transport(await world.serve(handler), credentials=credentials)
    answers = await asyncio.gather(*(transport.send(NODES) for _ in range(30)))
    assert {answer.status for answer in answers} == {200}
    assert (world.folder / "runs").read_text() == "xx"


async def test_unauthorized_with_an_expired_client_certificate_names_the_expiry(world: World) -> None:
    """An API server answers 401 without a reason."""

    async def handler(_: web.Request) -> web.Response:
        return web.Response(status=401)

    expired = AUTHORITY.issue("alice", starts=LONG_AGO, ends=LONG_AGO + timedelta(days=1))
    transport = world.transport(
        await world.serve(handler), credentials=StaticCredentials(Identity(None, expired.client_certificate))
    )
    expected = (
        f"{transport.server} refused us: the client certificate of user 'alice' in config "
        "expired on 2020-01-02 00:00:00 UTC; get a new one"
    )
    assert str(await failure_of(transport)) == expected
    with pytest.raises(CredentialsError, match="expired on 2020-01-02"):
        async with transport.stream(NODES):
            pass


async def test_unauthorized_with_a_renewed_certificate_does_not_name_the_expiry(world: World) -> None:
    """The first response is to the expired certificate, the second to its valid successor, which is not expired."""

    async def handler(_: web.Request) -> web.Response:
        cert.write_bytes(ALICE.cert_pem)
        key.write_bytes(ALICE.key_pem)
        return web.Response(status=401)

    expired = AUTHORITY.issue("alice", starts=LONG_AGO, ends=LONG_AGO + timedelta(days=1))
    cert, key = world.folder / "tls.crt", world.folder / "tls.key"
    server = await world.serve(handler)
    cert.write_bytes(expired.cert_pem)
    key.write_bytes(expired.key_pem)
    transport = world.transport(server, credentials=CertificateFiles(cert, key, owner="alice", clock=RealClock()))
    assert (await transport.send(NODES)).status == 401
    cert.write_bytes(expired.cert_pem)
    key.write_bytes(expired.key_pem)
    transport = world.transport(server, credentials=CertificateFiles(cert, key, owner="alice", clock=RealClock()))
    async with transport.stream(NODES) as stream:
        assert stream.status == 401


async def test_certificate_and_key_that_do_not_match_are_an_error(world: World) -> None:
    mixed = IssuedCertificate(ALICE.cert_pem, ALICE_LATER.key_pem)
    transport = world.transport(
        await world.serve(ok), credentials=StaticCredentials(Identity(None, mixed.client_certificate))
    )
    assert str(await failure_of(transport)) == (
        "the client certificate and the private key of user 'alice' in config do not belong together"
    )


# Server certificates


async def connect_error(world: World, certificate: IssuedCertificate, tls: TlsClientConfig | None = None) -> str:
    transport = world.transport(
        await world.serve(ok, certificate=certificate), tls=tls or TlsClientConfig(AUTHORITY.pem)
    )
    error = await unreachable(transport)
    assert not error.sent
    prefix = f"cannot connect to {transport.server}: "
    assert str(error).startswith(prefix)
    return str(error).removeprefix(prefix)


async def test_expired_server_certificate_is_reported(world: World) -> None:
    certificate = AUTHORITY.issue("127.0.0.1", starts=LONG_AGO, ends=LONG_AGO + timedelta(days=1))
    assert await connect_error(world, certificate) == (
        "the server's certificate has expired; renew it, or check this machine's clock"
    )


async def test_server_certificate_not_valid_yet_is_reported(world: World) -> None:
    certificate = AUTHORITY.issue("127.0.0.1", starts=RealClock().now() + timedelta(days=1))
    assert await connect_error(world, certificate) == (
        "the server's certificate is not valid yet; check this machine's clock"
    )


@pytest.mark.parametrize(
    ("tls", "advice"),
    [
        (TlsClientConfig(Authority("another").pem), "; is certificate-authority that of this cluster?"),
        (
            TlsClientConfig(),
            ", and there is no certificate-authority, so that only this system's count; set the cluster's",
        ),
    ],
)
async def test_unknown_certificate_authority_is_reported(world: World, tls: TlsClientConfig, advice: str) -> None:
    assert (
        await connect_error(world, LOCAL, tls) == f"the server's certificate is signed by an unknown authority{advice}"
    )


@pytest.mark.parametrize(("server_name", "host"), [(None, "127.0.0.1"), ("api.example.com", "api.example.com")])
async def test_server_certificate_for_another_host_is_reported(
    world: World, server_name: str | None, host: str
) -> None:
    assert await connect_error(world, AUTHORITY.issue("elsewhere"), TlsClientConfig(AUTHORITY.pem, server_name)) == (
        f"the server's certificate is not for {host}; correct the address, or set tls-server-name"
    )


@pytest.mark.parametrize(
    "tls",
    [TlsClientConfig(AUTHORITY.pem, server_name="kubernetes"), TlsClientConfig(insecure=True)],
    ids=["server-name", "insecure"],
)
async def test_server_name_or_insecure_accepts_a_certificate_for_another_host(
    world: World, tls: TlsClientConfig
) -> None:
    server = await world.serve(ok, certificate=AUTHORITY.issue("kubernetes"))
    assert (await world.transport(server, tls=tls).send(NODES)).status == 200


async def test_self_signed_server_certificate_can_be_the_ca(world: World) -> None:
    transport = world.transport(await world.serve(ok), tls=TlsClientConfig(LOCAL.cert_pem))
    assert (await transport.send(NODES)).status == 200


@pytest.mark.parametrize(
    ("certificate", "problem"),
    [
        (None, r"the server refused our client certificate \(.*certificate required\)"),
        (Authority("another").issue("alice"), r"the server refused our client certificate \(.*unknown ca\)"),
        (
            AUTHORITY.issue("alice", starts=LONG_AGO, ends=LONG_AGO + timedelta(days=1)),
            "the server refused our client certificate because it has expired; get a new one",
        ),
    ],
    ids=["none", "foreign", "expired"],
)
async def test_rejected_client_certificate_is_reported(
    world: World, certificate: IssuedCertificate | None, problem: str
) -> None:
    context = LOCAL.server_context(world.folder, clients=AUTHORITY)
    credentials = StaticCredentials(Identity(None, certificate.client_certificate)) if certificate else ANONYMOUS
    request = Request(method="POST", path="/api/v1/nodes", body=b"{}")
    with socket.create_server(("127.0.0.1", 0)) as server:
        transport = world.transport(f"https://127.0.0.1:{server.getsockname()[1]}", credentials=credentials)
        error, _ = await asyncio.gather(unreachable(transport, request), asyncio.to_thread(_refuse, server, context))
    assert re.search(problem, str(error))
    assert not error.sent, "the server never read the request"


def _refuse(server: socket.socket, context: ssl.SSLContext) -> None:
    """Do a TLS handshake as a Go server does: asyncio's server closes the connection without an alert."""
    connection, _ = server.accept()
    with connection:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        session = context.wrap_bio(incoming, outgoing, server_side=True)
        with contextlib.suppress(ssl.SSLError):
            while True:
                try:
                    session.do_handshake()
                except ssl.SSLWantReadError:
                    connection.sendall(outgoing.read())
                    incoming.write(connection.recv(65536))
        connection.sendall(outgoing.read())
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass


# No connection


async def test_refused_connection_error_gives_advice(world: World) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        transport = world.transport(f"https://127.0.0.1:{unused.getsockname()[1]}")
        error = await unreachable(transport)
    assert not error.sent
    assert str(error) == (
        f"cannot connect to {transport.server}: connection refused; "
        "is the cluster up, and is context 'dev' of config the right one?"
    )


async def test_refused_connection_error_in_a_pod_mentions_network_policies(world: World) -> None:
    transport = world.transport("https://127.0.0.1:1", context="in-cluster")
    assert str(await unreachable(transport)).endswith(
        "connection refused; is the API server up, and does a network policy let this pod reach it?"
    )


async def test_unknown_host_is_reported(world: World) -> None:
    error = await unreachable(world.transport("https://no-such-host.invalid:6443"))
    assert not error.sent
    assert "the address of no-such-host.invalid cannot be found; is the cluster up" in str(error)


async def test_server_without_tls_is_reported(world: World) -> None:
    server = await world.serve(ok, certificate=None)
    error = await unreachable(world.transport(server.replace("http:", "https:")))
    assert not error.sent
    assert "the server does not speak TLS; should its address begin with http://" in str(error)


async def test_hanging_tls_handshake_times_out_as_unsent(world: World) -> None:
    async def handler(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    port = await world.serve_raw(handler)
    request = Request(method="POST", path="/api/v1/nodes", body=b"{}", timeout=timedelta(milliseconds=200))
    error = await unreachable(world.transport(f"https://127.0.0.1:{port}"), request)
    assert not error.sent
    assert str(error).startswith(f"POST https://127.0.0.1:{port}/api/v1/nodes: no connection within 0.2 s; is the")


async def test_connection_closed_during_the_tls_handshake_is_unsent(world: World) -> None:
    async def handler(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read(1)

    port = await world.serve_raw(handler)
    error = await unreachable(world.transport(f"https://127.0.0.1:{port}"))
    assert not error.sent
    assert f"cannot connect to https://127.0.0.1:{port}: connection reset during the handshake" in str(error)


async def test_proxy_that_does_not_answer_is_reported(world: World) -> None:
    async def handler(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    proxy = f"http://u:passw0rd@127.0.0.1:{await world.serve_raw(handler)}"
    request = Request(method="GET", path="/", timeout=timedelta(milliseconds=200))
    error = await unreachable(world.transport("https://api.example.com", proxy=proxy), request)
    assert f"no connection within 0.2 s through proxy {proxy.replace('u:passw0rd@', '')}; is the cluster up" in str(
        error
    )


async def test_closed_transport_sends_nothing(world: World) -> None:
    transport = world.transport(await world.serve(ok))
    await transport.send(NODES)
    await transport.close()
    error = await unreachable(transport)
    assert not error.sent
    assert str(error) == f"the connection to {transport.server} was closed"


async def test_request_waiting_for_a_connection_is_unsent_when_the_transport_closes(world: World, clock: Clock) -> None:
    arrived = asyncio.Event()

    async def handler(_: web.Request) -> web.Response:
        arrived.set()
        await asyncio.Event().wait()
        return web.Response()

    transport = world.transport(await world.serve(handler), connections=1)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(unreachable(transport))
        await arrived.wait()
        second = group.create_task(unreachable(transport))
        await clock.sleep(timedelta())  # it starts to wait for a connection
        await transport.close()
    assert first.result().sent
    assert not second.result().sent
    assert str(second.result()) == f"the connection to {transport.server} was closed"


async def test_closing_waits_for_connections_that_are_closing_already(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event loop that ends before they are closed logs warnings."""
    sockets: list[socket.socket] = []
    new_socket = http._open_socket

    def open_socket(address: Any) -> socket.socket:
        sockets.append(new_socket(address))
        return sockets[-1]

    async def handler(_: web.Request) -> web.Response:
        return web.Response(headers={"Connection": "close"})

    monkeypatch.setattr(http, "_open_socket", open_socket)
    transport = world.transport(await world.serve(handler))
    await transport.send(NODES)
    await transport.close()
    assert [each.fileno() for each in sockets] == [-1]


async def test_closing_does_not_wait_for_a_server_without_tls_close_notify(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "_CLOSE_TIMEOUT", timedelta(milliseconds=50))
    context = LOCAL.server_context(world.folder)
    with socket.create_server(("127.0.0.1", 0)) as server, contextlib.ExitStack() as later:
        transport = world.transport(f"https://127.0.0.1:{server.getsockname()[1]}")
        response, connection = await asyncio.gather(
            transport.send(NODES), asyncio.to_thread(_answer_without_close, server, context)
        )
        later.callback(connection.close)
        assert response.status == 200
        async with asyncio.timeout(5):
            await transport.close()


def test_closing_waits_on_the_event_loop_of_the_cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: that loop detached sockets at once; they counted as closed, and uvloop reported them as unclosed."""
    monkeypatch.setattr(http, "_CLOSE_TIMEOUT", timedelta(seconds=30))
    context = LOCAL.server_context(tmp_path)
    received: list[bytes] = []

    def answer_and_close_late(server: socket.socket) -> None:
        with _answer_without_close(server, context) as connection:
            threading.Event().wait(0.1)
            received.append(connection.recv(1))

    async def send_and_close(server: socket.socket) -> list[bytes]:
        address = f"https://127.0.0.1:{server.getsockname()[1]}"
        answering = asyncio.get_running_loop().run_in_executor(None, answer_and_close_late, server)
        transport = World(tmp_path, AsyncExitStack()).transport(address)
        await transport.send(NODES)
        await transport.close()
        received_by_now = list(received)
        await answering
        return received_by_now

    with socket.create_server(("127.0.0.1", 0)) as server:
        assert run(send_and_close(server)) == [b""]


def _answer_without_close(server: socket.socket, context: ssl.SSLContext) -> ssl.SSLSocket:
    connection = context.wrap_socket(server.accept()[0], server_side=True)
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
    return connection


# The check before sending


class GuardedServer:
    """A TLS server that records the bytes of each connection, and a request whose before_send refuses."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.received: list[bytes] = []  # one for each connection
        self.ended = asyncio.Event()
        self.refusal = LeadershipLost("no longer")
        self.request = Request(method="POST", path="/", body=b"{}", before_send=self._refuse)

    async def transport(self) -> HttpTransport:
        """Start the server, and return a transport to it."""
        context = LOCAL.server_context(self._world.folder)
        return self._world.transport(f"https://127.0.0.1:{await self._world.serve_raw(self._serve, context=context)}")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        at = len(self.received)
        self.received.append(b"")
        try:
            while data := await reader.read(65536):
                self.received[at] += data
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        finally:
            self.ended.set()

    def _refuse(self) -> None:
        raise self.refusal


async def test_before_send_is_called_after_connecting_and_before_sending(world: World) -> None:
    guarded = GuardedServer(world)
    transport = await guarded.transport()
    with pytest.raises(LeadershipLost) as caught:
        await transport.send(guarded.request)
    assert caught.value is guarded.refusal
    async with asyncio.timeout(5):
        await guarded.ended.wait()
    assert guarded.received == [b""], "there was a connection, and no request on it"
    assert (await transport.send(NODES)).status == 200


async def test_before_send_is_called_on_a_reused_connection(world: World) -> None:
    guarded = GuardedServer(world)
    transport = await guarded.transport()
    assert (await transport.send(NODES)).status == 200
    with pytest.raises(LeadershipLost):
        await transport.send(guarded.request)
    assert (await transport.send(NODES)).status == 200
    assert b"POST" not in b"".join(guarded.received)


async def test_before_send_is_called_for_streams(world: World) -> None:
    guarded = GuardedServer(world)
    transport = await guarded.transport()
    with pytest.raises(LeadershipLost):
        async with transport.stream(guarded.request):
            pass
    assert b"".join(guarded.received) == b""


async def test_request_is_sent_when_before_send_allows_it(world: World) -> None:
    calls: list[bool] = []
    request = Request(method="GET", path="/", before_send=lambda: calls.append(True))
    assert (await world.transport(await world.serve(ok)).send(request)).status == 200
    assert calls == [True]


# Lost and missing responses


async def test_missing_response_times_out_as_sent(world: World) -> None:
    async def handler(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    server = f"http://127.0.0.1:{await world.serve_raw(handler)}"
    request = Request(method="GET", path="/api/v1/nodes", timeout=timedelta(milliseconds=100))
    error = await unreachable(world.transport(server), request)
    assert error.sent
    assert str(error) == f"GET {server}/api/v1/nodes: no answer within 0.1 s; {LISTENING}"
    with pytest.raises(Unreachable, match=r"no answer within 0\.1 s"):
        async with world.transport(server).stream(request):
            pass


async def test_stalled_response_times_out_as_sent(world: World) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
        await reader.read()

    server = f"http://127.0.0.1:{await world.serve_raw(handler)}"
    request = Request(method="GET", path="/", timeout=timedelta(milliseconds=100))
    assert (await unreachable(world.transport(server), request)).sent


@pytest.mark.parametrize(("method", "attempts"), [("POST", 1), ("PATCH", 1), ("PUT", 1), ("DELETE", 1), ("GET", 2)])
async def test_only_get_is_retried_after_a_lost_connection(world: World, method: str, attempts: int) -> None:
    received: list[bytes] = []

    async def handler(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        received.append(await read_request(reader))

    server = f"http://127.0.0.1:{await world.serve_raw(handler)}"
    error = await unreachable(world.transport(server), Request(method=method, path="/api/v1/nodes"))
    assert error.sent
    assert str(error).startswith(f"{method} {server}/api/v1/nodes: the connection was lost before the answer came")
    assert len(received) == attempts


async def test_server_stopped_during_a_request_is_reported_as_sent_and_lost(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        transport = world.transport(f"http://127.0.0.1:{server.getsockname()[1]}")
        error, _ = await asyncio.gather(unreachable(transport), asyncio.to_thread(_stop_during_request, server))
    assert error.sent
    assert str(error) == (
        f"GET {transport.server}/api/v1/nodes: the connection was lost before the answer came, and cannot be made "
        "again (connection refused); is the cluster up, and is context 'dev' of config the right one?"
    )


def _stop_during_request(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        connection.recv(65536)
        server.close()


async def test_get_on_a_closed_keep_alive_connection_is_retried(world: World) -> None:
    connections = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await read_request(reader)  # closes instead of answering the second request

    transport = world.transport(f"http://127.0.0.1:{await world.serve_raw(handler)}")
    assert [(await transport.send(NODES)).status for _ in range(2)] == [200, 200]
    assert connections == 2


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "the answer is not HTTP; is {server} an API server?"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", "the response was cut off"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", "the response was cut off"),
    ],
)
async def test_malformed_or_truncated_response_is_an_error(world: World, answer: bytes, problem: str) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(answer)

    server = f"http://127.0.0.1:{await world.serve_raw(handler)}"
    error = await failure_of(world.transport(server))
    assert isinstance(error, MalformedResponse)
    assert str(error) == f"GET {server}/api/v1/nodes: {problem.format(server=server)}"


async def test_html_response_is_returned(world: World) -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(status=502, text="<html>", content_type="text/html")

    response = await world.transport(await world.serve(handler)).send(NODES)
    assert (response.status, response.body) == (502, b"<html>")


async def test_cancelled_request_frees_its_connection(world: World) -> None:
    arrived = asyncio.Event()

    async def handler(request: web.Request) -> web.Response:
        if "slow" in request.path:
            arrived.set()
            await asyncio.Event().wait()
        return web.Response()

    transport = world.transport(await world.serve(handler), connections=1)
    async with asyncio.TaskGroup() as group:
        slow = group.create_task(transport.send(Request(method="GET", path="/slow")))
        await arrived.wait()
        slow.cancel()
    assert (await transport.send(NODES)).status == 200


# Streams


def streaming(chunks: Sequence[bytes], *, then: Callable[[web.StreamResponse], None] | None = None) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        for chunk in chunks:
            await answer.write(chunk)
        if then is not None:
            then(answer)
            await asyncio.Event().wait()
        return answer

    return handler


async def lines_of(transport: Transport, lines: list[bytes] | None = None) -> list[bytes]:
    lines = [] if lines is None else lines
    async with transport.stream(WATCH) as stream:
        async for line in stream.lines():
            lines.append(line)
    return lines


async def test_stream_yields_whole_lines_for_any_chunks(world: World, rng: random.Random) -> None:
    lines = [rng.randbytes(rng.choice([0, 1, 10, 1000, 300_000])).replace(b"\n", b"") for _ in range(60)]
    whole = b"".join(line + b"\n" for line in lines)
    cuts = [0, *sorted(rng.randrange(len(whole)) for _ in range(40)), len(whole)]
    chunks = [whole[start:end] for start, end in itertools.pairwise(cuts) if start < end]
    assert await lines_of(world.transport(await world.serve(streaming(chunks)))) == lines


async def test_stream_line_may_be_megabytes_long(world: World) -> None:
    line = b"x" * 3_000_000
    assert await lines_of(world.transport(await world.serve(streaming([line, b"\nshort\n"])))) == [line, b"short"]


async def test_stream_yields_a_line_before_the_response_ends(world: World) -> None:
    transport = world.transport(await world.serve(streaming([b"one\ntw"], then=lambda _: None)))
    async with transport.stream(WATCH) as stream:
        assert await anext(stream.lines()) == b"one"


async def test_error_response_of_a_stream_is_one_line(world: World) -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(status=410, text="{\n}\n")

    async with world.transport(await world.serve(handler)).stream(WATCH) as stream:
        assert stream.status == 410
        assert [line async for line in stream.lines()] == [b"{\n}\n"]


async def test_stalled_error_response_of_a_stream_times_out(world: World) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 1000\r\n\r\nhalf")
        await reader.read()

    transport = world.transport(f"http://127.0.0.1:{await world.serve_raw(handler)}")
    request = Request(method="GET", path="/", timeout=timedelta(milliseconds=300))
    async with asyncio.timeout(5), transport.stream(request) as stream:
        assert stream.status == 503
        with pytest.raises(Unreachable, match=r"no answer within 0\.3 s"):
            await anext(stream.lines())


async def test_stream_line_longer_than_the_limit_is_an_error(world: World) -> None:
    chunks = [b"short\nalso\n", *[b"x" * 65536] * 40]
    limits = replace(OWN_CLUSTER, line_bytes=1_000_000)
    transport = world.transport(await world.serve(streaming(chunks, then=lambda _: None)), limits=limits)
    lines: list[bytes] = []
    with pytest.raises(LimitExceeded, match="a line of the stream is longer than 1000000 bytes"):
        async with asyncio.timeout(5):
            await lines_of(transport, lines)
    assert lines == [b"short", b"also"]


async def test_stream_that_ends_within_a_line_does_not_yield_the_partial_line(world: World) -> None:
    transport = world.transport(await world.serve(streaming([b'{"type":"ADDED"}\n{"typ'])))
    lines: list[bytes] = []
    with pytest.raises(Unreachable, match="the stream broke off in the middle of a line") as caught:
        await lines_of(transport, lines)
    assert lines == [b'{"type":"ADDED"}']
    assert caught.value.sent


async def test_stream_with_a_lost_connection_raises_unreachable(world: World) -> None:
    port = await world.serve_raw(_one_line_then_lost)
    with pytest.raises(Unreachable, match="the stream broke off because the connection was lost"):
        await lines_of(world.transport(f"http://127.0.0.1:{port}"))


async def _one_line_then_lost(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_request(reader)
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n")
    await writer.drain()


async def test_closing_a_stream_closes_its_connection(world: World) -> None:
    ended = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n")
        with contextlib.suppress(OSError):
            await reader.read()
        ended.set()

    port = await world.serve_raw(handler, context=LOCAL.server_context(world.folder))
    async with asyncio.timeout(2):
        async with world.transport(f"https://127.0.0.1:{port}").stream(WATCH) as stream:
            assert await anext(stream.lines()) == b"one"
        await ended.wait()


async def test_closing_the_transport_ends_its_streams(world: World) -> None:
    transport = world.transport(await world.serve(streaming([b"one\n"], then=lambda _: None)))
    async with transport.stream(WATCH) as stream:
        lines = stream.lines()
        await anext(lines)
        await transport.close()
        with pytest.raises(Unreachable, match="broke off"):
            await anext(lines)


async def test_a_stream_may_last_longer_than_its_timeout(world: World, clock: Clock) -> None:
    may_continue = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        await may_continue.wait()
        await answer.write(b"late\n")
        return answer

    request = Request(method="GET", path="/", timeout=timedelta(milliseconds=100))
    async with world.transport(await world.serve(handler)).stream(request) as stream:
        await clock.sleep(timedelta(milliseconds=150))
        may_continue.set()
        assert [line async for line in stream.lines()] == [b"late"]


async def test_streams_do_not_use_the_connections_of_requests(world: World) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        return await (streaming([b"one\n"], then=lambda _: None) if "watch" in request.query else ok)(request)

    transport = world.transport(await world.serve(handler), connections=1)
    async with transport.stream(WATCH), transport.stream(WATCH):
        assert (await transport.send(NODES)).status == 200


# Proxies


@asynccontextmanager
async def a_proxy(world: World, *, answer: bytes = b"200 OK") -> AsyncIterator[tuple[str, list[bytes]]]:
    """Run a proxy that tunnels CONNECT requests, or answers them with `answer`, and records them."""
    requests: list[bytes] = []

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await read_request(reader))
        writer.write(b"HTTP/1.1 " + answer + b"\r\n\r\n")
        if answer.startswith(b"200"):
            host, port = requests[-1].split()[1].decode().split(":")
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
            async with asyncio.TaskGroup() as group:
                group.create_task(_pump(reader, far_writer))
                group.create_task(_pump(far_reader, writer))

    yield f"http://user:passw0rd@127.0.0.1:{await world.serve_raw(handler)}", requests


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


CHECK = "check proxy-url in the kubeconfig, and HTTPS_PROXY and NO_PROXY in the environment"


async def test_proxy_tunnels_requests_without_receiving_credentials(world: World) -> None:
    server = await world.serve(ok)
    headers = (("Impersonate-User", "bob"),)
    async with a_proxy(world) as (proxy, requests):
        credentials = StaticCredentials(Identity("Bearer s3cret"))
        transport = world.transport(server, proxy=proxy, credentials=credentials, impersonation=headers)
        assert [(await transport.send(NODES)).status for _ in range(2)] == [200, 200]
        await transport.close()
    assert len(requests) == 1
    assert requests[0].startswith(b"CONNECT 127.0.0.1:")
    assert b"Proxy-Authorization: Basic dXNlcjpwYXNzdzByZA==" in requests[0]
    assert b"s3cret" not in requests[0]
    assert b"bob" not in requests[0]


async def test_proxy_that_refuses_is_reported(world: World) -> None:
    async with a_proxy(world, answer=b"407 Proxy Authentication Required") as (proxy, _):
        error = await unreachable(world.transport("https://api.example.com", proxy=proxy))
    assert not error.sent
    shown = proxy.replace("user:passw0rd@", "")
    assert str(error) == (
        f"proxy {shown} does not connect us to https://api.example.com: 407 Proxy Authentication Required; {CHECK}"
    )


async def test_unreachable_proxy_is_reported(world: World) -> None:
    for proxy, problem in (
        ("http://u:passw0rd@127.0.0.1:1", f"cannot connect to proxy http://127.0.0.1:1: connection refused; {CHECK}"),
        ("http://no-such-host.invalid:3128", f"the address of no-such-host.invalid cannot be found; {CHECK}"),
    ):
        error = await unreachable(world.transport("https://api.example.com", proxy=proxy))
        assert not error.sent
        assert problem in str(error)
        assert "passw0rd" not in str(error)
