import asyncio
import contextlib
import gc
import socket

import pytest

from support.servers.event_loops import run


@pytest.mark.filterwarnings("error")
def test_connection_open_after_its_server_is_closed_with_the_event_loop() -> None:
    """If the transport is unclosed, `gc.collect` finds it, and pytest fails the test."""
    with socket.socket() as client:

        async def main() -> None:
            connected = asyncio.Event()

            class Server(asyncio.Protocol):
                def connection_made(self, transport: asyncio.BaseTransport) -> None:
                    del transport
                    connected.set()

            server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 0)
            client.connect(server.sockets[0].getsockname())
            await connected.wait()
            server.close()

        run(main())
        client.settimeout(60)
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""
    gc.collect()
