"""The status of a MachineMaintenance. Pure.

kstatus reads Reconciling and Stalled before Ready, so one of them is present until the replacement is over. Ready is
True as soon as nothing blocks the replacement.
"""

from datetime import datetime

from haulout.api.machinemaintenance import (
    MachineMaintenanceCondition,
    MachineMaintenancePhase,
    MachineMaintenanceStatus,
)
from haulout.api.objects import StatusCondition
from haulout.api.reasons import MachineMaintenanceReason
from haulout.controllers.machines.observation import Decision, Observation

_MAX_MESSAGE_LENGTH = 4096
_SUMMARY_CONDITIONS = (
    MachineMaintenanceCondition.READY,
    MachineMaintenanceCondition.RECONCILING,
    MachineMaintenanceCondition.STALLED,
)


def build_status(observation: Observation, decision: Decision) -> MachineMaintenanceStatus:
    previous, machine = observation.maintenance.status, observation.machine
    node = "" if machine is None else machine.node
    is_over = decision.phase.is_over
    return MachineMaintenanceStatus(
        phase=decision.phase,
        message=decision.message[:_MAX_MESSAGE_LENGTH],
        machine_uid=previous.machine_uid,
        node_name=node or previous.node_name,
        planned_at=decision.requeue_at if decision.phase is MachineMaintenancePhase.PLANNED else None,
        started_at=previous.started_at,
        completed_at=(previous.completed_at or observation.now.replace(microsecond=0)) if is_over else None,
        observed_generation=observation.maintenance.metadata.generation,
        conditions=_conditions(observation, decision),
    )


def _conditions(observation: Observation, decision: Decision) -> tuple[StatusCondition, ...]:
    phase = decision.phase
    own_conditions = {
        MachineMaintenanceCondition.READY: phase
        in (
            MachineMaintenancePhase.SURGING,
            MachineMaintenancePhase.REPLACING,
            MachineMaintenancePhase.COMPLETED,
            MachineMaintenancePhase.CANCELLED,
        ),
        MachineMaintenanceCondition.ON_TIME: decision.is_on_time,
        MachineMaintenanceCondition.REPLACED: phase is MachineMaintenancePhase.COMPLETED,
    }
    if not phase.is_over:
        own_conditions[
            MachineMaintenanceCondition.STALLED if _is_stalled(decision) else MachineMaintenanceCondition.RECONCILING
        ] = True
    other_conditions = tuple(
        condition
        for condition in observation.maintenance.status.conditions
        if condition.type not in tuple(MachineMaintenanceCondition)
    )
    return (
        *(_condition(observation, decision, kind, holds=holds) for kind, holds in own_conditions.items()),
        *other_conditions,
    )


def _is_stalled(decision: Decision) -> bool:
    """Return whether a person must act: the replacement is refused, has a problem, or comes too late for the event."""
    return decision.phase is MachineMaintenancePhase.REFUSED or decision.is_warning or not decision.is_on_time


def _condition(
    observation: Observation, decision: Decision, kind: MachineMaintenanceCondition, *, holds: bool
) -> StatusCondition:
    previous = observation.maintenance.status.condition(kind)
    is_same = previous is not None and previous.status == str(holds)
    since: datetime | None = previous.last_transition_time if previous is not None and is_same else None
    shows_reason = kind in _SUMMARY_CONDITIONS or not holds
    return StatusCondition(
        type=kind,
        status=str(holds),
        reason=decision.reason if shows_reason else MachineMaintenanceReason.ON_SCHEDULE,
        message=decision.message[:_MAX_MESSAGE_LENGTH] if kind in _SUMMARY_CONDITIONS else "",
        last_transition_time=since or observation.now.replace(microsecond=0),
        observed_generation=observation.maintenance.metadata.generation,
    )
