"""What to do about a claim that nobody needs any more. Pure.

Its Machine is gone, or the record that wanted it gone was called off or deleted. Then the set is free for the next one,
and a surge is taken back: the Machine that was made last is marked, and goes.
"""

from haulout.kinds.openshift import DELETE_FIRST, Machine, MachineSet
from haulout.machines.claims import Claim, Stage, claim_on
from haulout.machines.seen import Peer
from haulout.machines.steps import DropClaim, Mark, Step, TakeClaim, Withdraw


def withdrawal(owner: MachineSet, peers: tuple[Peer, ...], *, is_wanted: bool) -> Step | None:
    """Return the next step to free a set; `is_wanted`: a record wants the Machine replaced that is claimed."""
    claim = claim_on(owner)
    found = None if claim is None else next((it.machine for it in peers if it.machine.uid == claim.uid), None)
    if claim is None:
        return None
    if found is None:
        return DropClaim(owner, claim, max(owner.replicas - 1, 0) if claim.stage == Stage.UP else None)
    if found.is_leaving:
        return _scale_down(owner, claim) if claim.stage == Stage.UP else None  # somebody else was quicker
    if is_wanted or claim.stage == Stage.DOWN:
        return None
    return _end_surge(owner, claim, peers, found) if claim.stage == Stage.UP else _let_go(owner, claim, found)


def _scale_down(owner: MachineSet, claim: Claim) -> Step:
    down = Claim(machine=claim.machine, uid=claim.uid, version=claim.version, stage=Stage.DOWN)
    return TakeClaim(owner, down, max(owner.replicas - 1, 0))


def _let_go(owner: MachineSet, claim: Claim, found: Machine) -> Step:
    return Withdraw(found) if claim.version == found.resource_version else DropClaim(owner, claim)


def _end_surge(owner: MachineSet, claim: Claim, peers: tuple[Peer, ...], found: Machine) -> Step:
    staying = [it.machine for it in peers if not it.machine.is_leaving]
    if DELETE_FIRST in found.metadata.annotations:
        return Withdraw(found)
    if len(staying) < owner.replicas:
        return DropClaim(owner, claim, max(owner.replicas - 1, 0))  # the other one is not made yet
    latest = max(staying, key=_age)
    if DELETE_FIRST not in latest.metadata.annotations and latest.uid != found.uid:
        return Mark(latest)
    return DropClaim(owner, claim, max(owner.replicas - 1, 0))


def _age(machine: Machine) -> tuple[float, str]:
    made = machine.metadata.creation_timestamp
    return (0.0 if made is None else made.timestamp()), machine.name
