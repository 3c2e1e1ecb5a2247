"""Reads bodies of other servers up to a limit: the one place where bytes of an answer are gathered.

    body = await read_body(answer.content.readany, limit=1 << 20)

`read` returns the next piece, after decompression, and nothing at the end. A piece must be bounded itself:
`StreamReader.readany` of aiohttp returns about twice its buffer (512 KiB), however far a compressed chunk expands, and
leaves stacked encodings as they are. `ClientResponse.read` lifts aiohttp's limit on decompression: nobody may use it.
"""

from collections.abc import Awaitable, Callable

Read = Callable[[], Awaitable[bytes]]


class TooLarge(Exception):
    """A body exceeds its limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the answer is longer than {limit} bytes")


async def read_body(read: Read, *, limit: int) -> bytes:
    """Return a whole body; raises `TooLarge`."""
    pieces, length = [], 0
    while piece := await read():
        pieces.append(piece)
        length += len(piece)
        if length > limit:
            raise TooLarge(limit)
    return b"".join(pieces)


async def read_beginning(read: Read, *, limit: int) -> bytes:
    """Return the beginning of a body, and read no more of it: for errors, whose status is known already."""
    pieces, length = [], 0
    while length < limit and (piece := await read()):
        pieces.append(piece)
        length += len(piece)
    return b"".join(pieces)[:limit]
