"""Namespace controller: deletes everything in a terminating namespace, then the namespace.

Follows `pkg/controller/namespace/deletion` of Kubernetes 1.36. The namespaced kinds are discovered from the server, so
that custom resources are deleted too. Pods need time to stop and other objects have finalizers. While something is
left, the namespace is requeued when its last pod is deleted, or after the time that the remaining objects may need. The
status of the namespace says what is left.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from random import Random
from typing import Any

from haulout.api.objects import RawObject
from haulout.api.resources import Resource
from haulout.errors import NotFound
from haulout.kube.discovery import Discovery, ServedResource, discover
from haulout_sandbox.controllers import conditions, object_control
from haulout_sandbox.controllers.base import OwningController
from haulout_sandbox.controllers.informers import InformerFactory
from haulout_sandbox.controllers.objects import NAMESPACES, Namespace, OwnedObject, Pod

KUBERNETES_FINALIZER = "kubernetes"

_SUCCESS_CONDITIONS = {
    "NamespaceDeletionDiscoveryFailure": ("ResourcesDiscovered", "All resources successfully discovered"),
    "NamespaceDeletionGroupVersionParsingFailure": ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
    "NamespaceDeletionContentFailure": (
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    "NamespaceContentRemaining": ("ContentRemoved", "All content successfully removed"),
    "NamespaceFinalizersRemaining": ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
}
_RETRY_INTERVAL = timedelta(seconds=15)  # for objects with finalizers, whose deletion is not watched


class NamespaceController(OwningController):
    """Empties terminating namespaces, and then removes their finalizer."""

    name = "namespaces"

    def __init__(self, informers: InformerFactory, random: Random) -> None:
        super().__init__(informers, random)
        self._namespaces, self._pods = informers.informer_for(NAMESPACES), informers.pods
        self.watch(self._namespaces)
        self._pods.subscribe(self._on_pod_change)

    def _on_pod_change(self, old: Pod | None, new: Pod | None) -> None:
        """Enqueue the namespace when its last pod is deleted, which is what it mostly waits for."""
        if old is None or new is not None or self._pods.by_index("namespace", old.namespace):
            return
        namespace = self._namespaces.get(old.namespace)
        if namespace is not None and namespace.is_being_deleted:
            self.queue.add(namespace.key)

    async def sync(self, key: str) -> datetime | None:
        """Delete the contents of the namespace; when nothing is left, remove the namespace's finalizer."""
        namespace = self._namespaces.get(key)
        if namespace is None or not namespace.is_being_deleted or KUBERNETES_FINALIZER not in namespace.spec.finalizers:
            return None
        discovery, now = await discover(self.client), self.clock.now()
        remaining = {
            resource: await self._delete_contents(resource, namespace.name)
            for resource in deletable_resources(discovery)
        }
        remaining_objects = [obj for found in remaining.values() for obj in found]
        if not remaining_objects and not discovery.unavailable:
            await self._remove_finalizer(namespace)
            return None
        status = namespace.status
        status_conditions = deletion_conditions(
            remaining, unavailable=discovery.unavailable, existing=status.get("conditions") or [], now=now
        )
        await object_control.update_status(
            self.client, NAMESPACES, namespace, current=status, desired={"conditions": status_conditions}
        )
        return next_retry_at(remaining_objects, now)

    async def _delete_contents(self, resource: Resource[OwnedObject], namespace: str) -> list[OwnedObject]:
        """Delete all objects of a kind; return those that are left."""
        try:
            page = await self.client.list(resource, namespace=namespace)
            if any(not obj.is_being_deleted for obj in page.items):
                await self.client.delete_collection(resource, namespace=namespace)
                page = await self.client.list(resource, namespace=namespace)
        except NotFound:
            return []  # the kind is no longer served
        return list(page.items)

    async def _remove_finalizer(self, namespace: Namespace) -> None:
        raw_namespaces: Resource[RawObject] = NAMESPACES.with_model(dict[str, Any])
        body = await self.client.get(raw_namespaces, namespace.name)
        remaining = [name for name in body.get("spec", {}).get("finalizers", ()) if name != KUBERNETES_FINALIZER]
        body["spec"] = {**body.get("spec", {}), "finalizers": remaining}
        await self.client.update(raw_namespaces, body, subresource="finalize")


def deletable_resources(discovery: Discovery) -> list[Resource[OwnedObject]]:
    """Return the namespaced kinds that can be deleted, events last."""
    selected = [
        resource
        for resource in discovery.resources.values()
        if resource.namespaced and {"list", "deletecollection"} <= set(resource.verbs)
    ]
    return [_to_resource(resource) for resource in sorted(selected, key=lambda resource: resource.kind == "Event")]


def deletion_conditions(
    remaining: Mapping[Resource[OwnedObject], Iterable[OwnedObject]],
    *,
    unavailable: Iterable[str],
    existing: list[RawObject],
    now: datetime,
) -> list[RawObject]:
    """Return the conditions of a namespace: what delays its deletion."""
    counts = {f"{resource.plural}.{resource.group}": len(list(objs)) for resource, objs in remaining.items()}
    finalizer_counts = Counter(name for objs in remaining.values() for obj in objs for name in obj.metadata.finalizers)
    groups = sorted(unavailable)
    discovery_problem = (
        f"Discovery failed for some groups, {len(groups)} failing: {', '.join(groups)}" if groups else ""
    )
    resources = _format_counts("Some resources are remaining", counts, "{} has {} resource instances")
    finalizers = _format_counts(
        "Some content in the namespace has finalizers remaining", finalizer_counts, "{} in {} resource instances"
    )
    new_conditions = [
        _condition("NamespaceDeletionDiscoveryFailure", discovery_problem, "DiscoveryFailed"),
        _condition("NamespaceDeletionGroupVersionParsingFailure", "", ""),
        _condition("NamespaceDeletionContentFailure", "", ""),
        _condition("NamespaceContentRemaining", resources, "SomeResourcesRemain"),
        _condition("NamespaceFinalizersRemaining", finalizers, "SomeFinalizersRemain"),
    ]
    existing_by_type = {condition["type"]: condition for condition in existing}
    return [
        condition | {"lastTransitionTime": _transition_time(existing_by_type.get(condition["type"]), condition, now)}
        for condition in new_conditions
    ]


def _format_counts(prefix: str, counts: Mapping[str, int], template: str) -> str:
    entries = sorted(template.format(name, count) for name, count in counts.items() if count)
    return f"{prefix}: {', '.join(entries)}" if entries else ""


def _condition(condition_type: str, problem: str, reason: str) -> RawObject:
    success_reason, message = _SUCCESS_CONDITIONS[condition_type]
    return conditions.new_condition(
        condition_type, is_true=bool(problem), reason=reason if problem else success_reason, message=problem or message
    )


def _transition_time(existing: RawObject | None, condition: RawObject, now: datetime) -> str:
    is_unchanged = existing is not None and existing["status"] == condition["status"]
    return str(existing["lastTransitionTime"]) if existing is not None and is_unchanged else conditions.format_time(now)


def next_retry_at(remaining: list[OwnedObject], now: datetime) -> datetime:
    """Return when all remaining objects may be deleted."""
    deletion_times = [obj.metadata.deletion_timestamp for obj in remaining]
    return max([now + _RETRY_INTERVAL, *(end for end in deletion_times if end is not None)])


def _to_resource(served: ServedResource) -> Resource[OwnedObject]:
    return Resource(
        served.group, served.preferred_version, served.plural, served.kind, namespaced=True, model=OwnedObject
    )
