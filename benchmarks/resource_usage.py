"""Reads resource usage: wall time, CPU time, memory, and the share of other processes."""

import gc
import os
import re
import resource
import time
from pathlib import Path
from typing import Self


class Stopwatch:
    """Measures the time spent inside a `with`, in seconds."""

    wall: float
    cpu: float

    def __enter__(self) -> Self:
        self._started = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        wall, cpu = self._started
        self.wall, self.cpu = time.perf_counter() - wall, time.process_time() - cpu


class OtherProcesses:
    """Knows how much of the CPU time of the machine went to others, since it was made."""

    def __init__(self) -> None:
        self._started = time.perf_counter(), _busy_seconds(), _own_seconds()

    def share(self) -> float:
        """Return their part of all there was; of our own children only those count as ours that have ended."""
        wall, busy, own = self._started
        others = _busy_seconds() - busy - (_own_seconds() - own)
        return max(others, 0.0) / (time.perf_counter() - wall) / (os.cpu_count() or 1)


def memory() -> int:
    """Return the bytes of memory this process holds now, after a garbage collection."""
    gc.collect()
    return _status_bytes("VmRSS")


def peak_memory() -> int:
    """Return the most bytes of memory this process ever held.

    Not `ru_maxrss`, which begins with what the parent held when it started us.
    """
    return _status_bytes("VmHWM")


def _busy_seconds() -> float:
    line = Path("/proc/stat").read_text().splitlines()[0]
    user, nice, system, _idle, _waiting, interrupts, soft_interrupts, stolen, *_ = map(int, line.split()[1:])
    return (user + nice + system + interrupts + soft_interrupts + stolen) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def memory_of(pid: int) -> int:
    """Return the bytes that another process holds."""
    return _status_bytes("VmRSS", pid)


def _status_bytes(field: str, pid: int | str = "self") -> int:
    file = Path(f"/proc/{pid}/status")
    found = re.search(rf"^{field}:\s+(\d+) kB$", file.read_text(), re.MULTILINE)
    if found is None:
        raise OSError(f"{file} tells no {field}: benchmarks need Linux")
    return int(found[1]) * 1024
