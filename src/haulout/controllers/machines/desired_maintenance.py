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

from haulout.api.machinemaintenance import MachineMaintenance, MachineMaintenanceSpec, object_name
from haulout.api.maintenancenotice import MaintenanceKind, MaintenanceNotice, NoticePhase
from haulout.api.notice_phase import phase_at
from haulout.api.openshift import Machine
from haulout.api.provider_id import machine_key

EVENT_ID_ANNOTATION = "aws.haulout.dev/instance-event"
EVENT_CODES = ("instance-stop", "instance-reboot", "system-reboot", "instance-retirement", "system-maintenance")
_CODE_BY_KIND: dict[str, str] = {
    MaintenanceKind.STOP: "instance-stop",
    MaintenanceKind.TERMINATE: "instance-retirement",
    MaintenanceKind.REBOOT: "instance-reboot",
}
_ENDED_PREFIX = {
    NoticePhase.COMPLETED: "[Completed]",
    NoticePhase.CANCELLED: "[Canceled]",
    NoticePhase.MISSED: "[Completed]",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeFilter:
    """Which notices have a Machine replaced.

    `codes` are what the source itself calls such events; with them, Machines are replaced for reboots, too, as the
    Machine Maintenance Operator does.
    """

    kinds: frozenset[str] = field(default_factory=lambda: frozenset({MaintenanceKind.STOP, MaintenanceKind.TERMINATE}))
    codes: frozenset[str] = frozenset()

    def matches(self, notice: MaintenanceNotice) -> bool:
        """Tell whether this is a reason to replace a Machine."""
        return notice.spec.kind in self.kinds or notice.spec.reason in self.codes


MMO_NOTICE_FILTER = NoticeFilter(kinds=frozenset(), codes=frozenset(EVENT_CODES))


@dataclass(frozen=True, slots=True)
class DesiredMaintenance:
    """A record that is to be written: one that is to be made, or one that is there and says something else."""

    name: str
    spec: MachineMaintenanceSpec
    existing: MachineMaintenance | None = None


def desired_maintenance(
    notice: MaintenanceNotice,
    machine: Machine | None,
    maintenances: Iterable[MachineMaintenance],
    *,
    notice_filter: NoticeFilter,
    now: datetime,
) -> DesiredMaintenance | None:
    """Return the record to write for a notice; None: there is nothing to write."""
    event = event_id(notice)
    existing = _existing_maintenance(maintenances, event, notice, machine)
    notice_state = phase_at(notice.spec, now=now)
    if existing is not None:
        spec = _updated_spec(existing.spec, notice, ended_prefix=_ENDED_PREFIX.get(notice_state.phase, ""))
        return (
            None
            if spec == existing.spec or existing.spec.maintenancescheduled
            else DesiredMaintenance(existing.name, spec, existing)
        )
    if machine is None or machine.is_being_deleted or notice_state.phase.is_over or not notice_filter.matches(notice):
        return None
    base = MachineMaintenanceSpec(
        eventcode=_event_code(notice),
        eventid=event,
        machineid=machine_key(machine.spec.provider_id or notice.spec.provider_id),
        machinelink=machine.name,
    )
    return DesiredMaintenance(object_name(machine.name, event), _updated_spec(base, notice, ended_prefix=""))


def event_id(notice: MaintenanceNotice) -> str:
    """Return what the cloud calls the event; a source that has other names for its notices says so on the side."""
    return notice.metadata.annotations.get(EVENT_ID_ANNOTATION) or notice.spec.notice_id or notice.name


def is_about(notice: MaintenanceNotice, machine: Machine) -> bool:
    """Tell whether a notice is about this Machine."""
    if notice.machine_key:
        # One that names a node, too, is about no other: an agent may write of its own node only.
        is_other = bool(notice.spec.node_name and machine.node) and notice.spec.node_name != machine.node
        return not is_other and notice.machine_key == machine_key(machine.spec.provider_id or "")
    return bool(notice.node) and notice.node == machine.node


def _existing_maintenance(
    maintenances: Iterable[MachineMaintenance], event: str, notice: MaintenanceNotice, machine: Machine | None
) -> MachineMaintenance | None:
    """Return the record of this event for this Machine, which may be gone by now."""
    name, instance = "" if machine is None else machine.name, machine_key(notice.spec.provider_id)
    same_event = (maintenance for maintenance in maintenances if maintenance.spec.eventid == event)
    return next(
        (
            maintenance
            for maintenance in same_event
            if maintenance.spec.machinelink == name or maintenance.spec.machineid == instance
        ),
        None,
    )


def _updated_spec(
    spec: MachineMaintenanceSpec, notice: MaintenanceNotice, *, ended_prefix: str
) -> MachineMaintenanceSpec:
    notice_spec = notice.spec
    if spec.is_over_or_cancelled:  # by us, or by a person who does not want it
        return spec
    description = notice_spec.description or notice_spec.reason
    if ended_prefix and not description.lower().startswith("["):
        description = f"{ended_prefix} {description}".strip()
    return msgspec.structs.replace(
        spec,
        notbefore=notice_spec.start,
        notafter=notice_spec.end,
        notbeforedeadline=notice_spec.deadline,
        description=description,
    )


def _event_code(notice: MaintenanceNotice) -> str:
    spec = notice.spec
    return spec.reason if spec.reason in EVENT_CODES else _CODE_BY_KIND.get(spec.kind, spec.reason)
