"""What is asked of an API server, and how it answers: counted for metrics and for people, in constant room.

    began = clock.monotonic()
    …
    calls.note(("list", "pods", "", ""), began=began, code=200)

A client notes each request it sends, repetitions too; of a watch, how long it took to begin. What a request is about is
told by words that there are few of (a verb, a kind), never by names, so that there are few series; should there be many
all the same, further ones are counted as one. To note one takes less than a microsecond.
"""

from bisect import bisect_left
from collections.abc import Collection
from http import HTTPStatus

from haulout.core.clock import Clock
from haulout.core.lately import Lately

Call = tuple[str, str, str, str]
"""A verb, as permissions know them; a kind in plural, its group, and a subresource."""

OTHER: Call = ("other", "", "", "")
NO_ANSWER = 0
BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Seconds: where the buckets of `Series.buckets` end; there is one more, for all that took longer."""

_MOST = 256
_EVICTION = "eviction"
# These answer the question: it is not there, somebody was quicker, the version is too old.
_ANSWERS = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.GONE, HTTPStatus.UNPROCESSABLE_ENTITY})
_REFUSED = 400


class Series:
    """All calls of one kind."""

    __slots__ = ("_call", "buckets", "codes", "lately", "seconds")

    def __init__(self, call: Call) -> None:
        self._call = call
        self.codes: dict[int, int] = {}  # by status: how many; 0 is no answer
        self.buckets = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0  # all together
        self.lately = Lately()

    @property
    def verb(self) -> str:
        """`get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection` or `other`."""
        return self._call[0]

    @property
    def resource(self) -> str:
        """`leases.coordination.k8s.io` or `pods/eviction`, as kubectl names them; empty for what is none."""
        _, plural, group, subresource = self._call
        name = f"{plural}.{group}" if group else plural
        return f"{name}/{subresource}" if subresource else name

    @property
    def count(self) -> int:
        """How many there were."""
        return sum(self.codes.values())

    @property
    def errors(self) -> int:
        """How many of them failed, as opposed to having been answered with no."""
        return sum(number for code, number in self.codes.items() if self.is_error(code))

    def is_error(self, code: int) -> bool:
        """Tell whether an answer with this status means that something is wrong."""
        if code == HTTPStatus.TOO_MANY_REQUESTS:
            return self._call[3] != _EVICTION  # a budget says: not now
        return code == NO_ANSWER or (code >= _REFUSED and code not in _ANSWERS)


class Calls:
    """What a process asks one API server for."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._series: dict[Call, Series] = {}

    def all(self) -> Collection[Series]:
        """Return what was asked so far; a live view."""
        return self._series.values()

    def note(self, call: Call, *, began: float, code: int) -> None:
        """Note that a request was answered with the status `code`, or with nothing."""
        now = self._clock.monotonic()
        series = self._series.get(call) or self._new(call)
        seconds = now - began
        series.seconds += seconds
        series.buckets[bisect_left(BOUNDS, seconds)] += 1
        series.codes[code] = series.codes.get(code, 0) + 1
        series.lately.note(seconds, at=now)

    def _new(self, call: Call) -> Series:
        if len(self._series) >= _MOST:
            call = OTHER
        if call not in self._series:
            self._series[call] = Series(call)
        return self._series[call]
