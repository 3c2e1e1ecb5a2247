"""Reads response bodies up to a limit. All bytes of responses are collected here.

    body = await read_body(response.content.readany, limit=1 << 20)

`read` returns the next decompressed chunk, and an empty one at the end. Chunks must be bounded: `StreamReader.readany`
of aiohttp returns about twice its buffer (512 KiB), however far a compressed chunk expands, and does not decode stacked
encodings. Do not use `ClientResponse.read`: it lifts aiohttp's limit on decompression.
"""

from collections.abc import Awaitable, Callable

from haulout.core.memory import InterruptScope, MemoryQuota

ReadChunk = Callable[[], Awaitable[bytes]]


class BodyTooLarge(Exception):
    """A body exceeds its limit. What was read of it is discarded."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the answer is longer than {limit} bytes")


async def read_body(read: ReadChunk, *, limit: int, on_length: Callable[[int], None] = lambda _: None) -> bytes:
    """Return a whole body. Raise `BodyTooLarge`. `on_length` is called with the length so far."""
    chunks, length = [], 0
    while chunk := await read():
        chunks.append(chunk)
        length += len(chunk)
        if length > limit:
            raise BodyTooLarge(limit)
        on_length(length)
    return b"".join(chunks)


async def read_body_within_quota(read: ReadChunk, *, limit: int, quota: MemoryQuota, doing: str) -> bytes:
    """Return a whole body.

    Raise `BodyTooLarge`, or `LimitExceeded` if `quota` is exceeded and this is the largest read.
    """
    scope = InterruptScope()
    with quota.share(scope.interrupt) as share:
        async with scope:
            return await read_body(read, limit=limit, on_length=lambda length: share.resize(length, doing=doing))


class QuotaReader:
    """Reads a stream whose consumer buffers incomplete lines. The buffered bytes count toward `quota`."""

    def __init__(self, read: ReadChunk, *, quota: MemoryQuota, doing: str) -> None:
        self._read = read
        self._doing = doing
        self._quota = quota
        self._scope = InterruptScope()
        self._share = quota.new_share(self._scope.interrupt)

    async def read(self) -> bytes:
        """Return the next chunk. Raise `LimitExceeded` if other reads need the buffered bytes."""
        # Nothing is buffered, so an eviction could free nothing. To enter the scope for each chunk costs more than the
        # read.
        if not self._share.size:
            return await self._read()
        async with self._scope:
            return await self._read()

    def set_buffered(self, length: int) -> None:
        """Record the number of buffered bytes. Raise `LimitExceeded`."""
        self._share.resize(length, doing=self._doing)

    def close(self) -> None:
        self._quota.release(self._share)


async def read_prefix(read: ReadChunk, *, limit: int) -> bytes:
    """Return the beginning of a body, and read no further.

    This is for error responses, whose status is known already.
    """
    chunks, length = [], 0
    while length < limit and (chunk := await read()):
        chunks.append(chunk)
        length += len(chunk)
    return b"".join(chunks)[:limit]
