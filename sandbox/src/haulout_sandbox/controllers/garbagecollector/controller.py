"""Garbage collector: deletes dependents whose owners no longer exist.

Follows `pkg/controller/garbagecollector` of Kubernetes 1.36. An object whose owners are all absent is deleted; one with
another owner left only loses the references to absent ones. An owner in foreground deletion stays until its blocking
dependents are deleted; one that orphans its dependents stays until they no longer refer to it.

A cache alone never proves that an owner is absent, because it may be stale: the collector asks the API server. All
served kinds are watched, custom ones included; an owner of any other kind counts as present. Only leases are not
watched, because they are written all the time: the leases of a node are looked up when the node is deleted.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any, NamedTuple

from haulout.api.resources import LEASES, Resource
from haulout.errors import NotFound
from haulout.kube.discovery import discover
from haulout.kube.informer import Informer
from haulout_sandbox.controllers import object_control
from haulout_sandbox.controllers.base import Controller
from haulout_sandbox.controllers.controller_ref_manager import owner_references
from haulout_sandbox.controllers.garbagecollector.deletable_resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    deletable_resources,
)
from haulout_sandbox.controllers.informers import InformerFactory, dependents
from haulout_sandbox.controllers.objects import (
    CONFIG_MAPS,
    CONTROLLER_REVISIONS,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
    OwnedObject,
    OwnerReference,
)

FOREGROUND_FINALIZER = "foregroundDeletion"
ORPHAN_FINALIZER = "orphan"
# Kinds whose informers other controllers use, too.
BUILTIN_RESOURCES: tuple[Resource[Any], ...] = (
    PODS,
    REPLICA_SETS,
    DEPLOYMENTS,
    STATEFUL_SETS,
    DAEMON_SETS,
    CONTROLLER_REVISIONS,
    JOBS,
    NODES,
    CONFIG_MAPS,
    POD_DISRUPTION_BUDGETS,
)

_IGNORED_RESOURCES = ("events", "events.events.k8s.io", str(LEASES))
_MAX_ABSENT_OWNERS = 1024
_SYNC_RETRY_INTERVAL = timedelta(seconds=1)


class ObjectIdentity(NamedTuple):
    """Identity of an object: its kind (`replicasets.apps`) and key."""

    resource: str
    key: str


_RESYNC_RESOURCES = ObjectIdentity("", "")  # the queue key for a change of the served kinds
_SWEEP_NODE_LEASES = ObjectIdentity(str(LEASES), "")


class GarbageCollector(Controller[ObjectIdentity]):
    """Deletes objects without owners, and completes foreground and orphaning deletions."""

    name = "garbage"

    def __init__(
        self, informers: InformerFactory, random: Random, *, resources: Sequence[Resource[Any]] = BUILTIN_RESOURCES
    ) -> None:
        super().__init__(informers, random)
        self._resources = {str(resource): resource for resource in resources}
        self._resources_by_type = {(resource.api_version, resource.kind): resource for resource in resources}
        self._identities: dict[str, ObjectIdentity] = {}  # by uid
        self._absent_owners: dict[str, None] = {}  # uids of owners that are known to be absent, the latest last
        self._shared_resources = set(self._resources)  # their informers are run by the manager
        self._tasks: asyncio.TaskGroup | None = None
        self._monitor_tasks: dict[str, asyncio.Task[None]] = {}  # the informers that only this controller uses
        self._has_discovered = False
        self._informers: dict[str, Informer[Any]] = {}  # by name of the kind
        for resource in resources:
            self._informers[str(resource)] = informers.informer_for(resource)
            informers.informer_for(resource).subscribe(self._change_handler(resource))
        self._definitions = informers.informer_for(CUSTOM_RESOURCE_DEFINITIONS)
        self._definitions.subscribe(lambda _, __: self.queue.add(_RESYNC_RESOURCES))

    async def run(self) -> None:
        """Run until cancelled; may run again after that."""
        for name in list(self._monitor_tasks):
            self._stop_monitor(name)
        self._has_discovered = False
        async with asyncio.TaskGroup() as self._tasks:
            for identity in (_RESYNC_RESOURCES, _SWEEP_NODE_LEASES):
                self.queue.add(identity)
            await self.queue.run()

    async def _sync_monitors(self) -> None:
        deletable = deletable_resources(
            await discover(self.client),
            self._definitions.all(),
            excluded={*self._shared_resources, *_IGNORED_RESOURCES},
        )
        for name in [name for name in self._monitor_tasks if deletable.get(name) != self._resources[name]]:
            self._stop_monitor(name)
        for name in [name for name in deletable if name not in self._monitor_tasks]:
            self._start_monitor(name, deletable[name])
        self._has_discovered = True

    def _is_graph_complete(self) -> bool:
        """Return whether all informers are complete, so that no dependent can be missing."""
        return self._has_discovered and all(
            self.informers.informer_for(self._resources[name]).health().has_synced for name in self._monitor_tasks
        )

    def _start_monitor(self, name: str, resource: Resource[Any]) -> None:
        if self._tasks is None:
            raise RuntimeError("the garbage collector is not running")
        is_shared = self.informers.has_informer(resource)
        self._resources[name] = self._resources_by_type[resource.api_version, resource.kind] = resource
        informer = self._informers[name] = self.informers.informer_for(resource)
        informer.subscribe(self._change_handler(resource))
        if is_shared:
            self._shared_resources.add(name)
        else:
            self._monitor_tasks[name] = self._tasks.create_task(informer.run())

    def _stop_monitor(self, name: str) -> None:
        resource = self._resources.pop(name)
        del self._informers[name]
        self._resources_by_type.pop((resource.api_version, resource.kind), None)
        self.informers.discard(resource)
        self._monitor_tasks.pop(name).cancel()
        self._identities = {uid: identity for uid, identity in self._identities.items() if identity.resource != name}

    def _change_handler(self, resource: Resource[Any]) -> Callable[[OwnedObject | None, OwnedObject | None], None]:
        resource_name = str(resource)

        def on_change(old: OwnedObject | None, new: OwnedObject | None) -> None:
            if new is None:
                if old is not None:
                    self._on_deleted(old)
                if resource is NODES:
                    self.queue.add(_SWEEP_NODE_LEASES)
                return
            identity = ObjectIdentity(resource_name, new.key)
            self._identities[new.uid] = identity
            if new.is_being_deleted:
                if _has_deletion_finalizer(new):
                    self.queue.add(identity)
            elif not all(self._is_owner_cached(owner) for owner in new.metadata.owner_references):
                self.queue.add(identity)
            for owner in () if old is None else old.metadata.owner_references:
                if owner not in new.metadata.owner_references:
                    self._enqueue_waiting_owner(owner)

        return on_change

    def _on_deleted(self, old: OwnedObject) -> None:
        self._identities.pop(old.uid, None)
        self._record_absent(old.uid)
        for identity, _ in self._dependents(old.uid):
            self.queue.add(identity)
        for owner in old.metadata.owner_references:
            self._enqueue_waiting_owner(owner)

    def _enqueue_waiting_owner(self, owner: OwnerReference) -> None:
        """Enqueue an owner in deletion, which may have no dependents left."""
        identity = self._identities.get(owner.uid)
        obj = None if identity is None else self._cached_object(identity)
        if identity is not None and obj is not None and obj.is_being_deleted:
            self.queue.add(identity)

    async def sync(self, key: ObjectIdentity) -> datetime | None:
        """Delete or orphan an object, or complete the deletion of an owner."""
        if key == _RESYNC_RESOURCES:
            await self._sync_monitors()
            return None
        if key == _SWEEP_NODE_LEASES:
            for lease in (await self.client.list(LEASES.with_model(OwnedObject))).items:
                await self._attempt_to_delete(LEASES, lease)
            return None
        obj = self._cached_object(key)
        if obj is None:
            return None
        resource = self._resources[key.resource]
        if not obj.is_being_deleted:
            await self._attempt_to_delete(resource, obj)
        elif not self._is_graph_complete():
            return self.clock.now() + _SYNC_RETRY_INTERVAL
        elif ORPHAN_FINALIZER in obj.metadata.finalizers:
            await self._orphan_dependents(resource, obj)
        elif FOREGROUND_FINALIZER in obj.metadata.finalizers:
            await self._delete_dependents(resource, obj)
        return None

    async def _attempt_to_delete(self, resource: Resource[Any], obj: OwnedObject) -> None:
        """Delete an object without owners; if an owner is left, remove the references to absent ones."""
        present: list[OwnerReference] = []
        absent: list[OwnerReference] = []
        for owner in obj.metadata.owner_references:
            (present if await self._is_owner_present(obj, owner) else absent).append(owner)
        if absent and present:
            await self._remove_owners(resource, obj, absent)
        elif absent:
            propagation = "Foreground" if self._must_delete_in_foreground(obj, absent) else "Background"
            await object_control.delete(self.client, resource, obj, propagation=propagation, only_if_unchanged=True)

    async def _is_owner_present(self, obj: OwnedObject, owner: OwnerReference) -> bool:
        """Return whether an owner exists and keeps its dependents."""
        if owner.uid in self._identities:
            return self._is_owner_cached(owner)
        resource = self._resources_by_type.get((owner.api_version, owner.kind))
        if resource is None:
            return True
        if owner.uid in self._absent_owners:
            return False
        namespace = obj.namespace if resource.namespaced else None
        try:
            live = await self.client.get(resource, owner.name, namespace=namespace)
        except NotFound:
            live = None
        if live is not None and live.uid == owner.uid:
            return True
        self._record_absent(owner.uid)
        return False

    def _is_owner_cached(self, owner: OwnerReference) -> bool:
        """Return whether the informers show an owner that keeps its dependents."""
        identity = self._identities.get(owner.uid)
        obj = None if identity is None else self._cached_object(identity)
        return obj is not None and not (obj.is_being_deleted and FOREGROUND_FINALIZER in obj.metadata.finalizers)

    def _must_delete_in_foreground(self, obj: OwnedObject, absent: Iterable[OwnerReference]) -> bool:
        """Return whether an owner waits for `obj`, and `obj` has dependents that must be deleted first."""
        owner_waits = any(owner.uid in self._identities for owner in absent)
        return owner_waits and next(iter(self._dependents(obj.uid)), None) is not None

    async def _orphan_dependents(self, resource: Resource[Any], owner: OwnedObject) -> None:
        for identity, dependent in self._dependents(owner.uid):
            references = [reference for reference in dependent.metadata.owner_references if reference.uid == owner.uid]
            await self._remove_owners(self._resources[identity.resource], dependent, references)
        await self._remove_finalizer(resource, owner, ORPHAN_FINALIZER)

    async def _delete_dependents(self, resource: Resource[Any], owner: OwnedObject) -> None:
        blocking = False
        for identity, dependent in self._dependents(owner.uid):
            blocking = blocking or any(
                reference.uid == owner.uid and reference.block_owner_deletion
                for reference in dependent.metadata.owner_references
            )
            if not dependent.is_being_deleted:
                self.queue.add(identity)
        if not blocking:
            await self._remove_finalizer(resource, owner, FOREGROUND_FINALIZER)

    async def _remove_owners(self, resource: Resource[Any], obj: OwnedObject, owners: Iterable[OwnerReference]) -> None:
        remaining = owner_references(obj, without={owner.uid for owner in owners})
        async with object_control.WriteBarrier(self.informers.informer_for(resource)) as writes:
            writes.record(
                await object_control.patch(self.client, resource, obj, {"metadata": {"ownerReferences": remaining}})
            )

    async def _remove_finalizer(self, resource: Resource[Any], obj: OwnedObject, finalizer: str) -> None:
        remaining = [name for name in obj.metadata.finalizers if name != finalizer]
        await object_control.patch(self.client, resource, obj, {"metadata": {"finalizers": remaining}})

    def _cached_object(self, identity: ObjectIdentity) -> OwnedObject | None:
        informer = self._informers.get(identity.resource)
        obj: OwnedObject | None = None if informer is None else informer.get(identity.key)
        return obj

    def _dependents(self, uid: str) -> list[tuple[ObjectIdentity, OwnedObject]]:
        return [
            (ObjectIdentity(name, obj.key), obj)
            for name, informer in self._informers.items()
            for obj in dependents(informer, uid)
        ]

    def _record_absent(self, uid: str) -> None:
        self._absent_owners[uid] = None
        if len(self._absent_owners) > _MAX_ABSENT_OWNERS:
            del self._absent_owners[next(iter(self._absent_owners))]


def _has_deletion_finalizer(obj: OwnedObject) -> bool:
    return FOREGROUND_FINALIZER in obj.metadata.finalizers or ORPHAN_FINALIZER in obj.metadata.finalizers
