"""What stands in the way of replacing a Machine: reasons that never pass by themselves, and such as do. Pure."""

from dataclasses import dataclass

from haulout.kinds.machines import machine_key
from haulout.kinds.openshift import CONTROL_PLANE_MACHINE_SETS, MACHINE_SETS, Machine, MachineSet
from haulout.machines.seen import Peer, Seen, is_ready

_OWNERS = (MACHINE_SETS.kind, CONTROL_PLANE_MACHINE_SETS.kind)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why not: in a word, and in a sentence."""

    reason: str
    why: str
    is_bad: bool = False


def refusal(seen: Seen, machine: Machine) -> Obstacle | None:
    """Return why the Machine is never replaced as things are."""
    wanted, runs_on = machine_key(seen.record.spec.machineid), machine_key(machine.spec.provider_id or "")
    if not runs_on:
        return Obstacle("NoInstance", f"Machine {machine.name} has no instance yet", is_bad=True)
    if wanted != runs_on:
        why = f"Machine {machine.name} runs on instance {runs_on}, and machineid says {wanted}: this is another one"
        return Obstacle("OtherInstance", why, is_bad=True)
    owner = machine.owner
    if owner is None or owner.kind not in _OWNERS or seen.owner is None:
        who = "no controller" if owner is None else f"{owner.kind} {owner.name}, which is not there"
        why = f"Machine {machine.name} has {who}: nobody would make another one; its node can be drained instead"
        return Obstacle("NoController", why, is_bad=True)
    if seen.is_control_plane and owner.kind != CONTROL_PLANE_MACHINE_SETS.kind:
        why = f"Machine {machine.name} is of the control plane, and has no ControlPlaneMachineSet"
        return Obstacle("NoControlPlaneMachineSet", why, is_bad=True)
    return None


def obstacle(seen: Seen, machine: Machine, owner: MachineSet) -> Obstacle | None:
    """Return why the Machine is not replaced now."""
    if seen.is_control_plane and (found := _of_control_plane(seen, machine, owner)):
        return found
    claim = seen.claim
    if claim is not None and claim.uid != machine.uid:
        return Obstacle("NotItsTurn", f"Machine {claim.machine} of {owner.name} is replaced first: one at a time")
    return unwhole(owner, seen.peers, but=machine.uid)


def unwhole(owner: MachineSet, peers: tuple[Peer, ...], *, but: str) -> Obstacle | None:
    """Return what a set lacks, whatever the Machine with the uid `but` is like."""
    leaving = [it.machine.name for it in peers if it.machine.is_leaving and it.machine.uid != but]
    if leaving:
        return Obstacle("NotItsTurn", f"{_joined(leaving)} of {owner.name} goes first: one at a time")
    unready = [it.machine.name for it in peers if it.machine.uid != but and not it.is_ready]
    if unready:
        return Obstacle("NotWhole", f"{_joined(unready)} of {owner.name} is not a node that is Ready yet")
    if len(peers) < owner.replicas:
        return Obstacle("NotWhole", f"{owner.name} has {len(peers)} of {owner.replicas} Machines")
    return None


def _of_control_plane(seen: Seen, machine: Machine, owner: MachineSet) -> Obstacle | None:
    if owner.spec.state != "Active":
        why = f"ControlPlaneMachineSet {owner.name} is not Active: nobody would make another Machine"
        return Obstacle("NoControlPlaneMachineSet", why, is_bad=True)
    sick = [it.name for it in seen.control_plane if not is_ready(it) and it.name != machine.node]
    if sick or len(seen.control_plane) < owner.replicas:
        what = f"{_joined(sick)} is not Ready" if sick else f"there are {len(seen.control_plane)} of {owner.replicas}"
        why = f"nodes of the control plane must all be Ready before one goes, and {what}"
        return Obstacle("ControlPlaneUnhealthy", why, is_bad=True)
    own = next((it for it in seen.control_plane if it.name == machine.node), None)
    if own is None or not is_ready(own):
        why = f"its own node is not Ready, so etcd may have lost a member; see to {machine.name} by hand"
        return Obstacle("ControlPlaneUnhealthy", why, is_bad=True)
    return None


def _joined(names: list[str]) -> str:
    return ", ".join(sorted(names))
