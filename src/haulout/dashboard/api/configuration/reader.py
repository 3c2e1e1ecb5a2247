"""Read and preview configurations in one worker thread, one at a time.

The view of the file is cached until the file changes. An edit is not kept.
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
from haulout.dashboard.api.types import Configuration, ConfigurationPreview

T = TypeVar("T")

_MAX_PENDING = 4


class ConfigurationReader:
    """Returns the configuration and previews of edits.

    `with_defaults` adds the default profile to a configuration; `make_next_step` creates the function that previews a
    node's next step.
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
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="configuration")  # it starts with the first job
        self._pending = 0

    async def current(self) -> Configuration:
        async with self._cache_lock:
            file = self._file()
            if self._cached is None or self._cached[0] != file:
                self._cached = (
                    file,
                    await self._run_in_thread(partial(view.configuration_to_api, file, self._registries())),
                )
            return self._cached[1]

    async def preview(self, text: str) -> ConfigurationPreview:
        """Return what would change with this file."""
        in_force = self._in_force()
        edit = await self._run_in_thread(partial(parse_edit, text, self._file(), self._registries(), in_force=in_force))
        if edit.edited is None:
            return ConfigurationPreview(is_valid=False, findings=edit.findings)
        return await preview_edit(
            edit,
            self._with_defaults(in_force),
            self._with_defaults(edit.edited),
            nodes=tuple(self._nodes()),
            next_step=self._make_next_step(),
            clock=self._clock,
        )

    async def _run_in_thread(self, work: Callable[[], T]) -> T:
        """Run a job in the worker thread; a cancelled caller does not free its place, so jobs cannot pile up."""
        if self._pending >= _MAX_PENDING:
            text = "too many configurations are being checked: try again in a few seconds"
            raise HttpError(text, HTTPStatus.TOO_MANY_REQUESTS)
        self._pending += 1
        future = asyncio.get_running_loop().run_in_executor(self._thread, work)
        future.add_done_callback(self._done)
        return await asyncio.shield(future)

    def _done(self, _: object) -> None:
        self._pending -= 1
