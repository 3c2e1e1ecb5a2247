"""The proxy of `make chaos`: it forwards all requests without a fault, and implements each fault."""

import asyncio
import random
import ssl
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import web

from chaos.proxy import Proxy

pytestmark = pytest.mark.real_time
_LARGE = "x" * 300_000


async def _echo(request: web.BaseRequest) -> web.Response:
    body = await request.content.read()
    return web.Response(text=f"{request.method} {request.path_qs} {request.headers['Authorization']} {body.decode()}")


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    """Run a server that echoes requests, and a proxy before it."""
    runner = web.ServerRunner(web.Server(_echo))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    proxy = Proxy(f"http://{host}:{port}", ssl.create_default_context(), "secret", random.Random(1))
    async with proxy.serving():
        yield proxy
    await runner.cleanup()


def _tls_context(proxy: Proxy) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=proxy.ca.decode())


async def _send_request(proxy: Proxy, body: str = "") -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{proxy.address}/nodes?watch=1", data=body, ssl=_tls_context(proxy)) as answer,
    ):
        return answer.status, await answer.text()


async def test_proxy_forwards_requests_with_the_credentials_of_the_replica(proxy: Proxy) -> None:
    assert await _send_request(proxy, _LARGE) == (200, f"POST /nodes?watch=1 Bearer secret {_LARGE}")


@pytest.mark.parametrize("fault", ["resets_connections", "truncates", "loses_answers"])
async def test_connection_faults_are_client_errors(proxy: Proxy, fault: str) -> None:
    setattr(proxy.network, fault, True)
    with pytest.raises(aiohttp.ClientError):
        await _send_request(proxy, _LARGE)
    proxy.heal()
    assert (await _send_request(proxy))[0] == 200


async def test_overload_fault_returns_429_or_503(proxy: Proxy) -> None:
    proxy.network.overloaded = 1
    assert (await _send_request(proxy))[0] in (429, 503)


async def test_partition_blocks_requests_until_healed(proxy: Proxy) -> None:
    proxy.network.unblocked.clear()
    async with asyncio.TaskGroup() as group:
        request = group.create_task(_send_request(proxy))
        done, _ = await asyncio.wait([request], timeout=0.2)
        assert not done
        proxy.heal()
    assert request.result()[0] == 200


async def test_cut_closes_open_connections(proxy: Proxy) -> None:
    proxy.network.unblocked.clear()
    async with asyncio.TaskGroup() as group:
        request = group.create_task(asyncio.wait_for(_request_fails(proxy), 10))
        while not proxy.connections:
            await asyncio.wait([request], timeout=0.01)
        proxy.cut()
    assert request.result()


async def _request_fails(proxy: Proxy) -> bool:
    try:
        await _send_request(proxy)
    except aiohttp.ClientError:
        return True
    return False
