"""Namespaces that are being deleted: everything in them goes first.

Follows `pkg/controller/namespace/deletion` of Kubernetes 1.36. What is served in a namespace is asked of the server, so
that custom resources go too. Pods take their time to stop and others have finalizers; while something is left it is
looked at again when one of the pods has gone, or after as long as those that are left may need. The status of the
namespace tells what that is.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from random import Random
from typing import Any

from haulout.errors import NotFound
from haulout.kube.discovery import Discovery, Found, discover
from haulout.kube.objects import RawObject
from haulout.kube.resources import Resource
from haulout_sandbox.controllers import conditions, edge
from haulout_sandbox.controllers.base import OwningController
from haulout_sandbox.controllers.caches import Caches
from haulout_sandbox.controllers.objects import NAMESPACES, Namespace, Owned, Pod

FINALIZER = "kubernetes"

_FINE = {
    "NamespaceDeletionDiscoveryFailure": ("ResourcesDiscovered", "All resources successfully discovered"),
    "NamespaceDeletionGroupVersionParsingFailure": ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
    "NamespaceDeletionContentFailure": (
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    "NamespaceContentRemaining": ("ContentRemoved", "All content successfully removed"),
    "NamespaceFinalizersRemaining": ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
}
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
        if old is None or new is not None or self._pods.by("namespace", old.namespace):
            return
        namespace = self._namespaces.get(old.namespace)
        if namespace is not None and namespace.deleting:
            self.queue.add(namespace.key)

    async def sync(self, key: str) -> datetime | None:
        """Delete what is in the namespace; when nothing is left, let it go."""
        namespace = self._namespaces.get(key)
        if namespace is None or not namespace.deleting or FINALIZER not in namespace.spec.finalizers:
            return None
        served, now = await discover(self.client), self.clock.now()
        left = {each: await self._emptied(each, namespace.name) for each in contents(served)}
        things = [thing for found in left.values() for thing in found]
        if not things and not served.unavailable:
            await self._finalize(namespace)
            return None
        seen = namespace.status
        told = conditions_of(left, unavailable=served.unavailable, seen=seen.get("conditions") or [], now=now)
        await edge.write_status(self.client, NAMESPACES, namespace, seen=seen, wanted={"conditions": told})
        return next_look(things, now)

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


def conditions_of(
    left: Mapping[Resource[Owned], Iterable[Owned]], *, unavailable: Iterable[str], seen: list[RawObject], now: datetime
) -> list[RawObject]:
    """Return the conditions of a namespace: what holds up its end."""
    counts = {f"{each.plural}.{each.group}": len(list(found)) for each, found in left.items()}
    held = Counter(name for found in left.values() for thing in found for name in thing.metadata.finalizers)
    groups = sorted(unavailable)
    failing = f"Discovery failed for some groups, {len(groups)} failing: {', '.join(groups)}" if groups else ""
    resources = _listed("Some resources are remaining", counts, "{} has {} resource instances")
    finalizers = _listed("Some content in the namespace has finalizers remaining", held, "{} in {} resource instances")
    wanted = [
        _condition("NamespaceDeletionDiscoveryFailure", failing, "DiscoveryFailed"),
        _condition("NamespaceDeletionGroupVersionParsingFailure", "", ""),
        _condition("NamespaceDeletionContentFailure", "", ""),
        _condition("NamespaceContentRemaining", resources, "SomeResourcesRemain"),
        _condition("NamespaceFinalizersRemaining", finalizers, "SomeFinalizersRemain"),
    ]
    before = {it["type"]: it for it in seen}
    return [it | {"lastTransitionTime": _since(before.get(it["type"]), it, now)} for it in wanted]


def _listed(head: str, counts: Mapping[str, int], text: str) -> str:
    told = sorted(text.format(name, count) for name, count in counts.items() if count)
    return f"{head}: {', '.join(told)}" if told else ""


def _condition(kind: str, problem: str, reason: str) -> RawObject:
    fine, message = _FINE[kind]
    return conditions.made(kind, holds=bool(problem), reason=reason if problem else fine, message=problem or message)


def _since(before: RawObject | None, condition: RawObject, now: datetime) -> str:
    same = before is not None and before["status"] == condition["status"]
    return str(before["lastTransitionTime"]) if before is not None and same else conditions.stamp(now)


def next_look(left: list[Owned], now: datetime) -> datetime:
    """Return when all that is left may be gone."""
    ends = [thing.metadata.deletion_timestamp for thing in left]
    return max([now + _NEXT_LOOK, *(end for end in ends if end is not None)])


def _resource(found: Found) -> Resource[Owned]:
    return Resource(found.group, found.preferred, found.plural, found.kind, namespaced=True, model=Owned)
