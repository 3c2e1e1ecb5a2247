"""How many may look on at once: all together, and from one address.

An open stream takes some room and a file descriptor. Whoever opens thousands of them is refused, before metrics and
probes, which are served by the same process, would be.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from http import HTTPStatus

from haulout.web.api.source import Unanswerable

MOST = 500
MOST_OF_ONE = 20
_ASK_AGAIN_AFTER = timedelta(seconds=10)


class TooMany(Unanswerable):
    """There are as many as there may be."""

    def __init__(self, text: str) -> None:
        super().__init__(text, HTTPStatus.SERVICE_UNAVAILABLE, retry_after=_ASK_AGAIN_AFTER)


class Turnstile:
    """Lets in those for whom there is room."""

    def __init__(self, *, most: int = MOST, most_of_one: int = MOST_OF_ONE) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._inside: Counter[str] = Counter()

    @property
    def inside(self) -> int:
        """How many there are."""
        return self._inside.total()

    @contextlib.contextmanager
    def passed(self, address: str) -> Iterator[None]:
        """Be inside while the context lasts; raises `TooMany`."""
        if self.inside >= self._most:
            raise TooMany(f"{self._most} event streams are open already: close some, or try again later")
        if self._inside[address] >= self._most_of_one:
            raise TooMany(f"{self._most_of_one} of your event streams are open already: close some tabs")
        self._inside[address] += 1
        try:
            yield
        finally:
            self._inside[address] -= 1
            self._inside += Counter()  # drops those who have none left
