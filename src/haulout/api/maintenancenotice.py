"""The MaintenanceNotice resource: an announcement that a node will need maintenance, and when.

Notices come from clouds, through the sources in `haulout.controllers.notices`, and from people and other tools, with
`kubectl apply` or `haulout notice create`. A notice does nothing by itself. Profiles decide what it means, with the
check `maintenancenotice`.

The spec belongs to the source of the notice; Haulout writes the status. The schema is `maintenancenotices.yaml` in this
package.

`phase_at` returns the phase of a notice at an instant, and when it changes by itself:

    found = phase_at(notice.spec, now=now, lead=timedelta(minutes=15))
    found.phase, found.message, found.until

If a source reports progress (it sets `stage`), only the source decides that a maintenance begins or ends, never the
clock. Otherwise `start` and `end` decide. A scheduled maintenance without any report until its end is missed: it was
dropped, or the source no longer reports.

An early start is a record on a notice that its source was asked to begin early, because the node is empty:

    record = early_start_of(notice)           # None: the source was not asked

The record is an annotation, not part of the status: an agent on the node may be the one who asks the cloud, and agents
may write notices about their own node but not their status. The operator shows the record as the condition EarlyStart,
and in the history.
"""

import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import msgspec

from haulout.api import annotations, resources
from haulout.api.objects import Base, Node, Object, RawObject, StatusCondition, find_condition, machine_key
from haulout.api.resources import Resource
from haulout.core.text import format_instant

_NAME = re.compile(r"(?=.{1,182}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_MAX_READABLE = 30  # characters of the notice ID in an object name
_DIGEST_LENGTH = 16  # characters; they distinguish IDs with the same readable part

DEFAULT_LEAD = timedelta(minutes=15)
_MIN_INSTANT = datetime.min.replace(tzinfo=UTC)

EARLY_START_ANNOTATION = annotations.EARLY_START


class MaintenanceKind(StrEnum):
    """What will happen to the machine, in words that cover all clouds."""

    REBOOT = "Reboot"
    STOP = "Stop"
    MIGRATE = "Migrate"  # the machine keeps running on another host
    TERMINATE = "Terminate"
    FREEZE = "Freeze"  # the machine pauses for some seconds
    UNKNOWN = "Unknown"


class NoticeStage(StrEnum):
    """The progress of a maintenance, as its source reports it.

    The order is that of time, and a stage never goes back.
    """

    SCHEDULED = "Scheduled"
    STARTED = "Started"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    ENDED = "Ended"


FINISHED_STAGES = (NoticeStage.CANCELLED, NoticeStage.ENDED)


class NoticePhase(StrEnum):
    """The phase of a notice, derived from the stage that its source reports, or from time."""

    PLANNED = "Planned"
    DUE = "Due"  # it may begin so soon that the node should be drained
    ACTIVE = "Active"
    COMPLETED = "Completed"
    CANCELLED = "Cancelled"
    MISSED = "Missed"  # its time is over, and its source never reported that it began

    @property
    def is_over(self) -> bool:
        return self in (NoticePhase.COMPLETED, NoticePhase.CANCELLED, NoticePhase.MISSED)


class NoticeCondition(StrEnum):
    """The condition types in the status, with the meanings that kstatus expects of the common ones."""

    NODE_FOUND = "NodeFound"  # a node matches the notice
    ON_TIME = "OnTime"  # the node will be drained before the start
    EMPTIED = "Emptied"  # the node was drained for it, so that it may begin early
    EARLY_START = "EarlyStart"  # the source was asked to begin early, and its answer
    RESCHEDULED = "Rescheduled"  # the source was asked for another time, and its answer
    READY = "Ready"  # there is nothing to do about it now
    RECONCILING = "Reconciling"  # the node is being drained for it; present only while True
    STALLED = "Stalled"  # a person must act; present only while True


class MaintenanceNoticeSpec(Base, frozen=True):
    """What the source announced. Haulout writes it only on behalf of a source."""

    node_name: str = ""
    provider_id: str = msgspec.field(name="providerID", default="")
    machine_name: str = ""  # a display name of the machine; some nodes can be found only by it
    source: str = ""
    notice_id: str = msgspec.field(name="noticeID", default="")
    kind: str = MaintenanceKind.UNKNOWN
    reason: str = ""
    description: str = ""
    start: datetime | None = None  # earliest start
    end: datetime | None = None  # expected end
    deadline: datetime | None = None  # latest time to which it can be rescheduled, or at which it begins
    reschedulable: bool = False
    stage: str = ""  # empty: the source does not report progress, so `start` and `end` decide
    reported_at: datetime | None = None  # when the source reported the plan


class NoticeHistoryEntry(Base, frozen=True):
    """An entry in the history of a notice: who did or reported what."""

    time: datetime | None = None
    reporter: str = ""  # the source, or `haulout`
    message: str = ""


class Reschedule(Base, frozen=True):
    """A request to the source for another time. The condition Rescheduled has its answer."""

    from_: datetime | None = msgspec.field(name="from", default=None)  # the start that did not fit
    to: datetime | None = None
    attempts: int = 0  # the number of starts of this maintenance for which the source was asked, including this one


class MaintenanceNoticeStatus(Base, frozen=True):
    """What Haulout makes of the notice: the affected node, its phase, and the drain."""

    phase: str = ""
    node_name: str = ""  # the affected node once it is known; kept after the node's deletion
    provider_id: str = msgspec.field(name="providerID", default="")  # of its machine, if the spec has only the node
    start: datetime | None = None  # the start in the history
    start_known_at: datetime | None = None  # since when this start is known
    empty_since: datetime | None = None  # since when the node is drained, as last observed; None: it had pods left
    reschedule: Reschedule | None = None
    drain_at: datetime | None = None
    predicted_drain_seconds: int = 0  # how long drains of this node have taken so far
    observed_generation: int = 0
    ended_at: datetime | None = None
    conditions: tuple[StatusCondition, ...] = ()
    history: tuple[NoticeHistoryEntry, ...] = ()

    def condition(self, kind: NoticeCondition) -> StatusCondition | None:
        return find_condition(self.conditions, kind)


def drain_at(spec: MaintenanceNoticeSpec, *, lead: timedelta) -> datetime | None:
    """Return when the drain of the node should begin; None: at once."""
    return None if spec.start is None else _subtract(spec.start, lead)


def _subtract(instant: datetime, by: timedelta) -> datetime:
    """Return `instant - by`; the minimum instant if that is before the year 1."""
    try:
        return instant - by
    except OverflowError:
        return _MIN_INSTANT


class MaintenanceNotice(Object, frozen=True):
    """An announcement that a node will need maintenance."""

    spec: MaintenanceNoticeSpec = MaintenanceNoticeSpec()
    status: MaintenanceNoticeStatus = MaintenanceNoticeStatus()

    @property
    def node(self) -> str:
        """The name of the affected node; empty while it is unknown."""
        return self.spec.node_name or self.status.node_name

    @property
    def machine_key(self) -> str:
        """The key of the affected machine; empty while it is unknown."""
        status = self.status
        found = status.provider_id if status.node_name == self.spec.node_name else ""
        return machine_key(self.spec.provider_id or found)

    def matches_node(self, node: Node) -> bool:
        """Return whether the notice may be about this node, which has the same name.

        A new machine may get the name of a deleted one, so known machine keys must match.
        """
        noticed_machine, node_machine = self.machine_key, machine_key(node.spec.provider_id)
        # In doubt it is about this node: an unnecessary drain does less harm than a reboot under running pods.
        return not noticed_machine or not node_machine or noticed_machine == node_machine


MAINTENANCE_NOTICES = Resource(
    "haulout.dev", "v1alpha1", "maintenancenotices", "MaintenanceNotice", namespaced=False, model=MaintenanceNotice
)


def object_name(source: str, notice_id: str) -> str:
    """Return the object name for a notice. It is the same for each report of this notice."""
    readable = f"{source}-{notice_id}"
    if _NAME.fullmatch(readable):
        return readable
    # IDs of clouds may contain slashes, colons and upper case, which object names may not.
    digest = hashlib.sha256(notice_id.encode()).hexdigest()[:_DIGEST_LENGTH]
    return "-".join(filter(None, (source, _readable(notice_id), digest)))


def _readable(notice_id: str) -> str:
    """Return the part of an ID that is readable in an object name: `CHG 17/b` becomes `chg-17-b`."""
    return re.sub(r"[^a-z0-9]+", "-", notice_id.lower())[:_MAX_READABLE].strip("-")


def definition() -> RawObject:
    return resources.load_crd(__package__, "maintenancenotices.yaml")


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseStatus:
    """A phase, its reason, and when it changes without further reports. `until` is None if it does not."""

    phase: NoticePhase
    message: str
    until: datetime | None = None


def phase_at(spec: MaintenanceNoticeSpec, *, now: datetime, lead: timedelta = DEFAULT_LEAD) -> PhaseStatus:
    match spec.stage:
        case NoticeStage.ENDED:
            return PhaseStatus(phase=NoticePhase.COMPLETED, message=f"{_source_name(spec)} reports that it has ended")
        case NoticeStage.CANCELLED:
            return PhaseStatus(
                phase=NoticePhase.CANCELLED, message=f"{_source_name(spec)} reports that it was cancelled"
            )
        case NoticeStage.FAILED:
            message = (
                f"{_source_name(spec)} reports that it failed: the node stays out of service until spec.stage is Ended"
            )
            return PhaseStatus(phase=NoticePhase.ACTIVE, message=message)
        case NoticeStage.STARTED:
            return _started_phase(spec, now)
    return _phase_by_time(spec, now, lead)


def _started_phase(spec: MaintenanceNoticeSpec, now: datetime) -> PhaseStatus:
    if spec.end is None:
        return PhaseStatus(phase=NoticePhase.ACTIVE, message="it has begun")
    if now < spec.end:
        return PhaseStatus(
            phase=NoticePhase.ACTIVE,
            message=f"it has begun and should end by {format_instant(spec.end)}",
            until=spec.end,
        )
    return PhaseStatus(
        phase=NoticePhase.ACTIVE,
        message=f"it should have ended by {format_instant(spec.end)}, but is still in progress",
    )


def _phase_by_time(spec: MaintenanceNoticeSpec, now: datetime, lead: timedelta) -> PhaseStatus:
    if spec.end is not None and now >= spec.end:
        return _past_end_phase(spec, spec.end)
    if spec.start is None:
        return PhaseStatus(phase=NoticePhase.DUE, message="it may begin at any moment", until=spec.end)
    due_at = _subtract(spec.start, lead)
    if now < due_at:
        return PhaseStatus(
            phase=NoticePhase.PLANNED,
            message=f"it begins at {format_instant(spec.start)} at the earliest",
            until=due_at,
        )
    if now < spec.start:
        return PhaseStatus(
            phase=NoticePhase.DUE, message=f"it begins at {format_instant(spec.start)}", until=spec.start
        )
    if spec.stage:
        message = (
            f"it may have begun at {format_instant(spec.start)}, but {_source_name(spec)} has not reported that yet"
        )
        return PhaseStatus(phase=NoticePhase.DUE, message=message, until=spec.end)
    return PhaseStatus(phase=NoticePhase.ACTIVE, message=f"it began at {format_instant(spec.start)}", until=spec.end)


def _past_end_phase(spec: MaintenanceNoticeSpec, end: datetime) -> PhaseStatus:
    if spec.stage:
        message = (
            f"it should have ended by {format_instant(end)}, but {_source_name(spec)} never reported that it began"
        )
        return PhaseStatus(phase=NoticePhase.MISSED, message=message)
    return PhaseStatus(phase=NoticePhase.COMPLETED, message=f"its scheduled end was at {format_instant(end)}")


def is_finished(notice: MaintenanceNotice) -> bool:
    """Return whether the maintenance was cancelled or has ended."""
    return notice.spec.stage in FINISHED_STAGES


def _source_name(spec: MaintenanceNoticeSpec) -> str:
    return spec.source or "its source"


class EarlyStartAnswer(StrEnum):
    """Reasons of the condition EarlyStart of a MaintenanceNotice: the answer of the source."""

    REQUESTED = "Requested"  # the source is asked to begin early
    ACCEPTED = "Accepted"  # the source begins early
    REFUSED = "Refused"  # the source does not begin early


class EarlyStart(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The source was asked, or is about to be asked."""

    start: datetime | None = None  # the planned start; the source was asked to begin before it
    requested_at: datetime | None = None
    answer: EarlyStartAnswer = EarlyStartAnswer.REQUESTED
    message: str = ""  # the answer's text, for users

    @property
    def metadata_patch(self) -> RawObject:
        """The metadata patch that writes this record."""
        return {"annotations": {EARLY_START_ANNOTATION: msgspec.json.encode(self).decode()}}


def early_start_of(notice: MaintenanceNotice) -> EarlyStart | None:
    """Return the record for the notice's current start; None if there is none or if it cannot be decoded."""
    annotation = notice.metadata.annotations.get(EARLY_START_ANNOTATION)
    if annotation is None:
        return None
    try:
        found = msgspec.json.decode(annotation, type=EarlyStart)
    # Anybody may have edited the annotation, so decoding may fail in every way.
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    # The answer was about one start. After a reschedule, the source has to be asked again.
    return found if found.start == notice.spec.start else None


def may_have_started(notice: MaintenanceNotice) -> bool:
    """Return whether a source was asked to begin and did not refuse. The result may never be observed."""
    early_start = early_start_of(notice)
    return early_start is not None and early_start.answer is not EarlyStartAnswer.REFUSED
