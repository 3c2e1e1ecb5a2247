"""What the status of a MachineMaintenance says. Pure."""

from datetime import datetime

from haulout.kinds.machinemaintenance import MachineCondition, Phase, Status
from haulout.kube.objects import Condition
from haulout.machines.seen import Decision, Seen

_LONGEST = 4096


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


def _conditions(seen: Seen, decision: Decision) -> tuple[Condition, ...]:
    ours = {
        MachineCondition.READY: decision.phase in (Phase.SURGING, Phase.REPLACING, Phase.COMPLETED),
        MachineCondition.ON_TIME: decision.is_on_time,
        MachineCondition.REPLACED: decision.phase is Phase.COMPLETED,
    }
    kept = tuple(it for it in seen.record.status.conditions if it.type not in tuple(ours))
    return (*(_condition(seen, decision, kind, holds=holds) for kind, holds in ours.items()), *kept)


def _condition(seen: Seen, decision: Decision, kind: MachineCondition, *, holds: bool) -> Condition:
    before = seen.record.status.condition(kind)
    is_same = before is not None and before.status == str(holds)
    since: datetime | None = before.last_transition_time if before is not None and is_same else None
    is_told = kind is MachineCondition.READY or not holds
    return Condition(
        type=kind,
        status=str(holds),
        reason=decision.reason if is_told else "AsPlanned",
        message=decision.why[:_LONGEST] if kind is MachineCondition.READY else "",
        last_transition_time=since or seen.now.replace(microsecond=0),
    )
