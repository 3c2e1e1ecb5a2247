"""Numbers for `/metrics`: what each is declared to be, and the ways to keep it.

    DURATIONS = Metric("haulout_drain_duration_seconds", "How long drains took.", ("by",), kind=Kind.HISTOGRAM, …)
    took = Histogram(DURATIONS)
    took.observe(12.5, "order")

A metric is declared once, as a constant beside what counts it; `tools.metrics.catalogue` knows all of them, and
from it come the reference, the alerts and the dashboard. To count costs less than a microsecond. What labels say comes
from outside at times, so there are never more than `most` series of a metric: what comes after shares one.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

OTHERS = "others"  # the label of all for which there is no series left
SECONDS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0)
"""Buckets for what should be quick."""

Labels = tuple[str, ...]


class Kind(StrEnum):
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
    kind: Kind = Kind.COUNTER
    unit: str = ""  # empty: it is a number of things
    more: str = ""  # for the reference: what labels say, and who has it
    buckets: tuple[float, ...] = ()  # where those of a histogram end
    most: int = 1000  # series

    def __post_init__(self) -> None:
        if bool(self.buckets) != (self.kind is Kind.HISTOGRAM):
            raise ValueError(f"{self.name}: histograms have buckets, and nothing else has")


@dataclass(frozen=True, slots=True)
class Sample:
    """A line of the exposition."""

    name: str
    labels: tuple[tuple[str, str], ...]
    number: float


class Tally:
    """A number for each combination of labels, in the order in which they are declared."""

    __slots__ = ("metric", "values")

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.values: dict[Labels, float] = {}

    def add(self, *labels: str, amount: float = 1) -> None:
        """Add to the number with these labels."""
        values = self.values
        if labels not in values:
            labels = _bounded(labels, values, self.metric)
            values.setdefault(labels, 0)
        values[labels] += amount

    def set(self, *labels: str, to: float) -> None:
        """Set the number with these labels."""
        self.values[_bounded(labels, self.values, self.metric)] = to

    def samples(self) -> Iterator[Sample]:
        """Yield the lines, sorted."""
        for labels, number in sorted(self.values.items()):
            yield Sample(self.metric.name, tuple(zip(self.metric.labels, labels, strict=True)), number)


@dataclass(slots=True)
class Distribution:
    """The numbers that were observed with the same labels."""

    counts: list[int]  # one for each bucket, and one more for all beyond
    total: float = 0


class Histogram:
    """How often a number was how large, for each combination of labels."""

    __slots__ = ("_buckets", "metric", "values")

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.values: dict[Labels, Distribution] = {}
        self._buckets = metric.buckets

    def observe(self, number: float, *labels: str) -> None:
        """Take note of a number."""
        known = self.values.get(labels) or self._new(labels)
        known.counts[bisect_left(self._buckets, number)] += 1
        known.total += number

    def know(self, *labels: str) -> None:
        """Let these series exist before anything is observed, so that the first time is seen as a rise."""
        if labels not in self.values:
            self._new(labels)

    def samples(self) -> Iterator[Sample]:
        """Yield the lines, sorted."""
        for labels, known in sorted(self.values.items()):
            pairs = tuple(zip(self.metric.labels, labels, strict=True))
            yield from distributed(self.metric, pairs, known.counts, known.total)

    def _new(self, labels: Labels) -> Distribution:
        labels = _bounded(labels, self.values, self.metric)
        return self.values.setdefault(labels, Distribution([0] * (len(self._buckets) + 1)))


def distributed(
    metric: Metric, labels: tuple[tuple[str, str], ...], counts: list[int], total: float
) -> Iterator[Sample]:
    """Yield the lines of a histogram, each of whose buckets counts what is in those before it as well."""
    so_far = 0
    for end, count in zip((*metric.buckets, float("inf")), counts, strict=True):
        so_far += count
        yield Sample(f"{metric.name}_bucket", (*labels, ("le", number_text(end))), so_far)
    yield Sample(f"{metric.name}_sum", labels, total)
    yield Sample(f"{metric.name}_count", labels, so_far)


def number_text(number: float) -> str:
    """Return a number as Prometheus reads it."""
    if number in (float("inf"), float("-inf")):
        return "+Inf" if number > 0 else "-Inf"
    return str(int(number)) if number == int(number) else repr(number)


def _bounded(labels: Labels, values: Mapping[Labels, object], metric: Metric) -> Labels:
    is_new = labels not in values
    return (OTHERS,) * len(labels) if is_new and len(values) >= metric.most else labels
