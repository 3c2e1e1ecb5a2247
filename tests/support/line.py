"""A network line to a real server that a test can cut and mend, or leave open and silent."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Line:
    """Forwards TCP connections from `port` on loopback to a server there."""

    def __init__(self, server_port: int) -> None:
        self.port = 0
        self._server_port = server_port
        self._whole = True
        self._silent = False
        self._open: dict[asyncio.StreamWriter, asyncio.Event] = {}

    def cut(self) -> None:
        """Break all connections and refuse new ones."""
        self._whole = False
        for writer in list(self._open):
            writer.transport.abort()

    def mend(self) -> None:
        """Let new connections through; those that were silenced stay so, as behind a router that forgot them."""
        self._whole = True
        self._silent = False

    def silence(self) -> None:
        """Keep connections open, accept new ones, and let nothing through."""
        self._silent = True
        for flowing in self._open.values():
            flowing.clear()

    def let_go(self) -> None:
        """End the wait of those who were silenced; the connections are gone already."""
        for flowing in self._open.values():
            flowing.set()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        flowing = asyncio.Event()
        if not self._silent:
            flowing.set()
        self._open[writer] = flowing
        try:
            if self._whole:
                await self._forward(reader, writer, flowing)
        finally:
            del self._open[writer]
            writer.transport.abort()

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flowing: asyncio.Event
    ) -> None:
        with contextlib.suppress(OSError):
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
            try:
                async with asyncio.TaskGroup() as both_ways:
                    both_ways.create_task(_pump(reader, there_writer, flowing))
                    both_ways.create_task(_pump(there_reader, writer, flowing))
            finally:
                there_writer.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flowing: asyncio.Event) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(1 << 16):
            await flowing.wait()
            writer.write(chunk)
            await writer.drain()
    writer.transport.abort()  # so that the other direction ends, too


@asynccontextmanager
async def a_line(server_port: int) -> AsyncIterator[Line]:
    """Yield a line to the server on loopback at `server_port`."""
    line = Line(server_port)
    server = await asyncio.start_server(line._connected, "127.0.0.1", 0)
    line.port = server.sockets[0].getsockname()[1]
    try:
        yield line
    finally:
        line.cut()
        line.let_go()
        server.close()
        await server.wait_closed()
