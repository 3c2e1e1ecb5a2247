"""What is counted about queues, copies of the cluster and calls to its API server, for `/metrics` and health pages.

Each client has one `Meters`, which those who lead for it share: whatever runs over it announces itself for as long as
it runs, so that nobody has to know where all the queues and caches of a process are. Counters outlive them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from haulout.core.metering import SECONDS, Distribution, Histogram, Kind, Metric, Tally
from haulout.kube.calls import BOUNDS, Calls

if TYPE_CHECKING:
    from haulout.kube.cache import Cache
    from haulout.kube.queue import Queue

_QUEUE = ("queue",)
_RESOURCE = ("resource",)

DEPTH = Metric(
    "haulout_queue_depth",
    "How many keys of a queue are due to be looked at, or being looked at.",
    _QUEUE,
    kind=Kind.GAUGE,
)
LAG = Metric(
    "haulout_queue_lag_seconds",
    "How long after it was due something was looked at.",
    _QUEUE,
    kind=Kind.HISTOGRAM,
    unit="seconds",
    more="because it changed, or because its instant had come",
    buckets=SECONDS,
)
WAKE_LAG = Metric(
    "haulout_wakeup_lag_seconds",
    "How long after the exact instant that it had named something was looked at.",
    _QUEUE,
    kind=Kind.HISTOGRAM,
    unit="seconds",
    more="a window that opens, a wait that ends, a notice that falls due",
    buckets=SECONDS,
)
FAILURES = Metric("haulout_queue_failures_total", "How often a look failed, and was put off.", _QUEUE)
AGE = Metric(
    "haulout_watch_age_seconds",
    "How long ago the server last said anything to those who follow a kind of object; the longest of them.",
    _RESOURCE,
    kind=Kind.GAUGE,
    unit="seconds",
    more="it says something every minute or so, though nothing happens",
)
OBJECTS = Metric("haulout_watch_objects", "How many objects are kept by those who follow them.", _RESOURCE, Kind.GAUGE)
TROUBLED = Metric(
    "haulout_watch_troubled",
    "How many of those who follow a kind of object do not get it now, or have not yet.",
    _RESOURCE,
    kind=Kind.GAUGE,
    more="a kind that is not installed is no trouble",
)
DROPPED = Metric(
    "haulout_dropped_total",
    "How much was given up that should have been told.",
    ("what",),
    more="`what` is `events` or `history`",
)
_CALL = ("verb", "resource")
CALLS = Metric(
    "haulout_api_requests_total",
    "How many requests the API server was sent.",
    (*_CALL, "code"),
    more="`code` is 0 if there was no answer",
)
CALL_SECONDS = Metric(
    "haulout_api_request_duration_seconds",
    "How long the API server took to answer.",
    _CALL,
    kind=Kind.HISTOGRAM,
    unit="seconds",
    more="of a watch, how long it took to begin",
    buckets=BOUNDS,
)
METRICS = (CALLS, CALL_SECONDS, DEPTH, LAG, WAKE_LAG, FAILURES, AGE, OBJECTS, TROUBLED, DROPPED)

EVENTS, HISTORY = "events", "history"


class Meters:
    """All that is counted, and what runs now."""

    def __init__(self) -> None:
        self.lag = Histogram(LAG)
        self.wake_lag = Histogram(WAKE_LAG)
        self.failures = Tally(FAILURES)
        self.dropped = Tally(DROPPED)
        for what in (EVENTS, HISTORY):
            self.dropped.add(what, amount=0)
        self._depth = Tally(DEPTH)
        self._age = Tally(AGE)
        self._objects = Tally(OBJECTS)
        self._troubled = Tally(TROUBLED)
        self.queues: dict[Queue[Any], None] = {}  # that run now, in the order in which they began
        self.caches: dict[Cache[Any], None] = {}  # the same

    @contextmanager
    def working(self, queue: "Queue[Any]") -> Iterator[None]:
        """Know of a queue while it works."""
        self.queues[queue] = None
        for histogram in (self.lag, self.wake_lag):
            histogram.know(queue.name)
        self.failures.add(queue.name, amount=0)
        try:
            yield
        finally:
            del self.queues[queue]

    @contextmanager
    def following(self, cache: "Cache[Any]") -> Iterator[None]:
        """Know of a copy while it follows."""
        self.caches[cache] = None
        try:
            yield
        finally:
            del self.caches[cache]

    def ran(self, queue: str, *, lag: float, is_exact: bool, failed: bool) -> None:
        """Count a look."""
        self.lag.observe(lag, queue)
        if is_exact:
            self.wake_lag.observe(lag, queue)
        if failed:
            self.failures.add(queue)

    def look(self, *, now: datetime) -> tuple[Tally | Histogram, ...]:
        """Return all of them, as they are now."""
        gauges = self._depth, self._age, self._objects, self._troubled
        for gauge in gauges:
            gauge.values.clear()
        for queue in self.queues:
            stats = queue.stats()
            self._depth.add(queue.name, amount=stats.waiting + stats.running)
        for cache in self.caches:
            self._look_at(cache, now)
        return *gauges, self.lag, self.wake_lag, self.failures, self.dropped

    def _look_at(self, cache: "Cache[Any]", now: datetime) -> None:
        resource, health = str(cache.resource), cache.health()
        if health.is_missing:
            return
        self._objects.add(resource, amount=len(cache))
        self._troubled.add(resource, amount=bool(health.problem) or not health.synced)
        if health.heard_at is not None:
            age = max((now - health.heard_at).total_seconds(), 0)
            self._age.set(resource, to=max(age, self._age.values.get((resource,), 0)))


def of_calls(calls: Calls) -> tuple[Tally | Histogram, ...]:
    """Return what the API server was asked, and how long it took to answer."""
    requests, seconds = Tally(CALLS), Histogram(CALL_SECONDS)
    for it in calls.all():
        seconds.values[it.verb, it.resource] = Distribution(it.buckets, it.seconds)
        for code, number in it.codes.items():
            requests.set(it.verb, it.resource, str(code), to=number)
    return requests, seconds
