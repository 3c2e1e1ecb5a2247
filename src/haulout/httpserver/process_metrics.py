"""What this process takes of its machine: for people, and for Prometheus.

Numbers have the names that the client libraries of Prometheus give to them, so that dashboards that people have for any
process show ours, too. What a system does not tell is left out.
"""

import gc
import os
import platform
import resource
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from haulout.core.metrics import Metric, MetricKind, MetricVec

INFO = Metric(
    "python_info",
    "Which Python this is.",
    ("implementation", "major", "minor", "patchlevel", "version"),
    kind=MetricKind.GAUGE,
)
COLLECTED = Metric("python_gc_objects_collected_total", "Objects that the garbage collector freed.", ("generation",))
UNCOLLECTABLE = Metric("python_gc_objects_uncollectable_total", "Objects that it could not free.", ("generation",))
COLLECTIONS = Metric("python_gc_collections_total", "How often it looked.", ("generation",))
CPU = Metric("process_cpu_seconds_total", "Time on a processor, in seconds.", unit="seconds")
OPEN_FILES = Metric("process_open_fds", "Files and connections that are open.", kind=MetricKind.GAUGE)
MAX_FILES = Metric("process_max_fds", "How many may be open.", kind=MetricKind.GAUGE)
RESIDENT_MEMORY = Metric(
    "process_resident_memory_bytes", "Memory that is held, in bytes.", kind=MetricKind.GAUGE, unit="bytes"
)
VIRTUAL_MEMORY = Metric(
    "process_virtual_memory_bytes", "Memory that is reserved, in bytes.", kind=MetricKind.GAUGE, unit="bytes"
)
START_TIME = Metric(
    "process_start_time_seconds", "When it started, in seconds since 1970.", kind=MetricKind.GAUGE, unit="seconds"
)

METRICS = (
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
_START_TIME_FIELD = 19  # the field of /proc/self/stat, after the name, in which anything may stand
_KIB = 1024
_GC_METRICS = {"collected": COLLECTED, "uncollectable": UNCOLLECTABLE, "collections": COLLECTIONS}


@dataclass(frozen=True, slots=True)
class ResourceUsage:
    """What this process takes."""

    python: str
    memory_bytes: int
    cpu_seconds: float


def resource_usage() -> ResourceUsage:
    """Return what this process takes at the moment."""
    rusage = resource.getrusage(resource.RUSAGE_SELF)
    max_rss = rusage.ru_maxrss if sys.platform == "darwin" else rusage.ru_maxrss * _KIB
    pages = _memory_bytes()  # not told: not Linux, and all that is known is the most that it ever took
    return ResourceUsage(
        platform.python_version(), pages[1] if pages else max_rss, round(rusage.ru_utime + rusage.ru_stime, 3)
    )


def collect() -> Iterator[MetricVec]:
    """Yield all numbers, as they are now."""
    major, minor, patch = platform.python_version_tuple()
    yield _single_sample(INFO, 1, platform.python_implementation(), major, minor, patch, platform.python_version())
    for key, metric in _GC_METRICS.items():
        counter = MetricVec(metric)
        for generation, stats in enumerate(gc.get_stats()):
            counter.set(str(generation), to=stats[key])
        yield counter
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
    """Return the bytes that are reserved and held; None if the system does not tell them this way."""
    try:
        reserved, resident = (_PROC / "self" / "statm").read_text(encoding="ascii").split()[:2]
    except (OSError, ValueError):
        return None
    return int(reserved) * resource.getpagesize(), int(resident) * resource.getpagesize()


@cache
def _start_time() -> float | None:
    """Return when this process started, which Linux tells in ticks since the machine did."""
    try:
        ticks = int((_PROC / "self" / "stat").read_text(errors="replace").rpartition(")")[2].split()[_START_TIME_FIELD])
        boot_line = next(line for line in (_PROC / "stat").read_text().splitlines() if line.startswith("btime "))
    except (OSError, StopIteration, IndexError, ValueError):
        return None
    return int(boot_line.split()[1]) + ticks / os.sysconf("SC_CLK_TCK")


def _single_sample(metric: Metric, number: float, *labels: str) -> MetricVec:
    gauge = MetricVec(metric)
    gauge.set(*labels, to=number)
    return gauge
