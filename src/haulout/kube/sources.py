"""Caches that come and go: what is wanted now is followed, and nothing else.

    sources = Sources(client, make=…)           # make(key) returns a cache that is not running yet
    sources.want({"pods"})
    await sources.wait_settled(within=…)

A resource that is not served, because its CustomResourceDefinition is not installed, has no objects. That is told once,
and looked at again every minute.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Hashable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from haulout.errors import HauloutError, KubeError
from haulout.kube import discovery
from haulout.kube.cache import Cache
from haulout.kube.client import Client

K = TypeVar("K", bound=Hashable)

log = logging.getLogger(__name__)

_LOOKED_FOR_EVERY = timedelta(minutes=1)


class NotKnown(HauloutError):
    """What somebody wants to look at has not been read yet, or cannot be read."""

    def __repr__(self) -> str:
        """Return what it says: it is shown to people as the error of a check."""
        return str(self)


@dataclass(slots=True, eq=False)
class _Source:
    cache: Cache[Any]
    is_optional: bool
    settled: asyncio.Event  # it is known what there is
    is_served: bool = True
    task: asyncio.Task[None] | None = None


class Sources(Generic[K]):
    """Caches by key. `make` makes one, and says whether its resource may be missing; `settled` hears what is known."""

    def __init__(
        self,
        client: Client,
        *,
        make: Callable[[K], tuple[Cache[Any], bool]],
        settled: Callable[[K], object],
    ) -> None:
        self._client = client
        self._make = make
        self._settled = settled
        self._sources: dict[K, _Source] = {}
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Follow what is wanted, until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                for key, source in self._sources.items():
                    self._start(key, source)
                await asyncio.Event().wait()
            finally:
                self._group = None
                for source in self._sources.values():
                    _stop(source)

    def want(self, keys: Collection[K]) -> None:
        """Follow these, and no others."""
        for key in [it for it in self._sources if it not in keys]:
            _stop(self._sources.pop(key))
        for key in keys:
            if key not in self._sources:
                cache, is_optional = self._make(key)
                self._sources[key] = _Source(cache, is_optional, asyncio.Event())
                self._start(key, self._sources[key])

    def wanted(self) -> Collection[K]:
        """Return what is followed."""
        return tuple(self._sources)

    async def wait_settled(self, within: timedelta) -> None:
        """Return when all that is wanted is known, or after `within`: then what is not is told."""
        try:
            async with asyncio.timeout(within.total_seconds()):
                for source in tuple(self._sources.values()):
                    await source.settled.wait()
        except TimeoutError:
            for key, source in self._sources.items():
                if not source.settled.is_set():
                    log.warning("%s are not known yet: %s", source.cache.resource, self._why(key))

    def get(self, key: K) -> Cache[Any] | None:
        """Return a cache whose objects are known; None if its resource is not served. Raises `NotKnown`."""
        source = self._sources.get(key)
        if source is None:
            raise NotKnown(f"{key} are not followed: nothing in force says that it needs them")
        if not source.is_served:
            return None
        if not source.settled.is_set():
            raise NotKnown(f"{source.cache.resource} are not known yet: {self._why(key)}")
        return source.cache

    def _why(self, key: K) -> str:
        return self._sources[key].cache.health().problem or "they are being read"

    def _start(self, key: K, source: _Source) -> None:
        if self._group is not None and source.task is None:
            source.task = self._group.create_task(self._follow(key, source), name=f"following {key}")

    async def _follow(self, key: K, source: _Source) -> None:
        """Follow one source, until cancelled."""
        if source.is_optional:
            await self._wait_served(key, source)
        async with asyncio.TaskGroup() as group:
            group.create_task(source.cache.run())
            await source.cache.wait_synced()
            self._settle(key, source)

    async def _wait_served(self, key: K, source: _Source) -> None:
        while not await self._is_served(source):
            if source.is_served:
                log.warning("%s are not installed in this cluster: for checks of them there are none", key)
                source.is_served = False
                self._settle(key, source)
            await self._client.clock.sleep(_LOOKED_FOR_EVERY)
        if not source.is_served:
            log.info("%s are installed now", key)
            source.is_served = True
            source.settled.clear()

    async def _is_served(self, source: _Source) -> bool:
        with suppress(KubeError):
            return await discovery.serves(self._client, source.cache.resource)
        return True  # the cache will tell what is wrong

    def _settle(self, key: K, source: _Source) -> None:
        source.settled.set()
        self._settled(key)


def _stop(source: _Source) -> None:
    if source.task is not None:
        source.task.cancel()
        source.task = None
