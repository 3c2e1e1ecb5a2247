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

from haulout.core.metering import Kind, Metric, Tally

INFO = Metric(
    "python_info",
    "Which Python this is.",
    ("implementation", "major", "minor", "patchlevel", "version"),
    kind=Kind.GAUGE,
)
COLLECTED = Metric("python_gc_objects_collected_total", "Objects that the garbage collector freed.", ("generation",))
UNCOLLECTABLE = Metric("python_gc_objects_uncollectable_total", "Objects that it could not free.", ("generation",))
COLLECTIONS = Metric("python_gc_collections_total", "How often it looked.", ("generation",))
CPU = Metric("process_cpu_seconds_total", "Time on a processor, in seconds.", unit="seconds")
OPEN_FILES = Metric("process_open_fds", "Files and connections that are open.", kind=Kind.GAUGE)
MOST_FILES = Metric("process_max_fds", "How many may be open.", kind=Kind.GAUGE)
MEMORY = Metric("process_resident_memory_bytes", "Memory that is held, in bytes.", kind=Kind.GAUGE, unit="bytes")
RESERVED = Metric("process_virtual_memory_bytes", "Memory that is reserved, in bytes.", kind=Kind.GAUGE, unit="bytes")
STARTED = Metric(
    "process_start_time_seconds", "When it started, in seconds since 1970.", kind=Kind.GAUGE, unit="seconds"
)

METRICS = (
    INFO,
    COLLECTED,
    UNCOLLECTABLE,
    COLLECTIONS,
    CPU,
    OPEN_FILES,
    MOST_FILES,
    MEMORY,
    RESERVED,
    STARTED,
)

_PROC = Path("/proc")
_STARTED_AT = 19  # the field of /proc/self/stat, after the name, in which anything may stand
_KIB = 1024
_OF_GENERATIONS = {"collected": COLLECTED, "uncollectable": UNCOLLECTABLE, "collections": COLLECTIONS}


@dataclass(frozen=True, slots=True)
class Taken:
    """What this process takes."""

    python: str
    memory_bytes: int
    cpu_seconds: float


def taken() -> Taken:
    """Return what this process takes at the moment."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    most = used.ru_maxrss if sys.platform == "darwin" else used.ru_maxrss * _KIB
    pages = _pages()  # not told: not Linux, and all that is known is the most that it ever took
    return Taken(platform.python_version(), pages[1] if pages else most, round(used.ru_utime + used.ru_stime, 3))


def tallies() -> Iterator[Tally]:
    """Yield all numbers, as they are now."""
    major, minor, patch = platform.python_version_tuple()
    yield _one(INFO, 1, platform.python_implementation(), major, minor, patch, platform.python_version())
    for key, metric in _OF_GENERATIONS.items():
        found = Tally(metric)
        for generation, stats in enumerate(gc.get_stats()):
            found.set(str(generation), to=stats[key])
        yield found
    now = taken()
    yield _one(CPU, now.cpu_seconds)
    yield _one(MEMORY, now.memory_bytes)
    yield _one(MOST_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    if (pages := _pages()) is not None:
        yield _one(RESERVED, pages[0])
        yield _one(OPEN_FILES, len(tuple((_PROC / "self" / "fd").iterdir())))
    if (started := _started()) is not None:
        yield _one(STARTED, started)


def _pages() -> tuple[int, int] | None:
    """Return the bytes that are reserved and held; None if the system does not tell them this way."""
    try:
        reserved, held = (_PROC / "self" / "statm").read_text(encoding="ascii").split()[:2]
    except (OSError, ValueError):
        return None
    return int(reserved) * resource.getpagesize(), int(held) * resource.getpagesize()


@cache
def _started() -> float | None:
    """Return when this process started, which Linux tells in ticks since the machine did."""
    try:
        ticks = int((_PROC / "self" / "stat").read_text(errors="replace").rpartition(")")[2].split()[_STARTED_AT])
        booted = next(it for it in (_PROC / "stat").read_text().splitlines() if it.startswith("btime "))
    except (OSError, StopIteration, IndexError, ValueError):
        return None
    return int(booted.split()[1]) + ticks / os.sysconf("SC_CLK_TCK")


def _one(metric: Metric, number: float, *labels: str) -> Tally:
    found = Tally(metric)
    found.set(*labels, to=number)
    return found
