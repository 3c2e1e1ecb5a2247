"""`/metrics`: what is counted, in the text format of Prometheus.

It is written here and not by Prometheus' library: that cannot tell a counter whose name does not end in `_total`, and
the names of the SAP maintenance-controller, which dashboards and alerts know, do not.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Protocol

from haulout.core.metering import Metric, Sample, number_text
from haulout.web import process

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Counted(Protocol):
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

    def __init__(self, tallies: Callable[[], Iterable[Counted]]) -> None:
        self._tallies = tallies

    def text(self) -> bytes:
        """Return all numbers as they are now."""
        tallies = chain(self._tallies(), process.tallies())
        return "".join(f"{line}\n" for tally in tallies for line in _lines(tally)).encode()


def _lines(tally: Counted) -> Iterator[str]:
    metric, is_first = tally.metric, True
    for sample in tally.samples():
        if is_first:
            yield f"# HELP {metric.name} {metric.help}"
            yield f"# TYPE {metric.name} {metric.kind}"
            is_first = False
        pairs = ",".join(f'{key}="{value.translate(_ESCAPES)}"' for key, value in sample.labels)
        yield f"{sample.name}{{{pairs}}} {number_text(sample.number)}" if pairs else _bare(sample)


def _bare(sample: Sample) -> str:
    return f"{sample.name} {number_text(sample.number)}"
