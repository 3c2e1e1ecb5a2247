"""One object that is looked after: when it changes, when it is time, and again after a failure.

`look` reads the object itself, live: what the watch tells is only that it is time to look.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

from haulout.core.clock import Clock
from haulout.errors import HauloutError
from haulout.kube.cache import Cache, as_is
from haulout.kube.client import Client
from haulout.kube.follow import Selection
from haulout.kube.objects import Object
from haulout.kube.queue import Queue
from haulout.kube.resources import Resource


class Following:
    """Calls `look`, which returns when it wants to look again, for as long as `run` runs."""

    def __init__(
        self,
        client: Client,
        resource: Resource[Any],
        name: str,
        *,
        namespace: str | None = None,
        look: Callable[[], Awaitable[datetime | None]],
        clock: Clock,
    ) -> None:
        self.problem: str | None = None  # why the last look failed
        self._name = name
        self._look = look
        selection = Selection(resource.of(Object), namespace=namespace, fields=f"metadata.name={name}")
        self._cache = Cache(client, selection, row=as_is)
        self._queue = Queue(
            self._work, clock=clock, random=client.random, workers=1, meters=client.meters, name=str(resource)
        )
        self._cache.subscribe(lambda _old, _new: self.poke())

    async def run(self) -> None:
        """Look after it until cancelled."""
        self.poke()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._cache.run())
            group.create_task(self._queue.run())

    def poke(self) -> None:
        """Look soon."""
        self._queue.add(self._name)

    async def _work(self, _key: str) -> datetime | None:
        try:
            wakes_at = await self._look()
        except HauloutError as error:
            self.problem = str(error)
            raise
        self.problem = None
        return wakes_at
