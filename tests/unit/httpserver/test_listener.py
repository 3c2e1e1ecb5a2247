"""Shutdown of servers: no accepted connection stays open."""

import asyncio
import socket
from datetime import timedelta

import pytest
from aiohttp import web

from haulout.core.clock import RealClock
from haulout.httpserver.connections import DASHBOARD
from haulout.httpserver.listener import listen

HOST = "127.0.0.1"


@pytest.mark.real_time
@pytest.mark.parametrize("turns", range(5))
async def test_connection_accepted_during_shutdown_is_closed(turns: int) -> None:
    """Between accepting a connection and registering it are some iterations of the event loop."""
    async with listen(web.Application(), host=HOST, port=0, what="a test", limits=DASHBOARD) as port:
        caller = socket.create_connection((HOST, port))
        for _ in range(turns):
            await RealClock().sleep(timedelta())

    with caller:
        caller.setblocking(False)
        try:
            async with asyncio.timeout(5):
                assert await asyncio.get_running_loop().sock_recv(caller, 1) == b""
        except ConnectionResetError:
            pass  # a reset is fine, too
