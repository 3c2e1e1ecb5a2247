"""The MaintenanceNotice resource: somebody says that a node will need maintenance, and when.

Clouds say so, by the sources in `haulout.notices`; people and other tools may say so too, with `kubectl apply` or
`haulout notice create`. A notice does nothing by itself. Profiles decide what it means, by the check `notice`.

The specification is what was said, and belongs to whoever said it; the status is what we make of it. The schema is
`maintenancenotices.yaml` beside this module.
"""

import hashlib
import re
from datetime import datetime
from enum import StrEnum
from importlib import resources

import msgspec

from haulout.kube.objects import Base, Condition, Object
from haulout.kube.resources import Resource

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,180}[a-z0-9])?")


class Kind(StrEnum):
    """What is going to happen to the machine."""

    REBOOT = "Reboot"
    STOP = "Stop"
    MIGRATE = "Migrate"  # it goes on running, elsewhere
    TERMINATE = "Terminate"
    FREEZE = "Freeze"  # it stands still for some seconds
    UNKNOWN = "Unknown"


class Stage(StrEnum):
    """How far a maintenance is, as its source says; in this order, of which no step is taken back."""

    SCHEDULED = "Scheduled"
    STARTED = "Started"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    ENDED = "Ended"


class Phase(StrEnum):
    """How it stands, as of now."""

    PLANNED = "Planned"
    DUE = "Due"  # it may begin so soon that the node should be empty
    ACTIVE = "Active"
    COMPLETED = "Completed"
    CANCELLED = "Cancelled"
    MISSED = "Missed"  # its time is over, and nobody has said that it began

    @property
    def is_over(self) -> bool:
        """Tell whether nothing more is to be expected."""
        return self in (Phase.COMPLETED, Phase.CANCELLED, Phase.MISSED)


class NoticeCondition(StrEnum):
    """What the status tells more about."""

    NODE_FOUND = "NodeFound"
    ON_TIME = "OnTime"  # whether the node will be empty when it begins
    RESCHEDULED = "Rescheduled"  # whether the source was asked for another time, and what it said


class Spec(Base, frozen=True):
    """What was said."""

    node_name: str = ""
    provider_id: str = msgspec.field(name="providerID", default="")
    source: str = ""
    notice_id: str = msgspec.field(name="noticeID", default="")
    kind: str = Kind.UNKNOWN
    reason: str = ""
    description: str = ""
    start: datetime | None = None  # not before
    end: datetime | None = None  # by when it is expected to be over
    deadline: datetime | None = None  # the latest that it can begin, or be moved to
    reschedulable: bool = False
    stage: str = ""  # empty: nobody will tell, so that times decide
    reported_at: datetime | None = None  # when the source said what is said here about times


class HistoryEntry(Base, frozen=True):
    """Something that happened to a notice."""

    time: datetime | None = None
    who: str = ""
    what: str = ""


class Status(Base, frozen=True):
    """What we make of it."""

    phase: str = ""
    node_name: str = ""  # the node that it is about, once it is known
    start: datetime | None = None  # as the history knows it
    drain_at: datetime | None = None
    predicted_drain_seconds: int = 0  # how long emptying the node has taken so far
    observed_generation: int = 0
    ended_at: datetime | None = None
    conditions: tuple[Condition, ...] = ()
    history: tuple[HistoryEntry, ...] = ()

    def condition(self, kind: NoticeCondition) -> Condition | None:
        """Return one of the conditions."""
        return next((it for it in self.conditions if it.type == kind), None)


class MaintenanceNotice(Object, frozen=True):
    """Somebody says that a node will need maintenance."""

    spec: Spec = Spec()
    status: Status = Status()

    @property
    def node(self) -> str:
        """The name of the node that it is about; empty while that is not known."""
        return self.spec.node_name or self.status.node_name


MAINTENANCE_NOTICES = Resource(
    "haulout.dev", "v1alpha1", "maintenancenotices", "MaintenanceNotice", namespaced=False, model=MaintenanceNotice
)


def name_of(source: str, notice_id: str) -> str:
    """Return the name of the object for a notice: whoever hears of it again meets the same one."""
    readable = f"{source}-{notice_id}"
    if _NAME.fullmatch(readable):
        return readable
    digest = hashlib.sha256(notice_id.encode()).hexdigest()[:32]
    return f"{source}-{digest}"


def definition() -> str:
    """Return the CustomResourceDefinition, as YAML."""
    return resources.files(__package__).joinpath("maintenancenotices.yaml").read_text(encoding="utf-8")
