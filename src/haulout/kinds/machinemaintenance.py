"""The MachineMaintenance resource of the Machine Maintenance Operator: an instance goes, so its Machine is replaced.

Its specification is that operator's, field by field and in its spelling; old objects stay valid. What is new there is
optional. Its status was empty and is ours. The schema is `machinemaintenances.yaml` beside this module.
"""

import hashlib
import re
from datetime import datetime
from enum import StrEnum

import msgspec

from haulout.kube import shipped
from haulout.kube.objects import Base, Object, RawObject, StatusCondition
from haulout.kube.resources import Resource

NAMESPACE = "machine-maintenance-operator"
OVER = ("[completed]", "[canceled]", "[cancelled]")  # how the description of an event begins that is no more
_EVENT_ID = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LONGEST_NAME = 253
_DIGEST = 16


class Phase(StrEnum):
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
        return self in (Phase.COMPLETED, Phase.CANCELLED)


class MachineCondition(StrEnum):
    """What the status tells more about."""

    READY = "Ready"  # whether nothing stands in the way of replacing it now, or nothing is to be done any more
    ON_TIME = "OnTime"  # whether it is replaced before the cloud begins
    REPLACED = "Replaced"
    RECONCILING = "Reconciling"  # only while it is true, like the next one
    STALLED = "Stalled"


BY_PROFILE = "profile"  # an `eventcode`: a profile asks for it, which has begun to maintain the node


class Spec(Base, frozen=True, rename=None):
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
    def is_called_off(self) -> bool:
        """Tell whether the cloud says that it is over, or will not happen."""
        return self.description.lower().startswith(OVER)


class Status(Base, frozen=True):
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

    def condition(self, kind: MachineCondition) -> StatusCondition | None:
        """Return one of the conditions."""
        return next((it for it in self.conditions if it.type == kind), None)


class MachineMaintenance(Object, frozen=True):
    """An instance will be taken away."""

    spec: Spec = Spec()
    status: Status = Status()


MACHINE_MAINTENANCES = Resource(
    "machinemaintenance.managed.openshift.io",
    "v1alpha1",
    "machinemaintenances",
    "MachineMaintenance",
    namespaced=True,
    model=MachineMaintenance,
)


def name_of(machine: str, event_id: str) -> str:
    """Return the name of the object for an event: another event of the same Machine is another object."""
    plain = event_id.removeprefix("instance-event-").lower()
    readable = f"{old_name_of(machine)}-{plain}"
    if _EVENT_ID.fullmatch(plain) and len(readable) <= _LONGEST_NAME:
        return readable
    digest = hashlib.sha256(f"{machine} {event_id}".encode()).hexdigest()[:_DIGEST]
    return f"{old_name_of(machine)[: _LONGEST_NAME - _DIGEST - 1]}-{digest}"


def old_name_of(machine: str) -> str:
    """Return the name that the Machine Maintenance Operator gives its only object for a Machine."""
    return f"mm-{machine}"


def definition() -> RawObject:
    """Return the CustomResourceDefinition."""
    return shipped.definition(__package__, "machinemaintenances.yaml")
