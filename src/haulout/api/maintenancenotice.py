"""The MaintenanceNotice resource: somebody says that a node will need maintenance, and when.

Clouds say so, by the sources in `haulout.controllers.notices`; people and other tools may say so too, with `kubectl
apply` or `haulout notice create`. A notice does nothing by itself. Profiles decide what it means, by the check
`maintenancenotice`.

The specification is what was said, and belongs to whoever said it; the status is what we make of it. The schema is
`maintenancenotices.yaml` beside this module.
"""

import hashlib
import re
from datetime import datetime
from enum import StrEnum

import msgspec

from haulout.api import crds
from haulout.api.objects import Base, Node, Object, RawObject, StatusCondition
from haulout.api.provider_id import machine_key
from haulout.api.resources import Resource

_NAME = re.compile(r"(?=.{1,182}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_MAX_READABLE = 30  # characters
_DIGEST_LENGTH = 16  # which tell ids apart that are legible alike


class MaintenanceKind(StrEnum):
    """What is going to happen to the machine."""

    REBOOT = "Reboot"
    STOP = "Stop"
    MIGRATE = "Migrate"  # it goes on running, elsewhere
    TERMINATE = "Terminate"
    FREEZE = "Freeze"  # it stands still for some seconds
    UNKNOWN = "Unknown"


class NoticeStage(StrEnum):
    """How far a maintenance is, as its source says; in this order, of which no step is taken back."""

    SCHEDULED = "Scheduled"
    STARTED = "Started"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    ENDED = "Ended"


class NoticePhase(StrEnum):
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
        return self in (NoticePhase.COMPLETED, NoticePhase.CANCELLED, NoticePhase.MISSED)


class NoticeCondition(StrEnum):
    """What the status tells more about."""

    NODE_FOUND = "NodeFound"
    ON_TIME = "OnTime"  # whether the node will be empty when it begins
    EMPTIED = "Emptied"  # whether the node was emptied for it, so that it may begin before its time
    EARLY_START = "EarlyStart"  # whether the source was told to begin then, and what it said
    RESCHEDULED = "Rescheduled"  # whether the source was asked for another time, and what it said
    READY = "Ready"  # whether nothing is to be done about it now
    RECONCILING = "Reconciling"  # only while it is true, like the next one
    STALLED = "Stalled"


class MaintenanceNoticeSpec(Base, frozen=True):
    """What was said."""

    node_name: str = ""
    provider_id: str = msgspec.field(name="providerID", default="")
    machine_name: str = ""  # what people call the machine: some nodes can be found by it only
    source: str = ""
    notice_id: str = msgspec.field(name="noticeID", default="")
    kind: str = MaintenanceKind.UNKNOWN
    reason: str = ""
    description: str = ""
    start: datetime | None = None  # not before
    end: datetime | None = None  # by when it is expected to be over
    deadline: datetime | None = None  # the latest that it can begin, or be moved to
    reschedulable: bool = False
    stage: str = ""  # empty: nobody will tell, so that times decide
    reported_at: datetime | None = None  # when the source said what is said here about times


class NoticeHistoryEntry(Base, frozen=True):
    """Something that happened to a notice."""

    time: datetime | None = None
    who: str = ""
    what: str = ""


class Reschedule(Base, frozen=True):
    """That the source was asked for another time; what it said is the condition Rescheduled."""

    from_: datetime | None = msgspec.field(name="from", default=None)  # the start that did not fit
    to: datetime | None = None
    asked: int = 0  # for how many starts of this maintenance, this one among them


class MaintenanceNoticeStatus(Base, frozen=True):
    """What we make of it."""

    phase: str = ""
    node_name: str = ""  # the node that it is about, once it is known; also when that is gone
    provider_id: str = msgspec.field(name="providerID", default="")  # its machine, if only the node was named
    start: datetime | None = None  # as the history knows it
    start_known_at: datetime | None = None  # since when that is its start
    empty_since: datetime | None = None  # as far as we looked; none: pods were left then
    reschedule: Reschedule | None = None
    drain_at: datetime | None = None
    predicted_drain_seconds: int = 0  # how long emptying the node has taken so far
    observed_generation: int = 0
    ended_at: datetime | None = None
    conditions: tuple[StatusCondition, ...] = ()
    history: tuple[NoticeHistoryEntry, ...] = ()

    def condition(self, kind: NoticeCondition) -> StatusCondition | None:
        """Return one of the conditions."""
        return next((condition for condition in self.conditions if condition.type == kind), None)


class MaintenanceNotice(Object, frozen=True):
    """Somebody says that a node will need maintenance."""

    spec: MaintenanceNoticeSpec = MaintenanceNoticeSpec()
    status: MaintenanceNoticeStatus = MaintenanceNoticeStatus()

    @property
    def node(self) -> str:
        """The name of the node that it is about; empty while that is not known."""
        return self.spec.node_name or self.status.node_name

    @property
    def machine_key(self) -> str:
        """The key of the machine that it is about; empty while that is not known."""
        status = self.status
        found = status.provider_id if status.node_name == self.spec.node_name else ""
        return machine_key(self.spec.provider_id or found)

    def matches_node(self, node: Node) -> bool:
        """Tell whether a node that has the name may be meant: others get the names of machines that are gone."""
        noticed_machine, node_machine = self.machine_key, machine_key(node.spec.provider_id)
        return not noticed_machine or not node_machine or noticed_machine == node_machine


MAINTENANCE_NOTICES = Resource(
    "haulout.dev", "v1alpha1", "maintenancenotices", "MaintenanceNotice", namespaced=False, model=MaintenanceNotice
)


def object_name(source: str, notice_id: str) -> str:
    """Return the name of the object for a notice: whoever hears of it again meets the same one."""
    readable = f"{source}-{notice_id}"
    if _NAME.fullmatch(readable):
        return readable
    digest = hashlib.sha256(notice_id.encode()).hexdigest()[:_DIGEST_LENGTH]
    return "-".join(filter(None, (source, _readable(notice_id), digest)))


def _readable(notice_id: str) -> str:
    """Return what a person recognises an id by, of which a name could be made: `CHG 17/b` is `chg-17-b`."""
    return re.sub(r"[^a-z0-9]+", "-", notice_id.lower())[:_MAX_READABLE].strip("-")


def definition() -> RawObject:
    """Return the CustomResourceDefinition."""
    return crds.load_crd(__package__, "maintenancenotices.yaml")
