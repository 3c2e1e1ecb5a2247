"""Watches all resources in a round, and records each event with the instant of its arrival.

After a lost connection a watch continues at its last revision, so it misses none. After 410 Gone the objects are listed
again, and those that have vanished are recorded as deleted.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from http import HTTPStatus

import aiohttp

from chaos.api_client import ApiClient, ApiError, Raw
from chaos.recording import WatchEvent
from haulout.core.clock import RealClock

WATCHED = (
    "nodes",
    "pods",
    "configmaps",
    "leases",
    "events",
    "nodemaintenances",
    "maintenancerecords",
    "maintenancenotices",
)
_RETRY_DELAY = timedelta(milliseconds=300)
_POLL_INTERVAL = timedelta(milliseconds=50)


class Observer:
    """The events so far, and the current objects."""

    def __init__(self, api: ApiClient, group: asyncio.TaskGroup) -> None:
        self.events: list[WatchEvent] = []
        self.restore_times: list[datetime] = []  # when etcd was restored
        self.objects: dict[str, dict[str, Raw]] = {resource: {} for resource in WATCHED}
        self._api = api
        self._group = group
        self._clock = RealClock()
        self._tasks: list[asyncio.Task[None]] = []
        self._listed: set[str] = set()

    @property
    def is_synced(self) -> bool:
        """Whether everything was listed since the last start."""
        return len(self._listed) == len(WATCHED)

    def start(self) -> None:
        """Begin to watch."""
        self._listed.clear()
        self._tasks = [self._group.create_task(self._watch_forever(event)) for event in WATCHED]

    async def stop(self) -> None:
        """Watch no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @asynccontextmanager
    async def restoring(self) -> AsyncIterator[None]:
        """Begin an epoch: what is watched after the context comes from a restored etcd."""
        await self.stop()
        self.restore_times.append(self._clock.now())
        yield
        for objects in self.objects.values():
            objects.clear()
        self.start()

    async def wait_until(self, condition: Callable[[], bool], *, within: timedelta) -> bool:
        """Wait until a condition holds; tell whether it did in time."""
        deadline = self._clock.monotonic() + within.total_seconds()
        while not condition():
            if self._clock.monotonic() > deadline:
                return False
            await self._clock.sleep(_POLL_INTERVAL)
        return True

    async def _watch_forever(self, resource: str) -> None:
        since = ""
        while True:
            try:
                since = since or await self._list(resource)
                async for event in self._api.watch(resource, since):
                    if event["type"] == "ERROR":
                        since = ""
                        break
                    since = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        self._record(resource, event["type"], event["object"])
            except ApiError as refused:
                if refused.status == HTTPStatus.GONE:
                    since = ""
            except (aiohttp.ClientError, OSError, ValueError):
                pass
            await self._clock.sleep(_RETRY_DELAY)

    async def _list(self, resource: str) -> str:
        items, version = await self._api.list(resource)
        listed = {_key(item): item for item in items}
        for key, obj in list(self.objects[resource].items()):
            if key not in listed:
                deleted = obj | {"metadata": obj["metadata"] | {"resourceVersion": version}}
                self._record(resource, "DELETED", deleted)
        for obj in items:
            self._record(resource, "LISTED", obj)
        self._listed.add(resource)
        return version

    def _record(self, resource: str, kind: str, obj: Raw) -> None:
        event = WatchEvent(
            resource=resource, type=kind, object=obj, at=self._clock.now(), epoch=len(self.restore_times)
        )
        self.events.append(event)
        if kind == "DELETED":
            self.objects[resource].pop(_key(obj), None)
        else:
            self.objects[resource][_key(obj)] = obj


def _key(obj: Raw) -> str:
    metadata = obj["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else str(metadata["name"])
