"""The configuration file of profiles while the operator runs: followed by every replica, used by the one that leads.

The last good configuration stays in force while the file is broken or gone; both are said in the log. Without any there
is none until the file appears; what is done by default then is for `haulout.controllers.profiles.default_profile` to
say.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path

from haulout.controllers.profiles.config import loader
from haulout.controllers.profiles.config.loader import Loaded
from haulout.controllers.profiles.config.model import Configuration
from haulout.controllers.profiles.config.watcher import ConfigChange, ConfigWatcher
from haulout.controllers.profiles.plugins.registry import registries
from haulout.core.clock import Clock
from haulout.errors import ConfigErrors

log = logging.getLogger(__name__)

DEFAULT_PATH = Path("config/maintenance.yaml")  # where the SAP maintenance-controller looks, from the working directory


_NO_CONFIGURATION = Configuration(requeue=timedelta(minutes=1), profiles={})


class ProfilesFile:
    """A file, and what it said when it last made sense. Making one reads it; raises `ConfigErrors`.

    With `is_optional` there need not be a file yet.
    """

    def __init__(self, path: Path, *, environ: Mapping[str, str], clock: Clock, is_optional: bool = False) -> None:
        self.path = path
        self.environ = environ
        self._watched = ConfigWatcher(
            path, load=lambda data: loader.load(data, registries(), environ, file=str(path)), clock=clock
        )
        loaded = Loaded(_NO_CONFIGURATION) if is_optional and not path.exists() else self._watched.start()
        self.configuration: Configuration = loaded.configuration
        self.warnings = loaded.warnings
        self._changed = asyncio.Event()
        self._subscribers: list[Callable[[Configuration], object]] = []

    @property
    def problem(self) -> ConfigErrors | None:
        """What is wrong with the file as it is now."""
        return self._watched.problem

    @property
    def content(self) -> bytes | None:
        """What the file says now; None: it is not there."""
        return self._watched.content

    @property
    def last_good_content(self) -> bytes | None:
        """What the file said when it last made sense; None: it never did."""
        return self._watched.last_good

    @property
    def is_loaded(self) -> bool:
        """Tell whether there is, or was, a file that made sense."""
        return self.configuration is not _NO_CONFIGURATION

    async def run(self) -> None:
        """Follow the file, until cancelled."""
        for warning in self.warnings:
            log.warning("%s", warning)
        await self._watched.watch(on_change=self._on_change, on_problem=self._on_problem, on_restored=self._on_restored)

    async def wait_for_change(self, *, timeout: timedelta | None = None) -> None:
        """Return when the configuration, or what is wrong with the file, is another one; or after `timeout`."""
        try:
            async with asyncio.timeout(None if timeout is None else timeout.total_seconds()):
                await self._changed.wait()
        except TimeoutError:
            return
        self._changed.clear()

    def subscribe(self, callback: Callable[[Configuration], object]) -> Callable[[], None]:
        """Call `callback` with the configuration as it is, and with each that comes; returns what ends that."""
        self._subscribers.append(callback)
        callback(self.configuration)
        return lambda: self._subscribers.remove(callback)

    async def wait_for_profiles(self) -> None:
        """Return when the file has profiles: it may have a budget and nothing else."""
        found = asyncio.Event()
        unsubscribe = self.subscribe(lambda configuration: found.set() if configuration.profiles else None)
        try:
            await found.wait()
        finally:
            unsubscribe()

    def _on_change(self, change: ConfigChange[Loaded]) -> None:
        is_first = not self.is_loaded
        self.configuration = change.loaded.configuration
        for callback in tuple(self._subscribers):
            callback(self.configuration)
        self.warnings = change.loaded.warnings
        no_difference = "there was none before" if is_first else "nothing that matters changed"
        log.info("%s is in force: %s", self.path, "; ".join(change.differences) or no_difference)
        for warning in self.warnings:
            log.warning("%s", warning)
        self._changed.set()

    def _on_problem(self, problem: ConfigErrors) -> None:
        for error in problem.errors:
            log.error("%s", error)
        consequence = "going on by what it said before" if self.is_loaded else "going on as if it were not there"
        log.error("%s makes no sense: %s", self.path, consequence)
        self._changed.set()

    def _on_restored(self) -> None:
        log.info("%s makes sense again", self.path)
        self._changed.set()
