"""What to do about a claim that is not needed any more. Pure.

Its Machine is gone, or the MachineMaintenance was cancelled or deleted. The MachineSet is then free for the next
Machine, and a surge is undone: the newest Machine is marked for deletion, and the MachineSet scaled down.
"""

from haulout.api.openshift import DELETE_MACHINE, Machine, MachineSet
from haulout.controllers.machines.actions import Action, InvalidateDeletion, MarkForDeletion, ReleaseClaim, WriteClaim
from haulout.controllers.machines.observation import Peer
from haulout.controllers.machines.replacement_claim import ClaimStage, ReplacementClaim, read_claim


def next_release_action(owner: MachineSet, peers: tuple[Peer, ...], *, is_replacement_requested: bool) -> Action | None:
    """Return the next action that releases the claim on a MachineSet; None if there is none.

    `is_replacement_requested`: a MachineMaintenance still requests the replacement of the claimed Machine.
    """
    claim = read_claim(owner)
    machine = None if claim is None else next((peer.machine for peer in peers if peer.machine.uid == claim.uid), None)
    if claim is None:
        return None
    if machine is None:
        return ReleaseClaim(owner, claim, max(owner.replicas - 1, 0) if claim.stage == ClaimStage.SCALED_UP else None)
    if machine.is_being_deleted:
        return _scale_down(owner, claim) if claim.stage == ClaimStage.SCALED_UP else None  # deleted by somebody else
    if is_replacement_requested or claim.stage == ClaimStage.SCALED_DOWN:
        return None
    return (
        _end_surge(owner, claim, peers, machine)
        if claim.stage == ClaimStage.SCALED_UP
        else _release_without_surge(owner, claim, machine)
    )


def _scale_down(owner: MachineSet, claim: ReplacementClaim) -> Action:
    down = ReplacementClaim(machine=claim.machine, uid=claim.uid, version=claim.version, stage=ClaimStage.SCALED_DOWN)
    return WriteClaim(owner, down, max(owner.replicas - 1, 0))


def _release_without_surge(owner: MachineSet, claim: ReplacementClaim, machine: Machine) -> Action:
    return InvalidateDeletion(machine) if claim.version == machine.resource_version else ReleaseClaim(owner, claim)


def _end_surge(owner: MachineSet, claim: ReplacementClaim, peers: tuple[Peer, ...], machine: Machine) -> Action:
    remaining = [peer.machine for peer in peers if not peer.machine.is_being_deleted]
    if DELETE_MACHINE in machine.metadata.annotations:
        return InvalidateDeletion(machine)
    if len(remaining) < owner.replicas:
        return ReleaseClaim(owner, claim, max(owner.replicas - 1, 0))  # the surge Machine does not exist yet
    newest = max(remaining, key=_creation_key)
    if DELETE_MACHINE not in newest.metadata.annotations and newest.uid != machine.uid:
        return MarkForDeletion(newest)
    return ReleaseClaim(owner, claim, max(owner.replicas - 1, 0))


def _creation_key(machine: Machine) -> tuple[float, str]:
    created_at = machine.metadata.creation_timestamp
    return (0.0 if created_at is None else created_at.timestamp()), machine.name
