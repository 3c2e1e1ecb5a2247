"""How many may look on at once: all together, and from one address.

An open stream takes some room and a file descriptor. Whoever opens thousands of them is refused, before metrics and
probes, which are served by the same process, would be.
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
    """There are as many as there may be."""

    def __init__(self, text: str) -> None:
        super().__init__(text, HTTPStatus.SERVICE_UNAVAILABLE, retry_after=_RETRY_AFTER)


class StreamLimiter:
    """Lets in those for whom there is room."""

    def __init__(self, *, max_streams: int = MAX_STREAMS, max_per_client: int = MAX_STREAMS_PER_CLIENT) -> None:
        self._max_streams = max_streams
        self._max_per_client = max_per_client
        self._open: Counter[str] = Counter()

    @property
    def open_streams(self) -> int:
        """How many there are."""
        return self._open.total()

    @contextlib.contextmanager
    def admit(self, address: str) -> Iterator[None]:
        """Be inside while the context lasts; raises `TooManyStreams`."""
        if self.open_streams >= self._max_streams:
            raise TooManyStreams(f"{self._max_streams} event streams are open already: close some, or try again later")
        if self._open[address] >= self._max_per_client:
            raise TooManyStreams(f"{self._max_per_client} of your event streams are open already: close some tabs")
        self._open[address] += 1
        try:
            yield
        finally:
            self._open[address] -= 1
            self._open += Counter()  # drops those who have none left
