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
from haulout.kube.client import Client
from haulout.kube.informer import Informer

K = TypeVar("K", bound=Hashable)

log = logging.getLogger(__name__)

_DISCOVERY_INTERVAL = timedelta(minutes=1)


class InformerNotSynced(HauloutError):
    """What somebody wants to look at has not been read yet, or cannot be read."""

    def __repr__(self) -> str:
        """Return what it says: it is shown to people as the error of a check."""
        return str(self)


@dataclass(slots=True, eq=False)
class _ManagedInformer:
    informer: Informer[Any]
    is_optional: bool
    synced: asyncio.Event  # it is known what there is
    is_served: bool = True
    task: asyncio.Task[None] | None = None


class InformerSet(Generic[K]):
    """Caches by key. `new_informer` makes one, and says whether its resource may be missing.

    `synced` hears what is known.
    """

    def __init__(
        self,
        client: Client,
        *,
        new_informer: Callable[[K], tuple[Informer[Any], bool]],
        on_synced: Callable[[K], object],
    ) -> None:
        self._client = client
        self._new_informer = new_informer
        self._on_synced = on_synced
        self._informers: dict[K, _ManagedInformer] = {}
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Follow what is wanted, until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                for key, managed in self._informers.items():
                    self._start(key, managed)
                await asyncio.Event().wait()
            finally:
                self._group = None
                for managed in self._informers.values():
                    _stop(managed)

    def set_keys(self, keys: Collection[K]) -> None:
        """Follow these, and no others."""
        for key in [known for known in self._informers if known not in keys]:
            _stop(self._informers.pop(key))
        for key in keys:
            if key not in self._informers:
                informer, is_optional = self._new_informer(key)
                self._informers[key] = _ManagedInformer(informer, is_optional, asyncio.Event())
                self._start(key, self._informers[key])

    def keys(self) -> Collection[K]:
        """Return what is followed."""
        return tuple(self._informers)

    async def wait_synced(self, timeout: timedelta) -> None:
        """Return when all that is wanted is known, or after `timeout`: then what is not is told."""
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                for managed in tuple(self._informers.values()):
                    await managed.synced.wait()
        except TimeoutError:
            for key, managed in self._informers.items():
                if not managed.synced.is_set():
                    log.warning("%s are not known yet: %s", managed.informer.resource, self._problem(key))

    def get(self, key: K) -> Informer[Any] | None:
        """Return a cache whose objects are known; None if its resource is not served. Raises `InformerNotSynced`."""
        managed = self._informers.get(key)
        if managed is None:
            raise InformerNotSynced(f"{key} are not followed: nothing in force says that it needs them")
        if not managed.is_served:
            return None
        if not managed.synced.is_set():
            raise InformerNotSynced(f"{managed.informer.resource} are not known yet: {self._problem(key)}")
        return managed.informer

    def _problem(self, key: K) -> str:
        return self._informers[key].informer.health().problem or "they are being read"

    def _start(self, key: K, managed: _ManagedInformer) -> None:
        if self._group is not None and managed.task is None:
            managed.task = self._group.create_task(self._run_informer(key, managed), name=f"following {key}")

    async def _run_informer(self, key: K, managed: _ManagedInformer) -> None:
        """Follow one source, until cancelled."""
        if managed.is_optional:
            await self._wait_served(key, managed)
        async with asyncio.TaskGroup() as group:
            group.create_task(managed.informer.run())
            await managed.informer.wait_synced()
            self._mark_synced(key, managed)

    async def _wait_served(self, key: K, managed: _ManagedInformer) -> None:
        while not await self._is_served(managed):
            if managed.is_served:
                log.warning("%s are not installed in this cluster: for checks of them there are none", key)
                managed.is_served = False
                self._mark_synced(key, managed)
            await self._client.clock.sleep(_DISCOVERY_INTERVAL)
        if not managed.is_served:
            log.info("%s are installed now", key)
            managed.is_served = True
            managed.synced.clear()

    async def _is_served(self, managed: _ManagedInformer) -> bool:
        with suppress(KubeError):
            return await discovery.serves(self._client, managed.informer.resource)
        return True  # the cache will tell what is wrong

    def _mark_synced(self, key: K, managed: _ManagedInformer) -> None:
        managed.synced.set()
        self._on_synced(key)


def _stop(managed: _ManagedInformer) -> None:
    if managed.task is not None:
        managed.task.cancel()
        managed.task = None
