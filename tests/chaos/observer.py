"""Watches everything in a round, and keeps each event with the instant at which it came.

After a lost connection a watch continues where it stopped, so no revision is missed. If the server has forgotten that
revision, the objects are listed again, and those that vanished are recorded as deleted.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from http import HTTPStatus

import aiohttp

from chaos.api import Api, Raw, Refused
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
_TRY_AGAIN = timedelta(milliseconds=300)
_LOOK_AGAIN = timedelta(milliseconds=50)


class Observer:
    """The events so far, and how things stand by them."""

    def __init__(self, api: Api, group: asyncio.TaskGroup) -> None:
        self.events: list[WatchEvent] = []
        self.restored: list[datetime] = []  # when etcd was restored
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
        self._tasks = [self._group.create_task(self._follow(it)) for it in WATCHED]

    async def stop(self) -> None:
        """Watch no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @asynccontextmanager
    async def restoring(self) -> AsyncIterator[None]:
        """Begin an epoch: what is watched after the context comes from a restored etcd."""
        await self.stop()
        self.restored.append(self._clock.now())
        yield
        for objects in self.objects.values():
            objects.clear()
        self.start()

    async def until(self, condition: Callable[[], bool], *, within: timedelta) -> bool:
        """Wait until a condition holds; tell whether it did in time."""
        give_up = self._clock.monotonic() + within.total_seconds()
        while not condition():
            if self._clock.monotonic() > give_up:
                return False
            await self._clock.sleep(_LOOK_AGAIN)
        return True

    async def _follow(self, resource: str) -> None:
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
                        self._note(resource, event["type"], event["object"])
            except Refused as refused:
                if refused.status == HTTPStatus.GONE:
                    since = ""
            except (aiohttp.ClientError, OSError, ValueError):
                pass
            await self._clock.sleep(_TRY_AGAIN)

    async def _list(self, resource: str) -> str:
        items, version = await self._api.list(resource)
        there = {_key(it): it for it in items}
        for key, obj in list(self.objects[resource].items()):
            if key not in there:
                gone = obj | {"metadata": obj["metadata"] | {"resourceVersion": version}}
                self._note(resource, "DELETED", gone)
        for obj in items:
            self._note(resource, "LISTED", obj)
        self._listed.add(resource)
        return version

    def _note(self, resource: str, kind: str, obj: Raw) -> None:
        event = WatchEvent(resource=resource, type=kind, object=obj, at=self._clock.now(), epoch=len(self.restored))
        self.events.append(event)
        if kind == "DELETED":
            self.objects[resource].pop(_key(obj), None)
        else:
            self.objects[resource][_key(obj)] = obj


def _key(obj: Raw) -> str:
    metadata = obj["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else str(metadata["name"])
