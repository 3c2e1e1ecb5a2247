"""The MachineMaintenance resource of the Machine Maintenance Operator: an instance goes, so its Machine is replaced.

Its specification is that operator's, field by field and in its spelling; old objects stay valid. What is new there is
optional. Its status was empty and is ours. The schema is `machinemaintenances.yaml` beside this module.
"""

import hashlib
import re
from datetime import datetime
from enum import StrEnum

import msgspec

from haulout.api import crds
from haulout.api.objects import Base, Object, RawObject, StatusCondition
from haulout.api.resources import Resource

NAMESPACE = "machine-maintenance-operator"
OVER_PREFIXES = ("[completed]", "[canceled]", "[cancelled]")  # how the description of an event begins that is no more
_EVENT_ID = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_MAX_NAME_LENGTH = 253
_DIGEST_LENGTH = 16


class MachineMaintenancePhase(StrEnum):
    """How it stands."""

    PLANNED = "Planned"  # its time has not come
    WAITING = "Waiting"  # it has, and something stands in the way
    SURGING = "Surging"  # another Machine is made first
    REPLACING = "Replacing"  # the Machine was told to go
    COMPLETED = "Completed"  # the Machine is gone
    CANCELLED = "Cancelled"  # nothing is to be done any more
    REFUSED = "Refused"  # it would do harm, or makes no sense; looked at again when something changes

    @property
    def is_over(self) -> bool:
        """Tell whether nothing more will happen."""
        return self in (MachineMaintenancePhase.COMPLETED, MachineMaintenancePhase.CANCELLED)


class MachineMaintenanceCondition(StrEnum):
    """What the status tells more about."""

    READY = "Ready"  # whether nothing stands in the way of replacing it now, or nothing is to be done any more
    ON_TIME = "OnTime"  # whether it is replaced before the cloud begins
    REPLACED = "Replaced"
    RECONCILING = "Reconciling"  # only while it is true, like the next one
    STALLED = "Stalled"


PROFILE_EVENT_CODE = "profile"  # an `eventcode`: a profile asks for it, which has begun to maintain the node


class MachineMaintenanceSpec(Base, frozen=True, rename=None):
    """What is to be replaced, and why; in the spelling of the Machine Maintenance Operator."""

    maintenancescheduled: bool = False
    eventcode: str = ""
    eventid: str = ""
    machineid: str = ""
    machinelink: str = ""
    notbefore: datetime | None = None
    notafter: datetime | None = None
    notbeforedeadline: datetime | None = None
    description: str = ""
    surge: bool | None = None  # another Machine first; None: as is usual here

    @property
    def is_over_or_cancelled(self) -> bool:
        """Tell whether the cloud says that it is over, or will not happen."""
        return self.description.lower().startswith(OVER_PREFIXES)


class MachineMaintenanceStatus(Base, frozen=True):
    """How it stands."""

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
        """Return one of the conditions."""
        return next((condition for condition in self.conditions if condition.type == kind), None)


class MachineMaintenance(Object, frozen=True):
    """An instance will be taken away."""

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
    """Return the name of the object for an event: another event of the same Machine is another object."""
    plain = event_id.removeprefix("instance-event-").lower()
    readable = f"{legacy_object_name(machine)}-{plain}"
    if _EVENT_ID.fullmatch(plain) and len(readable) <= _MAX_NAME_LENGTH:
        return readable
    digest = hashlib.sha256(f"{machine} {event_id}".encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{legacy_object_name(machine)[: _MAX_NAME_LENGTH - _DIGEST_LENGTH - 1]}-{digest}"


def legacy_object_name(machine: str) -> str:
    """Return the name that the Machine Maintenance Operator gives its only object for a Machine."""
    return f"mm-{machine}"


def definition() -> RawObject:
    """Return the CustomResourceDefinition."""
    return crds.load_crd(__package__, "machinemaintenances.yaml")
