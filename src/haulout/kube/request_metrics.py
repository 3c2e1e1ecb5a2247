"""Metrics of API requests: counts and durations, in constant memory.

    started = clock.monotonic()
    …
    request_metrics.observe(("list", "pods", "", ""), started=started, code=200)

A client records each request that it sends, including retries; for a watch, the time until it began. Labels have few
values (a verb, a resource) and never contain object names, so there are few series. Beyond a limit, all further
requests are counted in one series. To record a request takes less than a microsecond.
"""

from bisect import bisect_left
from collections.abc import Collection
from http import HTTPStatus

from haulout.core.clock import Clock
from haulout.core.metrics import RecentValues

RequestKind = tuple[str, str, str, str]
"""A verb, as permissions know them; a kind in plural, its group, and a subresource."""

OTHER: RequestKind = ("other", "", "", "")
NO_RESPONSE = 0
BUCKET_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Seconds: where the buckets of `RequestSeries.buckets` end; there is one more, for all that took longer."""

_MAX_SERIES = 256
_EVICTION = "eviction"
# These are answers, not failures: the object does not exist, another client was faster, the version is too old.
_EXPECTED_CODES = frozenset(
    {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.GONE, HTTPStatus.UNPROCESSABLE_ENTITY}
)
_FIRST_ERROR_CODE = 400


class RequestSeries:
    """All requests of one kind."""

    __slots__ = ("_kind", "buckets", "codes", "recent", "seconds")

    def __init__(self, kind: RequestKind) -> None:
        self._kind = kind
        self.codes: dict[int, int] = {}  # by status code; 0 is no response
        self.buckets = [0] * (len(BUCKET_BOUNDS) + 1)
        self.seconds = 0.0  # the sum of all durations
        self.recent = RecentValues()

    @property
    def verb(self) -> str:
        """`get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection` or `other`."""
        return self._kind[0]

    @property
    def resource(self) -> str:
        """`leases.coordination.k8s.io` or `pods/eviction`, as in kubectl; empty for requests without a resource."""
        _, plural, group, subresource = self._kind
        name = f"{plural}.{group}" if group else plural
        return f"{name}/{subresource}" if subresource else name

    @property
    def count(self) -> int:
        return sum(self.codes.values())

    @property
    def errors(self) -> int:
        """Return how many requests failed. Expected refusals, such as 404, are no failures."""
        return sum(number for code, number in self.codes.items() if self.is_error(code))

    def is_error(self, code: int) -> bool:
        """Return whether this status code means a failure."""
        if code == HTTPStatus.TOO_MANY_REQUESTS:
            return self._kind[3] != _EVICTION  # a PodDisruptionBudget refuses for now
        return code == NO_RESPONSE or (code >= _FIRST_ERROR_CODE and code not in _EXPECTED_CODES)


class RequestMetrics:
    """The requests of a process to one API server."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._series: dict[RequestKind, RequestSeries] = {}

    def all(self) -> Collection[RequestSeries]:
        """Return all series. This is a live view."""
        return self._series.values()

    def observe(self, kind: RequestKind, *, started: float, code: int) -> None:
        """Record a request that started at `started` (monotonic) and was answered with `code`."""
        now = self._clock.monotonic()
        series = self._series.get(kind) or self._new_series(kind)
        seconds = now - started
        series.seconds += seconds
        series.buckets[bisect_left(BUCKET_BOUNDS, seconds)] += 1
        series.codes[code] = series.codes.get(code, 0) + 1
        series.recent.record(seconds, at=now)

    def _new_series(self, kind: RequestKind) -> RequestSeries:
        if len(self._series) >= _MAX_SERIES:
            kind = OTHER
        if kind not in self._series:
            self._series[kind] = RequestSeries(kind)
        return self._series[kind]
