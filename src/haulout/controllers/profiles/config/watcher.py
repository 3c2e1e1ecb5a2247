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
second. `differences` yields what changed, for the log line and the event of a reload.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from haulout.controllers.profiles.config.loader import read_file
from haulout.controllers.profiles.config.model import Configuration
from haulout.core import duration
from haulout.core.clock import Clock
from haulout.errors import ConfigErrors

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


def differences(before: Configuration, after: Configuration) -> Iterator[str]:
    """Yield one short text for each difference, such as `check window changed`."""
    if before.requeue != after.requeue:
        yield f"requeue is {duration.format(after.requeue)} instead of {duration.format(before.requeue)}"
    if before.label_filter != after.label_filter:
        yield "the label filter of the dashboard changed"
    if before.budget != after.budget:
        yield f"the budget is {', '.join(map(str, after.budget.limits))}" if after.budget else "the budget is gone"
    if before.notifications != after.notifications:
        from haulout.controllers.profiles.notify.object_notifier import describe_rules  # with the delivery of messages

        yield f"notifications of objects: {'; '.join(describe_rules(after.notifications)) or 'none'}"
    for family, names in _instances(before).items():
        yield from _named_differences(family, names, _instances(after)[family])
    yield from _named_differences("profile", before.profiles, after.profiles)
    yield from _named_differences("section", before.sections, after.sections)


class ConfigWatcher(Generic[L]):
    """Watches a file and keeps its last valid configuration. `compare` returns the differences between two of them."""

    def __init__(
        self,
        path: Path,
        *,
        load: Callable[[bytes], L],
        clock: Clock,
        interval: timedelta = POLL_INTERVAL,
        compare: Callable[[Any, Any], Iterable[str]] = differences,
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


def _instances(configuration: Configuration) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {"check": {}, "notification": {}, "trigger": {}}
    for profile in configuration.profiles.values():
        for state in profile.states.values():
            found["notification"] |= {member.name: member for member in state.notify}
            found["trigger"] |= {member.name: member for member in state.enter}
            for transition in state.transitions:
                found["check"] |= {member.name: member for member in transition.check.members}
                found["trigger"] |= {member.name: member for member in transition.trigger}
    return found


def _named_differences(family: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted({*before, *after}):
        if name not in before:
            yield f"{family} {name} is new"
        elif name not in after:
            yield f"{family} {name} is removed"
        elif before[name] != after[name]:
            yield f"{family} {name} changed"
