"""How a notice stands at an instant, and when that changes by itself. Pure.

    found = standing(notice.spec, now=now, lead=timedelta(minutes=15))
    found.phase, found.why, found.until

A source that tells of the beginning and of the end (it has written a `stage`) is believed: nothing begins or ends by
the clock alone. Where nobody tells, `start` and `end` decide. A maintenance that was scheduled, and of which nothing
was heard though its time is over, is missed: either it was dropped, or the source has stopped talking to us.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from haulout.api.maintenancenotice import MaintenanceNoticeSpec, NoticePhase, NoticeStage

DEFAULT_LEAD = timedelta(minutes=15)
_MIN_INSTANT = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseStatus:
    """How it stands, why, and until when at least if nobody says anything; None: for ever."""

    phase: NoticePhase
    message: str
    until: datetime | None = None


def drain_at(spec: MaintenanceNoticeSpec, *, lead: timedelta) -> datetime | None:
    """Return when its node should begin to be emptied; None: at once."""
    return None if spec.start is None else _subtract(spec.start, lead)


def phase_at(spec: MaintenanceNoticeSpec, *, now: datetime, lead: timedelta = DEFAULT_LEAD) -> PhaseStatus:
    """Return how it stands."""
    match spec.stage:
        case NoticeStage.ENDED:
            return PhaseStatus(phase=NoticePhase.COMPLETED, message=f"{_source_name(spec)} says that it is over")
        case NoticeStage.CANCELLED:
            return PhaseStatus(phase=NoticePhase.CANCELLED, message=f"{_source_name(spec)} says that it is cancelled")
        case NoticeStage.FAILED:
            message = (
                f"{_source_name(spec)} says that it failed: the node stays out of service until spec.stage is Ended"
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
            message=f"it has begun, and should be over by {_format_instant(spec.end)}",
            until=spec.end,
        )
    return PhaseStatus(
        phase=NoticePhase.ACTIVE, message=f"it should have been over by {_format_instant(spec.end)}, and is not"
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
        message = f"it may have begun at {_format_instant(spec.start)}, and {_source_name(spec)} has not said so yet"
        return PhaseStatus(phase=NoticePhase.DUE, message=message, until=spec.end)
    return PhaseStatus(phase=NoticePhase.ACTIVE, message=f"it began at {_format_instant(spec.start)}", until=spec.end)


def _past_end_phase(spec: MaintenanceNoticeSpec, end: datetime) -> PhaseStatus:
    if spec.stage:
        message = (
            f"it should have been over by {_format_instant(end)}, and {_source_name(spec)} never said that it began"
        )
        return PhaseStatus(phase=NoticePhase.MISSED, message=message)
    return PhaseStatus(phase=NoticePhase.COMPLETED, message=f"its end was at {_format_instant(end)}")


def _subtract(instant: datetime, by: timedelta) -> datetime:
    """Return an earlier instant, and the first there is if somebody wrote one of the year 1."""
    try:
        return instant - by
    except OverflowError:
        return _MIN_INSTANT


def _source_name(spec: MaintenanceNoticeSpec) -> str:
    return spec.source or "its source"


def _format_instant(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC".replace(":00 UTC", " UTC")
