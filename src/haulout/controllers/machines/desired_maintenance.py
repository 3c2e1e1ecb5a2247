"""Which MachineMaintenance a MaintenanceNotice requires, and with which spec. Pure.

A notice about the node of a Machine becomes a MachineMaintenance as the Machine Maintenance Operator writes it. Its
name contains the event, so that another event of the same Machine is another object; an object under the old name for
the same event is kept. Later changes of the event update times and description: an object is closed as the cloud itself
closes an event, by a description that begins with [Completed] or [Canceled].
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from haulout.api import annotations
from haulout.api.machinemaintenance import MachineMaintenance, MachineMaintenanceSpec, object_name
from haulout.api.maintenancenotice import MaintenanceKind, MaintenanceNotice, NoticePhase, phase_at
from haulout.api.objects import machine_key
from haulout.api.openshift import Machine

EVENT_ID_ANNOTATION = annotations.AWS_INSTANCE_EVENT
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
    """Which notices cause the replacement of a Machine.

    `codes` are the event codes of the source. With them, Machines are replaced for reboots, too, as the Machine
    Maintenance Operator does.
    """

    kinds: frozenset[str] = field(default_factory=lambda: frozenset({MaintenanceKind.STOP, MaintenanceKind.TERMINATE}))
    codes: frozenset[str] = frozenset()

    def matches(self, notice: MaintenanceNotice) -> bool:
        """Return whether this notice causes a replacement."""
        return notice.spec.kind in self.kinds or notice.spec.reason in self.codes


@dataclass(frozen=True, slots=True)
class DesiredMaintenance:
    """A MachineMaintenance to create, or to update if `existing` is set."""

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
    """Return the object to write for a notice; None if there is nothing to write."""
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
    """Return the cloud's ID of the event. A source whose notices have other names supplies it as an annotation."""
    return notice.metadata.annotations.get(EVENT_ID_ANNOTATION) or notice.spec.notice_id or notice.name


def is_about(notice: MaintenanceNotice, machine: Machine) -> bool:
    if notice.machine_key:
        # A notice that also names a node applies to that node only, because an agent may report about its own node
        # only.
        is_other = bool(notice.spec.node_name and machine.node) and notice.spec.node_name != machine.node
        return not is_other and notice.machine_key == machine_key(machine.spec.provider_id or "")
    return bool(notice.node) and notice.node == machine.node


def _existing_maintenance(
    maintenances: Iterable[MachineMaintenance], event: str, notice: MaintenanceNotice, machine: Machine | None
) -> MachineMaintenance | None:
    """Return the object of this event for this Machine, which may be gone by now."""
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
    if spec.is_over_or_cancelled:  # closed by us, or by a user who does not want the replacement
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
