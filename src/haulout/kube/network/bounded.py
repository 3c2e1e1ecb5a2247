"""Reads bodies of other servers up to a limit: the one place where bytes of an answer are gathered.

    body = await read_body(answer.content.readany, limit=1 << 20)

`read` returns the next piece, after decompression, and nothing at the end. A piece must be bounded itself:
`StreamReader.readany` of aiohttp returns about twice its buffer (512 KiB), however far a compressed chunk expands, and
leaves stacked encodings as they are. `ClientResponse.read` lifts aiohttp's limit on decompression: nobody may use it.
"""

from collections.abc import Awaitable, Callable

from haulout.kube.shared_budget import Interruption, SharedBudget

Read = Callable[[], Awaitable[bytes]]


class TooLarge(Exception):
    """A body exceeds its limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the answer is longer than {limit} bytes")


async def read_body(read: Read, *, limit: int, count: Callable[[int], None] = lambda _: None) -> bytes:
    """Return a whole body; raises `TooLarge`. `count` is called with the length so far."""
    pieces, length = [], 0
    while piece := await read():
        pieces.append(piece)
        length += len(piece)
        if length > limit:
            raise TooLarge(limit)
        count(length)
    return b"".join(pieces)


async def read_shared(read: Read, *, limit: int, budget: SharedBudget, doing: str) -> bytes:
    """Return a whole body; raises `LimitExceeded` also if too much is being read for `budget`, and most of it here."""
    interruption = Interruption()
    with budget.share(interruption.end) as share:
        async with interruption:
            return await read_body(read, limit=limit, count=lambda length: share.resize(length, doing=doing))


class CountedReads:
    """Reads a stream whose reader holds bytes back until a line is complete: they count for `budget`."""

    def __init__(self, read: Read, *, budget: SharedBudget, doing: str) -> None:
        self._read = read
        self._doing = doing
        self._budget = budget
        self._interruption = Interruption()
        self._share = budget.new_share(self._interruption.end)

    async def read(self) -> bytes:
        """Return the next piece; raises `LimitExceeded` if others need the bytes that are held back."""
        if not self._share.size:
            return await self._read()
        async with self._interruption:
            return await self._read()

    def hold(self, length: int) -> None:
        """Note how many bytes are held back; raises `LimitExceeded`."""
        self._share.resize(length, doing=self._doing)

    def close(self) -> None:
        """Hold nothing back any more."""
        self._budget.release(self._share)


async def read_beginning(read: Read, *, limit: int) -> bytes:
    """Return the beginning of a body, and read no more of it: for errors, whose status is known already."""
    pieces, length = [], 0
    while length < limit and (piece := await read()):
        pieces.append(piece)
        length += len(piece)
    return b"".join(pieces)[:limit]
