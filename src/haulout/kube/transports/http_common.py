"""Code that all network transports share: request targets, stream lines, TCP keepalive."""

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

# `Client` encodes path segments; this encodes only characters that are never valid in a path.
_PATH_CHARACTERS: Final = "/%:@!$&'()*+,;=-._~"
_YIELD_AFTER_BYTES: Final = 64 << 10  # bytes of a stream after which other tasks get to run
# Detects a dead peer (its node lost power) after about a minute.
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPALIVE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}


def request_target(request: Request) -> str:
    """Return the path with its query, relative to the server's address."""
    query = f"?{urlencode(request.query, quote_via=quote)}" if request.query else ""
    return f"{quote(request.path, safe=_PATH_CHARACTERS)}{query}"


async def read_lines(
    read: ReadChunk, *, doing: str, limits: Limits, clock: Clock, on_buffered: Callable[[int], None] | None = None
) -> AsyncIterator[bytes]:
    """Yield complete lines from chunks, until `read` returns an empty chunk.

    Chunks are split with `bytes.split`, and only a line that spans several chunks is copied. Other tasks run after each
    large chunk, because the next one may be available at once, decompressed from a few bytes. `on_buffered` is called
    with the length of the incomplete line.
    """
    allowance = WatchRateLimiter(limits)
    unfinished: list[bytes] = []  # the parts of the incomplete line
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
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
