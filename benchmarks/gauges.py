"""Reading what a process has used: time on the wall, time on the processor, memory."""

import gc
import re
import time
from pathlib import Path
from typing import Self


class Stopwatch:
    """Measures the time spent inside a `with`, in seconds."""

    wall: float
    cpu: float

    def __enter__(self) -> Self:
        self._begun = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        wall, cpu = self._begun
        self.wall, self.cpu = time.perf_counter() - wall, time.process_time() - cpu


def memory() -> int:
    """Return the bytes of memory this process holds now, after a garbage collection."""
    gc.collect()
    return _status("VmRSS")


def peak_memory() -> int:
    """Return the most bytes of memory this process ever held.

    Not `ru_maxrss`, which begins with what the parent held when it started us.
    """
    return _status("VmHWM")


def _status(field: str) -> int:
    found = re.search(rf"^{field}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    if found is None:
        raise OSError(f"/proc/self/status tells no {field}: benchmarks need Linux")
    return int(found[1]) * 1024
