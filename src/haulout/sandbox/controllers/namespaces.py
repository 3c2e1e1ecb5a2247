"""Namespaces that are being deleted: everything in them goes first.

Follows `pkg/controller/namespace/deletion` of Kubernetes 1.36. What is served in a namespace is asked of the server, so
that custom resources go too. Pods take their time to stop and others have finalizers; while something is left it is
looked at again when one of the pods has gone, or after as long as those that are left may need.
"""

from datetime import datetime, timedelta
from random import Random
from typing import Any

from haulout.errors import NotFound
from haulout.kube.discovery import Discovery, Found, discover
from haulout.kube.objects import RawObject
from haulout.kube.resources import Resource
from haulout.sandbox.controllers.base import OwningController
from haulout.sandbox.controllers.caches import Caches, in_namespace
from haulout.sandbox.controllers.objects import NAMESPACES, Namespace, Owned, Pod

FINALIZER = "kubernetes"

_NEXT_LOOK = timedelta(seconds=15)  # for what has finalizers: nobody tells when those will be gone


class Namespaces(OwningController):
    """Empties namespaces that are being deleted, and then lets them go."""

    name = "namespaces"

    def __init__(self, caches: Caches, random: Random) -> None:
        super().__init__(caches, random)
        self._namespaces, self._pods = caches.namespaces, caches.pods
        self.follow(self._namespaces)
        self._pods.subscribe(self._note_pod)

    def _note_pod(self, old: Pod | None, new: Pod | None) -> None:
        """Look again when the last pod has gone: mostly that is what is waited for."""
        if old is None or new is not None or in_namespace(self._pods, old.namespace):
            return
        namespace = self._namespaces.get(old.namespace)
        if namespace is not None and namespace.deleting:
            self.queue.add(namespace.key)

    async def sync(self, key: str) -> datetime | None:
        """Delete what is in the namespace; when nothing is left, let it go."""
        namespace = self._namespaces.get(key)
        if namespace is None or not namespace.deleting or FINALIZER not in namespace.spec.finalizers:
            return None
        served = await discover(self.client)
        left = [thing for each in contents(served) for thing in await self._emptied(each, namespace.name)]
        if left or served.unavailable:
            return next_look(left, self.clock.now())
        await self._finalize(namespace)
        return None

    async def _emptied(self, resource: Resource[Owned], namespace: str) -> list[Owned]:
        """Delete all objects of a kind; return those that are still there."""
        try:
            page = await self.client.list(resource, namespace=namespace)
            if any(not thing.deleting for thing in page.items):
                await self.client.delete_all(resource, namespace=namespace)
                page = await self.client.list(resource, namespace=namespace)
        except NotFound:
            return []  # the kind itself is gone
        return list(page.items)

    async def _finalize(self, namespace: Namespace) -> None:
        whole: Resource[RawObject] = NAMESPACES.of(dict[str, Any])
        body = await self.client.get(whole, namespace.name)
        left = [name for name in body.get("spec", {}).get("finalizers", ()) if name != FINALIZER]
        body["spec"] = {**body.get("spec", {}), "finalizers": left}
        await self.client.update(whole, body, subresource="finalize")


def contents(served: Discovery) -> list[Resource[Owned]]:
    """Return the kinds of objects that a namespace may have and that can be deleted, events last."""
    found = [
        each
        for each in served.resources.values()
        if each.namespaced and {"list", "deletecollection"} <= set(each.verbs)
    ]
    return [_resource(each) for each in sorted(found, key=lambda each: each.kind == "Event")]


def next_look(left: list[Owned], now: datetime) -> datetime:
    """Return when all that is left may be gone."""
    ends = [thing.metadata.deletion_timestamp for thing in left]
    return max([now + _NEXT_LOOK, *(end for end in ends if end is not None)])


def _resource(found: Found) -> Resource[Owned]:
    return Resource(found.group, found.preferred, found.plural, found.kind, namespaced=True, model=Owned)
