"""What the status of a MachineMaintenance says. Pure.

kstatus reads Reconciling and Stalled before Ready: one of them is there until it is over. Ready is True as soon as
nothing stands in the way of replacing the Machine.
"""

from datetime import datetime

from haulout.kinds.machinemaintenance import MachineCondition, Phase, Status
from haulout.kube.objects import StatusCondition
from haulout.machines.seen import Decision, Seen

_LONGEST = 4096
_SUMMARY = (MachineCondition.READY, MachineCondition.RECONCILING, MachineCondition.STALLED)


def describe(seen: Seen, decision: Decision) -> Status:
    """Return the status that tells what was decided."""
    before, machine = seen.record.status, seen.machine
    node = "" if machine is None else machine.node
    is_over = decision.phase.is_over
    return Status(
        phase=decision.phase,
        message=decision.why[:_LONGEST],
        machine_uid=before.machine_uid,
        node_name=node or before.node_name,
        planned_at=decision.next_look if decision.phase is Phase.PLANNED else None,
        started_at=before.started_at,
        completed_at=(before.completed_at or seen.now.replace(microsecond=0)) if is_over else None,
        observed_generation=seen.record.metadata.generation,
        conditions=_conditions(seen, decision),
    )


def _conditions(seen: Seen, decision: Decision) -> tuple[StatusCondition, ...]:
    phase = decision.phase
    ours = {
        MachineCondition.READY: phase in (Phase.SURGING, Phase.REPLACING, Phase.COMPLETED, Phase.CANCELLED),
        MachineCondition.ON_TIME: decision.is_on_time,
        MachineCondition.REPLACED: phase is Phase.COMPLETED,
    }
    if not phase.is_over:
        ours[MachineCondition.STALLED if _is_stalled(decision) else MachineCondition.RECONCILING] = True
    kept = tuple(it for it in seen.record.status.conditions if it.type not in tuple(MachineCondition))
    return (*(_condition(seen, decision, kind, holds=holds) for kind, holds in ours.items()), *kept)


def _is_stalled(decision: Decision) -> bool:
    """Tell whether a person must act: it is refused, or something is wrong, or the cloud will not wait for it."""
    return decision.phase is Phase.REFUSED or decision.is_bad or not decision.is_on_time


def _condition(seen: Seen, decision: Decision, kind: MachineCondition, *, holds: bool) -> StatusCondition:
    before = seen.record.status.condition(kind)
    is_same = before is not None and before.status == str(holds)
    since: datetime | None = before.last_transition_time if before is not None and is_same else None
    is_told = kind in _SUMMARY or not holds
    return StatusCondition(
        type=kind,
        status=str(holds),
        reason=decision.reason if is_told else "AsPlanned",
        message=decision.why[:_LONGEST] if kind in _SUMMARY else "",
        last_transition_time=since or seen.now.replace(microsecond=0),
        observed_generation=seen.record.metadata.generation,
    )
