"""Reads and writes Leases by compare-and-swap.

Leader election and named locks rely on optimistic concurrency of the API server: of all writes to one version of an
object, one succeeds. A missing lease is created, which fails if it exists by now. An existing lease is patched with the
resourceVersion that was read. A merge patch preserves the labels, annotations and unknown fields of other clients.

Named locks that outlive a process: a Lease that names the holder and the expiry. They are for operations that last
hours and that another process of the same holder may continue, such as the maintenance of a node. Other systems
(medik8s) use the same leases, so the rules are theirs: a lock is held until renewTime plus leaseDurationSeconds, in
wall time; anybody may take a lock that expired or was never filled in; a holder may always take its own lock again. One
rule differs: medik8s takes over any lease with a renewTime in the future. Because clocks differ, Haulout respects such
a lease if its renewTime is ahead by no more than `CLOCK_SKEW`.

`claim` decides and does no I/O. `acquire`, `renew` and `release` write its result by compare-and-swap. If another
process was faster, or the outcome of a write is unknown, they read and decide again. A holder must renew well before
the expiry, and stop its work when that fails. For processes that compete within seconds, use leader election.
"""

import enum
import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec

from haulout.api.objects import Lease, LeaseSpec, OwnerReference, object_key
from haulout.api.resources import LEASES
from haulout.core.backoff import CONFLICT
from haulout.core.retry import Retry
from haulout.core.timestamps import micro_time
from haulout.errors import (
    AlreadyExists,
    Conflict,
    LockHeld,
    MalformedResponse,
    NotFound,
    ServerFailure,
    Unreachable,
)
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from haulout.kube.rbac import Permission

# medik8s' rule protects against a clock that once ran far ahead: its lease would be held for years. Clocks under NTP
# differ by less than a second, so a minute tells the two apart.
CLOCK_SKEW = timedelta(minutes=1)

_MAX_ATTEMPTS = 6
# The lock has changed since the read, or a write may have taken effect: another read settles both.
_READ_AGAIN = (AlreadyExists, Conflict, NotFound, Unreachable, ServerFailure, MalformedResponse)


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
        # RBAC cannot restrict create by resource name: the authorizer takes the name from the URL, and a create has
        # none there (RequestInfo in staging/src/k8s.io/apiserver/pkg/endpoints/request/requestinfo.go).
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


class LockState(enum.StrEnum):
    """Who holds a lock, from the claimant's point of view."""

    FREE = "free"
    OURS = "ours"  # held by us, or expired and not taken since
    HELD = "held"  # held by another holder


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What `claim` decided: who holds the lock, and what to write to get it."""

    state: LockState
    holder: str  # the holder in the lease, whether or not it expired
    until: datetime | None  # None: no holder, or it expired
    record: LeaseSpec  # the spec to write; unchanged if there is nothing to write


def claim(lease: Lease | None, *, holder: str, now: datetime, duration: timedelta) -> Claim:
    """Decide whether `holder` may hold the lock for `duration` from `now`, and return the spec to write then."""
    spec = lease.spec if lease else LeaseSpec()
    until = held_until(spec, now=now)
    is_ours = spec.holder_identity == holder
    if until and (not is_ours or until >= now + duration):
        record = spec
    else:
        record = LeaseSpec(
            holder_identity=holder,
            # Rounded up: a lock that expires before its holder believes so could be taken twice.
            lease_duration_seconds=math.ceil(duration.total_seconds()),
            renew_time=now,
            acquire_time=spec.acquire_time if _is_continuation(spec, holder=holder, now=now) else now,
            lease_transitions=_transitions(lease, holder=holder, now=now),
        )
    state = LockState.OURS if is_ours else LockState.HELD if until else LockState.FREE
    return Claim(state=state, holder=spec.holder_identity or "", until=until, record=record)


def held_until(spec: LeaseSpec, *, now: datetime) -> datetime | None:
    """Return until when a lease is held; None if it is not held.

    A lease is not held if it expired, lacks a field, or has a renewTime later than `now` + `CLOCK_SKEW`.
    """
    if spec.renew_time is None or spec.lease_duration_seconds is None or spec.renew_time > now + CLOCK_SKEW:
        return None
    until = spec.renew_time + timedelta(seconds=spec.lease_duration_seconds)
    return until if until >= now else None


def _is_continuation(spec: LeaseSpec, *, holder: str, now: datetime) -> bool:
    """Return whether `holder` continues its earlier hold, instead of starting a new one."""
    if spec.holder_identity != holder or spec.renew_time is None or spec.lease_duration_seconds is None:
        return False
    # A holder that comes back after the expiry, before anybody else took the lock, continues its hold if the lease says
    # since when it lasts. Readers of acquireTime see one hold.
    return spec.acquire_time is not None or held_until(spec, now=now) is not None


def _transitions(lease: Lease | None, *, holder: str, now: datetime) -> int | None:
    if lease is None:
        return 0
    if _is_continuation(lease.spec, holder=holder, now=now):
        return lease.spec.lease_transitions
    return (lease.spec.lease_transitions or 0) + 1


async def acquire(
    client: Client,
    name: str,
    *,
    namespace: str,
    holder: str,
    duration: timedelta,
    owner: OwnerReference | None = None,
    assume_absent: bool = False,
) -> Lease:
    """Hold the lock for `duration` from now. Raise `LockHeld` if another holder has it.

    If `holder` has the lock already, renew it. The garbage collector deletes a lock together with its `owner`. With
    `assume_absent` (a watch has shown no lease) create the lease without a read; the server rejects that if one exists.
    """
    retry, wanted_until = _new_retry(client), client.clock.now() + duration
    while True:
        # The watch may have been behind: from the second attempt on, only a read counts.
        may_exist = retry.failures > 0 or not assume_absent
        lease = await client.find(LEASES, name, namespace=namespace) if may_exist else None
        decision = claim(lease, holder=holder, now=client.clock.now(), duration=duration)
        if decision.state is LockState.HELD:
            raise LockHeld(object_key(name, namespace), holder=decision.holder, until=decision.until)
        if lease and decision.until and decision.until >= wanted_until:
            return lease  # renewed by a write of ours whose response was lost, or by another process of the same holder
        try:
            version = lease.resource_version if lease else ""
            return await write(client, name, decision.record, namespace=namespace, version=version, owner=owner)
        except _READ_AGAIN as error:
            await retry.wait(error)


async def renew(client: Client, name: str, *, namespace: str, holder: str, duration: timedelta) -> Lease:
    """Extend a lock that `holder` already has to `duration` from now. Never take it.

    Raise `LockHeld` if another holder has taken it since, even if that hold has expired: the protected object may have
    changed. Raise `NotFound` if the lease does not exist.
    """
    retry, wanted_until = _new_retry(client), client.clock.now() + duration
    while True:
        lease = await client.get(LEASES, name, namespace=namespace)
        decision = claim(lease, holder=holder, now=client.clock.now(), duration=duration)
        if decision.state is not LockState.OURS:
            raise LockHeld(object_key(name, namespace), holder=decision.holder, until=decision.until)
        if decision.until and decision.until >= wanted_until:
            return lease
        try:
            version = lease.resource_version
            return await write(client, name, decision.record, namespace=namespace, version=version)
        except _READ_AGAIN as error:
            await retry.wait(error)


async def release(client: Client, name: str, *, namespace: str, holder: str) -> None:
    """Delete the lease. Raise `LockHeld` if another holder has it. A lease that is absent or has no holder is fine."""
    retry = _new_retry(client)
    while True:
        lease = await client.find(LEASES, name, namespace=namespace)
        if lease is None:
            return None
        current_holder = lease.spec.holder_identity
        if current_holder and current_holder != holder:
            until = held_until(lease.spec, now=client.clock.now())
            raise LockHeld(object_key(name, namespace), holder=current_holder, until=until)
        try:
            version = lease.resource_version
            # With preconditions: if the lock expired and was taken between the read and this request, the new holder's
            # lease must stay.
            return await client.delete(LEASES, name, namespace=namespace, uid=lease.uid, resource_version=version)
        except _READ_AGAIN as error:
            await retry.wait(error)


def _new_retry(client: Client) -> Retry:
    return Retry(client.clock, client.random, CONFLICT, max_attempts=_MAX_ATTEMPTS)
