"""Watches PodDisruptionBudgets that refuse evictions, to retry as soon as they allow a disruption.

While a PodDisruptionBudget refuses pods of a drain, that object is watched. When its status allows a disruption, the
next pod is tried; when the status changes and allows another, the pod after that. Thus each pod is tried once without
and once with success, and no time is lost in between.

This is an optimization only: without the permission to watch, pods are retried with the usual backoff.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta

from haulout.api.objects import Bookmark, UndecodableObject, WatchEvent
from haulout.core.backoff import Backoff
from haulout.core.retry import Retry
from haulout.drain.pdb_simulation import POD_DISRUPTION_BUDGETS, PodDisruptionBudget
from haulout.errors import Forbidden, KubeError, NotFound
from haulout.kube.client import Client

PDB_PREFIX = "PodDisruptionBudget "  # prefix of `Blocker.object`, before namespace/name

# Each watch is a stream in the API server. A node with more blocking budgets than that falls back to retries.
_MAX_WATCHES = 20  # per drain
_WATCH_TIMEOUT = timedelta(minutes=5)
_BACKOFF = Backoff(first=timedelta(seconds=2), limit=timedelta(minutes=1), jitter=0.5)
_STABLE_AFTER = timedelta(seconds=30)


@dataclass(slots=True)
class _WatchedBudget:
    """The state of one watched PodDisruptionBudget, by its last event."""

    task: asyncio.Task[None]
    is_synced: bool = False
    disruptions_allowed: int = 0
    is_used: bool = True  # its last status has been used for an attempt


class PodDisruptionBudgetWatch:
    """The PodDisruptionBudgets that block one drain, by `Blocker.object`."""

    def __init__(self, client: Client, *, on_allowed: Callable[[str], None]) -> None:
        self._client = client
        self._clock = client.clock
        self._on_allowed = on_allowed
        self._watched: dict[str, _WatchedBudget] = {}
        self._given_up: set[str] = set()

    def watch(self, names: Iterable[str], group: asyncio.TaskGroup) -> None:
        """Watch exactly these PodDisruptionBudgets, in tasks of `group`."""
        wanted = [name for name in dict.fromkeys(names) if name.startswith(PDB_PREFIX) and name not in self._given_up]
        for name in [name for name in self._watched if name not in wanted]:
            self._watched.pop(name).task.cancel()
        for name in wanted[:_MAX_WATCHES]:
            if name not in self._watched:
                self._watched[name] = _WatchedBudget(group.create_task(self._watch(name)))

    def close(self) -> None:
        while self._watched:
            self._watched.popitem()[1].task.cancel()

    def is_watched(self, name: str) -> bool:
        """Return whether the watch would report an allowed disruption."""
        return name in self._watched and self._watched[name].is_synced

    def mark_used(self, name: str) -> None:
        """Record that a pod is tried because of the last status."""
        if name in self._watched:
            self._watched[name].is_used = True

    def allows_disruption(self, name: str) -> bool:
        """Return whether the status has allowed a disruption since the last attempt."""
        watched = self._watched.get(name)
        return watched is not None and watched.disruptions_allowed > 0 and not watched.is_used

    async def _watch(self, name: str) -> None:
        retry = Retry(self._clock, self._client.random, _BACKOFF, stable_after=_STABLE_AFTER)
        while True:
            try:
                await self._watch_once(name)
            # A 403 will not go away within a drain, and 404 means that the server does not serve policy/v1.
            except (Forbidden, NotFound):
                self._given_up.add(name)
                self._watched.pop(name, None)
                return
            except KubeError as error:
                if name in self._watched:
                    self._watched[name].is_synced = False
                await retry.wait(error)
            else:
                retry.reset()
                await self._clock.sleep(_BACKOFF.delay(1, self._client.random))

    async def _watch_once(self, name: str) -> None:
        namespace, _, pdb_name = name.removeprefix(PDB_PREFIX).partition("/")
        fields = f"metadata.name={pdb_name}"
        async with self._client.watch(
            POD_DISRUPTION_BUDGETS, namespace=namespace, fields=fields, watch_timeout=_WATCH_TIMEOUT
        ) as events:
            async for event in events:
                if not isinstance(event, Bookmark):
                    self._handle_event(name, event)

    def _handle_event(self, name: str, event: WatchEvent[PodDisruptionBudget] | WatchEvent[UndecodableObject]) -> None:
        watched, pdb = self._watched.get(name), event.object
        if watched is None or isinstance(pdb, UndecodableObject):
            return
        # A deleted PodDisruptionBudget forbids nothing and sends no more events.
        is_deleted = event.type == "DELETED"
        # Every event may be used for one attempt. The API server (checkAndDecrement in
        # pkg/registry/core/pod/storage/eviction.go) and the disruption controller both write the status, so an equal
        # number may be another disruption.
        watched.is_synced, watched.is_used = not is_deleted, False
        watched.disruptions_allowed = 1 if is_deleted else pdb.status.disruptions_allowed
        if watched.disruptions_allowed > 0:
            self._on_allowed(name)
