"""Reconcile one object: when it changes, at the requested time, and with backoff after a failure.

`reconcile` reads the object itself, live: the informer only triggers it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

from haulout.api.objects import Object
from haulout.api.resources import Resource
from haulout.core.clock import Clock
from haulout.errors import HauloutError
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.reflector import ListWatch
from haulout.kube.workqueue import WorkQueue


class ObjectReconciler:
    """Calls `reconcile` while `run` runs; `reconcile` returns when to requeue, or None."""

    def __init__(
        self,
        client: Client,
        resource: Resource[Any],
        name: str,
        *,
        namespace: str | None = None,
        reconcile: Callable[[], Awaitable[datetime | None]],
        clock: Clock,
    ) -> None:
        self.problem: str | None = None  # why the last reconcile failed
        self._name = name
        self._reconcile = reconcile
        # Metadata only: the content of a Secret should not stay in a cache.
        selection = ListWatch(resource.with_model(Object), namespace=namespace, fields=f"metadata.name={name}")
        self._cache = Informer(client, selection, transform=as_is)
        self._queue = WorkQueue(
            self._process, clock=clock, random=client.random, workers=1, metrics=client.metrics, name=str(resource)
        )
        self._cache.subscribe(lambda _old, _new: self.enqueue())

    async def run(self) -> None:
        """Reconcile once at the start, even if the object does not exist, and then until cancelled."""
        self.enqueue()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._cache.run())
            group.create_task(self._queue.run())

    def enqueue(self) -> None:
        self._queue.add(self._name)

    async def _process(self, _key: str) -> datetime | None:
        try:
            requeue_at = await self._reconcile()
        except HauloutError as error:
            self.problem = str(error)
            raise
        self.problem = None
        return requeue_at
