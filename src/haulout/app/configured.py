"""The configuration file of profiles while the operator runs: followed by every replica, used by the one that leads.

The last good configuration stays in force while the file is broken or gone; both are said in the log. Without any there
is none until the file appears; what is done by default then is for `haulout.profiles.default` to say.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path

from haulout.core.clock import Clock
from haulout.errors import ConfigErrors
from haulout.profiles import config
from haulout.profiles.config import Loaded
from haulout.profiles.model import Configuration
from haulout.profiles.plugins.registry import registries
from haulout.profiles.watching import Change, Watched

log = logging.getLogger(__name__)

USUAL = Path("config/maintenance.yaml")  # where the SAP maintenance-controller looks, from the working directory


_NOTHING = Configuration(requeue=timedelta(minutes=1), profiles={})


class Configured:
    """A file, and what it said when it last made sense. Making one reads it; raises `ConfigErrors`.

    With `may_lack` there need not be a file yet.
    """

    def __init__(self, path: Path, *, environ: Mapping[str, str], clock: Clock, may_lack: bool = False) -> None:
        self.path = path
        self.environ = environ
        self._watched = Watched(
            path, load=lambda data: config.load(data, registries(), environ, file=str(path)), clock=clock
        )
        loaded = Loaded(_NOTHING) if may_lack and not path.exists() else self._watched.start()
        self.configuration: Configuration = loaded.configuration
        self.warnings = loaded.warnings
        self._news = asyncio.Event()
        self._readers: list[Callable[[Configuration], object]] = []

    @property
    def problem(self) -> ConfigErrors | None:
        """What is wrong with the file as it is now."""
        return self._watched.problem

    @property
    def newest(self) -> bytes | None:
        """What the file says now; None: it is not there."""
        return self._watched.newest

    @property
    def good(self) -> bytes | None:
        """What the file said when it last made sense; None: it never did."""
        return self._watched.good

    @property
    def is_there(self) -> bool:
        """Tell whether there is, or was, a file that made sense."""
        return self.configuration is not _NOTHING

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
        """Return when the file has profiles: it may have a budget and nothing else."""
        there = asyncio.Event()
        end = self.subscribe(lambda it: there.set() if it.profiles else None)
        try:
            await there.wait()
        finally:
            end()

    def _change(self, change: Change[Loaded]) -> None:
        is_first = not self.is_there
        self.configuration = change.loaded.configuration
        for read in tuple(self._readers):
            read(self.configuration)
        self.warnings = change.loaded.warnings
        otherwise = "there was none before" if is_first else "nothing that matters changed"
        log.info("%s is in force: %s", self.path, "; ".join(change.differences) or otherwise)
        for warning in self.warnings:
            log.warning("%s", warning)
        self._news.set()

    def _complain(self, problem: ConfigErrors) -> None:
        for each in problem.errors:
            log.error("%s", each)
        now = "going on by what it said before" if self.is_there else "going on as if it were not there"
        log.error("%s makes no sense: %s", self.path, now)
        self._news.set()

    def _restored(self) -> None:
        log.info("%s makes sense again", self.path)
        self._news.set()
