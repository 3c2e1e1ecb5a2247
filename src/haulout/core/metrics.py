"""Numbers for `/metrics`: what each is declared to be, and the ways to keep it.

    DURATIONS = Metric("haulout_drain_duration_seconds", "How long drains took.", ("by",), kind=Kind.HISTOGRAM, …)
    took = Histogram(DURATIONS)
    took.observe(12.5, "order")

A metric is declared once, as a constant beside what counts it; `tools.metrics.catalogue` knows all of them, and
from it come the reference, the alerts and the dashboard. To count costs less than a microsecond. What labels say comes
from outside at times, so there are never more than `max_series` series of a metric: what comes after shares one.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

OVERFLOW_LABEL = "others"  # the label of all for which there is no series left
SECONDS_BUCKETS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0)
"""Buckets for what should be quick."""

Labels = tuple[str, ...]


class MetricKind(StrEnum):
    """What kind of number it is."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """What a number is about. Names and labels are never changed: alerts and dashboards of others rest on them."""

    name: str
    help: str  # a sentence
    labels: Labels = ()
    kind: MetricKind = MetricKind.COUNTER
    unit: str = ""  # empty: it is a number of things
    details: str = ""  # for the reference: what labels say, and who has it
    buckets: tuple[float, ...] = ()  # where those of a histogram end
    max_series: int = 1000  # series

    def __post_init__(self) -> None:
        if bool(self.buckets) != (self.kind is MetricKind.HISTOGRAM):
            raise ValueError(f"{self.name}: histograms have buckets, and nothing else has")


@dataclass(frozen=True, slots=True)
class Sample:
    """A line of the exposition."""

    name: str
    labels: tuple[tuple[str, str], ...]
    number: float


class MetricVec:
    """A number for each combination of labels, in the order in which they are declared."""

    __slots__ = ("metric", "values")

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.values: dict[Labels, float] = {}

    def add(self, *labels: str, amount: float = 1) -> None:
        """Add to the number with these labels."""
        values = self.values
        if labels not in values:
            labels = _limit_series(labels, values, self.metric)
            values.setdefault(labels, 0)
        values[labels] += amount

    def set(self, *labels: str, to: float) -> None:
        """Set the number with these labels."""
        self.values[_limit_series(labels, self.values, self.metric)] = to

    def samples(self) -> Iterator[Sample]:
        """Yield the lines, sorted."""
        for labels, number in sorted(self.values.items()):
            yield Sample(self.metric.name, tuple(zip(self.metric.labels, labels, strict=True)), number)


@dataclass(slots=True)
class HistogramSeries:
    """The numbers that were observed with the same labels."""

    counts: list[int]  # one for each bucket, and one more for all beyond
    total: float = 0


class Histogram:
    """How often a number was how large, for each combination of labels."""

    __slots__ = ("_buckets", "metric", "values")

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.values: dict[Labels, HistogramSeries] = {}
        self._buckets = metric.buckets

    def observe(self, number: float, *labels: str) -> None:
        """Take note of a number."""
        series = self.values.get(labels) or self._new(labels)
        series.counts[bisect_left(self._buckets, number)] += 1
        series.total += number

    def initialize(self, *labels: str) -> None:
        """Let these series exist before anything is observed, so that the first time is seen as a rise."""
        if labels not in self.values:
            self._new(labels)

    def samples(self) -> Iterator[Sample]:
        """Yield the lines, sorted."""
        for labels, series in sorted(self.values.items()):
            pairs = tuple(zip(self.metric.labels, labels, strict=True))
            yield from histogram_samples(self.metric, pairs, series.counts, series.total)

    def _new(self, labels: Labels) -> HistogramSeries:
        labels = _limit_series(labels, self.values, self.metric)
        return self.values.setdefault(labels, HistogramSeries([0] * (len(self._buckets) + 1)))


def histogram_samples(
    metric: Metric, labels: tuple[tuple[str, str], ...], counts: list[int], total: float
) -> Iterator[Sample]:
    """Yield the lines of a histogram, each of whose buckets counts what is in those before it as well."""
    cumulative = 0
    for end, count in zip((*metric.buckets, float("inf")), counts, strict=True):
        cumulative += count
        yield Sample(f"{metric.name}_bucket", (*labels, ("le", format_number(end))), cumulative)
    yield Sample(f"{metric.name}_sum", labels, total)
    yield Sample(f"{metric.name}_count", labels, cumulative)


def format_number(number: float) -> str:
    """Return a number as Prometheus reads it."""
    if number in (float("inf"), float("-inf")):
        return "+Inf" if number > 0 else "-Inf"
    return str(int(number)) if number == int(number) else repr(number)


def _limit_series(labels: Labels, values: Mapping[Labels, object], metric: Metric) -> Labels:
    is_new = labels not in values
    return (OVERFLOW_LABEL,) * len(labels) if is_new and len(values) >= metric.max_series else labels
