"""A TCP proxy to a real server, which a test can cut, restore, or silence while connections stay open."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class TcpProxy:
    """Forwards TCP connections from `port` on loopback to a server there."""

    def __init__(self, server_port: int) -> None:
        self.port = 0
        self._server_port = server_port
        self._is_up = True
        self._is_silent = False
        self._open: dict[asyncio.StreamWriter, asyncio.Event] = {}

    def cut(self) -> None:
        """Break all connections and refuse new ones."""
        self._is_up = False
        for writer in list(self._open):
            writer.transport.abort()

    def mend(self) -> None:
        """Let new connections through; those that were silenced stay so, as behind a router that forgot them."""
        self._is_up = True
        self._is_silent = False

    def silence(self) -> None:
        """Keep connections open, accept new ones, and let nothing through."""
        self._is_silent = True
        for flowing in self._open.values():
            flowing.clear()

    def release(self) -> None:
        """Release silenced connections, which are closed already."""
        for flowing in self._open.values():
            flowing.set()

    async def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        flowing = asyncio.Event()
        if not self._is_silent:
            flowing.set()
        self._open[writer] = flowing
        try:
            if self._is_up:
                await self._forward(reader, writer, flowing)
        finally:
            del self._open[writer]
            writer.transport.abort()

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flowing: asyncio.Event
    ) -> None:
        with contextlib.suppress(OSError):
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(_pump(reader, server_writer, flowing))
                    group.create_task(_pump(server_reader, writer, flowing))
            finally:
                server_writer.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flowing: asyncio.Event) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(1 << 16):
            await flowing.wait()
            writer.write(chunk)
            await writer.drain()
    writer.transport.abort()  # so that the other direction ends, too


@asynccontextmanager
async def a_tcp_proxy(server_port: int) -> AsyncIterator[TcpProxy]:
    """Yield a proxy to the server on loopback at `server_port`."""
    proxy = TcpProxy(server_port)
    server = await asyncio.start_server(proxy._on_connection, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        proxy.cut()
        proxy.release()
        server.close()
        await server.wait_closed()
