"""The proxy of `make chaos`: without a fault it passes everything, and each fault does what it says."""

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
    """Run a server that answers with what it was asked, and a proxy before it."""
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


async def _ask(proxy: Proxy, body: str = "") -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{proxy.address}/nodes?watch=1", data=body, ssl=_tls_context(proxy)) as answer,
    ):
        return answer.status, await answer.text()


async def test_requests_pass_whole_and_in_the_name_of_the_replica(proxy: Proxy) -> None:
    assert await _ask(proxy, _LARGE) == (200, f"POST /nodes?watch=1 Bearer secret {_LARGE}")


@pytest.mark.parametrize("fault", ["resets_connections", "truncates", "loses_answers"])
async def test_a_connection_that_breaks_is_an_error_to_the_replica(proxy: Proxy, fault: str) -> None:
    setattr(proxy.network, fault, True)
    with pytest.raises(aiohttp.ClientError):
        await _ask(proxy, _LARGE)
    proxy.heal()
    assert (await _ask(proxy))[0] == 200


async def test_an_overloaded_server_asks_to_come_back(proxy: Proxy) -> None:
    proxy.network.overloaded = 1
    assert (await _ask(proxy))[0] in (429, 503)


async def test_nothing_passes_a_partition_until_it_is_healed(proxy: Proxy) -> None:
    proxy.network.unblocked.clear()
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(_ask(proxy))
        done, _ = await asyncio.wait([asked], timeout=0.2)
        assert not done
        proxy.heal()
    assert asked.result()[0] == 200


async def test_open_connections_can_be_cut(proxy: Proxy) -> None:
    proxy.network.unblocked.clear()
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(asyncio.wait_for(_fails(proxy), 10))
        while not proxy.connections:
            await asyncio.wait([asked], timeout=0.01)
        proxy.cut()
    assert asked.result()


async def _fails(proxy: Proxy) -> bool:
    try:
        await _ask(proxy)
    except aiohttp.ClientError:
        return True
    return False
