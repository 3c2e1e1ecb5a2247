"""A set of informers that starts and stops them as the set of needed keys changes.

    informers = InformerSet(client, new_informer=…, on_synced=…)   # new_informer(key) returns one that does not run yet
    informers.set_keys({"pods"})
    await informers.wait_synced(timeout)

A resource that is not served, because its CustomResourceDefinition is not installed, has no objects. The set logs that
once, and checks discovery again every minute.
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
    """The objects of a resource have not been read yet, or cannot be read."""

    def __repr__(self) -> str:
        """Return the message: users see it as the error of a check."""
        return str(self)


@dataclass(slots=True, eq=False)
class _ManagedInformer:
    informer: Informer[Any]
    is_optional: bool
    synced: asyncio.Event  # the objects are known, or the resource is not served
    is_served: bool = True
    task: asyncio.Task[None] | None = None


class InformerSet(Generic[K]):
    """Informers by key.

    `new_informer` creates an informer, and tells whether its resource is optional. `on_synced` is called with a key
    when its objects are known.
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
        """Run the informers of the current keys, until cancelled."""
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
        """Start the informers of new keys, and stop those of other keys."""
        for key in [known for known in self._informers if known not in keys]:
            _stop(self._informers.pop(key))
        for key in keys:
            if key not in self._informers:
                informer, is_optional = self._new_informer(key)
                self._informers[key] = _ManagedInformer(informer, is_optional, asyncio.Event())
                self._start(key, self._informers[key])

    def keys(self) -> Collection[K]:
        return tuple(self._informers)

    async def wait_synced(self, timeout: timedelta) -> None:
        """Return when all informers have synced, or after `timeout`. Log those that have not."""
        try:
            async with asyncio.timeout(timeout.total_seconds()):
                for managed in tuple(self._informers.values()):
                    await managed.synced.wait()
        # Not an error: a resource that cannot be read must not stop the reconciles that do not need it.
        except TimeoutError:
            for key, managed in self._informers.items():
                if not managed.synced.is_set():
                    log.warning("%s are not synced yet: %s", managed.informer.resource, self._problem(key))

    def get(self, key: K) -> Informer[Any] | None:
        """Return a synced informer; None if its resource is not served.

        Raise `InformerNotSynced` if its objects are unknown.
        """
        managed = self._informers.get(key)
        if managed is None:
            raise InformerNotSynced(f"{key} are not watched: the configuration in force does not need them")
        if not managed.is_served:
            return None
        if not managed.synced.is_set():
            raise InformerNotSynced(f"{managed.informer.resource} are not synced yet: {self._problem(key)}")
        return managed.informer

    def _problem(self, key: K) -> str:
        return self._informers[key].informer.health().problem or "the initial list is not complete"

    def _start(self, key: K, managed: _ManagedInformer) -> None:
        if self._group is not None and managed.task is None:
            managed.task = self._group.create_task(self._run_informer(key, managed), name=f"following {key}")

    async def _run_informer(self, key: K, managed: _ManagedInformer) -> None:
        # A watch of a resource that is not installed fails with 404 in a loop, and each failure is logged. To ask
        # discovery costs one request a minute.
        if managed.is_optional:
            await self._wait_served(key, managed)
        async with asyncio.TaskGroup() as group:
            group.create_task(managed.informer.run())
            await managed.informer.wait_synced()
            self._mark_synced(key, managed)

    async def _wait_served(self, key: K, managed: _ManagedInformer) -> None:
        while not await self._is_served(managed):
            if managed.is_served:
                log.warning("%s are not installed in this cluster: checks find no objects of this kind", key)
                managed.is_served = False
                self._mark_synced(key, managed)
            await self._client.clock.sleep(_DISCOVERY_INTERVAL)
        if not managed.is_served:
            log.info("%s are installed now", key)
            managed.is_served = True
            # The resource exists now, but its objects are unknown until the first list. Before, "no objects" was known.
            managed.synced.clear()

    async def _is_served(self, managed: _ManagedInformer) -> bool:
        with suppress(KubeError):
            return await discovery.serves(self._client, managed.informer.resource)
        return True  # the informer reports the error

    def _mark_synced(self, key: K, managed: _ManagedInformer) -> None:
        managed.synced.set()
        self._on_synced(key)


def _stop(managed: _ManagedInformer) -> None:
    if managed.task is not None:
        managed.task.cancel()
        managed.task = None
