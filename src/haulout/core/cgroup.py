"""The memory limit of this process's container, from its cgroup: version 1 or 2.

A cgroup may use no more than any of its ancestors, so the smallest limit on the path to the root counts. In a
container, the root of the cgroup file system is the container's own cgroup, or the path in `/proc/self/cgroup` does not
exist. In both cases the limit of the root counts.
"""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

_UNLIMITED: Final = 1 << 60  # version 1 has a huge number where there is no limit


def memory_limit(*, proc: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return the limit in bytes; None if there is no limit or no cgroup."""
    try:
        lines = proc.read_text().splitlines()
    except OSError:
        return None
    limits = [limit for line in lines for limit in _limits(line, root)]
    return min(limits, default=None)


def _limits(line: str, root: Path) -> Iterator[int]:
    _, controllers, path = (*line.split(":", 2), "", "")[:3]
    folders: tuple[Path, ...]
    if controllers == "":
        folders, name = (root, root / "unified"), "memory.max"
    elif "memory" in controllers.split(","):
        folders, name = (root / "memory",), "memory.limit_in_bytes"
    else:
        return
    relative = PurePosixPath(path.lstrip("/"))
    for folder in folders:
        for group in (relative, *relative.parents):
            limit = _number(folder / group / name)
            if limit is not None and limit < _UNLIMITED:
                yield limit


def _number(file: Path) -> int | None:
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isascii() and text.isdigit() else None
