"""Metrics of work queues, informers and API requests, for `/metrics` and the health pages.

Each client has one `KubeMetrics`, which clients derived from it share. A queue or informer registers itself while it
runs, so no other code has to know all queues and caches of a process. Counters outlive them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from haulout.core.metrics import SECONDS_BUCKETS, Histogram, HistogramSeries, Metric, MetricKind, MetricVec
from haulout.kube.request_metrics import BUCKET_BOUNDS, RequestMetrics

if TYPE_CHECKING:
    from haulout.kube.informer import Informer
    from haulout.kube.workqueue import WorkQueue

_QUEUE = ("queue",)
_RESOURCE = ("resource",)

QUEUE_DEPTH = Metric(
    "haulout_queue_depth",
    "How many keys of a work queue are due or being reconciled.",
    _QUEUE,
    kind=MetricKind.GAUGE,
)
QUEUE_LAG = Metric(
    "haulout_queue_lag_seconds",
    "How long due keys waited until their reconcile started.",
    _QUEUE,
    kind=MetricKind.HISTOGRAM,
    unit="seconds",
    details="a key is due after a change or at its requeue time",
    buckets=SECONDS_BUCKETS,
)
SCHEDULED_LAG = Metric(
    "haulout_queue_scheduled_lag_seconds",
    "How long after their requeue time keys were reconciled.",
    _QUEUE,
    kind=MetricKind.HISTOGRAM,
    unit="seconds",
    details="for example when a window opens, a wait ends or a notice is due",
    buckets=SECONDS_BUCKETS,
)
QUEUE_FAILURES = Metric("haulout_queue_failures_total", "How many reconciles failed and were retried later.", _QUEUE)
WATCH_AGE = Metric(
    "haulout_watch_age_seconds",
    "Time since the API server last sent anything to the watches of a kind of object; the longest of them.",
    _RESOURCE,
    kind=MetricKind.GAUGE,
    unit="seconds",
    details="it sends a bookmark about every minute even if nothing changes",
)
WATCH_OBJECTS = Metric("haulout_watch_objects", "How many objects the informers cache.", _RESOURCE, MetricKind.GAUGE)
WATCH_NOT_SYNCED = Metric(
    "haulout_watch_not_synced",
    "How many informers of a kind of object are not synced or have no working watch.",
    _RESOURCE,
    kind=MetricKind.GAUGE,
    details="a kind that is not installed does not count",
)
DROPPED = Metric(
    "haulout_dropped_total",
    "How many Events or history entries were dropped because they could not be written.",
    ("what",),
    details="`what` is `events` or `history`",
)
_REQUEST_LABELS = ("verb", "resource")
API_REQUESTS = Metric(
    "haulout_api_requests_total",
    "How many requests were sent to the API server.",
    (*_REQUEST_LABELS, "code"),
    details="`code` is 0 if there was no response",
)
API_REQUEST_SECONDS = Metric(
    "haulout_api_request_duration_seconds",
    "How long the API server took to answer.",
    _REQUEST_LABELS,
    kind=MetricKind.HISTOGRAM,
    unit="seconds",
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


class KubeMetrics:
    """The counters, and the queues and informers that run now."""

    def __init__(self) -> None:
        self.lag = Histogram(QUEUE_LAG)
        self.scheduled_lag = Histogram(SCHEDULED_LAG)
        self.failures = MetricVec(QUEUE_FAILURES)
        self.dropped = MetricVec(DROPPED)
        for what in (DROPPED_EVENTS, DROPPED_HISTORY):
            self.dropped.add(what, amount=0)
        self._depth = MetricVec(QUEUE_DEPTH)
        self._age = MetricVec(WATCH_AGE)
        self._objects = MetricVec(WATCH_OBJECTS)
        self._not_synced = MetricVec(WATCH_NOT_SYNCED)
        self.queues: dict[WorkQueue[Any], None] = {}  # those that run now, in start order
        self.informers: dict[Informer[Any], None] = {}  # those that run now, in start order

    @contextmanager
    def track_queue(self, queue: "WorkQueue[Any]") -> Iterator[None]:
        """Register a queue while it runs."""
        self.queues[queue] = None
        for histogram in (self.lag, self.scheduled_lag):
            histogram.initialize(queue.name)
        self.failures.add(queue.name, amount=0)
        try:
            yield
        finally:
            del self.queues[queue]

    @contextmanager
    def track_informer(self, informer: "Informer[Any]") -> Iterator[None]:
        """Register an informer while it runs."""
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
        for gauge in gauges:
            gauge.values.clear()
        for queue in self.queues:
            stats = queue.stats()
            self._depth.add(queue.name, amount=stats.waiting + stats.running)
        for informer in self.informers:
            self._collect_informer(informer, now)
        return *gauges, self.lag, self.scheduled_lag, self.failures, self.dropped

    def _collect_informer(self, informer: "Informer[Any]", now: datetime) -> None:
        resource, health = str(informer.resource), informer.health()
        if health.is_missing:
            return
        self._objects.add(resource, amount=len(informer))
        self._not_synced.add(resource, amount=bool(health.problem) or not health.has_synced)
        if health.last_received_at is not None:
            age = max((now - health.last_received_at).total_seconds(), 0)
            self._age.set(resource, to=max(age, self._age.values.get((resource,), 0)))


def collect_requests(request_metrics: RequestMetrics) -> tuple[MetricVec | Histogram, ...]:
    """Return the number and the duration of requests to the API server."""
    requests, seconds = MetricVec(API_REQUESTS), Histogram(API_REQUEST_SECONDS)
    for series in request_metrics.all():
        seconds.values[series.verb, series.resource] = HistogramSeries(series.buckets, series.seconds)
        for code, number in series.codes.items():
            requests.set(series.verb, series.resource, str(code), to=number)
    return requests, seconds
