"""Who belongs to whom: owners adopt what they select and nobody manages, and let go of what they no longer select.

Follows `pkg/controller/controller_ref_manager.go` of Kubernetes 1.36. Before an owner adopts, it is read anew: a cache
may still show one that is being deleted, or was replaced by another of its name, and what that adopts is collected as
garbage.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from haulout.kube.cache import Cache
from haulout.kube.client import Client
from haulout.kube.objects import RawObject
from haulout.kube.resources import Resource
from haulout_sandbox.controllers import edge
from haulout_sandbox.controllers.caches import controlled, orphans
from haulout_sandbox.controllers.objects import LabelSelector, Owned
from haulout_sandbox.controllers.templates import reference

O = TypeVar("O", bound=Owned)  # noqa: E741 - an object of any kind


@dataclass(frozen=True, slots=True)
class Claims(Generic[O]):
    """What an owner has, and what it must take or let go of."""

    owned: list[O]
    adopted: list[O]
    released: list[O]


def sort_out(
    owner: Owned,
    selector: LabelSelector,
    *,
    controlled: Iterable[O],
    orphans: Iterable[O],
    may_adopt: Callable[[O], bool] = lambda _: True,
) -> Claims[O]:
    """Decide which objects belong to `owner`. One that is being deleted neither adopts nor lets go."""
    things = list(controlled)
    owned = selector.among(things)
    if owner.deleting:
        return Claims(owned, [], [])
    kept = {thing.key for thing in owned} if len(owned) < len(things) else ()
    released = [thing for thing in things if thing.key not in kept] if kept != () else []
    adopted = [thing for thing in selector.among(orphans) if not thing.deleting and may_adopt(thing)]
    return Claims(owned, adopted, released)


async def claimed(
    things: Cache[O],
    owner: Owned,
    selector: LabelSelector,
    *,
    resource: Resource[O],
    owner_resource: Resource[Any],
    client: Client,
    may_adopt: Callable[[O], bool] = lambda _: True,
) -> list[O]:
    """Return what belongs to `owner`, after it has adopted and let go of what it must."""
    claims = sort_out(
        owner,
        selector,
        controlled=controlled(things, owner.uid),
        orphans=orphans(things, owner.namespace),
        may_adopt=may_adopt,
    )
    if not claims.adopted and not claims.released:
        return claims.owned
    async with edge.Writes(things) as writes:
        if claims.adopted and await _still_there(client, owner_resource, owner):
            for thing in claims.adopted:
                references = [*owner_references(thing), reference(owner, owner_resource)]
                writes.made(await _set_owners(client, resource, thing, references))
        for thing in claims.released:
            writes.made(await _set_owners(client, resource, thing, owner_references(thing, without={owner.uid})))
    return selector.among(controlled(things, owner.uid))


async def _still_there(client: Client, resource: Resource[Any], owner: Owned) -> bool:
    fresh = await client.get(resource, owner.name, namespace=owner.namespace)
    return fresh.uid == owner.uid and not fresh.deleting


async def _set_owners(client: Client, resource: Resource[O], thing: O, references: list[RawObject]) -> O:
    return await edge.change(client, resource, thing, {"metadata": {"ownerReferences": references}})


def owner_references(thing: Owned, *, without: Collection[str] = ()) -> list[RawObject]:
    """Return the owners of `thing` as JSON, but for those `without`."""
    return [
        {
            "apiVersion": owner.api_version,
            "kind": owner.kind,
            "name": owner.name,
            "uid": owner.uid,
            **({} if owner.controller is None else {"controller": owner.controller}),
            **({} if owner.block_owner_deletion is None else {"blockOwnerDeletion": owner.block_owner_deletion}),
        }
        for owner in thing.metadata.owner_references
        if owner.uid not in without
    ]
