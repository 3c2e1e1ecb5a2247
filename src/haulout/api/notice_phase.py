"""The phase of a notice at an instant, and when it changes by itself. Pure.

    found = phase_at(notice.spec, now=now, lead=timedelta(minutes=15))
    found.phase, found.message, found.until

If a source reports progress (it sets `stage`), only the source decides that a maintenance begins or ends, never the
clock. Otherwise `start` and `end` decide. A scheduled maintenance without any report until its end is missed: it was
dropped, or the source no longer reports.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from haulout.api.maintenancenotice import MaintenanceNoticeSpec, NoticePhase, NoticeStage

DEFAULT_LEAD = timedelta(minutes=15)
_MIN_INSTANT = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseStatus:
    """A phase, its reason, and when it changes without further reports. `until` is None if it does not."""

    phase: NoticePhase
    message: str
    until: datetime | None = None


def drain_at(spec: MaintenanceNoticeSpec, *, lead: timedelta) -> datetime | None:
    """Return when the drain of the node should begin; None: at once."""
    return None if spec.start is None else _subtract(spec.start, lead)


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
            message=f"it has begun and should end by {_format_instant(spec.end)}",
            until=spec.end,
        )
    return PhaseStatus(
        phase=NoticePhase.ACTIVE,
        message=f"it should have ended by {_format_instant(spec.end)}, but is still in progress",
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
            message=f"it begins at {_format_instant(spec.start)} at the earliest",
            until=due_at,
        )
    if now < spec.start:
        return PhaseStatus(
            phase=NoticePhase.DUE, message=f"it begins at {_format_instant(spec.start)}", until=spec.start
        )
    if spec.stage:
        message = (
            f"it may have begun at {_format_instant(spec.start)}, but {_source_name(spec)} has not reported that yet"
        )
        return PhaseStatus(phase=NoticePhase.DUE, message=message, until=spec.end)
    return PhaseStatus(phase=NoticePhase.ACTIVE, message=f"it began at {_format_instant(spec.start)}", until=spec.end)


def _past_end_phase(spec: MaintenanceNoticeSpec, end: datetime) -> PhaseStatus:
    if spec.stage:
        message = (
            f"it should have ended by {_format_instant(end)}, but {_source_name(spec)} never reported that it began"
        )
        return PhaseStatus(phase=NoticePhase.MISSED, message=message)
    return PhaseStatus(phase=NoticePhase.COMPLETED, message=f"its scheduled end was at {_format_instant(end)}")


def _subtract(instant: datetime, by: timedelta) -> datetime:
    """Return `instant - by`; the minimum instant if that is before the year 1."""
    try:
        return instant - by
    except OverflowError:
        return _MIN_INSTANT


def _source_name(spec: MaintenanceNoticeSpec) -> str:
    return spec.source or "its source"


def _format_instant(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC".replace(":00 UTC", " UTC")
