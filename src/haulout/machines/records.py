"""Which MachineMaintenance a notice asks for, and what it should say. Pure.

A notice about the node of a Machine becomes a record as the Machine Maintenance Operator writes it. Its name contains
the event, so that another event of the same Machine is another record; one that exists under the old name for the same
event is kept. What becomes of the event afterwards goes into the record's times and description: a record is closed as
the cloud itself closes an event, by a description that begins with [Completed] or [Canceled].
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from haulout.kinds.machinemaintenance import MachineMaintenance, Spec, name_of
from haulout.kinds.machines import machine_key
from haulout.kinds.notice import Kind, MaintenanceNotice
from haulout.kinds.notice import Phase as NoticePhase
from haulout.kinds.openshift import Machine
from haulout.kinds.standing import standing

EVENT_ID = "aws.haulout.dev/instance-event"
CODES = ("instance-stop", "instance-reboot", "system-reboot", "instance-retirement", "system-maintenance")
_CODE_OF: dict[str, str] = {
    Kind.STOP: "instance-stop",
    Kind.TERMINATE: "instance-retirement",
    Kind.REBOOT: "instance-reboot",
}
_ENDED = {NoticePhase.COMPLETED: "[Completed]", NoticePhase.CANCELLED: "[Canceled]", NoticePhase.MISSED: "[Completed]"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Which notices have a Machine replaced.

    `codes` are what the source itself calls such events; with them, Machines are replaced for reboots, too, as the
    Machine Maintenance Operator does.
    """

    kinds: frozenset[str] = field(default_factory=lambda: frozenset({Kind.STOP, Kind.TERMINATE}))
    codes: frozenset[str] = frozenset()

    def concerns(self, notice: MaintenanceNotice) -> bool:
        """Tell whether this is a reason to replace a Machine."""
        return notice.spec.kind in self.kinds or notice.spec.reason in self.codes


LIKE_MMO = Policy(kinds=frozenset(), codes=frozenset(CODES))


@dataclass(frozen=True, slots=True)
class Wanted:
    """A record that is to be written: one that is to be made, or one that is there and says something else."""

    name: str
    spec: Spec
    found: MachineMaintenance | None = None


def wanted(
    notice: MaintenanceNotice,
    machine: Machine | None,
    records: Iterable[MachineMaintenance],
    *,
    policy: Policy,
    now: datetime,
) -> Wanted | None:
    """Return the record to write for a notice; None: there is nothing to write."""
    event = event_id(notice)
    found = _found(records, event, notice, machine)
    stand = standing(notice.spec, now=now)
    if found is not None:
        spec = _told(found.spec, notice, ended=_ENDED.get(stand.phase, ""))
        return None if spec == found.spec or found.spec.maintenancescheduled else Wanted(found.name, spec, found)
    if machine is None or machine.is_leaving or stand.phase.is_over or not policy.concerns(notice):
        return None
    base = Spec(
        eventcode=_code(notice),
        eventid=event,
        machineid=machine_key(machine.spec.provider_id or notice.spec.provider_id),
        machinelink=machine.name,
    )
    return Wanted(name_of(machine.name, event), _told(base, notice, ended=""))


def event_id(notice: MaintenanceNotice) -> str:
    """Return what the cloud calls the event; a source that has other names for its notices says so on the side."""
    return notice.metadata.annotations.get(EVENT_ID) or notice.spec.notice_id or notice.name


def is_about(notice: MaintenanceNotice, machine: Machine) -> bool:
    """Tell whether a notice is about this Machine."""
    if notice.machine:
        # One that names a node, too, is about no other: an agent may write of its own node only.
        is_other = bool(notice.spec.node_name and machine.node) and notice.spec.node_name != machine.node
        return not is_other and notice.machine == machine_key(machine.spec.provider_id or "")
    return bool(notice.node) and notice.node == machine.node


def _found(
    records: Iterable[MachineMaintenance], event: str, notice: MaintenanceNotice, machine: Machine | None
) -> MachineMaintenance | None:
    """Return the record of this event for this Machine, which may be gone by now."""
    name, instance = "" if machine is None else machine.name, machine_key(notice.spec.provider_id)
    of_event = (it for it in records if it.spec.eventid == event)
    return next((it for it in of_event if it.spec.machinelink == name or it.spec.machineid == instance), None)


def _told(spec: Spec, notice: MaintenanceNotice, *, ended: str) -> Spec:
    said = notice.spec
    if spec.is_called_off:  # by us, or by a person who does not want it
        return spec
    description = said.description or said.reason
    if ended and not description.lower().startswith("["):
        description = f"{ended} {description}".strip()
    return msgspec.structs.replace(
        spec,
        notbefore=said.start,
        notafter=said.end,
        notbeforedeadline=said.deadline,
        description=description,
    )


def _code(notice: MaintenanceNotice) -> str:
    said = notice.spec
    return said.reason if said.reason in CODES else _CODE_OF.get(said.kind, said.reason)
