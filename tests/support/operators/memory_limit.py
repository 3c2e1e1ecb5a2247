"""A memory limit for a process, as a container has one.

    with memory_limit(280) as limit:
        process = await asyncio.create_subprocess_exec(*limit.command, sys.executable, …)

The limit is that of a cgroup, of version 1 or 2, below the cgroup of this process, where that can be created: as in a
container, it includes kernel memory of sockets and the page cache, and the kernel kills a process that exceeds it.
Elsewhere it is RLIMIT_DATA. That counts private writable mappings whether or not they are used, such as the stacks of
threads, so it gets an allowance, and allocations beyond it fail in the process.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

_ROOT = Path("/sys/fs/cgroup")
_UNUSED_MIB = 120  # of mappings of the operator: eight threads, and the arenas of malloc
_V1 = {"memory.limit_in_bytes": "{limit}", "memory.memsw.limit_in_bytes": "{limit}"}
_V2 = {"memory.max": "{limit}", "memory.swap.max": "0"}


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """A limit that is there."""

    kind: str  # cgroup v1, cgroup v2 or RLIMIT_DATA
    command: tuple[str, ...]  # what is put before a command to have it limited
    folder: Path | None = None

    @property
    def peak_mib(self) -> int | None:
        """The most that was used under the limit; None if nobody counted it."""
        for name in ("memory.max_usage_in_bytes", "memory.peak"):
            if self.folder is not None and (self.folder / name).exists():
                return int((self.folder / name).read_text(encoding="ascii")) >> 20
        return None


@contextmanager
def memory_limit(mib: int) -> Iterator[MemoryLimit]:
    """Have a limit while the context lasts; by then all processes under it must have ended."""
    for kind, parent, files in _memory_cgroups():
        if (folder := _create_cgroup(parent, files, limit=mib << 20)) is None:
            continue
        enter = ("/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"', str(folder / "cgroup.procs"))
        try:
            yield MemoryLimit(kind, enter, folder)
        finally:
            folder.rmdir()
        return
    kib = (mib + _UNUSED_MIB) << 10
    yield MemoryLimit("RLIMIT_DATA", ("/bin/sh", "-c", f'ulimit -d {kib} && exec "$@"', "sh"))


def _memory_cgroups() -> Iterator[tuple[str, Path, dict[str, str]]]:
    """Yield the cgroups that this process is in, and the files that limit memory there."""
    for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            yield "cgroup v1", _ROOT / "memory" / path.lstrip("/"), _V1
        elif not controllers:
            yield "cgroup v2", _ROOT / path.lstrip("/"), _V2


def _create_cgroup(parent: Path, files: dict[str, str], *, limit: int) -> Path | None:
    """Return a new cgroup with this limit; None if it cannot be made."""
    try:
        folder = Path(mkdtemp(prefix="haulout-", dir=parent))
    except OSError:
        return None
    (required, limited), (swap, unswapped) = ((folder / name, text.format(limit=limit)) for name, text in files.items())
    try:
        required.write_text(limited, encoding="ascii")
    except OSError:
        folder.rmdir()
        return None
    with suppress(OSError):  # without swap there is no such file
        swap.write_text(unswapped, encoding="ascii")
    return folder
