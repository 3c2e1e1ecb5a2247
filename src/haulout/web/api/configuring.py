"""The configuration for those who look at it, and what another one would change: read in a thread, one at a time.

What is told of the file is kept until the file is another one. An edit is read and tried, answered and forgotten.
"""

import asyncio
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from typing import TypeVar

from haulout.core.clock import Clock
from haulout.profiles import model
from haulout.profiles.config import Registries
from haulout.web.api import configuration
from haulout.web.api.configuration import File
from haulout.web.api.edits import read_edit
from haulout.web.api.shapes import Configuration, WhatIf
from haulout.web.api.source import Unanswerable
from haulout.web.api.whatif import Consider, compared

T = TypeVar("T")

_MOST_WAITING = 4


class Configurations:
    """Tells of the configuration.

    `completed` makes of what a file says what is done by it, the default included; `consider` makes what tells which
    step a node would take.
    """

    def __init__(
        self,
        *,
        file: Callable[[], File],
        in_force: Callable[[], model.Configuration],
        completed: Callable[[model.Configuration], model.Configuration],
        nodes: Callable[[], Collection[str]],
        consider: Callable[[], Consider],
        registries: Callable[[], Registries],
        clock: Clock,
    ) -> None:
        self._file = file
        self._in_force = in_force
        self._completed = completed
        self._nodes = nodes
        self._consider = consider
        self._registries = registries
        self._clock = clock
        self._told: tuple[File, Configuration] | None = None
        self._telling = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="configuration")  # it begins with the first work
        self._waiting = 0

    async def told(self) -> Configuration:
        """Return what profiles go by."""
        async with self._telling:
            file = self._file()
            if self._told is None or self._told[0] != file:
                self._told = file, await self._aside(partial(configuration.told, file, self._registries()))
            return self._told[1]

    async def what_if(self, text: str) -> WhatIf:
        """Return what would change if the file said this."""
        in_force = self._in_force()
        read = await self._aside(partial(read_edit, text, self._file(), self._registries(), in_force=in_force))
        if read.after is None:
            return WhatIf(is_good=False, findings=read.findings)
        return await compared(
            read,
            self._completed(in_force),
            self._completed(read.after),
            nodes=tuple(self._nodes()),
            consider=self._consider(),
            clock=self._clock,
        )

    async def _aside(self, work: Callable[[], T]) -> T:
        """Do something in the one thread there is for it: who has left by then does not make another one begin."""
        if self._waiting >= _MOST_WAITING:
            text = "too many configurations are being looked at: try again in some seconds"
            raise Unanswerable(text, HTTPStatus.TOO_MANY_REQUESTS)
        self._waiting += 1
        future = asyncio.get_running_loop().run_in_executor(self._thread, work)
        future.add_done_callback(self._done)
        return await asyncio.shield(future)

    def _done(self, _: object) -> None:
        self._waiting -= 1
