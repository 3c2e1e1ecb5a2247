"""Limits on the answers that SDKs of clouds read: they read whole bodies by themselves, and have no limit.

    bound_session(session)                              # of requests: OpenStack
    bound_requests(adapters, connection)                # all sessions of one copy of requests: OCI
    connection.response_class = BoundedResponse         # of http.client: boto3, pyVmomi

A session counts bytes after decompression. A response of `http.client` counts bytes as they come, and refuses to be
compressed: whoever uses it asks for no compression, and may decompress without a limit. All of them end an answer that
has not ended `WITHIN_SECONDS` after its first byte, however often a few bytes come. They raise an `OSError`, which SDKs
pass on or wrap like a lost connection.
"""

import http.client
import io
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from haulout.core.clock import RealClock

LIMIT: Final = 64 << 20  # some ten times what the largest page of any of them takes
_BOUND: Final = "_haulout_bound"
_CLOCK: Final = RealClock()  # calls of SDKs run in threads, and their peers in real time
WITHIN_SECONDS: Final = 60  # from the first byte of an answer to its last


class AnswerTooLarge(OSError):
    """An answer exceeds its limit."""


class AnswerTooSlow(AnswerTooLarge):
    """An answer does not end in time."""


def excess(error: BaseException | None) -> AnswerTooLarge | None:
    """Return the one of an error's causes that says that an answer was too large."""
    while error is not None and not isinstance(error, AnswerTooLarge):
        error = error.__cause__ or error.__context__
    return error


def bound_session(session: Any, *, limit: int = LIMIT) -> None:
    """Have a session of requests read at most `limit` bytes of an answer, within the time that it may take."""
    for adapter in session.adapters.values():
        adapter.build_response = partial(_built, adapter.build_response, limit)
        for pool in adapter.poolmanager.pool_classes_by_scheme.values():
            _time(pool.ConnectionCls)


def bound_requests(adapters: Any, connection: Any) -> None:
    """Bound all sessions of one copy of requests, by its module `adapters` and the module `connection` of urllib3.

    For SDKs that make sessions where nobody gets hold of them, as the signers of OCI do.
    """
    adapter = adapters.HTTPAdapter
    if not getattr(adapter, _BOUND, False):
        setattr(adapter, _BOUND, True)
        build = adapter.build_response
        adapter.build_response = lambda self, request, raw: _built(partial(build, self), LIMIT, request, raw)
    _time(connection.HTTPConnection)
    _time(connection.HTTPSConnection)


def _time(connection: Any) -> None:
    connection.response_class = TimedResponse


def _built(build: Callable[[Any, Any], Any], limit: int, request: Any, raw: Any) -> Any:
    raw.stream = partial(_stream, raw, raw.stream, limit)
    return build(request, raw)


def _stream(raw: Any, stream: Callable[..., Iterator[bytes]], limit: int, *args: Any, **more: Any) -> Iterator[bytes]:
    length = 0
    for piece in stream(*args, **more):
        length += len(piece)
        if length > limit:
            raw.close()  # its connection, too: the rest of the answer would be taken for the next one
            raise _too_large(limit)
        yield piece


class TimedResponse(http.client.HTTPResponse):
    """A response of at most `limit` bytes as they come, its head included, that ends `within` seconds."""

    limit = LIMIT
    within: float = WITHIN_SECONDS

    def __init__(self, sock: Any, *args: Any, **more: Any) -> None:
        super().__init__(sock, *args, **more)
        self.fp: Any = io.BufferedReader(_Counted(self.fp.detach(), self.limit, self.within))


class BoundedResponse(TimedResponse):
    """The same; it must not be compressed."""

    def begin(self) -> None:
        """Read the head."""
        super().begin()
        encoding = self.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding != "identity":
            raise AnswerTooLarge(f"expected an answer without compression, found {encoding[:40]!r}")


class _Counted(io.RawIOBase):
    def __init__(self, raw: io.RawIOBase, limit: int, within: float) -> None:
        self._raw = raw
        self._limit = self._left = limit
        self._within = within
        self._until: float | None = None  # from the first byte on

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        count = self._raw.readinto(buffer)
        self._left -= count or 0
        if self._left < 0:
            raise _too_large(self._limit)
        now = _CLOCK.monotonic()
        self._until = self._until or now + self._within
        if now > self._until:
            raise AnswerTooSlow(f"the answer has not ended within {self._within:g} s")
        return count

    def fileno(self) -> int:
        return self._raw.fileno()

    def close(self) -> None:
        self._raw.close()
        super().close()


def _too_large(limit: int) -> AnswerTooLarge:
    return AnswerTooLarge(f"the answer is longer than {limit} bytes")
