"""Metrics for `/metrics`: declarations, counters, gauges and histograms.

    DURATION = Metric("haulout_drain_duration_seconds", "How long drains took.", ("by",), kind=MetricKind.HISTOGRAM, …)

    histogram = Histogram(DURATION)
    histogram.observe(12.5, "order")

A metric is declared once, as a constant next to the code that records it. `tools.metrics.catalogue` collects all
declarations for the reference, the alerts and the dashboards. To record a value takes less than a microsecond. Label
values may come from outside, so a metric has at most `max_series` series; all further label values share one.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

OVERFLOW_LABEL = "others"  # label value of all series beyond the maximum
SECONDS_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0)
"""Buckets for what should be quick."""

Labels = tuple[str, ...]


class MetricKind(StrEnum):
    """The type of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """The declaration of a metric.

    Names and labels never change, because users' alerts and dashboards depend on them.
    """

    name: str
    help: str  # a sentence
    labels: Labels = ()
    kind: MetricKind = MetricKind.COUNTER
    unit: str = ""  # empty: a count
    details: str = ""  # for the reference: the label values, and which component exports it
    buckets: tuple[float, ...] = ()  # upper bounds of a histogram's buckets
    max_series: int = 1000  # maximum number of series

    def __post_init__(self) -> None:
        if bool(self.buckets) != (self.kind is MetricKind.HISTOGRAM):
            raise ValueError(f"{self.name}: histograms need buckets, other kinds must not have any")


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample of the exposition format."""

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
        """Add to the value with these label values."""
        values = self.values
        if labels not in values:
            labels = _limit_series(labels, values, self.metric)
            values.setdefault(labels, 0)
        values[labels] += amount

    def set(self, *labels: str, to: float) -> None:
        """Set the value with these label values."""
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
        """Record an observation."""
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
    """Return a number in the exposition format."""
    if number in (float("inf"), float("-inf")):
        return "+Inf" if number > 0 else "-Inf"
    return str(int(number)) if number == int(number) else repr(number)


def _limit_series(labels: Labels, values: Mapping[Labels, object], metric: Metric) -> Labels:
    is_new = labels not in values
    return (OVERFLOW_LABEL,) * len(labels) if is_new and len(values) >= metric.max_series else labels
