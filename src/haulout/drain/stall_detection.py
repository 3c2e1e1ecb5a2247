"""What has stood in the way of a drain for so long that people should hear of it. Pure."""

from datetime import datetime, timedelta

from haulout.core import text
from haulout.drain.progress import DrainProgress

BLOCKED_AFTER = timedelta(seconds=30)  # for all who drain, and for what the dashboard calls blocked
STALLED_AFTER = timedelta(minutes=30)  # a person must act: as long as the alert HauloutDrainBlocked waits
_MAX_NAMED = 2  # things that are named


def describe_long_blocked(progress: DrainProgress, *, now: datetime) -> tuple[str, datetime | None]:
    """Return what has been in the way for long, in words; if nothing has, when something will have."""
    blockers = [active for active in progress.blockers if not active.blocker.is_progress]
    long_blocked = [active for active in blockers if active.since + BLOCKED_AFTER <= now]
    if long_blocked:
        return text.format_list(
            dict.fromkeys(str(active.blocker) for active in long_blocked), max_names=_MAX_NAMED
        ), None
    return "", min((active.since + BLOCKED_AFTER for active in blockers), default=None)
