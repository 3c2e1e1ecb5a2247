"""What transports over the network have in common: how a request is addressed, a stream cut, a connection kept."""

import socket
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Final
from urllib.parse import quote, urlencode

from haulout.core.clock import Clock
from haulout.errors import LimitExceeded
from haulout.kube.limits import Limits, WatchAllowance
from haulout.kube.network import wording
from haulout.kube.network.bounded import Read
from haulout.kube.transport import Request

# The client above encodes the parts of a path; here only what can never stand in one is encoded.
_PATH_CHARACTERS: Final = "/%:@!$&'()*+,;=-._~"
_MANY: Final = 64 << 10  # bytes of a stream that may keep everybody else from running
# A peer that vanished without a word (a node lost power) is noticed after about a minute.
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPALIVE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}


def target(request: Request) -> str:
    """Return what is asked for: the path with its query, relative to the server's address."""
    query = f"?{urlencode(request.query, quote_via=quote)}" if request.query else ""
    return f"{quote(request.path, safe=_PATH_CHARACTERS)}{query}"


async def lines(
    read: Read, *, doing: str, limits: Limits, clock: Clock, hold: Callable[[int], None] | None = None
) -> AsyncIterator[bytes]:
    """Yield complete lines of what `read` returns bit by bit, until that is nothing.

    Lines are cut from whole reads with `bytes.split`, and only one that spans several reads is ever copied. Others get
    to run after each large read: the next one may be there already, decompressed from a few bytes. `hold` is called
    with the length of the line that has not ended yet.
    """
    allowance = WatchAllowance(limits)
    begun: list[bytes] = []  # the pieces of a line that has not ended yet
    length = 0
    while chunk := await read():
        first, *rest = chunk.split(b"\n")
        begun.append(first)
        length += len(first)
        if length > limits.line_bytes:
            raise LimitExceeded(f"{doing}: a line of the stream is longer than {limits.line_bytes} bytes")
        allowance.take(lines=len(rest), size=len(chunk), doing=doing)
        if rest:
            yield b"".join(begun)
            begun = [rest.pop()]
            length = len(begun[0])
            for line in rest:
                yield line
        if hold is not None:
            hold(length)
        if len(chunk) >= _MANY:
            await clock.sleep(timedelta())
    if any(begun):
        raise wording.broke_off(doing, "in the middle of a line")


def keep_alive(connected: socket.socket) -> None:
    """Have a connection notice a peer that is gone."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
