"""Reads and writes Leases by compare-and-swap.

Leader election and named locks rely on optimistic concurrency of the API server: of all writes to one version of an
object, one succeeds. A missing lease is created, which fails if it exists by now. An existing lease is patched with the
resourceVersion that was read. A merge patch preserves the labels, annotations and unknown fields of other clients.
"""

from typing import Any

import msgspec

from haulout.api.objects import Lease, LeaseSpec, OwnerReference
from haulout.api.resources import LEASES
from haulout.core.timestamps import micro_time
from haulout.errors import NotFound
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from haulout.kube.rbac import Permission


async def find(client: Client, name: str, *, namespace: str) -> Lease | None:
    """Return the lease, or None if it does not exist."""
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
    """Write `spec` into the lease if its resourceVersion is still `version`; create it if `version` is empty.

    Raise `Conflict`, `AlreadyExists` or `NotFound` if the lease has changed. Fields of `spec` that are None, and a
    missing `owner`, leave the existing values unchanged.
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
    """Return the permissions to read and write leases: those with these `names`, or all in the namespace.

    A watch of one lease selects it by `metadata.name`, so `names` restrict the `watch` verb, too.
    """
    verbs = ("get", "patch", "watch") if watched else ("get", "patch")
    return (
        # RBAC cannot restrict create by resource name.
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
