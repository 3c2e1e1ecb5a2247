"""What is counted about queues, copies of the cluster and calls to its API server, for `/metrics` and health pages.

Each client has one `KubeMetrics`, which those who lead for it share: whatever runs over it announces itself for as
long as it runs, so that nobody has to know where all the queues and caches of a process are. Counters outlive them.
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
    "How many keys of a queue are due to be looked at, or being looked at.",
    _QUEUE,
    kind=MetricKind.GAUGE,
)
QUEUE_LAG = Metric(
    "haulout_queue_lag_seconds",
    "How long after it was due something was looked at.",
    _QUEUE,
    kind=MetricKind.HISTOGRAM,
    unit="seconds",
    details="because it changed, or because its instant had come",
    buckets=SECONDS_BUCKETS,
)
SCHEDULED_LAG = Metric(
    "haulout_wakeup_lag_seconds",
    "How long after the exact instant that it had named something was looked at.",
    _QUEUE,
    kind=MetricKind.HISTOGRAM,
    unit="seconds",
    details="a window that opens, a wait that ends, a notice that falls due",
    buckets=SECONDS_BUCKETS,
)
QUEUE_FAILURES = Metric("haulout_queue_failures_total", "How often a look failed, and was put off.", _QUEUE)
WATCH_AGE = Metric(
    "haulout_watch_age_seconds",
    "How long ago the server last said anything to those who follow a kind of object; the longest of them.",
    _RESOURCE,
    kind=MetricKind.GAUGE,
    unit="seconds",
    details="it says something every minute or so, though nothing happens",
)
WATCH_OBJECTS = Metric(
    "haulout_watch_objects", "How many objects are kept by those who follow them.", _RESOURCE, MetricKind.GAUGE
)
WATCH_NOT_SYNCED = Metric(
    "haulout_watch_troubled",
    "How many of those who follow a kind of object do not get it now, or have not yet.",
    _RESOURCE,
    kind=MetricKind.GAUGE,
    details="a kind that is not installed is no trouble",
)
DROPPED = Metric(
    "haulout_dropped_total",
    "How much was given up that should have been told.",
    ("what",),
    details="`what` is `events` or `history`",
)
_REQUEST_LABELS = ("verb", "resource")
API_REQUESTS = Metric(
    "haulout_api_requests_total",
    "How many requests the API server was sent.",
    (*_REQUEST_LABELS, "code"),
    details="`code` is 0 if there was no answer",
)
API_REQUEST_SECONDS = Metric(
    "haulout_api_request_duration_seconds",
    "How long the API server took to answer.",
    _REQUEST_LABELS,
    kind=MetricKind.HISTOGRAM,
    unit="seconds",
    details="of a watch, how long it took to begin",
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
    """All that is counted, and what runs now."""

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
        self.queues: dict[WorkQueue[Any], None] = {}  # that run now, in the order in which they began
        self.informers: dict[Informer[Any], None] = {}  # the same

    @contextmanager
    def track_queue(self, queue: "WorkQueue[Any]") -> Iterator[None]:
        """Know of a queue while it works."""
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
        """Know of a copy while it follows."""
        self.informers[informer] = None
        try:
            yield
        finally:
            del self.informers[informer]

    def record_run(self, queue: str, *, lag: float, is_scheduled: bool, failed: bool) -> None:
        """Count a look."""
        self.lag.observe(lag, queue)
        if is_scheduled:
            self.scheduled_lag.observe(lag, queue)
        if failed:
            self.failures.add(queue)

    def collect(self, *, now: datetime) -> tuple[MetricVec | Histogram, ...]:
        """Return all of them, as they are now."""
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
    """Return what the API server was asked, and how long it took to answer."""
    requests, seconds = MetricVec(API_REQUESTS), Histogram(API_REQUEST_SECONDS)
    for series in request_metrics.all():
        seconds.values[series.verb, series.resource] = HistogramSeries(series.buckets, series.seconds)
        for code, number in series.codes.items():
            requests.set(series.verb, series.resource, str(code), to=number)
    return requests, seconds
