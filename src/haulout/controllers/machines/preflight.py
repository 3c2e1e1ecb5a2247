"""Preflight checks of a replacement: failures that never pass by themselves, and temporary ones. Pure."""

from dataclasses import dataclass

from haulout.api.objects import machine_key
from haulout.api.openshift import CONTROL_PLANE_MACHINE_SETS, MACHINE_SETS, Machine, MachineSet
from haulout.controllers.machines.observation import Observation, Peer, is_ready

_OWNER_KINDS = (MACHINE_SETS.kind, CONTROL_PLANE_MACHINE_SETS.kind)


@dataclass(frozen=True, slots=True)
class PreflightFailure:
    """Why the Machine cannot be replaced."""

    reason: str
    message: str
    is_warning: bool = False


def permanent_failure(observation: Observation, machine: Machine) -> PreflightFailure | None:
    """Return why the Machine cannot be replaced without a change by a person."""
    expected, actual = machine_key(observation.maintenance.spec.machineid), machine_key(machine.spec.provider_id or "")
    if not actual:
        return PreflightFailure("NoInstance", f"Machine {machine.name} has no instance yet", is_warning=True)
    if expected != actual:
        message = (
            f"Machine {machine.name} runs on instance {actual}, but machineid is {expected}: "
            "this is a different machine"
        )
        return PreflightFailure("InstanceMismatch", message, is_warning=True)
    owner = machine.controller_owner
    if owner is None or owner.kind not in _OWNER_KINDS or observation.owner is None:
        controller = "no controller" if owner is None else f"{owner.kind} {owner.name}, which does not exist"
        message = f"Machine {machine.name} has {controller}: nothing would create a new one; drain its node instead"
        return PreflightFailure("NoController", message, is_warning=True)
    if observation.is_control_plane and owner.kind != CONTROL_PLANE_MACHINE_SETS.kind:
        message = f"Machine {machine.name} belongs to the control plane, and has no ControlPlaneMachineSet"
        return PreflightFailure("NoControlPlaneMachineSet", message, is_warning=True)
    return None


def temporary_failure(observation: Observation, machine: Machine, owner: MachineSet) -> PreflightFailure | None:
    """Return why the Machine cannot be replaced now."""
    if observation.is_control_plane and (failure := _control_plane_failure(observation, machine, owner)):
        return failure
    claim = observation.claim
    if claim is not None and claim.uid != machine.uid:
        return PreflightFailure(
            "WaitingForOtherMachine", f"Machine {claim.machine} of {owner.name} is replaced first: one at a time"
        )
    return incomplete_set_failure(owner, observation.peers, except_uid=machine.uid)


def incomplete_set_failure(owner: MachineSet, peers: tuple[Peer, ...], *, except_uid: str) -> PreflightFailure | None:
    """Return which Machines the set lacks or waits for, ignoring the one with UID `except_uid`."""
    deleting = [peer.machine.name for peer in peers if peer.machine.is_being_deleted and peer.machine.uid != except_uid]
    if deleting:
        return PreflightFailure(
            "WaitingForOtherMachine", f"{_join_names(deleting)} of {owner.name} is deleted first: one at a time"
        )
    unready = [peer.machine.name for peer in peers if peer.machine.uid != except_uid and not peer.is_ready]
    if unready:
        return PreflightFailure("MachineSetNotReady", f"{_join_names(unready)} of {owner.name} has no Ready node yet")
    if len(peers) < owner.replicas:
        return PreflightFailure("MachineSetNotReady", f"{owner.name} has {len(peers)} of {owner.replicas} Machines")
    return None


def _control_plane_failure(observation: Observation, machine: Machine, owner: MachineSet) -> PreflightFailure | None:
    if owner.spec.state != "Active":
        message = f"ControlPlaneMachineSet {owner.name} is not Active: nothing would create a new Machine"
        return PreflightFailure("NoControlPlaneMachineSet", message, is_warning=True)
    unready = [node.name for node in observation.control_plane if not is_ready(node) and node.name != machine.node]
    if unready or len(observation.control_plane) < owner.replicas:
        problem = (
            f"{_join_names(unready)} is not Ready"
            if unready
            else f"there are {len(observation.control_plane)} of {owner.replicas}"
        )
        message = f"nodes of the control plane must all be Ready before one is deleted, but {problem}"
        return PreflightFailure("ControlPlaneUnhealthy", message, is_warning=True)
    own_node = next((node for node in observation.control_plane if node.name == machine.node), None)
    if own_node is None or not is_ready(own_node):
        message = f"its own node is not Ready, so etcd may have lost a member; check Machine {machine.name} by hand"
        return PreflightFailure("ControlPlaneUnhealthy", message, is_warning=True)
    return None


def _join_names(names: list[str]) -> str:
    return ", ".join(sorted(names))
