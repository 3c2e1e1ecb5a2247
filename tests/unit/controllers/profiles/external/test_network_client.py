"""The network client of plugins, with any kind of server."""

import asyncio
import gzip
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest
from aiohttp import web

from haulout.api.resources import SECRETS
from haulout.controllers.profiles.external.network_client import NetworkClient
from haulout.controllers.profiles.plugins.notifications.slack import Slack
from haulout.controllers.profiles.plugins.notifications.slack_thread import SlackThread
from haulout.core.clock import RealClock
from haulout.errors import ExternalError
from haulout.kube.client import Client
from haulout_sandbox.apiserver import ApiServer
from support.fakes.external_client import FakeSlack, a_message
from support.servers.certificates import Authority
from support.servers.smtp import serve_connections

pytestmark = pytest.mark.real_time

Page = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
SHORT = timedelta(seconds=0.05)


@pytest.fixture
async def network() -> AsyncIterator[NetworkClient]:
    external = NetworkClient(environ={}, max_response_bytes=10_000)
    yield external
    await external.close()


@asynccontextmanager
async def a_site(page: Page, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    runner = web.ServerRunner(web.Server(page), shutdown_timeout=0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        yield f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def a_raw_site(*pieces: bytes, hangs: bool = False) -> AsyncIterator[str]:
    """Send these bytes to each client, and close the connection unless it `hangs`."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        if hangs:
            await reader.read()

    async with serve_connections(serve) as address:
        yield f"http://{address}"


async def problem_of(network: NetworkClient, url: str, *, within: timedelta = timedelta(seconds=5)) -> str:
    with pytest.raises(ExternalError) as caught:
        await network.request("POST", f"{url}/s3cr3t?key=s3cr3t", body=b"s3cr3t", timeout=within)
    assert "s3cr3t" not in str(caught.value)
    assert caught.value.__cause__ is None  # which may hold anything
    return str(caught.value).partition(": ")[2]


async def test_request_is_sent_unchanged(network: NetworkClient) -> None:
    received = []

    async def page(request: web.BaseRequest) -> web.Response:
        received.append((request.method, str(request.rel_url), await request.read(), request.headers["X-A"]))
        assert request.headers["User-Agent"].startswith("haulout/")
        return web.Response(status=418, body=b"tea")

    async with a_site(page) as url:
        answer = await network.request("POST", f" {url}/a%2Fb?c=d%20e\n", body=b"x", headers={"X-A": "1"})
    assert (answer.status, answer.body) == (418, b"tea")
    assert received == [("POST", "/a%2Fb?c=d%20e", b"x", "1")]


async def test_refused_connection_is_reported(network: NetworkClient) -> None:
    async with a_raw_site() as url:
        pass
    assert await problem_of(network, url) == "connection refused"


async def test_unresolvable_host_name_is_reported(network: NetworkClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert await problem_of(network, "http://nobody.invalid") == "its host name cannot be resolved"


@pytest.mark.parametrize(
    ("pieces", "problem"),
    [
        ((), "the server closed the connection without a response"),
        ((b"\x00\x01\x02\r\n\r\n",), "the response is not HTTP"),
        ((b"220 post.test\r\n",), "the response is not HTTP"),
        ((b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",), "the response ended early"),
        ((b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nhalf",), "the response ended early"),
        ((b"HTTP/1.1 200 OK\r\n", b"X: " + b"x" * 100_000), "the response is not HTTP"),
    ],
)
async def test_invalid_response_is_reported_in_a_sentence(
    network: NetworkClient, pieces: tuple[bytes, ...], problem: str
) -> None:
    async with a_raw_site(*pieces) as url:
        assert await problem_of(network, url) == problem


@pytest.mark.parametrize("pieces", [(), (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", b"slow")])
async def test_slow_response_times_out(network: NetworkClient, pieces: tuple[bytes, ...]) -> None:
    async with a_raw_site(*pieces, hangs=True) as url:
        assert await problem_of(network, url, within=SHORT) == "no answer within 0.05 s"


async def test_endless_response_is_not_read_completely(network: NetworkClient) -> None:
    long = "the answer is longer than 10000 bytes"
    async with a_site(lambda _: _respond(web.Response(body=b"x" * 10_001))) as url:
        assert await problem_of(network, url) == long
    bomb = web.Response(body=gzip.compress(b"x" * 50_000_000), headers={"Content-Encoding": "gzip"})
    async with a_site(lambda _: _respond(bomb)) as url:
        assert await problem_of(network, url) == long


async def _respond(response: web.Response) -> web.Response:
    return response


async def test_untrusted_certificate_is_refused(network: NetworkClient, tmp_path: Path) -> None:
    authority = Authority()
    tls = authority.issue("127.0.0.1").server_context(tmp_path)
    async with a_site(lambda _: _respond(web.Response(text="ok")), tls=tls) as url:
        assert (await problem_of(network, url)).startswith("its certificate is not trusted (")
        trusting = NetworkClient(environ={}, tls=ssl.create_default_context(cadata=authority.pem.decode()))
        assert (await trusting.request("GET", url)).body == b"ok"
        await trusting.close()


async def test_line_break_in_a_header_is_reported_and_not_sent(network: NetworkClient) -> None:
    async with a_site(lambda _: _respond(web.Response())) as url:
        with pytest.raises(ExternalError, match="a token or a URL contains a line break"):
            await network.request("GET", url, headers={"Authorization": "Bearer a\r\nX: y"})


@pytest.mark.parametrize("url", ["", "s3cr3t", "file:///etc/passwd", "http://", "http://x:0/", "http://[::1/"])
async def test_invalid_url_is_not_requested(network: NetworkClient, url: str) -> None:
    with pytest.raises(ExternalError, match="expected one such as https://example"):
        await network.request("GET", url)


# Redirects


@pytest.mark.parametrize(
    ("method", "status", "answer"),
    [
        ("GET", 301, (200, b"GET ")),
        ("GET", 302, (200, b"GET ")),
        ("GET", 308, (200, b"GET ")),
        ("POST", 307, (200, b"POST body")),
        ("POST", 308, (200, b"POST body")),
        ("POST", 302, (302, b"")),
    ],
)
async def test_redirect_on_the_same_host_is_followed_unless_it_drops_the_body(
    network: NetworkClient, method: str, status: int, answer: tuple[int, bytes]
) -> None:
    async def page(request: web.BaseRequest) -> web.Response:
        if request.path == "/old":
            return web.Response(status=status, headers={"Location": "/new"})
        return web.Response(text=f"{request.method} {await request.text()}")

    async with a_site(page) as url:
        response = await network.request(method, f"{url}/old", body=b"body" if method == "POST" else b"")
    assert (response.status, response.body) == answer


@pytest.mark.parametrize("there", ["http://other.test/", "ftp://127.0.0.1/", "file:///etc/passwd", "//other.test"])
async def test_redirect_to_another_host_is_not_followed(network: NetworkClient, there: str) -> None:
    redirect = web.Response(status=308, headers={"Location": there})
    async with a_site(lambda _: _respond(redirect)) as url:
        with pytest.raises(ExternalError, match="which is not followed"):
            await network.request("GET", url)


async def test_redirect_never_leaves_tls(tmp_path: Path) -> None:
    authority = Authority()
    tls = authority.issue("127.0.0.1").server_context(tmp_path)
    network = NetworkClient(environ={}, tls=ssl.create_default_context(cadata=authority.pem.decode()))
    redirect = web.Response(status=308, headers={"Location": "http://127.0.0.1:1/"})
    async with a_site(lambda _: _respond(redirect), tls=tls) as url:
        with pytest.raises(ExternalError, match="which is not followed"):
            await network.request("GET", url)
    await network.close()


async def test_redirect_loop_is_limited(network: NetworkClient) -> None:
    async with a_site(lambda _: _respond(web.Response(status=307, headers={"Location": "/"}))) as url:
        with pytest.raises(ExternalError, match="redirects more than"):
            await network.request("GET", url)


# Proxies


async def test_proxy_from_the_environment_is_used() -> None:
    async def proxy(request: web.BaseRequest) -> web.Response:
        return web.Response(text=request.raw_path)

    async with a_site(proxy) as url:
        network = NetworkClient(environ={"HTTP_PROXY": url, "NO_PROXY": "near.test"})
        assert (await network.request("GET", "http://far.test/x")).body == b"http://far.test/x"
        await network.close()


async def test_failing_proxy_is_reported_without_its_password() -> None:
    async with a_raw_site() as gone:
        pass
    for proxy, problem in (
        (gone.replace("//", "//me:s3cr3t@"), "the proxy in the environment cannot be reached: connection refused"),
        ("socks5://me:s3cr3t@x", "SOCKS proxies are not supported"),
    ):
        network = NetworkClient(environ={"HTTP_PROXY": proxy})
        assert problem in await problem_of(network, "http://far.test")
        await network.close()


# Whole plugins, over sockets


async def test_slack_notification_is_sent_over_the_network(network: NetworkClient) -> None:
    """I17."""
    received = []

    async def hook(request: web.BaseRequest) -> web.Response:
        received.append(await request.json())
        return web.Response(text="ok")

    async with a_site(hook) as url:
        await Slack(hook=f"{url}/services/T0", channel="#c", message="{{ .State }}").send(a_message(), network)
    assert received == [{"text": "in-maintenance", "channel": "#c"}]


async def test_slack_thread_is_sent_over_the_network(network: NetworkClient) -> None:
    """C16, C17."""
    slack, clock = FakeSlack(), RealClock()
    client = Client(ApiServer(clock, namespaces=["ns"]).transport("us"), clock=clock, random=Random(1))

    async def api(request: web.BaseRequest) -> web.Response:
        return web.json_response(slack.respond(request.headers["Authorization"], await request.json()))

    async with a_site(api) as url:
        plugin = SlackThread(
            token="xoxb-1",
            channel="#c",
            title="T",
            message="{{ .Node.Name }}",
            lease_name="l",
            lease_namespace="ns",
            period=timedelta(hours=1),
            url=f"{url}/api",
        )
        for node in ("n1", "n2"):
            await plugin.send(a_message(node, client=client), network)
    assert slack.titles == ["T"]
    assert slack.replies == [("T", "n1"), ("T", "n2")]


# Response headers, files and Secrets


async def test_request_returns_response_headers(network: NetworkClient) -> None:
    async with a_site(lambda _: _respond(web.Response(status=201, headers={"X-Subject-Token": "t"}))) as url:
        reply = await network.request("POST", url)
    assert (reply.status, reply.body, reply.headers["x-subject-token"]) == (201, b"", "t")


async def test_read_file_reads_only_existing_files_of_limited_size(network: NetworkClient, tmp_path: Path) -> None:
    there = tmp_path / "file"
    there.write_bytes(b"content")
    assert await network.read_file(str(there)) == b"content"
    with pytest.raises(ExternalError, match="/dev/zero is longer than 10000 bytes"):
        await network.read_file("/dev/zero")
    for path in (tmp_path / "none", tmp_path, "a\0b"):
        with pytest.raises(ExternalError, match="cannot be read: "):
            await network.read_file(str(path))


async def test_read_secret_returns_a_secret_of_the_cluster() -> None:
    clock = RealClock()
    client = Client(ApiServer(clock, namespaces=["ns"]).transport("us"), clock=clock, random=Random(1))
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"key": "czNjcjN0"}}
    await client.create(SECRETS, body, namespace="ns")
    network = NetworkClient(environ={}, client=client)
    assert await network.read_secret("ns", "s") == {"key": b"s3cr3t"}
    with pytest.raises(ExternalError, match="Secret ns/none cannot be read: "):
        await network.read_secret("ns", "none")
    with pytest.raises(ExternalError, match="there is no cluster"):
        await NetworkClient(environ={}).read_secret("ns", "s")
