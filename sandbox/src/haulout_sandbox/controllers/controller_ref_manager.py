"""Ownership: owners adopt matching objects without controller, and release objects that no longer match.

Follows `pkg/controller/controller_ref_manager.go` of Kubernetes 1.36. Before adopting, the owner is read from the API
server: a cache may still show an owner that is being deleted or was replaced by another of the same name, and the
garbage collector would delete what it adopts.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from haulout.api.objects import RawObject
from haulout.api.resources import Resource
from haulout.kube.client import Client
from haulout.kube.informer import Informer
from haulout_sandbox.controllers import object_control
from haulout_sandbox.controllers.informers import controlled, orphans
from haulout_sandbox.controllers.objects import OwnedObject
from haulout_sandbox.controllers.pod_template import controller_ref
from haulout_sandbox.nodes.pod_spec import LabelSelector

O = TypeVar("O", bound=OwnedObject)  # noqa: E741 - an object of any kind


@dataclass(frozen=True, slots=True)
class ClaimResult(Generic[O]):
    """What an owner controls, and what it must adopt or release."""

    owned: list[O]
    adopted: list[O]
    released: list[O]


def decide_claims(
    owner: OwnedObject,
    selector: LabelSelector,
    *,
    controlled: Iterable[O],
    orphans: Iterable[O],
    may_adopt: Callable[[O], bool] = lambda _: True,
) -> ClaimResult[O]:
    """Decide which objects belong to `owner`. An owner that is being deleted neither adopts nor releases."""
    objs = list(controlled)
    owned = selector.filter(objs)
    if owner.is_being_deleted:
        return ClaimResult(owned, [], [])
    owned_keys = {obj.key for obj in owned} if len(owned) < len(objs) else ()
    released = [obj for obj in objs if obj.key not in owned_keys] if owned_keys != () else []
    adopted = [obj for obj in selector.filter(orphans) if not obj.is_being_deleted and may_adopt(obj)]
    return ClaimResult(owned, adopted, released)


async def claim_objects(
    informer: Informer[O],
    owner: OwnedObject,
    selector: LabelSelector,
    *,
    resource: Resource[O],
    owner_resource: Resource[Any],
    client: Client,
    may_adopt: Callable[[O], bool] = lambda _: True,
) -> list[O]:
    """Return the objects of `owner`, after adopting and releasing as necessary."""
    result = decide_claims(
        owner,
        selector,
        controlled=controlled(informer, owner.uid),
        orphans=orphans(informer, owner.namespace),
        may_adopt=may_adopt,
    )
    if not result.adopted and not result.released:
        return result.owned
    async with object_control.WriteBarrier(informer) as writes:
        if result.adopted and await _owner_exists(client, owner_resource, owner):
            for obj in result.adopted:
                owner_refs = [*owner_references(obj), controller_ref(owner, owner_resource)]
                writes.record(await _patch_owner_references(client, resource, obj, owner_refs))
        for obj in result.released:
            writes.record(
                await _patch_owner_references(client, resource, obj, owner_references(obj, without={owner.uid}))
            )
    return selector.filter(controlled(informer, owner.uid))


async def _owner_exists(client: Client, resource: Resource[Any], owner: OwnedObject) -> bool:
    live = await client.get(resource, owner.name, namespace=owner.namespace)
    return live.uid == owner.uid and not live.is_being_deleted


async def _patch_owner_references(client: Client, resource: Resource[O], obj: O, references: list[RawObject]) -> O:
    return await object_control.patch(client, resource, obj, {"metadata": {"ownerReferences": references}})


def owner_references(obj: OwnedObject, *, without: Collection[str] = ()) -> list[RawObject]:
    """Return the owner references of `obj` as JSON, except those in `without`."""
    return [
        {
            "apiVersion": owner.api_version,
            "kind": owner.kind,
            "name": owner.name,
            "uid": owner.uid,
            **({} if owner.controller is None else {"controller": owner.controller}),
            **({} if owner.block_owner_deletion is None else {"blockOwnerDeletion": owner.block_owner_deletion}),
        }
        for owner in obj.metadata.owner_references
        if owner.uid not in without
    ]
