"""Metrics for `/metrics`: declarations, counters, gauges and histograms.

    DURATION = histogram("haulout_drain_duration_seconds", "How long drains took.", "by", buckets=…)

    durations = Histogram(DURATION)
    durations.observe(12.5, "order")

A metric is declared once, as a constant next to the code that records it. `tools.metrics.catalogue` collects all
declarations for the reference, the alerts and the dashboards. To record a value takes less than a microsecond. Label
values may come from outside, so a metric has at most `max_series` series; all further label values share one.

`RecentValues` is the recent median and maximum of a value, in constant memory:

    lag = RecentValues()
    lag.record(0.02, at=clock.monotonic())
    lag.maximum(clock.monotonic())

The maximum covers the last two to five minutes, and a burst cannot displace it. The median is that of the last fifty
values. To record a value takes a fraction of a microsecond, because it is done for each API request and each reconcile.
"""

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

OVERFLOW_LABEL = "others"  # label value of all series beyond the maximum
# For durations that should be short, such as the wait for a worker.
SECONDS_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0)

Labels = tuple[str, ...]

_ROTATION_SECONDS = 150.0  # the maximum covers one to two of these periods
_MAX_SAMPLES = 50
_MAX_SERIES = 1000


class MetricKind(StrEnum):
    """The type of a metric, as the line `# TYPE` of the exposition format names it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """The declaration of a metric; see `counter`, `gauge` and `histogram`.

    Names and labels never change, because users' alerts and dashboards depend on them.
    """

    name: str
    help: str  # a sentence
    labels: Labels
    kind: MetricKind
    details: str  # for the reference: the label values, and which component exports it
    max_series: int  # maximum number of series
    buckets: tuple[float, ...] = ()  # upper bounds of a histogram's buckets


def counter(name: str, text: str, *labels: str, details: str = "", max_series: int = _MAX_SERIES) -> Metric:
    return Metric(name, text, labels, MetricKind.COUNTER, details, max_series)


def gauge(name: str, text: str, *labels: str, details: str = "") -> Metric:
    return Metric(name, text, labels, MetricKind.GAUGE, details, _MAX_SERIES)


def histogram(
    name: str, text: str, *labels: str, buckets: tuple[float, ...], details: str = "", max_series: int = _MAX_SERIES
) -> Metric:
    return Metric(name, text, labels, MetricKind.HISTOGRAM, details, max_series, buckets)


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of the exposition format: a name, labels and a number."""

    name: str
    labels: tuple[tuple[str, str], ...]
    number: float


class MetricVec:
    """A counter or gauge for each combination of label values."""

    __slots__ = ("metric", "values")

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.values: dict[Labels, float] = {}

    def add(self, *labels: str, amount: float = 1) -> None:
        values = self.values
        if labels not in values:
            # Only for new labels: this runs for each API request.
            labels = _limit_series(labels, values, self.metric)
            values.setdefault(labels, 0)
        values[labels] += amount

    def set(self, *labels: str, to: float) -> None:
        self.values[_limit_series(labels, self.values, self.metric)] = to

    def samples(self) -> Iterator[Sample]:
        """Yield the samples, sorted by label values."""
        for labels, number in sorted(self.values.items()):
            yield Sample(self.metric.name, tuple(zip(self.metric.labels, labels, strict=True)), number)


@dataclass(slots=True)
class HistogramSeries:
    """The observations with the same label values."""

    counts: list[int]  # one for each bucket, and one more for larger values
    total: float = 0


class Histogram:
    """A histogram for each combination of label values."""

    __slots__ = ("_buckets", "metric", "values")

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.values: dict[Labels, HistogramSeries] = {}
        self._buckets = metric.buckets

    def observe(self, number: float, *labels: str) -> None:
        series = self.values.get(labels) or self._new(labels)
        series.counts[bisect_left(self._buckets, number)] += 1
        series.total += number

    def initialize(self, *labels: str) -> None:
        """Create a series with zero observations, so that Prometheus sees the first observation as an increase."""
        if labels not in self.values:
            self._new(labels)

    def samples(self) -> Iterator[Sample]:
        """Yield the samples, sorted by label values."""
        for labels, series in sorted(self.values.items()):
            pairs = tuple(zip(self.metric.labels, labels, strict=True))
            yield from histogram_samples(self.metric, pairs, series.counts, series.total)

    def _new(self, labels: Labels) -> HistogramSeries:
        labels = _limit_series(labels, self.values, self.metric)
        return self.values.setdefault(labels, HistogramSeries([0] * (len(self._buckets) + 1)))


def histogram_samples(
    metric: Metric, labels: tuple[tuple[str, str], ...], counts: list[int], total: float
) -> Iterator[Sample]:
    """Yield the samples of a histogram. Buckets are cumulative."""
    cumulative = 0
    for end, count in zip((*metric.buckets, float("inf")), counts, strict=True):
        cumulative += count
        yield Sample(f"{metric.name}_bucket", (*labels, ("le", format_number(end))), cumulative)
    yield Sample(f"{metric.name}_sum", labels, total)
    yield Sample(f"{metric.name}_count", labels, cumulative)


def format_number(number: float) -> str:
    if number in (float("inf"), float("-inf")):
        return "+Inf" if number > 0 else "-Inf"
    return str(int(number)) if number == int(number) else repr(number)


def _limit_series(labels: Labels, values: Mapping[Labels, object], metric: Metric) -> Labels:
    is_new = labels not in values
    return (OVERFLOW_LABEL,) * len(labels) if is_new and len(values) >= metric.max_series else labels


class RecentValues:
    """Non-negative values, each with the time at which it was recorded."""

    __slots__ = ("_maximum", "_previous_maximum", "_rotates_at", "_samples")

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque(maxlen=_MAX_SAMPLES)
        self._maximum = 0.0
        self._previous_maximum = 0.0  # of the previous period
        self._rotates_at = -math.inf

    def record(self, value: float, *, at: float) -> None:
        """Record a value. `at` is monotonic time."""
        if at >= self._rotates_at:
            self._rotate(at)
        self._maximum = max(self._maximum, value)
        self._samples.append((at, value))

    def maximum(self, now: float) -> float:
        """Return the recent maximum; 0 if there is no recent value."""
        if now >= self._rotates_at:
            self._rotate(now)
        return max(self._maximum, self._previous_maximum)

    def median(self, now: float) -> float:
        """Return the recent median; 0 if there is no recent value."""
        since = now - 2 * _ROTATION_SECONDS
        found = sorted(number for at, number in self._samples if at >= since)
        middle = len(found) // 2
        if not found:
            return 0.0
        return found[middle] if len(found) % 2 else (found[middle - 1] + found[middle]) / 2

    def _rotate(self, now: float) -> None:
        self._previous_maximum = self._maximum if now < self._rotates_at + _ROTATION_SECONDS else 0.0
        self._maximum = 0.0
        self._rotates_at = now + _ROTATION_SECONDS
