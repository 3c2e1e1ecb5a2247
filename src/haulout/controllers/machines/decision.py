"""What to do next about a MachineMaintenance: a pure function that returns one action, the reason, and when to requeue.

Without surge: write a claim on the MachineSet; record the Machine's UID in the status; delete the Machine; set
`maintenancescheduled`; the Machine is gone. With surge: the claim scales the MachineSet up; when the new node is Ready,
the old Machine is marked for deletion and the MachineSet is scaled down, which deletes the Machine.

Each action follows from the objects alone, so any process can execute the next one.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from haulout.api.hold import HELD, Hold
from haulout.api.machinemaintenance import MachineMaintenance, MachineMaintenancePhase, MachineMaintenanceSpec
from haulout.api.maintenancenotice import DEFAULT_LEAD
from haulout.api.openshift import DELETE_MACHINE, Machine, MachineSet
from haulout.controllers.machines.actions import (
    Action,
    DeleteMachine,
    MarkForDeletion,
    RecordMachine,
    SetMaintenanceScheduled,
    WriteClaim,
)
from haulout.controllers.machines.observation import Decision, Observation
from haulout.controllers.machines.preflight import (
    PreflightFailure,
    incomplete_set_failure,
    permanent_failure,
    temporary_failure,
)
from haulout.controllers.machines.replacement_claim import ClaimStage, ReplacementClaim, new_claim
from haulout.controllers.machines.replacement_time import check_replacement_time, format_instant

_CONTROL_PLANE_RECHECK_INTERVAL = timedelta(minutes=5)  # the ControlPlaneMachineSet is not watched


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
        return Decision(phase=MachineMaintenancePhase.CANCELLED, reason="EventCancelled", message=reason)
    failure = permanent_failure(observation, machine)
    if failure is not None or observation.owner is None:
        return _blocked(
            MachineMaintenancePhase.REFUSED, failure or PreflightFailure("NoController", "it has no controller")
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
    return Decision(phase=MachineMaintenancePhase.COMPLETED, reason="MachineGone", message=maintenance.status.message)


def _without_machine(observation: Observation) -> Decision:
    maintenance = observation.maintenance
    name = maintenance.spec.machinelink
    if maintenance.status.phase == MachineMaintenancePhase.CANCELLED and not (
        maintenance.status.machine_uid and maintenance.spec.maintenancescheduled
    ):
        return Decision(
            phase=MachineMaintenancePhase.CANCELLED, reason="EventCancelled", message=maintenance.status.message
        )
    if maintenance.status.machine_uid and not maintenance.spec.maintenancescheduled:
        decision = Decision(
            phase=MachineMaintenancePhase.REPLACING, reason="MachineDeleted", message=f"Machine {name} is gone"
        )
        return replace(decision, action=SetMaintenanceScheduled(maintenance))
    if maintenance.status.machine_uid or maintenance.spec.maintenancescheduled:
        return Decision(
            phase=MachineMaintenancePhase.COMPLETED, reason="MachineGone", message=f"Machine {name} is gone"
        )
    reason = closed_reason(maintenance, now=observation.now)
    if reason:
        return Decision(phase=MachineMaintenancePhase.CANCELLED, reason="EventCancelled", message=reason)
    return _blocked(
        MachineMaintenancePhase.REFUSED, PreflightFailure("NoMachine", f"there is no Machine {name}", is_warning=True)
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
    return Decision(phase=MachineMaintenancePhase.REPLACING, reason="MachineDeleted", message=message, action=action)


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
            reason="NotYet",
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
        return Decision(phase=MachineMaintenancePhase.SURGING, reason="Surging", message=message, requeue_at=requeue_at)
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
    return Decision(phase=MachineMaintenancePhase.SURGING, reason="Surging", message=message)


def _is_late(spec: MachineMaintenanceSpec, now: datetime) -> bool:
    return spec.notbefore is not None and spec.notbefore - DEFAULT_LEAD <= now


def _blocked(phase: MachineMaintenancePhase, failure: PreflightFailure) -> Decision:
    return Decision(phase=phase, reason=failure.reason, message=failure.message, is_warning=failure.is_warning)


def _act(action: Action, message: str, *, surge: bool = False) -> Decision:
    if surge:
        return Decision(phase=MachineMaintenancePhase.SURGING, reason="Surging", message=message, action=action)
    return Decision(phase=MachineMaintenancePhase.WAITING, reason="Next", message=message, action=action)
