"""`/metrics` in the text format of Prometheus, and the resource usage of this process.

We do not use Prometheus' client library: it cannot expose a counter whose name does not end in `_total`. The counters
of the SAP maintenance-controller, which existing dashboards and alerts use, do not.

The metrics of resource usage have the names of Prometheus' client libraries, so that generic dashboards work. Values
that the system does not provide are left out.
"""

import gc
import os
import platform
import resource
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Protocol

from haulout.core.metrics import Metric, MetricVec, Sample, counter, format_number, gauge

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})

INFO = gauge("python_info", "The version of Python.", "implementation", "major", "minor", "patchlevel", "version")
COLLECTED = counter("python_gc_objects_collected_total", "Objects that the garbage collector freed.", "generation")
UNCOLLECTABLE = counter(
    "python_gc_objects_uncollectable_total", "Objects that the garbage collector could not free.", "generation"
)
COLLECTIONS = counter("python_gc_collections_total", "How often the garbage collector ran.", "generation")
CPU = counter("process_cpu_seconds_total", "CPU time, in seconds.")
OPEN_FILES = gauge("process_open_fds", "Open file descriptors.")
MAX_FILES = gauge("process_max_fds", "The limit of open file descriptors.")
RESIDENT_MEMORY = gauge("process_resident_memory_bytes", "Resident memory, in bytes.")
VIRTUAL_MEMORY = gauge("process_virtual_memory_bytes", "Virtual memory, in bytes.")
START_TIME = gauge("process_start_time_seconds", "When the process started, in seconds since 1970.")

PROCESS_METRICS = (
    INFO,
    COLLECTED,
    UNCOLLECTABLE,
    COLLECTIONS,
    CPU,
    OPEN_FILES,
    MAX_FILES,
    RESIDENT_MEMORY,
    VIRTUAL_MEMORY,
    START_TIME,
)

_PROC = Path("/proc")
_START_TIME_FIELD = 19  # of /proc/self/stat, counted after the name, because the name may contain anything
_KIB = 1024
_GC_METRICS = {"collected": COLLECTED, "uncollectable": UNCOLLECTABLE, "collections": COLLECTIONS}


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
        collectors = chain(self._collect(), collect_process_metrics())
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


@dataclass(frozen=True, slots=True)
class ResourceUsage:
    """What this process uses: its memory now, and its CPU time since the start."""

    python: str
    memory_bytes: int
    cpu_seconds: float


def resource_usage() -> ResourceUsage:
    rusage = resource.getrusage(resource.RUSAGE_SELF)
    max_rss = rusage.ru_maxrss if sys.platform == "darwin" else rusage.ru_maxrss * _KIB
    pages = _memory_bytes()  # None if not on Linux: then only the peak is known
    return ResourceUsage(
        platform.python_version(), pages[1] if pages else max_rss, round(rusage.ru_utime + rusage.ru_stime, 3)
    )


def collect_process_metrics() -> Iterator[MetricVec]:
    major, minor, patch = platform.python_version_tuple()
    yield _single_sample(INFO, 1, platform.python_implementation(), major, minor, patch, platform.python_version())
    for key, metric in _GC_METRICS.items():
        metric_vec = MetricVec(metric)
        for generation, stats in enumerate(gc.get_stats()):
            metric_vec.set(str(generation), to=stats[key])
        yield metric_vec
    usage = resource_usage()
    yield _single_sample(CPU, usage.cpu_seconds)
    yield _single_sample(RESIDENT_MEMORY, usage.memory_bytes)
    yield _single_sample(MAX_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    if (pages := _memory_bytes()) is not None:
        yield _single_sample(VIRTUAL_MEMORY, pages[0])
        yield _single_sample(OPEN_FILES, len(tuple((_PROC / "self" / "fd").iterdir())))
    if (start_time := _start_time()) is not None:
        yield _single_sample(START_TIME, start_time)


def _memory_bytes() -> tuple[int, int] | None:
    """Return virtual and resident memory in bytes; None if the system has no /proc."""
    try:
        reserved, resident = (_PROC / "self" / "statm").read_text(encoding="ascii").split()[:2]
    except (OSError, ValueError):
        return None
    return int(reserved) * resource.getpagesize(), int(resident) * resource.getpagesize()


@cache
def _start_time() -> float | None:
    """Return the start of this process in seconds since 1970; Linux reports it in clock ticks since boot."""
    try:
        ticks = int((_PROC / "self" / "stat").read_text(errors="replace").rpartition(")")[2].split()[_START_TIME_FIELD])
        boot_line = next(line for line in (_PROC / "stat").read_text().splitlines() if line.startswith("btime "))
    except (OSError, StopIteration, IndexError, ValueError):
        return None
    return int(boot_line.split()[1]) + ticks / os.sysconf("SC_CLK_TCK")


def _single_sample(metric: Metric, number: float, *labels: str) -> MetricVec:
    metric_vec = MetricVec(metric)
    metric_vec.set(*labels, to=number)
    return metric_vec
