"""Garbage: what belongs to something that is gone goes too.

Follows `pkg/controller/garbagecollector` of Kubernetes 1.36. An object all of whose owners are gone is deleted; one
that has another owner left only forgets those that are gone. An owner that is deleted in the foreground stays until
those dependents are gone that block it; one that orphans its dependents stays until they have forgotten it.

That an owner is gone is not taken from a cache alone, which may be behind: the API server is asked. All kinds that are
served are followed, custom ones too; an owner of another kind is taken for there. Only leases are not followed, which
are written all the time: those of a node are looked for when it goes.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any, NamedTuple

from haulout.errors import NotFound
from haulout.kube.cache import Cache
from haulout.kube.discovery import discover
from haulout.kube.resources import LEASES, Resource
from haulout_sandbox.controllers import edge
from haulout_sandbox.controllers.base import Controller
from haulout_sandbox.controllers.caches import Caches, dependents
from haulout_sandbox.controllers.claims import owner_references
from haulout_sandbox.controllers.objects import (
    BUDGETS,
    CONFIG_MAPS,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    NODES,
    PODS,
    REPLICA_SETS,
    REVISIONS,
    STATEFUL_SETS,
    Owned,
    OwnerReference,
)
from haulout_sandbox.controllers.served import DEFINITIONS, served_kinds

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"
# Those whose caches others have, too.
USUAL_KINDS: tuple[Resource[Any], ...] = (
    PODS,
    REPLICA_SETS,
    DEPLOYMENTS,
    STATEFUL_SETS,
    DAEMON_SETS,
    REVISIONS,
    JOBS,
    NODES,
    CONFIG_MAPS,
    BUDGETS,
)

_NOT_FOLLOWED = ("events", "events.events.k8s.io", str(LEASES))
_ABSENT_REMEMBERED = 1024
_UNTIL_ALL_IS_KNOWN = timedelta(seconds=1)


class Place(NamedTuple):
    """Where an object is: its kind (`replicasets.apps`) and key."""

    kind: str
    key: str


_SERVED = Place("", "")  # what is served may have changed
_NODE_LEASES = Place(str(LEASES), "")


class Garbage(Controller[Place]):
    """Deletes what has lost its owners, and lets owners go that wait for that."""

    name = "garbage"

    def __init__(self, caches: Caches, random: Random, *, kinds: Sequence[Resource[Any]] = USUAL_KINDS) -> None:
        super().__init__(caches, random)
        self._kinds = {str(kind): kind for kind in kinds}
        self._by_type = {(kind.api_version, kind.kind): kind for kind in kinds}
        self._known: dict[str, Place] = {}  # by uid
        self._absent: dict[str, None] = {}  # uids of owners that are gone for certain, the latest last
        self._usual = set(self._kinds)  # others see to it that their caches run
        self._tasks: asyncio.TaskGroup | None = None
        self._followed: dict[str, asyncio.Task[None]] = {}  # the caches that only we have
        self._has_asked = False
        self._cached: dict[str, Cache[Any]] = {}  # by the name of the kind
        for kind in kinds:
            self._cached[str(kind)] = caches.of(kind)
            caches.of(kind).subscribe(self._noting(kind))
        self._definitions = caches.of(DEFINITIONS)
        self._definitions.subscribe(lambda _, __: self.queue.add(_SERVED))

    async def run(self) -> None:
        """Work until cancelled; may be run again after that."""
        for name in list(self._followed):
            self._unfollow(name)
        self._has_asked = False
        async with asyncio.TaskGroup() as self._tasks:
            for place in (_SERVED, _NODE_LEASES):
                self.queue.add(place)
            await self.queue.run()

    async def _follow_what_is_served(self) -> None:
        found = served_kinds(
            await discover(self.client), self._definitions.all(), without={*self._usual, *_NOT_FOLLOWED}
        )
        for name in [name for name in self._followed if found.get(name) != self._kinds[name]]:
            self._unfollow(name)
        for name in [name for name in found if name not in self._followed]:
            self._follow(name, found[name])
        self._has_asked = True

    def _knows_all(self) -> bool:
        """Tell whether no dependent can be missing from our caches only because they have just begun."""
        return self._has_asked and all(self.caches.of(self._kinds[name]).health().synced for name in self._followed)

    def _follow(self, name: str, kind: Resource[Any]) -> None:
        if self._tasks is None:
            raise RuntimeError("the garbage collector is not running")
        is_shared = self.caches.has(kind)
        self._kinds[name] = self._by_type[kind.api_version, kind.kind] = kind
        cache = self._cached[name] = self.caches.of(kind)
        cache.subscribe(self._noting(kind))
        if is_shared:
            self._usual.add(name)
        else:
            self._followed[name] = self._tasks.create_task(cache.run())

    def _unfollow(self, name: str) -> None:
        kind = self._kinds.pop(name)
        del self._cached[name]
        self._by_type.pop((kind.api_version, kind.kind), None)
        self.caches.forget(kind)
        self._followed.pop(name).cancel()
        self._known = {uid: place for uid, place in self._known.items() if place.kind != name}

    def _noting(self, kind: Resource[Any]) -> Callable[[Owned | None, Owned | None], None]:
        name = str(kind)

        def note(old: Owned | None, new: Owned | None) -> None:
            if new is None:
                if old is not None:
                    self._note_gone(old)
                if kind is NODES:
                    self.queue.add(_NODE_LEASES)
                return
            place = Place(name, new.key)
            self._known[new.uid] = place
            if new.deleting:
                if _is_awaited(new):
                    self.queue.add(place)
            elif not all(self._seems_solid(owner) for owner in new.metadata.owner_references):
                self.queue.add(place)
            for owner in () if old is None else old.metadata.owner_references:
                if owner not in new.metadata.owner_references:
                    self._look_at_owner(owner)

        return note

    def _note_gone(self, old: Owned) -> None:
        self._known.pop(old.uid, None)
        self._remember_absent(old.uid)
        for place, _ in self._dependents(old.uid):
            self.queue.add(place)
        for owner in old.metadata.owner_references:
            self._look_at_owner(owner)

    def _look_at_owner(self, owner: OwnerReference) -> None:
        """Look whether an owner that waits for its dependents still has some."""
        place = self._known.get(owner.uid)
        thing = None if place is None else self._at(place)
        if place is not None and thing is not None and thing.deleting:
            self.queue.add(place)

    async def sync(self, key: Place) -> datetime | None:
        """Delete or free an object, or let an owner go."""
        if key == _SERVED:
            await self._follow_what_is_served()
            return None
        if key == _NODE_LEASES:
            for lease in (await self.client.list(LEASES.of(Owned))).items:
                await self._collect(LEASES, lease)
            return None
        thing = self._at(key)
        if thing is None:
            return None
        kind = self._kinds[key.kind]
        if not thing.deleting:
            await self._collect(kind, thing)
        elif not self._knows_all():
            return self.clock.now() + _UNTIL_ALL_IS_KNOWN
        elif ORPHAN in thing.metadata.finalizers:
            await self._orphan_dependents(kind, thing)
        elif FOREGROUND in thing.metadata.finalizers:
            await self._delete_dependents(kind, thing)
        return None

    async def _collect(self, kind: Resource[Any], thing: Owned) -> None:
        """Delete what has lost its owners; if it has one left, it forgets the others."""
        solid: list[OwnerReference] = []
        lost: list[OwnerReference] = []
        for owner in thing.metadata.owner_references:
            (solid if await self._is_solid(thing, owner) else lost).append(owner)
        if lost and solid:
            await self._disown(kind, thing, lost)
        elif lost:
            propagation = "Foreground" if self._waits_for(thing, lost) else "Background"
            await edge.delete(self.client, kind, thing, propagation=propagation, unchanged=True)

    async def _is_solid(self, thing: Owned, owner: OwnerReference) -> bool:
        """Tell whether an owner is there and keeps what it owns."""
        if owner.uid in self._known:
            return self._seems_solid(owner)
        kind = self._by_type.get((owner.api_version, owner.kind))
        if kind is None:
            return True
        if owner.uid in self._absent:
            return False
        namespace = thing.namespace if kind.namespaced else None
        try:
            fresh = await self.client.get(kind, owner.name, namespace=namespace)
        except NotFound:
            fresh = None
        if fresh is not None and fresh.uid == owner.uid:
            return True
        self._remember_absent(owner.uid)
        return False

    def _seems_solid(self, owner: OwnerReference) -> bool:
        """Tell whether the caches show an owner that keeps what it owns."""
        place = self._known.get(owner.uid)
        found = None if place is None else self._at(place)
        return found is not None and not (found.deleting and FOREGROUND in found.metadata.finalizers)

    def _waits_for(self, thing: Owned, lost: Iterable[OwnerReference]) -> bool:
        """Tell whether an owner waits for `thing`, and it has dependents that must go first."""
        awaited = any(owner.uid in self._known for owner in lost)
        return awaited and next(iter(self._dependents(thing.uid)), None) is not None

    async def _orphan_dependents(self, kind: Resource[Any], owner: Owned) -> None:
        for place, dependent in self._dependents(owner.uid):
            lost = [it for it in dependent.metadata.owner_references if it.uid == owner.uid]
            await self._disown(self._kinds[place.kind], dependent, lost)
        await self._finalize(kind, owner, ORPHAN)

    async def _delete_dependents(self, kind: Resource[Any], owner: Owned) -> None:
        blocking = False
        for place, dependent in self._dependents(owner.uid):
            blocking = blocking or any(
                it.uid == owner.uid and it.block_owner_deletion for it in dependent.metadata.owner_references
            )
            if not dependent.deleting:
                self.queue.add(place)
        if not blocking:
            await self._finalize(kind, owner, FOREGROUND)

    async def _disown(self, kind: Resource[Any], thing: Owned, lost: Iterable[OwnerReference]) -> None:
        left = owner_references(thing, without={owner.uid for owner in lost})
        async with edge.Writes(self.caches.of(kind)) as writes:
            writes.made(await edge.change(self.client, kind, thing, {"metadata": {"ownerReferences": left}}))

    async def _finalize(self, kind: Resource[Any], thing: Owned, finalizer: str) -> None:
        left = [name for name in thing.metadata.finalizers if name != finalizer]
        await edge.change(self.client, kind, thing, {"metadata": {"finalizers": left}})

    def _at(self, place: Place) -> Owned | None:
        cache = self._cached.get(place.kind)
        found: Owned | None = None if cache is None else cache.get(place.key)
        return found

    def _dependents(self, uid: str) -> list[tuple[Place, Owned]]:
        return [
            (Place(name, thing.key), thing) for name, cache in self._cached.items() for thing in dependents(cache, uid)
        ]

    def _remember_absent(self, uid: str) -> None:
        self._absent[uid] = None
        if len(self._absent) > _ABSENT_REMEMBERED:
            del self._absent[next(iter(self._absent))]


def _is_awaited(thing: Owned) -> bool:
    return FOREGROUND in thing.metadata.finalizers or ORPHAN in thing.metadata.finalizers
