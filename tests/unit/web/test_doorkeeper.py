"""Who comes only to take up room is sent away, and whoever asks is answered."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial

import pytest
from aiohttp import web

from haulout.web.doorkeeper import Doorkeeper

HOST = "127.0.0.1"
REQUEST = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
A_MOMENT = timedelta(milliseconds=50)
EVER = timedelta(hours=1)

pytestmark = pytest.mark.real_time


@asynccontextmanager
async def _guarded(*, within: timedelta = EVER, most: int = 10) -> AsyncIterator[int]:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="hello")

    app = web.Application()
    app.router.add_get("/", answer)
    keeper = Doorkeeper(app, within=within, most=most)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
    await runner.setup()
    assert runner.server is not None
    server = await asyncio.get_running_loop().create_server(partial(keeper.let_in, runner.server), HOST, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        keeper.leave()
        await runner.cleanup()


@asynccontextmanager
async def _caller(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(HOST, port)
    async with asyncio.timeout(10):
        yield reader, writer
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nX-Slow: "])
async def test_who_does_not_ask_in_time_is_sent_away(said: bytes) -> None:
    async with _guarded(within=A_MOMENT) as port, _caller(port) as (reader, writer):
        writer.write(said)

        assert await reader.read() == b""


async def test_who_has_asked_once_may_stay() -> None:
    async with _guarded(within=A_MOMENT) as port, _caller(port) as (reader, writer):
        for _ in range(2):
            writer.write(REQUEST)
            assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200")
            async with _caller(port) as (silent, _):
                assert await silent.read() == b""  # by now the time is up for whoever came before


async def test_too_many_at_once_are_refused_and_those_who_are_inside_go_on() -> None:
    async with _guarded(most=1) as port, _caller(port) as (reader, writer):
        writer.write(REQUEST)
        await reader.readuntil(b"hello")

        async with _caller(port) as (refused, _):
            assert await refused.read() == b""

        writer.write(REQUEST)
        assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200")
