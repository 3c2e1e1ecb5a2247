"""What has stood in the way of a drain for so long that people should hear of it. Pure."""

from datetime import datetime, timedelta

from haulout.drain import words
from haulout.drain.progress import Progress

BLOCKED_AFTER = timedelta(seconds=30)  # for all who drain, and for what the dashboard calls blocked
STALLED_AFTER = timedelta(minutes=30)  # a person must act: as long as the alert HauloutDrainBlocked waits
_MOST = 2  # things that are named


def blocked(progress: Progress, *, now: datetime) -> tuple[str, datetime | None]:
    """Return what has been in the way for long, in words; if nothing has, when something will have."""
    standing = [it for it in progress.blockers if not it.blocker.is_progress]
    lasting = [it for it in standing if it.since + BLOCKED_AFTER <= now]
    if lasting:
        return words.some(dict.fromkeys(str(it.blocker) for it in lasting), most=_MOST), None
    return "", min((it.since + BLOCKED_AFTER for it in standing), default=None)
