"""Watches a configuration file, so that an edit takes effect without a restart.

    watcher = ConfigWatcher(path, load=lambda data: loader.load(data, registries, environ), clock=clock)
    loaded = watcher.start()                                        # raises ConfigErrors if the file is invalid
    await watcher.watch(on_change=…, on_problem=…, on_restored=…)   # until cancelled

Once a second it calls `stat` and compares identity, size and modification time; the file is read only if these differ.
A mounted ConfigMap is updated by switching a symbolic link (pkg/volume/util/atomic_writer.go in kubernetes/kubernetes).
The path then leads to another file, which is complete and read at once. A file that is written in place may be
incomplete, so it is read only after one more interval without a change. inotify is not used: the kubelet replaces the
directory, so that a watch on the file would end with the first update.

The last valid configuration stays in force while the file is invalid or missing. A problem is reported once, not every
second. `ConfigFile` is a file whose users need its settings only, with the log lines about edits.
"""

import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from haulout.core.clock import Clock
from haulout.errors import ConfigError, ConfigErrors

log = logging.getLogger(__name__)

POLL_INTERVAL = timedelta(seconds=1)


class Loaded(Protocol):
    """What `load` returns. The watcher compares configurations, and does not look at anything else."""

    @property
    def configuration(self) -> Any: ...


L = TypeVar("L", bound=Loaded)


class ConfigChange(NamedTuple, Generic[L]):
    """A new configuration is in force: the configuration, and how it differs from the one before."""

    loaded: L
    differences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _FileStat:
    """The identity, size and modification time of a file."""

    file: tuple[int, int]  # device and inode; they change when the link is switched
    size: int
    modified: int


class ConfigWatcher(Generic[L]):
    """Watches a file and keeps its last valid configuration. `compare` returns the differences between two of them."""

    def __init__(
        self,
        path: Path,
        *,
        load: Callable[[bytes], L],
        clock: Clock,
        interval: timedelta = POLL_INTERVAL,
        compare: Callable[[Any, Any], Iterable[str]] = lambda _before, _after: (),
    ) -> None:
        self.loaded: L | None = None
        self.problem: ConfigErrors | None = None  # with the current content of the file
        self._path = path
        self._load = load
        self._clock = clock
        self._interval = interval
        self._compare = compare
        self._last_stat: _FileStat | None = None
        self._unsettled_stat: _FileStat | None = None
        self.last_good: bytes | None = None  # content when it was last valid
        self.content: bytes | None = None  # current content; None: the file does not exist

    def start(self) -> L:
        """Read the file for the first time. Raise `ConfigErrors`."""
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
        """Watch the file until cancelled; callbacks must not block.

        `on_restored` is called when a problem is resolved, before `on_change` if the configuration differs: a file that
        is restored to its previous content causes no change.
        """
        while True:
            await self._clock.sleep(self._interval)
            if self._should_read():
                self.reload(on_change=on_change, on_problem=on_problem, on_restored=on_restored)

    def reload(
        self,
        *,
        on_change: Callable[[ConfigChange[L]], object],
        on_problem: Callable[[ConfigErrors], object],
        on_restored: Callable[[], object],
    ) -> None:
        """Read the file now, with the callbacks of `watch`."""
        before, had_problem = self.loaded, self.problem
        try:
            loaded = self._read()
        except ConfigErrors as problem:
            if had_problem is None or str(had_problem) != str(problem):
                on_problem(problem)
            return
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
            found = os.stat(self._path)  # noqa: PTH116 - called every second; avoids the overhead of pathlib
        except OSError:
            return None
        return _FileStat((found.st_dev, found.st_ino), found.st_size, found.st_mtime_ns)

    def _read(self) -> L:
        self.content = None
        try:
            content = self.content = read_file(self._path, str(self._path))
            # The modification time changes without the content when the kubelet writes all files of a ConfigMap again.
            if content == self.last_good and self.problem is None and self.loaded is not None:
                return self.loaded
            loaded = self._load(content)
        except ConfigErrors as problem:
            self.problem = problem
            raise
        self.last_good, self.problem = content, None
        return loaded


S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class LoadedConfig(Generic[S]):
    """The settings in a file, and warnings about it."""

    configuration: S
    warnings: tuple[ConfigError, ...] = ()


class ConfigFile(Generic[S]):
    """The file while the operator runs. The constructor reads it and raises `ConfigErrors`.

    The last valid settings stay in force while the file is invalid or missing. `load` returns them from its content.
    """

    def __init__(self, path: Path, *, load: Callable[[bytes], LoadedConfig[S]], clock: Clock) -> None:
        self.path = path
        self._watcher = ConfigWatcher(path, load=load, clock=clock)
        self._loaded = self._watcher.start()

    @property
    def settings(self) -> S:
        return self._loaded.configuration

    @property
    def warnings(self) -> tuple[ConfigError, ...]:
        return self._loaded.warnings

    @property
    def problem(self) -> ConfigErrors | None:
        """The problem with the current content, if there is one."""
        return self._watcher.problem

    def refresh(self) -> None:
        """Read the file now: nobody has watched it while another replica was the leader."""
        self._watcher.reload(on_change=self._on_change, on_problem=self._on_problem, on_restored=self._on_restored)

    async def watch(self, use: Callable[[S], object]) -> None:
        """Watch the file until cancelled; call `use` with the settings after each valid edit."""

        def on_change(change: ConfigChange[LoadedConfig[S]]) -> None:
            self._on_change(change)
            use(self.settings)

        await self._watcher.watch(on_change=on_change, on_problem=self._on_problem, on_restored=self._on_restored)

    def _on_change(self, change: ConfigChange[LoadedConfig[S]]) -> None:
        self._loaded = change.loaded
        log.info("%s is in force", self.path)
        for warning in self.warnings:
            log.warning("%s", warning)

    def _on_problem(self, problem: ConfigErrors) -> None:
        for error in problem.errors:
            log.error("%s", error)
        log.error("%s is invalid: the last valid version stays in force", self.path)

    def _on_restored(self) -> None:
        log.info("%s is valid again", self.path)


def read_file(path: Path, name: str) -> bytes:
    """Return the content of a file. Raise `ConfigErrors` if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        reason = (error.strerror or "it cannot be read").lower()
        raise ConfigErrors([ConfigError(f"cannot read the file: {reason}", file=name)]) from None
