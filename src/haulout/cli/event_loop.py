"""uvloop's event loop, without its double close of sockets.

`create_connection` of uvloop takes over the file descriptor of the socket that it is given. If the peer resets the
connection before the TLS handshake begins, uvloop closes the descriptor first and attaches the socket afterwards
(uvloop/loop.pyx, `tr._attach_fileobj(sock)`). The socket then still refers to a descriptor that the next connection
gets, and closes it when it is garbage collected. That connection fails with EBADF, or with "File descriptor … is used
by transport".

aiohttp connects this way. This loop therefore detaches a socket if its connection failed or was lost meanwhile: uvloop
closes the descriptor itself. The socket of an open connection stays attached, so that `fileno()` shows when it is
closed.
"""

import asyncio
import socket
from typing import Any

import uvloop


class EventLoop(uvloop.Loop):
    """An event loop that closes the descriptor of a socket only once."""

    async def create_connection(self, *args: Any, sock: socket.socket | None = None, **options: Any) -> Any:
        """Connect, or use `sock`, which the caller must not use afterwards."""
        is_open = False
        try:
            connection: Any = await super().create_connection(*args, sock=sock, **options)
            transport: asyncio.Transport = connection[0]
            is_open = not transport.is_closing()
        finally:
            if sock is not None and not is_open:
                sock.detach()
        return connection
