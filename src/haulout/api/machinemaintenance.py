"""The MachineMaintenance resource of the Machine Maintenance Operator: replaces the Machine of a retired instance.

The spec is that operator's, field by field and with its spelling, so existing objects stay valid. Fields that Haulout
adds are optional. That operator has no status; all status fields are Haulout's. The schema is
`machinemaintenances.yaml` in this package.
"""

import hashlib
import re
from datetime import datetime
from enum import StrEnum

import msgspec

from haulout.api import resources
from haulout.api.objects import Base, Object, RawObject, StatusCondition, find_condition
from haulout.api.resources import Resource

NAMESPACE = "machine-maintenance-operator"
OVER_PREFIXES = ("[completed]", "[canceled]", "[cancelled]")  # prefixes of the description of an event that is over
_EVENT_ID = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_MAX_NAME_LENGTH = 253
_DIGEST_LENGTH = 16


class MachineMaintenancePhase(StrEnum):
    """How far the replacement of a Machine has come; only Haulout writes it."""

    PLANNED = "Planned"  # its time has not come
    WAITING = "Waiting"  # its time has come, and something blocks it
    SURGING = "Surging"  # another Machine is created first
    REPLACING = "Replacing"  # the Machine was deleted, and its deletion is not complete
    COMPLETED = "Completed"  # the Machine no longer exists
    CANCELLED = "Cancelled"  # there is nothing to do any more
    REFUSED = "Refused"  # it would do harm, or is invalid; reconciled again when something changes

    @property
    def is_over(self) -> bool:
        return self in (MachineMaintenancePhase.COMPLETED, MachineMaintenancePhase.CANCELLED)


class MachineMaintenanceCondition(StrEnum):
    """The condition types in the status, with the meanings that kstatus expects of the common ones."""

    READY = "Ready"  # nothing blocks the replacement now, or there is nothing to do any more
    ON_TIME = "OnTime"  # the Machine is replaced before the cloud begins
    REPLACED = "Replaced"  # another Machine has replaced it
    RECONCILING = "Reconciling"  # the replacement is in progress; present only while True
    STALLED = "Stalled"  # a person must act; present only while True


PROFILE_EVENT_CODE = "profile"  # an `eventcode`: requested by a profile that has started to maintain the node


class MachineMaintenanceSpec(Base, frozen=True, rename=None):
    """The Machine to replace, and why, with the spelling of the Machine Maintenance Operator."""

    maintenancescheduled: bool = False
    eventcode: str = ""
    eventid: str = ""
    machineid: str = ""
    machinelink: str = ""
    notbefore: datetime | None = None
    notafter: datetime | None = None
    notbeforedeadline: datetime | None = None
    description: str = ""
    surge: bool | None = None  # create another Machine first; None: use the default

    @property
    def is_over_or_cancelled(self) -> bool:
        """Return whether the cloud says that the event is completed or cancelled."""
        return self.description.lower().startswith(OVER_PREFIXES)


class MachineMaintenanceStatus(Base, frozen=True):
    """What Haulout reports. The Machine Maintenance Operator had no status."""

    phase: str = ""
    message: str = ""
    machine_uid: str = msgspec.field(name="machineUID", default="")
    node_name: str = ""
    planned_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    observed_generation: int = 0
    conditions: tuple[StatusCondition, ...] = ()

    def condition(self, kind: MachineMaintenanceCondition) -> StatusCondition | None:
        return find_condition(self.conditions, kind)


class MachineMaintenance(Object, frozen=True):
    """A scheduled retirement of an instance, and the replacement of its Machine."""

    spec: MachineMaintenanceSpec = MachineMaintenanceSpec()
    status: MachineMaintenanceStatus = MachineMaintenanceStatus()


MACHINE_MAINTENANCES = Resource(
    "machinemaintenance.managed.openshift.io",
    "v1alpha1",
    "machinemaintenances",
    "MachineMaintenance",
    namespaced=True,
    model=MachineMaintenance,
)


def object_name(machine: str, event_id: str) -> str:
    """Return the object name for an event. Another event of the same Machine has another name."""
    # The prefix that all event IDs of EC2 have tells nothing.
    plain = event_id.removeprefix("instance-event-").lower()
    readable = f"{legacy_object_name(machine)}-{plain}"
    if _EVENT_ID.fullmatch(plain) and len(readable) <= _MAX_NAME_LENGTH:
        return readable
    digest = hashlib.sha256(f"{machine} {event_id}".encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{legacy_object_name(machine)[: _MAX_NAME_LENGTH - _DIGEST_LENGTH - 1]}-{digest}"


def legacy_object_name(machine: str) -> str:
    """Return the name that the Machine Maintenance Operator gives to its only object for a Machine."""
    # One name per Machine is why that operator could not handle a second event of the same Machine.
    return f"mm-{machine}"


def definition() -> RawObject:
    return resources.load_crd(__package__, "machinemaintenances.yaml")
