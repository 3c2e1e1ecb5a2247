"""Follows a configuration file, so that an edit takes effect without a restart.

    watched = Watched(path, load=lambda data: config.load(data, registries, environ), clock=clock)
    loaded = watched.start()                                        # raises ConfigErrors if there is nothing good yet
    await watched.follow(on_change=…, on_problem=…, on_restored=…)   # for ever

Once a second it asks the system for the file's identity, size and time of change; nothing is read while these stay. A
mounted ConfigMap is switched by a symbolic link, so the path then leads to another file, which is complete and taken at
once. A file that is written in place may be caught half-written, so it is read only when it has been left alone for one
more look.

The last good configuration stays in force while the file is broken or gone. A problem is told once, not every second.
"""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from haulout.controllers.profiles.config import diff
from haulout.controllers.profiles.config.loader import read_file
from haulout.core.clock import Clock
from haulout.errors import ConfigErrors

POLL_INTERVAL = timedelta(seconds=1)


class Loaded(Protocol):
    """What comes of reading a file."""

    @property
    def configuration(self) -> Any:
        """What it says."""
        ...


L = TypeVar("L", bound=Loaded)


class ConfigChange(NamedTuple, Generic[L]):
    """A new configuration is in force: what it says, and what is different."""

    loaded: L
    differences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _FileStat:
    """What the system says about a file, without reading it."""

    file: tuple[int, int]  # another one, once a link is switched
    size: int
    modified: int


class ConfigWatcher(Generic[L]):
    """A configuration file, and the last good configuration in it; `compare` tells how two of them differ."""

    def __init__(
        self,
        path: Path,
        *,
        load: Callable[[bytes], L],
        clock: Clock,
        interval: timedelta = POLL_INTERVAL,
        compare: Callable[[Any, Any], Iterable[str]] = diff.differences,
    ) -> None:
        self.loaded: L | None = None
        self.problem: ConfigErrors | None = None  # with the file as it is now
        self._path = path
        self._load = load
        self._clock = clock
        self._interval = interval
        self._compare = compare
        self._last_stat: _FileStat | None = None
        self._unsettled_stat: _FileStat | None = None
        self.last_good: bytes | None = None  # what the file said when it last made sense
        self.content: bytes | None = None  # what it says now; None: it is not there

    def start(self) -> L:
        """Read the file for the first time; raises `ConfigErrors`."""
        self._last_stat = self._stat()
        self.loaded = self._read()
        return self.loaded

    async def watch(
        self,
        *,
        on_change: Callable[[ConfigChange[L]], object],
        on_problem: Callable[[ConfigErrors], object],
        on_restored: Callable[[], object],
    ) -> None:
        """Follow the file until cancelled; callbacks must not wait.

        `on_restored` is called when a problem is gone, before `on_change` if there is one: a file that was put back as
        it was before makes no change.
        """
        while True:
            await self._clock.sleep(self._interval)
            if not self._should_read():
                continue
            before, had_problem = self.loaded, self.problem
            try:
                loaded = self._read()
            except ConfigErrors as problem:
                if had_problem is None or str(had_problem) != str(problem):
                    on_problem(problem)
                continue
            self.loaded = loaded
            if had_problem is not None:
                on_restored()
            if before is None or loaded.configuration != before.configuration:
                differences = self._compare(before.configuration, loaded.configuration) if before else ()
                on_change(ConfigChange(loaded, tuple(differences)))

    def _should_read(self) -> bool:
        stat = self._stat()
        if stat == self._last_stat:
            self._unsettled_stat = None
            return False
        is_another = stat is None or self._last_stat is None or stat.file != self._last_stat.file
        if not is_another and stat != self._unsettled_stat:
            self._unsettled_stat = stat
            return False
        self._last_stat, self._unsettled_stat = stat, None
        return True

    def _stat(self) -> _FileStat | None:
        try:
            found = os.stat(self._path)  # noqa: PTH116 - once a second for ever: without the detour
        except OSError:
            return None
        return _FileStat((found.st_dev, found.st_ino), found.st_size, found.st_mtime_ns)

    def _read(self) -> L:
        self.content = None
        try:
            content = self.content = read_file(self._path, str(self._path))
            if content == self.last_good and self.problem is None and self.loaded is not None:
                return self.loaded
            loaded = self._load(content)
        except ConfigErrors as problem:
            self.problem = problem
            raise
        self.last_good, self.problem = content, None
        return loaded
