"""Named locks that outlive a process: a Lease that says who holds something, and until when.

They are for what lasts hours and may be continued by another process of the same holder, such as the maintenance of a
node. Other systems take and respect the same leases, so the rules are theirs (medik8s): a lock is held while renewTime
plus leaseDurationSeconds has not passed, on wall time; one that ran out, or was never filled in, may be taken by
anybody; a holder may always take again what it holds. One rule is softened: they take over any lease that was renewed
in the future. As no two clocks agree, here such a lease is believed if it is ahead by no more than `CLOCK_SKEW`.

`claim` decides and does no I/O. `acquire`, `renew` and `release` perform what it says by compare-and-swap; when
somebody else was quicker, or nobody knows whether a write took effect, they look again and decide again. Who counts on
a lock renews it well before it runs out, and stops when that fails: for processes that compete second by second there
is leader election.
"""

import enum
import math
from dataclasses import dataclass
from datetime import datetime, timedelta

from haulout.api.objects import Lease, LeaseSpec, OwnerReference, object_key
from haulout.api.resources import LEASES
from haulout.core.backoff import Backoff
from haulout.errors import (
    AlreadyExists,
    Conflict,
    KubeError,
    LockHeld,
    MalformedResponse,
    NotFound,
    ServerFailure,
    Unreachable,
)
from haulout.kube import leases
from haulout.kube.client import Client

CLOCK_SKEW = timedelta(minutes=1)

_MAX_ATTEMPTS = 6
_BACKOFF = Backoff(first=timedelta(milliseconds=50), limit=timedelta(seconds=1), jitter=0.5)
# The lock is not what it was when we looked, or a write may or may not have taken effect: looking again settles both.
_READ_AGAIN = (AlreadyExists, Conflict, NotFound, Unreachable, ServerFailure, MalformedResponse)


class LockState(enum.StrEnum):
    """Whose a lock is."""

    FREE = "free"
    OURS = "ours"  # in force, or run out and not taken by anybody since
    HELD = "held"  # by another


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a holder finds when it asks for a lock."""

    state: LockState
    holder: str  # whose name stands there, in force or not
    until: datetime | None  # None: nobody's claim is in force
    record: LeaseSpec  # what the lease should say; if it says so already, there is nothing to write


def claim(lease: Lease | None, *, holder: str, now: datetime, duration: timedelta) -> Claim:
    """Decide whether `holder` may have the lock for `duration` from `now` on, and what the lease should say then."""
    spec = lease.spec if lease else LeaseSpec()
    until = held_until(spec, now=now)
    is_ours = spec.holder_identity == holder
    if until and (not is_ours or until >= now + duration):
        record = spec
    else:
        record = LeaseSpec(
            holder_identity=holder,
            lease_duration_seconds=math.ceil(duration.total_seconds()),
            renew_time=now,
            acquire_time=spec.acquire_time if _is_continuation(spec, holder=holder, now=now) else now,
            lease_transitions=_transitions(lease, holder=holder, now=now),
        )
    state = LockState.OURS if is_ours else LockState.HELD if until else LockState.FREE
    return Claim(state=state, holder=spec.holder_identity or "", until=until, record=record)


def held_until(spec: LeaseSpec, *, now: datetime) -> datetime | None:
    """Return until when a lease is held, by whomever; None if it is not.

    It is not if it ran out, if it lacks a field, or if it was renewed in a future that no clock excuses.
    """
    if spec.renew_time is None or spec.lease_duration_seconds is None or spec.renew_time > now + CLOCK_SKEW:
        return None
    until = spec.renew_time + timedelta(seconds=spec.lease_duration_seconds)
    return until if until >= now else None


def _is_continuation(spec: LeaseSpec, *, holder: str, now: datetime) -> bool:
    """Whether `holder` goes on with what it held, or starts anew."""
    if spec.holder_identity != holder or spec.renew_time is None or spec.lease_duration_seconds is None:
        return False
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
    """Hold the lock for `duration` from now on; `LockHeld` if another holds it.

    To acquire what `holder` holds already is to renew it. A lock is deleted together with its `owner`. One that
    `assume_absent`, as a watch has shown none, is made without a look at the server, which refuses that if there is
    one.
    """
    attempt, wanted_until = 1, client.clock.now() + duration
    while True:
        may_exist = attempt > 1 or not assume_absent
        lease = await leases.find(client, name, namespace=namespace) if may_exist else None
        decision = claim(lease, holder=holder, now=client.clock.now(), duration=duration)
        if decision.state is LockState.HELD:
            raise LockHeld(object_key(name, namespace), holder=decision.holder, until=decision.until)
        if lease and decision.until and decision.until >= wanted_until:
            return lease  # by an unheard write of ours, or by another process of the same holder
        try:
            version = lease.resource_version if lease else ""
            return await leases.write(client, name, decision.record, namespace=namespace, version=version, owner=owner)
        except _READ_AGAIN as error:
            await _back_off(client, attempt, error)
            attempt += 1


async def renew(client: Client, name: str, *, namespace: str, holder: str, duration: timedelta) -> Lease:
    """Hold for `duration` from now on what `holder` holds already; never take it.

    `LockHeld` if another has taken it since, though it may have run out again: what the lock protects is not what it
    was. `NotFound` if the lock is gone.
    """
    attempt, wanted_until = 1, client.clock.now() + duration
    while True:
        lease = await client.get(LEASES, name, namespace=namespace)
        decision = claim(lease, holder=holder, now=client.clock.now(), duration=duration)
        if decision.state is not LockState.OURS:
            raise LockHeld(object_key(name, namespace), holder=decision.holder, until=decision.until)
        if decision.until and decision.until >= wanted_until:
            return lease
        try:
            version = lease.resource_version
            return await leases.write(client, name, decision.record, namespace=namespace, version=version)
        except _READ_AGAIN as error:
            await _back_off(client, attempt, error)
            attempt += 1


async def release(client: Client, name: str, *, namespace: str, holder: str) -> None:
    """Give the lock back by deleting it; `LockHeld` if it is another's. One that is gone, or nobody's, is fine."""
    attempt = 1
    while True:
        lease = await leases.find(client, name, namespace=namespace)
        if lease is None:
            return None
        current_holder = lease.spec.holder_identity
        if current_holder and current_holder != holder:
            until = held_until(lease.spec, now=client.clock.now())
            raise LockHeld(object_key(name, namespace), holder=current_holder, until=until)
        try:
            version = lease.resource_version
            return await client.delete(LEASES, name, namespace=namespace, uid=lease.uid, resource_version=version)
        except _READ_AGAIN as error:
            await _back_off(client, attempt, error)
            attempt += 1


async def _back_off(client: Client, attempt: int, error: KubeError) -> None:
    if attempt >= _MAX_ATTEMPTS:
        raise error
    await client.clock.sleep(_BACKOFF.delay(attempt, client.random))
