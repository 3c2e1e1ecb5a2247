"""Calls through SDKs of clouds: optional packages, threads, and limits on responses.

The SDKs are large, and not part of the default installation. Their calls block, so each runs in its own daemon thread,
for which the process does not wait when it ends, unlike for those of `asyncio.to_thread`. SDKs read whole bodies
themselves, without a limit:

    limit_session(session)                              # of requests: OpenStack
    limit_requests(adapters, connection)                # all sessions of one copy of requests: OCI
    connection.response_class = UncompressedLimitedResponse         # of http.client: boto3, pyVmomi

A session counts bytes after decompression. A response of `http.client` counts bytes on the wire. The uncompressed
variant also rejects compressed bodies, because these SDKs may decompress without a limit. All of them stop a response
that has not ended `TIMEOUT_SECONDS` after its first byte, even if bytes keep arriving. They raise an `OSError`, which
SDKs pass on or wrap like a lost connection.
"""

import asyncio
import http.client
import importlib.util
import io
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from haulout.core.clock import RealClock
from haulout.errors import ConfigError

T = TypeVar("T")

LIMIT: Final = 64 << 20  # about ten times the size of the largest page of any SDK
_LIMITED_MARKER: Final = "_haulout_bound"
_CLOCK: Final = RealClock()  # SDK calls run in threads, and their peers in real time
TIMEOUT_SECONDS: Final = 60  # from the first byte of a response to the last


@dataclass(frozen=True, slots=True)
class OptionalSdk:
    """The SDK package that is needed to listen to one cloud."""

    cloud: str
    package: str
    extra_name: str  # of the Python extra, and of the image that includes it

    def check(self) -> None:
        """Raise `ConfigError` if the SDK is not installed."""
        if importlib.util.find_spec(self.package) is None:
            raise self.missing_error(f"there is no module {self.package}")

    def missing_error(self, problem: object) -> ConfigError:
        where = f"pip install 'haulout[{self.extra_name}]', or the image with the tag -{self.extra_name}"
        return ConfigError(f"the SDK for {self.cloud} is not installed: use {where} ({problem})")


AWS = OptionalSdk("AWS", "boto3", "aws")
OCI = OptionalSdk("OCI", "oci", "oci")


async def run_in_thread(function: Callable[[], T], *, name: str) -> T:
    """Call `function` in a daemon thread, and return its result or raise its exception."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        # The caller was cancelled. The thread cannot be stopped, and its result is of no use.
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]  # without an error there is a result

    def run() -> None:
        result, error = None, None
        try:
            result = function()
        except Exception as raised:  # noqa: BLE001 - it is raised in the caller
            error = raised
        with suppress(RuntimeError):  # the event loop has ended
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await future


class ResponseTooLarge(OSError):
    """A response exceeds its limit. It is an OSError, so that SDKs handle it like a lost connection."""


class ResponseTooSlow(ResponseTooLarge):
    """A response does not end in time."""


def limit_error_of(error: BaseException | None) -> ResponseTooLarge | None:
    """Return the `ResponseTooLarge` in the causes of an error; None if there is none."""
    while error is not None and not isinstance(error, ResponseTooLarge):
        # SDKs wrap errors, some without `from`: then only the context is set.
        error = error.__cause__ or error.__context__
    return error


def limit_session(session: Any, *, limit: int = LIMIT) -> None:
    """Limit the size (`limit` bytes) and the duration of each response of a requests session."""
    for adapter in session.adapters.values():
        adapter.build_response = partial(_build_limited_response, adapter.build_response, limit)
        for pool in adapter.poolmanager.pool_classes_by_scheme.values():
            _limit_connection(pool.ConnectionCls)


def limit_requests(adapters: Any, connection: Any) -> None:
    """Limit all sessions of one copy of requests, given its module `adapters` and urllib3's module `connection`.

    For SDKs that create sessions internally, as the signers of OCI do.
    """
    adapter = adapters.HTTPAdapter
    # The class is patched once, however many event sources use the SDK.
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
            raw.close()  # also closes the connection: the rest of the body would be read as the next response
            raise _too_large(limit)
        yield chunk


class LimitedResponse(http.client.HTTPResponse):
    """A response of at most `limit` bytes on the wire, including its head, that ends within `timeout_seconds`."""

    limit = LIMIT
    timeout_seconds: float = TIMEOUT_SECONDS

    def __init__(self, sock: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp: Any = io.BufferedReader(_LimitedReader(self.fp.detach(), self.limit, self.timeout_seconds))


class UncompressedLimitedResponse(LimitedResponse):
    """A limited response that must not be compressed."""

    def begin(self) -> None:
        """Read the head. Raise `ResponseTooLarge` if the body is compressed."""
        super().begin()
        encoding = self.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding != "identity":
            raise ResponseTooLarge(f"expected an answer without compression, found {encoding[:40]!r}")


class _LimitedReader(io.RawIOBase):
    def __init__(self, raw: io.RawIOBase, limit: int, timeout_seconds: float) -> None:
        self._raw = raw
        self._limit = self._remaining = limit
        self._timeout_seconds = timeout_seconds
        self._deadline: float | None = None  # set at the first byte

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
