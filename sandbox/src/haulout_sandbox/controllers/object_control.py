"""Writes of controllers: create, delete, patch and status updates, each with its preconditions.

Controllers choose the names of objects, so the outcome of a create without response is found by reading the object. A
delete has the uid as precondition, a patch the resourceVersion on which the decision was based.

    async with WriteBarrier(pods) as writes:
        writes.record(await create(client, PODS, pod))

Each write returns the resource version from which on a cache contains it, and the block ends only when the cache does.
So the next pass never decides on a state without the writes of this one.
"""

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta
from random import Random
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from haulout.api.objects import Object, RawObject
from haulout.api.resources import Resource
from haulout.errors import AlreadyExists, Conflict, KubeError, MalformedResponse, NotFound, ServerFailure, Unreachable
from haulout.kube import responses
from haulout.kube.client import Client
from haulout.kube.informer import Informer, revision
from haulout.kube.patches import merge_patch
from haulout.kube.transport import Request
from haulout_sandbox.controllers.objects import OwnedObject
from haulout_sandbox.controllers.pod_template import generate_name

O = TypeVar("O", bound=OwnedObject)  # noqa: E741 - an object of any kind

_MAX_NAME_ATTEMPTS = 8
_EMPTY_VALUES: tuple[Any, ...] = (None, {}, [])
_OBSERVE_TIMEOUT_SECONDS = 300.0  # for a cache that does not show a write; as long as kube-controller-manager's


class WriteNotObserved(KubeError):
    """A cache has not shown a write of this process for so long that something must be wrong with the cache."""


class WriteBarrier:
    """Waits for a cache to show the writes that were recorded."""

    def __init__(self, informer: Informer[Any]) -> None:
        self._informer = informer
        self._last_revision = 0

    def record(self, obj: OwnedObject | None) -> None:
        """Record a written object as the server returned it."""
        if obj is not None:
            self.record_version(obj.resource_version)

    def record_version(self, resource_version: str) -> None:
        """Record the resource version of a write; an empty one is ignored."""
        if resource_version:
            self._last_revision = max(self._last_revision, revision(resource_version))

    async def wait_until_observed(self) -> None:
        """Return when the cache shows all writes recorded so far."""
        revision_number, informer = self._last_revision, self._informer
        if (
            not revision_number
            or informer.has_observed(revision_number)
            or await informer.has_observed_after_yield(revision_number)
        ):
            return
        try:
            async with asyncio.timeout(_OBSERVE_TIMEOUT_SECONDS):
                await informer.wait_for_resource_version(str(revision_number))
        except TimeoutError:
            problem = f"the cache of {informer.resource} has not shown revision {revision_number}"
            raise WriteNotObserved(f"{problem} for {_OBSERVE_TIMEOUT_SECONDS:g} s; looking again") from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Also after a failure, since earlier writes took effect; but not if the pass itself is cancelled.
        if exc_type is None or issubclass(exc_type, Exception):
            await self.wait_until_observed()


async def create(client: Client, resource: Resource[O], body: RawObject) -> O:
    """Create `body`; if there is no response, read whether it was created."""
    name, namespace = body["metadata"]["name"], body["metadata"].get("namespace")
    try:
        return await client.create(resource, body, namespace=namespace)
    except (Unreachable, ServerFailure, MalformedResponse) as error:
        try:
            existing = await client.get(resource, name, namespace=namespace)
        except NotFound:
            raise error from None
        if not _is_ours(existing, body):
            raise
        return existing


async def create_with_generated_name(
    client: Client, resource: Resource[O], base: str, body: Callable[[str], RawObject], *, random: Random
) -> O:
    """Create the object that `body` returns for a new name that begins with `base`."""
    for _ in range(_MAX_NAME_ATTEMPTS - 1):
        try:
            return await create(client, resource, body(generate_name(base, random)))
        except AlreadyExists:
            continue
    return await create(client, resource, body(generate_name(base, random)))


async def delete(
    client: Client,
    resource: Resource[Any],
    obj: OwnedObject,
    *,
    grace: timedelta | None = None,
    propagation: str = "",
    only_if_unchanged: bool = False,
) -> str:
    """Delete `obj` if its uid (with `only_if_unchanged`, also its resourceVersion) matches.

    Return the resource version of the deletion, or an empty string if the object was absent or the server does not
    tell.
    """
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": obj.uid}}
    if only_if_unchanged:
        options["preconditions"]["resourceVersion"] = obj.resource_version
    if grace is not None:
        options["gracePeriodSeconds"] = round(grace.total_seconds())
    if propagation:
        options["propagationPolicy"] = propagation
    path = resource.path(obj.name, namespace=obj.namespace or None)
    request, operation = (
        Request(method="DELETE", path=path, body=msgspec.json.encode(options)),
        f"delete {resource} {obj.key}",
    )
    try:
        response = await client.request(request, doing=operation)
    except NotFound:
        return ""
    except Conflict:
        if only_if_unchanged:
            raise
        return ""  # another object has this name
    return responses.decode_response(Object, response, doing=operation).resource_version


async def patch(client: Client, resource: Resource[O], obj: OwnedObject, changes: Mapping[str, Any]) -> O:
    """Merge `changes` into `obj`, if its resourceVersion is unchanged."""
    metadata = {**changes.get("metadata", {}), "uid": obj.uid, "resourceVersion": obj.resource_version}
    body = merge_patch({**changes, "metadata": metadata})
    return await client.patch(resource, obj.name, body, namespace=obj.namespace or None)


async def update_status(
    client: Client,
    resource: Resource[O],
    obj: OwnedObject,
    *,
    current: RawObject,
    desired: RawObject,
    annotations: Mapping[str, str] | None = None,
) -> O | None:
    """Change the status to `desired` (None: absent) where it differs; return the written object, or None."""
    changed = {name: value for name, value in desired.items() if not _is_equal_or_both_empty(current.get(name), value)}
    current_annotations = obj.metadata.annotations
    changed_annotations = {
        name: value for name, value in (annotations or {}).items() if current_annotations.get(name) != value
    }
    if not changed and not changed_annotations:
        return None
    metadata: RawObject = {"uid": obj.uid, "resourceVersion": obj.resource_version}
    if changed_annotations:
        metadata["annotations"] = changed_annotations
    body = merge_patch({"metadata": metadata, "status": changed})
    return await client.patch(resource, obj.name, body, namespace=obj.namespace or None, subresource="status")


def _is_ours(existing: OwnedObject, body: RawObject) -> bool:
    controller_uids = [owner["uid"] for owner in body["metadata"].get("ownerReferences", ()) if owner.get("controller")]
    return [existing.controller_uid] == controller_uids and not existing.is_being_deleted


def _is_equal_or_both_empty(current: Any, desired: Any) -> bool:
    """Compare two values; an empty list or object equals an absent one, because servers differ in showing it."""
    return bool(current == desired or (current in _EMPTY_VALUES and desired in _EMPTY_VALUES))
