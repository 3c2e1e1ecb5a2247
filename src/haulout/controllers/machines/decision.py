"""What to do next about a MachineMaintenance: a pure function that returns one action, the reason, and when to requeue.

Without surge: write a claim on the MachineSet; record the Machine's UID in the status; delete the Machine; set
`maintenancescheduled`; the Machine is gone. With surge: the claim scales the MachineSet up; when the new node is Ready,
the old Machine is marked for deletion and the MachineSet is scaled down, which deletes the Machine.

Each action follows from the objects alone, so any process can execute the next one. Before a replacement, preflight
checks distinguish failures that never pass by themselves from temporary ones.

A claim is released when its Machine is gone, or its MachineMaintenance was cancelled or deleted. The MachineSet is then
free for the next Machine, and a surge is undone: the newest Machine is marked for deletion, and the MachineSet scaled
down.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from haulout.api.hold import HELD, Hold
from haulout.api.machinemaintenance import MachineMaintenance, MachineMaintenancePhase, MachineMaintenanceSpec
from haulout.api.maintenancenotice import DEFAULT_LEAD
from haulout.api.objects import machine_key
from haulout.api.openshift import CONTROL_PLANE_MACHINE_SETS, DELETE_MACHINE, MACHINE_SETS, Machine, MachineSet
from haulout.api.reasons import MachineMaintenanceReason
from haulout.controllers.machines.actions import (
    Action,
    DeleteMachine,
    InvalidateDeletion,
    MarkForDeletion,
    RecordMachine,
    ReleaseClaim,
    SetMaintenanceScheduled,
    WriteClaim,
)
from haulout.controllers.machines.observation import Decision, Observation, Peer
from haulout.controllers.machines.replacement_claim import ClaimStage, ReplacementClaim, new_claim, read_claim
from haulout.controllers.machines.replacement_time import check_replacement_time, format_instant

_CONTROL_PLANE_RECHECK_INTERVAL = timedelta(minutes=5)  # the ControlPlaneMachineSet is not watched

_OWNER_KINDS = (MACHINE_SETS.kind, CONTROL_PLANE_MACHINE_SETS.kind)


def decide(observation: Observation) -> Decision:
    """Return the next action, or when to requeue."""
    decision = _decide_action(observation)
    requeue_times = [decision.requeue_at]
    if not decision.phase.is_over and decision.phase is not MachineMaintenancePhase.REPLACING:
        requeue_times.append(observation.maintenance.spec.notafter)
    if observation.is_control_plane and decision.phase in (
        MachineMaintenancePhase.WAITING,
        MachineMaintenancePhase.REFUSED,
    ):
        requeue_times.append(observation.now + _CONTROL_PLANE_RECHECK_INTERVAL)
    return replace(
        decision, requeue_at=min((instant for instant in requeue_times if instant is not None), default=None)
    )


def _decide_action(observation: Observation) -> Decision:
    maintenance, machine = observation.maintenance, observation.machine
    if maintenance.status.phase == MachineMaintenancePhase.COMPLETED:
        return _completed(maintenance)
    if machine is None or maintenance.status.machine_uid not in ("", machine.uid):
        return _without_machine(observation)
    deletion_requested = (
        maintenance.spec.maintenancescheduled and maintenance.status.machine_uid == machine.uid
    )  # the cached Machine may be stale
    if machine.is_being_deleted or deletion_requested:
        return _deleting(maintenance, machine)
    reason = closed_reason(maintenance, now=observation.now)
    if reason:
        return Decision(
            phase=MachineMaintenancePhase.CANCELLED, reason=MachineMaintenanceReason.EVENT_CANCELLED, message=reason
        )
    failure = permanent_failure(observation, machine)
    if failure is not None or observation.owner is None:
        return _blocked(
            MachineMaintenancePhase.REFUSED,
            failure or PreflightFailure(MachineMaintenanceReason.NO_CONTROLLER, "it has no controller"),
        )
    return _continue_replacement(observation, machine, observation.owner)


def closed_reason(maintenance: MachineMaintenance, *, now: datetime) -> str:
    """Return why a MachineMaintenance needs no action; empty if its Machine is to be replaced."""
    spec = maintenance.spec
    if maintenance.status.phase == MachineMaintenancePhase.COMPLETED:
        return "it is completed"
    if spec.maintenancescheduled:
        return (
            "maintenancescheduled is true, so the Machine was already deleted; set it to "
            "false to have the Machine replaced"
        )
    if spec.is_over_or_cancelled:
        return f"the cloud says: {spec.description}"
    if spec.notafter is not None and spec.notafter <= now:
        return f"the event was over at {format_instant(spec.notafter)}"
    return ""


# End of the replacement


def _completed(maintenance: MachineMaintenance) -> Decision:
    return Decision(
        phase=MachineMaintenancePhase.COMPLETED,
        reason=MachineMaintenanceReason.MACHINE_GONE,
        message=maintenance.status.message,
    )


def _without_machine(observation: Observation) -> Decision:
    maintenance = observation.maintenance
    name = maintenance.spec.machinelink
    if maintenance.status.phase == MachineMaintenancePhase.CANCELLED and not (
        maintenance.status.machine_uid and maintenance.spec.maintenancescheduled
    ):
        return Decision(
            phase=MachineMaintenancePhase.CANCELLED,
            reason=MachineMaintenanceReason.EVENT_CANCELLED,
            message=maintenance.status.message,
        )
    if maintenance.status.machine_uid and not maintenance.spec.maintenancescheduled:
        decision = Decision(
            phase=MachineMaintenancePhase.REPLACING,
            reason=MachineMaintenanceReason.MACHINE_DELETED,
            message=f"Machine {name} is gone",
        )
        return replace(decision, action=SetMaintenanceScheduled(maintenance))
    if maintenance.status.machine_uid or maintenance.spec.maintenancescheduled:
        return Decision(
            phase=MachineMaintenancePhase.COMPLETED,
            reason=MachineMaintenanceReason.MACHINE_GONE,
            message=f"Machine {name} is gone",
        )
    reason = closed_reason(maintenance, now=observation.now)
    if reason:
        return Decision(
            phase=MachineMaintenancePhase.CANCELLED, reason=MachineMaintenanceReason.EVENT_CANCELLED, message=reason
        )
    return _blocked(
        MachineMaintenancePhase.REFUSED,
        PreflightFailure(MachineMaintenanceReason.NO_MACHINE, f"there is no Machine {name}", is_warning=True),
    )


def _deleting(maintenance: MachineMaintenance, machine: Machine) -> Decision:
    hooks = [hook.name for hook in machine.spec.lifecycle_hooks.pre_drain]
    hooks_text = f", which waits for its hooks {', '.join(hooks)}" if hooks else ""
    effect = (
        f"node {machine.node} is drained and its instance terminated" if machine.node else "its instance is terminated"
    )
    message = f"Machine {machine.name} is being deleted: {effect} by the Machine API{hooks_text}"
    action: Action | None = None
    if maintenance.status.machine_uid != machine.uid:
        action = RecordMachine(maintenance, machine)
    elif not maintenance.spec.maintenancescheduled:
        action = SetMaintenanceScheduled(maintenance)
    return Decision(
        phase=MachineMaintenancePhase.REPLACING,
        reason=MachineMaintenanceReason.MACHINE_DELETED,
        message=message,
        action=action,
    )


# Steps of the replacement


def _continue_replacement(observation: Observation, machine: Machine, owner: MachineSet) -> Decision:
    claim = observation.claim
    if claim is None or claim.uid != machine.uid:
        return _acquire_claim(observation, machine, owner)
    match claim.stage:
        case ClaimStage.SCALED_UP:
            return _continue_surge(observation, machine, owner, claim)
        case ClaimStage.SCALED_DOWN:
            return _after_scale_down(observation, machine, owner)
    failure = temporary_failure(observation, machine, owner)
    if failure is not None:
        return _blocked(MachineMaintenancePhase.WAITING, failure)
    if claim.version != machine.resource_version:
        return _act(WriteClaim(owner, new_claim(machine, surge=False)), f"Machine {machine.name} is replaced next")
    return _delete(observation, machine)


def _acquire_claim(observation: Observation, machine: Machine, owner: MachineSet) -> Decision:
    time = check_replacement_time(observation.maintenance.spec, policy=observation.policy, now=observation.now)
    if not time.is_due:
        return Decision(
            phase=MachineMaintenancePhase.PLANNED,
            reason=MachineMaintenanceReason.NOT_YET,
            message=time.message,
            requeue_at=time.requeue_at,
            is_warning=not time.is_on_time,
            is_on_time=time.is_on_time,
        )
    if observation.hold is not None:
        return _wait_for_hold(observation, machine, observation.hold)
    failure = temporary_failure(observation, machine, owner)
    if failure is not None:
        return _blocked(MachineMaintenancePhase.WAITING, failure)
    surge = observation.may_surge
    replicas = owner.replicas + 1 if surge else None
    message = f"Machine {machine.name} is replaced next" + (f"; {owner.name} creates a new one first" if surge else "")
    return _act(WriteClaim(owner, new_claim(machine, surge=surge), replicas), message, surge=surge)


def _wait_for_hold(observation: Observation, machine: Machine, hold: Hold) -> Decision:
    """Wait while the node has a hold.

    Warn if the hold lasts beyond the start of the cloud's event, which does not wait.
    """
    cloud_begins_at = observation.maintenance.spec.notbefore
    is_on_time = cloud_begins_at is None or (hold.until is not None and hold.until < cloud_begins_at)
    late_text = (
        ""
        if is_on_time
        else f"; the maintenance of the cloud begins at {format_instant(cloud_begins_at)}, and does not wait"
    )
    return Decision(
        phase=MachineMaintenancePhase.WAITING,
        reason=HELD,
        message=f"node {machine.node} is {hold}{late_text}",
        requeue_at=hold.until,
        is_warning=not is_on_time,
        is_on_time=is_on_time,
    )


def _delete(observation: Observation, machine: Machine) -> Decision:
    message = f"Machine {machine.name} is to be deleted"
    if observation.maintenance.status.machine_uid != machine.uid:
        return _act(RecordMachine(observation.maintenance, machine), message)
    return _act(DeleteMachine(machine), message)


def _continue_surge(observation: Observation, machine: Machine, owner: MachineSet, claim: ReplacementClaim) -> Decision:
    is_late = _is_late(observation.maintenance.spec, observation.now)
    failure = incomplete_set_failure(owner, observation.peers, except_uid=machine.uid)
    if failure is not None and not is_late:
        requeue_at = (
            None
            if observation.maintenance.spec.notbefore is None
            else observation.maintenance.spec.notbefore - DEFAULT_LEAD
        )
        message = f"{owner.name} creates a new Machine first; {failure.message}"
        return Decision(
            phase=MachineMaintenancePhase.SURGING,
            reason=MachineMaintenanceReason.SURGING,
            message=message,
            requeue_at=requeue_at,
        )
    message = f"Machine {machine.name} is to be deleted" + (", since the cloud will not wait" if failure else "")
    if observation.maintenance.status.machine_uid != machine.uid:
        return _act(RecordMachine(observation.maintenance, machine), message, surge=True)
    if DELETE_MACHINE not in machine.metadata.annotations:
        return _act(MarkForDeletion(machine), message, surge=True)
    down = ReplacementClaim(
        machine=claim.machine, uid=claim.uid, version=machine.resource_version, stage=ClaimStage.SCALED_DOWN
    )
    return _act(WriteClaim(owner, down, max(owner.replicas - 1, 0)), message, surge=True)


def _after_scale_down(observation: Observation, machine: Machine, owner: MachineSet) -> Decision:
    """Wait for the MachineSet to delete the Machine. If it deleted another one, delete this one directly."""
    remaining = sum(not peer.machine.is_being_deleted for peer in observation.peers)
    if owner.status.observed_generation >= owner.metadata.generation and remaining <= owner.replicas:
        return _delete(observation, machine)
    message = f"{owner.name} is scaled down and deletes Machine {machine.name}"
    return Decision(phase=MachineMaintenancePhase.SURGING, reason=MachineMaintenanceReason.SURGING, message=message)


def _is_late(spec: MachineMaintenanceSpec, now: datetime) -> bool:
    return spec.notbefore is not None and spec.notbefore - DEFAULT_LEAD <= now


@dataclass(frozen=True, slots=True)
class PreflightFailure:
    """Why the Machine cannot be replaced."""

    reason: str
    message: str
    is_warning: bool = False


def _blocked(phase: MachineMaintenancePhase, failure: PreflightFailure) -> Decision:
    return Decision(phase=phase, reason=failure.reason, message=failure.message, is_warning=failure.is_warning)


def _act(action: Action, message: str, *, surge: bool = False) -> Decision:
    if surge:
        return Decision(
            phase=MachineMaintenancePhase.SURGING,
            reason=MachineMaintenanceReason.SURGING,
            message=message,
            action=action,
        )
    return Decision(
        phase=MachineMaintenancePhase.WAITING, reason=MachineMaintenanceReason.NEXT, message=message, action=action
    )


def permanent_failure(observation: Observation, machine: Machine) -> PreflightFailure | None:
    """Return why the Machine cannot be replaced without a change by a person."""
    expected, actual = machine_key(observation.maintenance.spec.machineid), machine_key(machine.spec.provider_id or "")
    if not actual:
        return PreflightFailure(
            MachineMaintenanceReason.NO_INSTANCE, f"Machine {machine.name} has no instance yet", is_warning=True
        )
    if expected != actual:
        message = (
            f"Machine {machine.name} runs on instance {actual}, but machineid is {expected}: "
            "this is a different machine"
        )
        return PreflightFailure(MachineMaintenanceReason.INSTANCE_MISMATCH, message, is_warning=True)
    owner = machine.controller_owner
    if owner is None or owner.kind not in _OWNER_KINDS or observation.owner is None:
        controller = "no controller" if owner is None else f"{owner.kind} {owner.name}, which does not exist"
        message = f"Machine {machine.name} has {controller}: nothing would create a new one; drain its node instead"
        return PreflightFailure(MachineMaintenanceReason.NO_CONTROLLER, message, is_warning=True)
    if observation.is_control_plane and owner.kind != CONTROL_PLANE_MACHINE_SETS.kind:
        message = f"Machine {machine.name} belongs to the control plane, and has no ControlPlaneMachineSet"
        return PreflightFailure(MachineMaintenanceReason.NO_CONTROL_PLANE_MACHINE_SET, message, is_warning=True)
    return None


def temporary_failure(observation: Observation, machine: Machine, owner: MachineSet) -> PreflightFailure | None:
    """Return why the Machine cannot be replaced now."""
    if observation.is_control_plane and (failure := _control_plane_failure(observation, machine, owner)):
        return failure
    claim = observation.claim
    if claim is not None and claim.uid != machine.uid:
        return PreflightFailure(
            MachineMaintenanceReason.WAITING_FOR_OTHER_MACHINE,
            f"Machine {claim.machine} of {owner.name} is replaced first: one at a time",
        )
    return incomplete_set_failure(owner, observation.peers, except_uid=machine.uid)


def incomplete_set_failure(owner: MachineSet, peers: tuple[Peer, ...], *, except_uid: str) -> PreflightFailure | None:
    """Return which Machines the set lacks or waits for, ignoring the one with UID `except_uid`."""
    deleting = [peer.machine.name for peer in peers if peer.machine.is_being_deleted and peer.machine.uid != except_uid]
    if deleting:
        return PreflightFailure(
            MachineMaintenanceReason.WAITING_FOR_OTHER_MACHINE,
            f"{_join_names(deleting)} of {owner.name} is deleted first: one at a time",
        )
    unready = [peer.machine.name for peer in peers if peer.machine.uid != except_uid and not peer.is_ready]
    if unready:
        return PreflightFailure(
            MachineMaintenanceReason.MACHINE_SET_NOT_READY,
            f"{_join_names(unready)} of {owner.name} has no Ready node yet",
        )
    if len(peers) < owner.replicas:
        return PreflightFailure(
            MachineMaintenanceReason.MACHINE_SET_NOT_READY,
            f"{owner.name} has {len(peers)} of {owner.replicas} Machines",
        )
    return None


def _control_plane_failure(observation: Observation, machine: Machine, owner: MachineSet) -> PreflightFailure | None:
    if owner.spec.state != "Active":
        message = f"ControlPlaneMachineSet {owner.name} is not Active: nothing would create a new Machine"
        return PreflightFailure(MachineMaintenanceReason.NO_CONTROL_PLANE_MACHINE_SET, message, is_warning=True)
    unready = [node.name for node in observation.control_plane if not node.is_ready and node.name != machine.node]
    if unready or len(observation.control_plane) < owner.replicas:
        problem = (
            f"{_join_names(unready)} is not Ready"
            if unready
            else f"there are {len(observation.control_plane)} of {owner.replicas}"
        )
        message = f"nodes of the control plane must all be Ready before one is deleted, but {problem}"
        return PreflightFailure(MachineMaintenanceReason.CONTROL_PLANE_UNHEALTHY, message, is_warning=True)
    own_node = next((node for node in observation.control_plane if node.name == machine.node), None)
    if own_node is None or not own_node.is_ready:
        message = f"its own node is not Ready, so etcd may have lost a member; check Machine {machine.name} by hand"
        return PreflightFailure(MachineMaintenanceReason.CONTROL_PLANE_UNHEALTHY, message, is_warning=True)
    return None


def _join_names(names: list[str]) -> str:
    return ", ".join(sorted(names))


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
