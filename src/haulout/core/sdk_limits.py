"""Limits on the answers that SDKs of clouds read: they read whole bodies by themselves, and have no limit.

    bound_session(client.base_client.session)           # of requests: OCI, OpenStack
    connection.response_class = BoundedResponse         # of http.client: boto3, pyVmomi

A session counts bytes after decompression. A response of `http.client` counts bytes as they come, and refuses to be
compressed: whoever uses it asks for no compression, and may decompress without a limit. Both raise an `OSError`, which
SDKs pass on or wrap like a lost connection.
"""

import http.client
import io
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

LIMIT: Final = 64 << 20  # some ten times what the largest page of any of them takes


class AnswerTooLarge(OSError):
    """An answer exceeds its limit."""


def excess(error: BaseException | None) -> AnswerTooLarge | None:
    """Return the one of an error's causes that says that an answer was too large."""
    while error is not None and not isinstance(error, AnswerTooLarge):
        error = error.__cause__ or error.__context__
    return error


def bound_session(session: Any, *, limit: int = LIMIT) -> None:
    """Have a session of requests read at most `limit` bytes of an answer."""
    for adapter in session.adapters.values():
        adapter.build_response = partial(_built, adapter.build_response, limit)


def _built(build: Callable[[Any, Any], Any], limit: int, request: Any, raw: Any) -> Any:
    raw.stream = partial(_stream, raw.stream, limit)
    return build(request, raw)


def _stream(stream: Callable[..., Iterator[bytes]], limit: int, *args: Any, **more: Any) -> Iterator[bytes]:
    length = 0
    for piece in stream(*args, **more):
        length += len(piece)
        if length > limit:
            raise _too_large(limit)
        yield piece


class BoundedResponse(http.client.HTTPResponse):
    """A response of at most `limit` bytes, its head included."""

    limit = LIMIT

    def __init__(self, sock: Any, *args: Any, **more: Any) -> None:
        super().__init__(sock, *args, **more)
        self.fp: Any = io.BufferedReader(_Counted(self.fp.detach(), self.limit))

    def begin(self) -> None:
        """Read the head."""
        super().begin()
        encoding = self.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding != "identity":
            raise AnswerTooLarge(f"expected an answer without compression, found {encoding[:40]!r}")


class _Counted(io.RawIOBase):
    def __init__(self, raw: io.RawIOBase, limit: int) -> None:
        self._raw = raw
        self._limit = self._left = limit

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        count = self._raw.readinto(buffer)
        self._left -= count or 0
        if self._left < 0:
            raise _too_large(self._limit)
        return count

    def fileno(self) -> int:
        return self._raw.fileno()

    def close(self) -> None:
        self._raw.close()
        super().close()


def _too_large(limit: int) -> AnswerTooLarge:
    return AnswerTooLarge(f"the answer is longer than {limit} bytes")
