"""The configuration file of profiles while the operator runs: followed by every replica, used by the one that leads.

The last good configuration stays in force while the file is broken or gone; both are said in the log.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path

from haulout.core.clock import Clock
from haulout.errors import ConfigErrors
from haulout.profiles import config
from haulout.profiles.model import Configuration
from haulout.profiles.plugins.registry import registries
from haulout.profiles.watching import Change, Watched

log = logging.getLogger(__name__)

USUAL = Path("config/maintenance.yaml")  # where the SAP maintenance-controller looks, from the working directory


class Configured:
    """A file, and what it said when it last made sense. Making one reads it; raises `ConfigErrors`."""

    def __init__(self, path: Path, *, environ: Mapping[str, str], clock: Clock) -> None:
        self.path = path
        self._watched = Watched(
            path, load=lambda data: config.load(data, registries(), environ, file=str(path)), clock=clock
        )
        loaded = self._watched.start()
        self.configuration: Configuration = loaded.configuration
        self.warnings = loaded.warnings
        self._news = asyncio.Event()
        self._readers: list[Callable[[Configuration], object]] = []

    @property
    def problem(self) -> ConfigErrors | None:
        """What is wrong with the file as it is now."""
        return self._watched.problem

    async def run(self) -> None:
        """Follow the file, until cancelled."""
        for warning in self.warnings:
            log.warning("%s", warning)
        await self._watched.follow(on_change=self._change, on_problem=self._complain, on_restored=self._restored)

    async def news(self, *, within: timedelta | None = None) -> None:
        """Return when the configuration, or what is wrong with the file, is another one; or after `within`."""
        try:
            async with asyncio.timeout(None if within is None else within.total_seconds()):
                await self._news.wait()
        except TimeoutError:
            return
        self._news.clear()

    def subscribe(self, read: Callable[[Configuration], object]) -> Callable[[], None]:
        """Call `read` with the configuration as it is, and with each that comes; returns what ends that."""
        self._readers.append(read)
        read(self.configuration)
        return lambda: self._readers.remove(read)

    async def has_profiles(self) -> None:
        """Return when there is anything to do for profiles: a file may have a budget and nothing else."""
        there = asyncio.Event()
        end = self.subscribe(lambda it: there.set() if it.profiles else None)
        try:
            await there.wait()
        finally:
            end()

    def _change(self, change: Change) -> None:
        self.configuration = change.loaded.configuration
        for read in tuple(self._readers):
            read(self.configuration)
        self.warnings = change.loaded.warnings
        log.info("%s is in force: %s", self.path, "; ".join(change.differences) or "nothing that matters changed")
        for warning in self.warnings:
            log.warning("%s", warning)
        self._news.set()

    def _complain(self, problem: ConfigErrors) -> None:
        for each in problem.errors:
            log.error("%s", each)
        log.error("%s makes no sense any more: going on by what it said before", self.path)
        self._news.set()

    def _restored(self) -> None:
        log.info("%s makes sense again", self.path)
        self._news.set()


def usual_path() -> Path | None:
    """Return the file that is used if none is named; None if there is no such file."""
    return USUAL if USUAL.is_file() else None
