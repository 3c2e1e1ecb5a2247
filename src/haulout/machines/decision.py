"""What to do about a MachineMaintenance: one step, why, and when to look again. Pure.

The way of a Machine: a claim on its set; the record says which Machine it is; the Machine is told to go; the flag is
set; it is gone. With a surge: the claim scales the set up; when the new node is Ready the old Machine is marked, and
the set scaled down, which deletes it. Each step is found from what the objects say: any process can take the next.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from haulout.kinds.hold import HELD, Hold
from haulout.kinds.machinemaintenance import MachineMaintenance, Phase, Spec
from haulout.kinds.openshift import DELETE_FIRST, Machine, MachineSet
from haulout.kinds.standing import LEAD
from haulout.machines.claims import Claim, Stage, claim_for
from haulout.machines.obstacles import Obstacle, obstacle, refusal, unwhole
from haulout.machines.seen import Decision, Seen
from haulout.machines.steps import Begin, DeleteMachine, Mark, SetFlag, Step, TakeClaim
from haulout.machines.timing import timing, told

_ASKED_AGAIN = timedelta(minutes=5)  # nobody tells when the ControlPlaneMachineSet changes


def decide(seen: Seen) -> Decision:
    """Return what to do now."""
    decision = _decide(seen)
    looks = [decision.next_look]
    if not decision.phase.is_over and decision.phase is not Phase.REPLACING:
        looks.append(seen.record.spec.notafter)
    if seen.is_control_plane and decision.phase in (Phase.WAITING, Phase.REFUSED):
        looks.append(seen.now + _ASKED_AGAIN)
    return replace(decision, next_look=min((it for it in looks if it is not None), default=None))


def _decide(seen: Seen) -> Decision:
    record, machine = seen.record, seen.machine
    if record.status.phase == Phase.COMPLETED:
        return _completed(record)
    if machine is None or record.status.machine_uid not in ("", machine.uid):
        return _without_machine(seen)
    was_told = record.spec.maintenancescheduled and record.status.machine_uid == machine.uid  # our copy may be old
    if machine.is_leaving or was_told:
        return _leaving(record, machine)
    over = closed(record, now=seen.now)
    if over:
        return Decision(phase=Phase.CANCELLED, reason="CalledOff", why=over)
    refused = refusal(seen, machine)
    if refused is not None or seen.owner is None:
        return _held(Phase.REFUSED, refused or Obstacle("NoController", "it has no controller"))
    return _go_on(seen, machine, seen.owner)


def closed(record: MachineMaintenance, *, now: datetime) -> str:
    """Return why nothing is to be done about a record, or empty: its Machine is to be replaced."""
    spec = record.spec
    if record.status.phase == Phase.COMPLETED:
        return "it is completed"
    if spec.maintenancescheduled:
        return "maintenancescheduled is true, so the Machine was told to go already; false has it replaced"
    if spec.is_called_off:
        return f"the cloud says: {spec.description}"
    if spec.notafter is not None and spec.notafter <= now:
        return f"the event was over at {told(spec.notafter)}"
    return ""


# The end


def _completed(record: MachineMaintenance) -> Decision:
    return Decision(phase=Phase.COMPLETED, reason="MachineGone", why=record.status.message)


def _without_machine(seen: Seen) -> Decision:
    record = seen.record
    name = record.spec.machinelink
    if record.status.phase == Phase.CANCELLED and not (record.status.machine_uid and record.spec.maintenancescheduled):
        return Decision(phase=Phase.CANCELLED, reason="CalledOff", why=record.status.message)
    if record.status.machine_uid and not record.spec.maintenancescheduled:
        gone = Decision(phase=Phase.REPLACING, reason="MachineDeleted", why=f"Machine {name} is gone")
        return replace(gone, step=SetFlag(record))
    if record.status.machine_uid or record.spec.maintenancescheduled:
        return Decision(phase=Phase.COMPLETED, reason="MachineGone", why=f"Machine {name} is gone")
    over = closed(record, now=seen.now)
    if over:
        return Decision(phase=Phase.CANCELLED, reason="CalledOff", why=over)
    return _held(Phase.REFUSED, Obstacle("NoMachine", f"there is no Machine {name}", is_bad=True))


def _leaving(record: MachineMaintenance, machine: Machine) -> Decision:
    hooks = [it.name for it in machine.spec.lifecycle_hooks.pre_drain]
    waiting = f", which waits for its hooks {', '.join(hooks)}" if hooks else ""
    where = f"node {machine.node} is emptied and ended" if machine.node else "its instance is ended"
    why = f"Machine {machine.name} was told to go: {where} by the Machine API{waiting}"
    step: Step | None = None
    if record.status.machine_uid != machine.uid:
        step = Begin(record, machine)
    elif not record.spec.maintenancescheduled:
        step = SetFlag(record)
    return Decision(phase=Phase.REPLACING, reason="MachineDeleted", why=why, step=step)


# The way


def _go_on(seen: Seen, machine: Machine, owner: MachineSet) -> Decision:
    claim = seen.claim
    if claim is None or claim.uid != machine.uid:
        return _claim(seen, machine, owner)
    match claim.stage:
        case Stage.UP:
            return _with_surge(seen, machine, owner, claim)
        case Stage.DOWN:
            return _scaled_down(seen, machine, owner)
    held = obstacle(seen, machine, owner)
    if held is not None:
        return _held(Phase.WAITING, held)
    if claim.version != machine.resource_version:
        return _next(TakeClaim(owner, claim_for(machine, surge=False)), f"Machine {machine.name} is next")
    return _delete(seen, machine)


def _claim(seen: Seen, machine: Machine, owner: MachineSet) -> Decision:
    time = timing(seen.record.spec, terms=seen.terms, now=seen.now)
    if not time.has_come:
        return Decision(
            phase=Phase.PLANNED,
            reason="NotYet",
            why=time.why,
            next_look=time.until,
            is_bad=not time.is_on_time,
            is_on_time=time.is_on_time,
        )
    if seen.hold is not None:
        return _kept_off(seen, machine, seen.hold)
    held = obstacle(seen, machine, owner)
    if held is not None:
        return _held(Phase.WAITING, held)
    surge = seen.may_surge
    wanted = owner.replicas + 1 if surge else None
    why = f"Machine {machine.name} is next" + (f"; {owner.name} makes another one first" if surge else "")
    return _next(TakeClaim(owner, claim_for(machine, surge=surge), wanted), why, surge=surge)


def _kept_off(seen: Seen, machine: Machine, hold: Hold) -> Decision:
    """Wait for a person who keeps maintenance off the node; the cloud does not, and that is said."""
    begins = seen.record.spec.notbefore
    is_on_time = begins is None or (hold.until is not None and hold.until < begins)
    late = "" if is_on_time else f"; the cloud begins at {told(begins)}, and does not wait"
    return Decision(
        phase=Phase.WAITING,
        reason=HELD,
        why=f"node {machine.node} is {hold}{late}",
        next_look=hold.until,
        is_bad=not is_on_time,
        is_on_time=is_on_time,
    )


def _delete(seen: Seen, machine: Machine) -> Decision:
    why = f"Machine {machine.name} is told to go"
    if seen.record.status.machine_uid != machine.uid:
        return _next(Begin(seen.record, machine), why)
    return _next(DeleteMachine(machine), why)


def _with_surge(seen: Seen, machine: Machine, owner: MachineSet, claim: Claim) -> Decision:
    late = _is_late(seen.record.spec, seen.now)
    lacks = unwhole(owner, seen.peers, but=machine.uid)
    if lacks is not None and not late:
        begins = None if seen.record.spec.notbefore is None else seen.record.spec.notbefore - LEAD
        why = f"{owner.name} makes another Machine first; {lacks.why}"
        return Decision(phase=Phase.SURGING, reason="Surging", why=why, next_look=begins)
    why = f"Machine {machine.name} is told to go" + (", since the cloud will not wait" if lacks else "")
    if seen.record.status.machine_uid != machine.uid:
        return _next(Begin(seen.record, machine), why, surge=True)
    if DELETE_FIRST not in machine.metadata.annotations:
        return _next(Mark(machine), why, surge=True)
    down = Claim(machine=claim.machine, uid=claim.uid, version=machine.resource_version, stage=Stage.DOWN)
    return _next(TakeClaim(owner, down, max(owner.replicas - 1, 0)), why, surge=True)


def _scaled_down(seen: Seen, machine: Machine, owner: MachineSet) -> Decision:
    """Wait for the set to delete the Machine; should it have chosen another one, delete it ourselves."""
    staying = sum(not it.machine.is_leaving for it in seen.peers)
    if owner.status.observed_generation >= owner.metadata.generation and staying <= owner.replicas:
        return _delete(seen, machine)
    why = f"{owner.name} is scaled down and deletes Machine {machine.name}"
    return Decision(phase=Phase.SURGING, reason="Surging", why=why)


def _is_late(spec: Spec, now: datetime) -> bool:
    return spec.notbefore is not None and spec.notbefore - LEAD <= now


def _held(phase: Phase, found: Obstacle) -> Decision:
    return Decision(phase=phase, reason=found.reason, why=found.why, is_bad=found.is_bad)


def _next(step: Step, why: str, *, surge: bool = False) -> Decision:
    if surge:
        return Decision(phase=Phase.SURGING, reason="Surging", why=why, step=step)
    return Decision(phase=Phase.WAITING, reason="Next", why=why, step=step)
