"""The configuration for those who look at it, and what another one would change: read in a thread, one at a time.

What is told of the file is kept until the file is another one. An edit is read and tried, answered and forgotten.
"""

import asyncio
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from typing import TypeVar

from haulout.controllers.profiles.config import model
from haulout.controllers.profiles.config.loader import Registries
from haulout.core.clock import Clock
from haulout.dashboard.api.backend import HttpError
from haulout.dashboard.api.configuration import view
from haulout.dashboard.api.configuration.edit import parse_edit
from haulout.dashboard.api.configuration.preview import NextStep, preview_edit
from haulout.dashboard.api.configuration.view import ConfigurationFile
from haulout.dashboard.api.types import Configuration, WhatIf

T = TypeVar("T")

_MAX_PENDING = 4


class ConfigurationReader:
    """Tells of the configuration.

    `with_defaults` makes of what a file says what is done by it, the default included; `make_next_step` makes what
    tells which step a node would take.
    """

    def __init__(
        self,
        *,
        file: Callable[[], ConfigurationFile],
        in_force: Callable[[], model.Configuration],
        with_defaults: Callable[[model.Configuration], model.Configuration],
        nodes: Callable[[], Collection[str]],
        make_next_step: Callable[[], NextStep],
        registries: Callable[[], Registries],
        clock: Clock,
    ) -> None:
        self._file = file
        self._in_force = in_force
        self._with_defaults = with_defaults
        self._nodes = nodes
        self._make_next_step = make_next_step
        self._registries = registries
        self._clock = clock
        self._cached: tuple[ConfigurationFile, Configuration] | None = None
        self._cache_lock = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="configuration")  # it begins with the first work
        self._pending = 0

    async def current(self) -> Configuration:
        """Return what profiles go by."""
        async with self._cache_lock:
            file = self._file()
            if self._cached is None or self._cached[0] != file:
                self._cached = (
                    file,
                    await self._run_in_thread(partial(view.configuration_to_api, file, self._registries())),
                )
            return self._cached[1]

    async def preview(self, text: str) -> WhatIf:
        """Return what would change if the file said this."""
        in_force = self._in_force()
        edit = await self._run_in_thread(partial(parse_edit, text, self._file(), self._registries(), in_force=in_force))
        if edit.edited is None:
            return WhatIf(is_good=False, findings=edit.findings)
        return await preview_edit(
            edit,
            self._with_defaults(in_force),
            self._with_defaults(edit.edited),
            nodes=tuple(self._nodes()),
            next_step=self._make_next_step(),
            clock=self._clock,
        )

    async def _run_in_thread(self, work: Callable[[], T]) -> T:
        """Do something in the one thread there is for it: who has left by then does not make another one begin."""
        if self._pending >= _MAX_PENDING:
            text = "too many configurations are being looked at: try again in some seconds"
            raise HttpError(text, HTTPStatus.TOO_MANY_REQUESTS)
        self._pending += 1
        future = asyncio.get_running_loop().run_in_executor(self._thread, work)
        future.add_done_callback(self._done)
        return await asyncio.shield(future)

    def _done(self, _: object) -> None:
        self._pending -= 1
