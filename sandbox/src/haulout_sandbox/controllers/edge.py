"""Where controllers act: creating, deleting and changing objects, with what each write rests on.

Names are chosen by the controllers, so the outcome of a creation that nobody answered is found out by looking. A
deletion names the uid; a change names the resourceVersion that the decision was made on.

    async with Writes(pods) as writes:
        writes.made(await create(client, PODS, pod))

Each write is answered with the resource version from which on a cache shows it, and the block ends only when it does.
So the next run never decides on a state that lacks the writes of this one.
"""

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta
from random import Random
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from haulout.errors import AlreadyExists, Conflict, GarbledAnswer, KubeError, NotFound, ServerFailure, Unreachable
from haulout.kube import answers
from haulout.kube.cache import Cache, revision
from haulout.kube.client import Client
from haulout.kube.objects import Object, RawObject
from haulout.kube.patches import merge_patch
from haulout.kube.resources import Resource
from haulout.kube.transport import Request
from haulout_sandbox.controllers.objects import Owned
from haulout_sandbox.controllers.templates import generated_name

O = TypeVar("O", bound=Owned)  # noqa: E741 - an object of any kind

_NAME_TRIES = 8
_NONE: tuple[Any, ...] = (None, {}, [])
_PATIENCE_SECONDS = 300.0  # with a cache that does not show a write; as long as kube-controller-manager's


class NotShown(KubeError):
    """A cache has not shown one of our writes for so long that something must be wrong with it."""


class Writes:
    """What was written, to be shown by a cache before anything else is decided."""

    def __init__(self, cache: Cache[Any]) -> None:
        self._cache = cache
        self._newest = 0

    def made(self, written: Owned | None) -> None:
        """Note an object as the server answered it."""
        if written is not None:
            self.at(written.resource_version)

    def at(self, resource_version: str) -> None:
        """Note the resource version of a write; an empty one is none."""
        if resource_version:
            self._newest = max(self._newest, revision(resource_version))

    async def shown(self) -> None:
        """Return when the cache shows what was written so far."""
        newest, cache = self._newest, self._cache
        if not newest or cache.has_seen(newest) or await cache.has_seen_by_now(newest):
            return
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await cache.read_after_write(str(newest))
        except TimeoutError:
            what = f"the cache of {cache.resource} has not shown revision {newest}"
            raise NotShown(f"{what} for {_PATIENCE_SECONDS:g} s; looking again") from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Also after a failure, since the writes before it happened; but not when the run itself is cancelled.
        if kind is None or issubclass(kind, Exception):
            await self.shown()


async def create(client: Client, resource: Resource[O], body: RawObject) -> O:
    """Create what `body` describes; if nobody answered, look whether it was created."""
    name, namespace = body["metadata"]["name"], body["metadata"].get("namespace")
    try:
        return await client.create(resource, body, namespace=namespace)
    except (Unreachable, ServerFailure, GarbledAnswer) as error:
        try:
            found = await client.get(resource, name, namespace=namespace)
        except NotFound:
            raise error from None
        if not _is_ours(found, body):
            raise
        return found


async def create_named(
    client: Client, resource: Resource[O], base: str, body: Callable[[str], RawObject], *, random: Random
) -> O:
    """Create what `body` describes for a new name that begins with `base`."""
    for _ in range(_NAME_TRIES - 1):
        try:
            return await create(client, resource, body(generated_name(base, random)))
        except AlreadyExists:
            continue
    return await create(client, resource, body(generated_name(base, random)))


async def delete(
    client: Client,
    resource: Resource[Any],
    thing: Owned,
    *,
    grace: timedelta | None = None,
    propagation: str = "",
    unchanged: bool = False,
) -> str:
    """Delete `thing`, if it still is that one (with `unchanged`: in that state).

    Returns the resource version that shows it, or nothing if the object was gone already or the server does not tell.
    """
    options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": thing.uid}}
    if unchanged:
        options["preconditions"]["resourceVersion"] = thing.resource_version
    if grace is not None:
        options["gracePeriodSeconds"] = round(grace.total_seconds())
    if propagation:
        options["propagationPolicy"] = propagation
    path = resource.path(thing.name, namespace=thing.namespace or None)
    request, doing = (
        Request(method="DELETE", path=path, body=msgspec.json.encode(options)),
        f"delete {resource} {thing.key}",
    )
    try:
        response = await client.request(request, doing=doing)
    except NotFound:
        return ""
    except Conflict:
        if unchanged:
            raise
        return ""  # another object has its name now
    return answers.read(Object, response, doing=doing).resource_version


async def change(client: Client, resource: Resource[O], thing: Owned, patch: Mapping[str, Any]) -> O:
    """Merge `patch` into `thing`, if it still is in the state that was seen."""
    metadata = {**patch.get("metadata", {}), "uid": thing.uid, "resourceVersion": thing.resource_version}
    body = merge_patch({**patch, "metadata": metadata})
    return await client.patch(resource, thing.name, body, namespace=thing.namespace or None)


async def write_status(
    client: Client,
    resource: Resource[O],
    thing: Owned,
    *,
    seen: RawObject,
    wanted: RawObject,
    annotations: Mapping[str, str] | None = None,
) -> O | None:
    """Make the status what is `wanted` (None: absent), where it differs; returns what was written, None if nothing."""
    changed = {name: value for name, value in wanted.items() if not _is_the_same(seen.get(name), value)}
    known = thing.metadata.annotations
    marks = {name: value for name, value in (annotations or {}).items() if known.get(name) != value}
    if not changed and not marks:
        return None
    metadata: RawObject = {"uid": thing.uid, "resourceVersion": thing.resource_version}
    if marks:
        metadata["annotations"] = marks
    patch = merge_patch({"metadata": metadata, "status": changed})
    return await client.patch(resource, thing.name, patch, namespace=thing.namespace or None, subresource="status")


def _is_ours(found: Owned, body: RawObject) -> bool:
    owners = [owner["uid"] for owner in body["metadata"].get("ownerReferences", ()) if owner.get("controller")]
    return [found.controller_uid] == owners and not found.deleting


def _is_the_same(seen: Any, wanted: Any) -> bool:
    """Compare two values; an empty list or object is none: some servers show those, and some do not."""
    return bool(seen == wanted or (seen in _NONE and wanted in _NONE))
