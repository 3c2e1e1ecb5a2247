"""The configuration file of profiles while the operator runs: watched by every replica, used by the leader.

The last valid configuration stays in force while the file is invalid or missing; both are logged. Without a file there
is no configuration until it appears; `haulout.controllers.profiles.default_profile` defines what applies then.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path

from haulout.controllers.profiles.config import loader
from haulout.controllers.profiles.config.differences import differences
from haulout.controllers.profiles.config.loader import Loaded
from haulout.controllers.profiles.config.model import Configuration
from haulout.controllers.profiles.plugins.registry import registries
from haulout.core.clock import Clock
from haulout.errors import ConfigErrors
from haulout.runtime.config_watcher import ConfigChange, ConfigWatcher

log = logging.getLogger(__name__)

DEFAULT_PATH = Path("config/maintenance.yaml")  # relative to the working directory, as in its predecessor


# Compared by identity: a file that is empty is a configuration, and "no file" is not.
_NO_CONFIGURATION = Configuration(requeue=timedelta(minutes=1), profiles={})


class ProfilesFile:
    """The file, and its last valid content. The constructor reads it and raises `ConfigErrors`.

    With `is_optional` the file may be missing at first.
    """

    def __init__(self, path: Path, *, environ: Mapping[str, str], clock: Clock, is_optional: bool = False) -> None:
        self.path = path
        self.environ = environ
        self._watched = ConfigWatcher(
            path,
            load=lambda data: loader.load(data, registries(), environ, file=str(path)),
            clock=clock,
            compare=differences,
        )
        loaded = Loaded(_NO_CONFIGURATION) if is_optional and not path.exists() else self._watched.start()
        self.configuration: Configuration = loaded.configuration
        self.warnings = loaded.warnings
        self._changed = asyncio.Event()
        self._subscribers: list[Callable[[Configuration], object]] = []

    @property
    def problem(self) -> ConfigErrors | None:
        return self._watched.problem

    @property
    def content(self) -> bytes | None:
        """The current content; None: there is no file."""
        return self._watched.content

    @property
    def last_good_content(self) -> bytes | None:
        """The last valid content; None: there was none."""
        return self._watched.last_good

    @property
    def is_loaded(self) -> bool:
        return self.configuration is not _NO_CONFIGURATION

    async def run(self) -> None:
        for warning in self.warnings:
            log.warning("%s", warning)
        await self._watched.watch(on_change=self._on_change, on_problem=self._on_problem, on_restored=self._on_restored)

    async def wait_for_change(self, *, timeout: timedelta | None = None) -> None:
        """Wait until the configuration or its errors change, or for `timeout`."""
        try:
            async with asyncio.timeout(None if timeout is None else timeout.total_seconds()):
                await self._changed.wait()
        except TimeoutError:
            return
        self._changed.clear()

    def subscribe(self, callback: Callable[[Configuration], object]) -> Callable[[], None]:
        """Call `callback` now and after each change; return a function that unsubscribes."""
        self._subscribers.append(callback)
        callback(self.configuration)
        return lambda: self._subscribers.remove(callback)

    async def wait_for_profiles(self) -> None:
        """Wait until the file has profiles: it may contain only a budget."""
        found = asyncio.Event()
        unsubscribe = self.subscribe(lambda configuration: found.set() if configuration.profiles else None)
        try:
            await found.wait()
        finally:
            unsubscribe()

    def _on_change(self, change: ConfigChange[Loaded]) -> None:
        is_first = not self.is_loaded
        self.configuration = change.loaded.configuration
        # A copy: a callback may unsubscribe itself.
        for callback in tuple(self._subscribers):
            callback(self.configuration)
        self.warnings = change.loaded.warnings
        no_difference = "first version" if is_first else "no effective change"
        log.info("%s is in force: %s", self.path, "; ".join(change.differences) or no_difference)
        for warning in self.warnings:
            log.warning("%s", warning)
        self._changed.set()

    def _on_problem(self, problem: ConfigErrors) -> None:
        for error in problem.errors:
            log.error("%s", error)
        consequence = (
            "the last valid version stays in force" if self.is_loaded else "continuing without a configuration"
        )
        log.error("%s is invalid: %s", self.path, consequence)
        self._changed.set()

    def _on_restored(self) -> None:
        log.info("%s is valid again", self.path)
        self._changed.set()
