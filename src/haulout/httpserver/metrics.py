"""`/metrics` in the text format of Prometheus.

We do not use Prometheus' client library: it cannot expose a counter whose name does not end in `_total`. The counters
of the SAP maintenance-controller, which existing dashboards and alerts use, do not.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Protocol

from haulout.core.metrics import Metric, Sample, format_number
from haulout.httpserver import process_metrics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Collector(Protocol):
    """A source of samples for one metric: a MetricVec or a histogram."""

    @property
    def metric(self) -> Metric: ...

    def samples(self) -> Iterator[Sample]: ...


class Exposition:
    """Renders the metrics of the collectors and of this process."""

    def __init__(self, collect: Callable[[], Iterable[Collector]]) -> None:
        self._collect = collect

    def text(self) -> bytes:
        """Return the current values in the text format."""
        collectors = chain(self._collect(), process_metrics.collect())
        return "".join(f"{line}\n" for collector in collectors for line in _lines(collector)).encode()


def _lines(collector: Collector) -> Iterator[str]:
    metric, is_first = collector.metric, True
    for sample in collector.samples():
        if is_first:
            yield f"# HELP {metric.name} {metric.help}"
            yield f"# TYPE {metric.name} {metric.kind}"
            is_first = False
        pairs = ",".join(f'{key}="{value.translate(_ESCAPES)}"' for key, value in sample.labels)
        yield f"{sample.name}{{{pairs}}} {format_number(sample.number)}" if pairs else _unlabeled_line(sample)


def _unlabeled_line(sample: Sample) -> str:
    return f"{sample.name} {format_number(sample.number)}"
