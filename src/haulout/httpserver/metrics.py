"""`/metrics`: what is counted, in the text format of Prometheus.

It is written here and not by Prometheus' library: that cannot tell a counter whose name does not end in `_total`, and
the names of the SAP maintenance-controller, which dashboards and alerts know, do not.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Protocol

from haulout.core.metrics import Metric, Sample, format_number
from haulout.httpserver import process_metrics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Collector(Protocol):
    """What has numbers to tell: a Tally or a Histogram."""

    @property
    def metric(self) -> Metric:
        """What they are about."""
        ...

    def samples(self) -> Iterator[Sample]:
        """Yield the lines."""
        ...


class Exposition:
    """Writes tallies, as they are whenever it is asked, and what is known of this process."""

    def __init__(self, collect: Callable[[], Iterable[Collector]]) -> None:
        self._collect = collect

    def text(self) -> bytes:
        """Return all numbers as they are now."""
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
