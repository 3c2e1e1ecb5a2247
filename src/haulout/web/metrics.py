"""`/metrics`: what is counted, in the text format of Prometheus.

What a process needs (`process_*`, `python_*`) comes from prometheus_client. Our own numbers are written here: that
library cannot tell a counter whose name does not end in `_total`, and the names of the SAP maintenance-controller,
which dashboards and alerts know, do not.
"""

import math
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, generate_latest

from haulout.profiles.tallies import Tally

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Exposition:
    """Writes tallies, as they are whenever it is asked, and what is known of this process."""

    def __init__(self, tallies: Callable[[], Iterable[Tally]]) -> None:
        self._tallies = tallies
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        PlatformCollector(registry=self._process)
        GCCollector(registry=self._process)

    def text(self) -> bytes:
        """Return all numbers as they are now."""
        lines = "".join(f"{line}\n" for tally in self._tallies() for line in _lines(tally))
        return lines.encode() + generate_latest(self._process)


def _lines(tally: Tally) -> Iterator[str]:
    if not tally.values:
        return
    yield f"# HELP {tally.name} {tally.help}"
    yield f"# TYPE {tally.name} {tally.kind}"
    for values, number in sorted(tally.values.items()):
        pairs = ",".join(
            f'{key}="{value.translate(_ESCAPES)}"' for key, value in zip(tally.labels, values, strict=True)
        )
        yield f"{tally.name}{{{pairs}}} {_number(number)}" if pairs else f"{tally.name} {_number(number)}"


def _number(number: float) -> str:
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    return str(int(number)) if number == int(number) else repr(number)
