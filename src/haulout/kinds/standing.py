"""How a notice stands at an instant, and when that changes by itself. Pure.

    found = standing(notice.spec, now=now, lead=timedelta(minutes=15))
    found.phase, found.why, found.until

A source that tells of the beginning and of the end (it has written a `stage`) is believed: nothing begins or ends by
the clock alone. Where nobody tells, `start` and `end` decide. A maintenance that was scheduled, and of which nothing
was heard though its time is over, is missed: either it was dropped, or the source has stopped talking to us.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from haulout.kinds.notice import Phase, Spec, Stage

LEAD = timedelta(minutes=15)
_FIRST = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How it stands, why, and until when at least if nobody says anything; None: for ever."""

    phase: Phase
    why: str
    until: datetime | None = None


def drain_at(spec: Spec, *, lead: timedelta) -> datetime | None:
    """Return when its node should begin to be emptied; None: at once."""
    return None if spec.start is None else _earlier(spec.start, lead)


def standing(spec: Spec, *, now: datetime, lead: timedelta = LEAD) -> Standing:
    """Return how it stands."""
    match spec.stage:
        case Stage.ENDED:
            return Standing(phase=Phase.COMPLETED, why=f"{_who(spec)} says that it is over")
        case Stage.CANCELLED:
            return Standing(phase=Phase.CANCELLED, why=f"{_who(spec)} says that it is cancelled")
        case Stage.FAILED:
            why = f"{_who(spec)} says that it failed: the node stays out of service until spec.stage is Ended"
            return Standing(phase=Phase.ACTIVE, why=why)
        case Stage.STARTED:
            return _started(spec, now)
    return _by_the_clock(spec, now, lead)


def _started(spec: Spec, now: datetime) -> Standing:
    if spec.end is None:
        return Standing(phase=Phase.ACTIVE, why="it has begun")
    if now < spec.end:
        return Standing(
            phase=Phase.ACTIVE, why=f"it has begun, and should be over by {_told(spec.end)}", until=spec.end
        )
    return Standing(phase=Phase.ACTIVE, why=f"it should have been over by {_told(spec.end)}, and is not")


def _by_the_clock(spec: Spec, now: datetime, lead: timedelta) -> Standing:
    if spec.end is not None and now >= spec.end:
        return _past(spec, spec.end)
    if spec.start is None:
        return Standing(phase=Phase.DUE, why="it may begin at any moment", until=spec.end)
    due = _earlier(spec.start, lead)
    if now < due:
        return Standing(phase=Phase.PLANNED, why=f"it begins at {_told(spec.start)} at the earliest", until=due)
    if now < spec.start:
        return Standing(phase=Phase.DUE, why=f"it begins at {_told(spec.start)}", until=spec.start)
    if spec.stage:
        why = f"it may have begun at {_told(spec.start)}, and {_who(spec)} has not said so yet"
        return Standing(phase=Phase.DUE, why=why, until=spec.end)
    return Standing(phase=Phase.ACTIVE, why=f"it began at {_told(spec.start)}", until=spec.end)


def _past(spec: Spec, end: datetime) -> Standing:
    if spec.stage:
        why = f"it should have been over by {_told(end)}, and {_who(spec)} never said that it began"
        return Standing(phase=Phase.MISSED, why=why)
    return Standing(phase=Phase.COMPLETED, why=f"its end was at {_told(end)}")


def _earlier(instant: datetime, by: timedelta) -> datetime:
    """Return an earlier instant, and the first there is if somebody wrote one of the year 1."""
    try:
        return instant - by
    except OverflowError:
        return _FIRST


def _who(spec: Spec) -> str:
    return spec.source or "its source"


def _told(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC".replace(":00 UTC", " UTC")
