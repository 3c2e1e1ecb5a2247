"""Leases, read and written by compare-and-swap.

Leader election and named locks both rest on one promise of the API server: of all who write to the same state of an
object, one succeeds. A missing lease is created, which fails if it exists by now; an existing one is patched under the
resourceVersion that it was read with. A merge patch leaves alone what others keep there: labels, annotations, and
fields that we do not know.
"""

from typing import Any

import msgspec

from haulout.api.objects import Lease, LeaseSpec, OwnerReference
from haulout.api.resources import LEASES
from haulout.errors import NotFound
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from haulout.kube.rbac import Permission
from haulout.kube.timestamps import micro_time


async def find(client: Client, name: str, *, namespace: str) -> Lease | None:
    """Return the lease as it is now, or None if there is none."""
    try:
        return await client.get(LEASES, name, namespace=namespace)
    except NotFound:
        return None


async def write(
    client: Client,
    name: str,
    spec: LeaseSpec,
    *,
    namespace: str,
    version: str,
    owner: OwnerReference | None = None,
) -> Lease:
    """Write `spec` into the lease if its resourceVersion is still `version`; create it if that is empty.

    `Conflict`, `AlreadyExists` and `NotFound` say that the lease is not what we thought. Fields of `spec` that are
    None, and an owner that is not given, stay as they are.
    """
    change: dict[str, Any] = {"metadata": {}, "spec": _fields(spec)}
    if owner:
        change["metadata"]["ownerReferences"] = [msgspec.to_builtins(owner)]
    if version:
        change["metadata"]["resourceVersion"] = version
        return await client.patch(LEASES, name, merge_patch(change), namespace=namespace)
    change["metadata"] |= {"name": name, "namespace": namespace}
    body = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, **change}
    return await client.create(LEASES, body, namespace=namespace)


def permissions(
    *, namespace: str, why: str, names: tuple[str, ...] = (), watched: bool = False
) -> tuple[Permission, ...]:
    """Return what it takes to find and write leases: those of these names, or any in the namespace.

    A lease is `watched` by its name, which the field selector of the request says: so the names restrict that, too.
    """
    verbs = ("get", "patch", "watch") if watched else ("get", "patch")
    return (
        # A name cannot restrict this, as there is no object yet to have one.
        Permission(("create",), LEASES.group, LEASES.plural, namespace, why),
        Permission(verbs, LEASES.group, LEASES.plural, namespace, why, names=names),
    )


def _fields(spec: LeaseSpec) -> dict[str, Any]:
    fields = {
        "holderIdentity": spec.holder_identity,
        "leaseDurationSeconds": spec.lease_duration_seconds,
        "acquireTime": spec.acquire_time and micro_time(spec.acquire_time),
        "renewTime": spec.renew_time and micro_time(spec.renew_time),
        "leaseTransitions": spec.lease_transitions,
    }
    return {name: value for name, value in fields.items() if value is not None}
