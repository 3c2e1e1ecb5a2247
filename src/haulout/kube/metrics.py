"""Metrics of work queues, informers and API requests, for `/metrics` and the health pages.

Each client has one `KubeMetrics`, which clients derived from it share. A queue or informer registers itself while it
runs, so no other code has to know all queues and caches of a process. Counters outlive them.

Metrics of API requests: counts and durations, in constant memory.

    started = clock.monotonic()
    …
    request_metrics.observe(("list", "pods", "", ""), started=started, code=200)

A client records each request that it sends, including retries; for a watch, the time until it began. Labels have few
values (a verb, a resource) and never contain object names, so there are few series. Beyond a limit, all further
requests are counted in one series. To record a request takes less than a microsecond.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from haulout.core.clock import Clock
from haulout.core.metrics import (
    SECONDS_BUCKETS,
    Histogram,
    HistogramSeries,
    Metric,
    MetricVec,
    RecentValues,
    counter,
    gauge,
    histogram,
)

if TYPE_CHECKING:
    from haulout.kube.informer import Informer
    from haulout.kube.workqueue import WorkQueue


QUEUE_DEPTH = gauge("haulout_queue_depth", "How many keys of a work queue are due or being reconciled.", "queue")
QUEUE_LAG = histogram(
    "haulout_queue_lag_seconds",
    "How long due keys waited until their reconcile started.",
    "queue",
    details="a key is due after a change or at its requeue time",
    buckets=SECONDS_BUCKETS,
)
SCHEDULED_LAG = histogram(
    "haulout_queue_scheduled_lag_seconds",
    "How long after their requeue time keys were reconciled.",
    "queue",
    details="for example when a window opens, a wait ends or a notice is due",
    buckets=SECONDS_BUCKETS,
)
QUEUE_FAILURES = counter("haulout_queue_failures_total", "How many reconciles failed and were retried later.", "queue")
WATCH_AGE = gauge(
    "haulout_watch_age_seconds",
    "Time since the API server last sent anything to the watches of a kind of object; the longest of them.",
    "resource",
    details="it sends a bookmark about every minute even if nothing changes",
)
WATCH_OBJECTS = gauge("haulout_watch_objects", "How many objects the informers cache.", "resource")
WATCH_NOT_SYNCED = gauge(
    "haulout_watch_not_synced",
    "How many informers of a kind of object are not synced or have no working watch.",
    "resource",
    details="a kind that is not installed does not count",
)
DROPPED = counter(
    "haulout_dropped_total",
    "How many Events or history entries were dropped because they could not be written.",
    "type",
    details="`type` is `events` or `history`",
)
API_REQUESTS = counter(
    "haulout_api_requests_total",
    "How many requests were sent to the API server.",
    "verb",
    "resource",
    "code",
    details="`code` is 0 if there was no response",
)
# Upper bounds in seconds, from a read out of the watch cache to the timeout of a request. `RequestSeries.buckets` has
# one more, for longer requests.
BUCKET_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

API_REQUEST_SECONDS = histogram(
    "haulout_api_request_duration_seconds",
    "How long the API server took to answer.",
    "verb",
    "resource",
    details="for a watch, the time until it started",
    buckets=BUCKET_BOUNDS,
)
METRICS = (
    API_REQUESTS,
    API_REQUEST_SECONDS,
    QUEUE_DEPTH,
    QUEUE_LAG,
    SCHEDULED_LAG,
    QUEUE_FAILURES,
    WATCH_AGE,
    WATCH_OBJECTS,
    WATCH_NOT_SYNCED,
    DROPPED,
)

DROPPED_EVENTS, DROPPED_HISTORY = "events", "history"

# The verb as RBAC names it, the resource in the plural, its group, and the subresource.
RequestKind = tuple[str, str, str, str]

OTHER: RequestKind = ("other", "", "", "")
NO_RESPONSE = 0

# A configuration can name resources to read. It must not be able to make the number of series grow without end.
_MAX_SERIES = 256
_EVICTION = "eviction"
# These are answers, not failures: the object does not exist, another client was faster, the version is too old.
_EXPECTED_CODES = frozenset(
    {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.GONE, HTTPStatus.UNPROCESSABLE_ENTITY}
)
_FIRST_ERROR_CODE = 400


class KubeMetrics:
    """The counters, and the queues and informers that run now."""

    def __init__(self) -> None:
        self.lag = Histogram(QUEUE_LAG)
        self.scheduled_lag = Histogram(SCHEDULED_LAG)
        self.failures = MetricVec(QUEUE_FAILURES)
        self.dropped = MetricVec(DROPPED)
        # A counter that appears with its first value has no increase that Prometheus' `rate` could see. So every series
        # starts at 0.
        for what in (DROPPED_EVENTS, DROPPED_HISTORY):
            self.dropped.add(what, amount=0)
        self._depth = MetricVec(QUEUE_DEPTH)
        self._age = MetricVec(WATCH_AGE)
        self._objects = MetricVec(WATCH_OBJECTS)
        self._not_synced = MetricVec(WATCH_NOT_SYNCED)
        self._counters: dict[Metric, MetricVec] = {}
        self.queues: dict[WorkQueue[Any], None] = {}  # those that run now, in start order
        self.informers: dict[Informer[Any], None] = {}  # those that run now, in start order

    @contextmanager
    def track_queue(self, queue: "WorkQueue[Any]") -> Iterator[None]:
        self.queues[queue] = None
        for lag in (self.lag, self.scheduled_lag):
            lag.initialize(queue.name)
        self.failures.add(queue.name, amount=0)
        try:
            yield
        finally:
            del self.queues[queue]

    @contextmanager
    def track_informer(self, informer: "Informer[Any]") -> Iterator[None]:
        self.informers[informer] = None
        try:
            yield
        finally:
            del self.informers[informer]

    def record_run(self, queue: str, *, lag: float, is_scheduled: bool, failed: bool) -> None:
        """Record one run of a queue. `lag` is in seconds."""
        self.lag.observe(lag, queue)
        if is_scheduled:
            self.scheduled_lag.observe(lag, queue)
        if failed:
            self.failures.add(queue)

    def collect(self, *, now: datetime) -> tuple[MetricVec | Histogram, ...]:
        """Return the current value of all metrics except those of requests."""
        gauges = self._depth, self._age, self._objects, self._not_synced
        for metric_vec in gauges:
            metric_vec.values.clear()
        for queue in self.queues:
            stats = queue.stats()
            self._depth.add(queue.name, amount=stats.waiting + stats.running)
        for informer in self.informers:
            self._collect_informer(informer, now)
        return *gauges, self.lag, self.scheduled_lag, self.failures, self.dropped, *self._counters.values()

    def counter(self, metric: Metric) -> MetricVec:
        """Return the counter of a metric that is declared elsewhere. It lasts as long as the process."""
        return self._counters.setdefault(metric, MetricVec(metric))

    def _collect_informer(self, informer: "Informer[Any]", now: datetime) -> None:
        resource, health = str(informer.resource), informer.health()
        # A CustomResourceDefinition that is not installed is normal. It must not raise an alert about a watch that does
        # not work.
        if health.is_missing:
            return
        self._objects.add(resource, amount=len(informer))
        self._not_synced.add(resource, amount=bool(health.problem) or not health.has_synced)
        if health.last_received_at is not None:
            age = max((now - health.last_received_at).total_seconds(), 0)
            self._age.set(resource, to=max(age, self._age.values.get((resource,), 0)))


class RequestSeries:
    """The counters of all requests of one kind, since the start of the process."""

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


def collect_requests(request_metrics: RequestMetrics) -> tuple[MetricVec | Histogram, ...]:
    """Return the number and the duration of requests to the API server."""
    requests, seconds = MetricVec(API_REQUESTS), Histogram(API_REQUEST_SECONDS)
    for series in request_metrics.all():
        seconds.values[series.verb, series.resource] = HistogramSeries(series.buckets, series.seconds)
        for code, number in series.codes.items():
            requests.set(series.verb, series.resource, str(code), to=number)
    return requests, seconds
