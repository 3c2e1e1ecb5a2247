"""Limits on the answers that SDKs of clouds read: they read whole bodies by themselves, and have no limit.

    bound_session(session)                              # of requests: OpenStack
    bound_requests(adapters, connection)                # all sessions of one copy of requests: OCI
    connection.response_class = BoundedResponse         # of http.client: boto3, pyVmomi

A session counts bytes after decompression. A response of `http.client` counts bytes as they come, and refuses to be
compressed: whoever uses it asks for no compression, and may decompress without a limit. All of them end an answer that
has not ended `TIMEOUT_SECONDS` after its first byte, however often a few bytes come. They raise an `OSError`, which
SDKs pass on or wrap like a lost connection.
"""

import http.client
import io
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from haulout.core.clock import RealClock

LIMIT: Final = 64 << 20  # some ten times what the largest page of any of them takes
_LIMITED_MARKER: Final = "_haulout_bound"
_CLOCK: Final = RealClock()  # calls of SDKs run in threads, and their peers in real time
TIMEOUT_SECONDS: Final = 60  # from the first byte of an answer to its last


class ResponseTooLarge(OSError):
    """An answer exceeds its limit."""


class ResponseTooSlow(ResponseTooLarge):
    """An answer does not end in time."""


def limit_error_of(error: BaseException | None) -> ResponseTooLarge | None:
    """Return the one of an error's causes that says that an answer was too large."""
    while error is not None and not isinstance(error, ResponseTooLarge):
        error = error.__cause__ or error.__context__
    return error


def limit_session(session: Any, *, limit: int = LIMIT) -> None:
    """Have a session of requests read at most `limit` bytes of an answer, within the time that it may take."""
    for adapter in session.adapters.values():
        adapter.build_response = partial(_build_limited_response, adapter.build_response, limit)
        for pool in adapter.poolmanager.pool_classes_by_scheme.values():
            _limit_connection(pool.ConnectionCls)


def limit_requests(adapters: Any, connection: Any) -> None:
    """Bound all sessions of one copy of requests, by its module `adapters` and the module `connection` of urllib3.

    For SDKs that make sessions where nobody gets hold of them, as the signers of OCI do.
    """
    adapter = adapters.HTTPAdapter
    if not getattr(adapter, _LIMITED_MARKER, False):
        setattr(adapter, _LIMITED_MARKER, True)
        build = adapter.build_response
        adapter.build_response = lambda self, request, raw: _build_limited_response(
            partial(build, self), LIMIT, request, raw
        )
    _limit_connection(connection.HTTPConnection)
    _limit_connection(connection.HTTPSConnection)


def _limit_connection(connection: Any) -> None:
    connection.response_class = LimitedResponse


def _build_limited_response(build: Callable[[Any, Any], Any], limit: int, request: Any, raw: Any) -> Any:
    raw.stream = partial(_limited_stream, raw, raw.stream, limit)
    return build(request, raw)


def _limited_stream(
    raw: Any, stream: Callable[..., Iterator[bytes]], limit: int, *args: Any, **kwargs: Any
) -> Iterator[bytes]:
    length = 0
    for chunk in stream(*args, **kwargs):
        length += len(chunk)
        if length > limit:
            raw.close()  # its connection, too: the rest of the answer would be taken for the next one
            raise _too_large(limit)
        yield chunk


class LimitedResponse(http.client.HTTPResponse):
    """A response of at most `limit` bytes as they come, its head included, that ends `timeout_seconds` seconds."""

    limit = LIMIT
    timeout_seconds: float = TIMEOUT_SECONDS

    def __init__(self, sock: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp: Any = io.BufferedReader(_LimitedReader(self.fp.detach(), self.limit, self.timeout_seconds))


class UncompressedLimitedResponse(LimitedResponse):
    """The same; it must not be compressed."""

    def begin(self) -> None:
        """Read the head."""
        super().begin()
        encoding = self.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding != "identity":
            raise ResponseTooLarge(f"expected an answer without compression, found {encoding[:40]!r}")


class _LimitedReader(io.RawIOBase):
    def __init__(self, raw: io.RawIOBase, limit: int, timeout_seconds: float) -> None:
        self._raw = raw
        self._limit = self._remaining = limit
        self._timeout_seconds = timeout_seconds
        self._deadline: float | None = None  # from the first byte on

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        count = self._raw.readinto(buffer)
        self._remaining -= count or 0
        if self._remaining < 0:
            raise _too_large(self._limit)
        now = _CLOCK.monotonic()
        self._deadline = self._deadline or now + self._timeout_seconds
        if now > self._deadline:
            raise ResponseTooSlow(f"the answer has not ended within {self._timeout_seconds:g} s")
        return count

    def fileno(self) -> int:
        return self._raw.fileno()

    def close(self) -> None:
        self._raw.close()
        super().close()


def _too_large(limit: int) -> ResponseTooLarge:
    return ResponseTooLarge(f"the answer is longer than {limit} bytes")
