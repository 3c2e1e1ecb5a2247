"""Limits on open event streams: in total, and per client.

An open stream needs memory and a file descriptor. Thousands of streams are refused before metrics and probes of the
same process suffer.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from http import HTTPStatus

from haulout.dashboard.api.backend import HttpError

MAX_STREAMS = 500
MAX_STREAMS_PER_CLIENT = 20
_RETRY_AFTER = timedelta(seconds=10)


class TooManyStreams(HttpError):
    """The limit on open streams is reached."""

    def __init__(self, text: str) -> None:
        super().__init__(text, HTTPStatus.SERVICE_UNAVAILABLE, retry_after=_RETRY_AFTER)


class StreamLimiter:
    """Admits streams up to the limits."""

    def __init__(self, *, max_streams: int = MAX_STREAMS, max_per_client: int = MAX_STREAMS_PER_CLIENT) -> None:
        self._max_streams = max_streams
        self._max_per_client = max_per_client
        self._open: Counter[str] = Counter()

    @property
    def open_streams(self) -> int:
        return self._open.total()

    @contextlib.contextmanager
    def admit(self, address: str) -> Iterator[None]:
        """Count a stream while the context lasts; raise `TooManyStreams`."""
        if self.open_streams >= self._max_streams:
            raise TooManyStreams(f"{self._max_streams} event streams are open already: close some, or try again later")
        if self._open[address] >= self._max_per_client:
            raise TooManyStreams(f"{self._max_per_client} of your event streams are open already: close some tabs")
        self._open[address] += 1
        try:
            yield
        finally:
            self._open[address] -= 1
            self._open += Counter()  # drops entries that are zero
