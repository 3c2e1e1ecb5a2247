"""What transports over the network have in common: how a request is addressed, a stream cut, a connection kept."""

import socket
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Final
from urllib.parse import quote, urlencode

from haulout.core.clock import Clock
from haulout.core.limited_reader import ReadChunk
from haulout.errors import LimitExceeded
from haulout.kube.limits import Limits, WatchRateLimiter
from haulout.kube.transport import Request
from haulout.kube.transports import connection_errors

# The client above encodes the parts of a path; here only what can never stand in one is encoded.
_PATH_CHARACTERS: Final = "/%:@!$&'()*+,;=-._~"
_YIELD_AFTER_BYTES: Final = 64 << 10  # bytes of a stream that may keep everybody else from running
# A peer that vanished without a word (a node lost power) is noticed after about a minute.
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPALIVE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}


def request_target(request: Request) -> str:
    """Return what is asked for: the path with its query, relative to the server's address."""
    query = f"?{urlencode(request.query, quote_via=quote)}" if request.query else ""
    return f"{quote(request.path, safe=_PATH_CHARACTERS)}{query}"


async def read_lines(
    read: ReadChunk, *, doing: str, limits: Limits, clock: Clock, on_buffered: Callable[[int], None] | None = None
) -> AsyncIterator[bytes]:
    """Yield complete lines of what `read` returns bit by bit, until that is nothing.

    Lines are cut from whole reads with `bytes.split`, and only one that spans several reads is ever copied. Others get
    to run after each large read: the next one may be there already, decompressed from a few bytes. `on_buffered` is
    called with the length of the line that has not ended yet.
    """
    allowance = WatchRateLimiter(limits)
    unfinished: list[bytes] = []  # the pieces of a line that has not ended yet
    length = 0
    while chunk := await read():
        first, *rest = chunk.split(b"\n")
        unfinished.append(first)
        length += len(first)
        if length > limits.line_bytes:
            raise LimitExceeded(f"{doing}: a line of the stream is longer than {limits.line_bytes} bytes")
        allowance.take(lines=len(rest), size=len(chunk), doing=doing)
        if rest:
            yield b"".join(unfinished)
            unfinished = [rest.pop()]
            length = len(unfinished[0])
            for line in rest:
                yield line
        if on_buffered is not None:
            on_buffered(length)
        if len(chunk) >= _YIELD_AFTER_BYTES:
            await clock.sleep(timedelta())
    if any(unfinished):
        raise connection_errors.stream_broken(doing, "in the middle of a line")


def enable_keepalive(sock: socket.socket) -> None:
    """Have a connection notice a peer that is gone."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
