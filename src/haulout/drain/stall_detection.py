"""When a blocked drain is worth a report, and when it counts as stalled. Pure."""

from datetime import datetime, timedelta

from haulout.core import text
from haulout.drain.progress import DrainProgress

BLOCKED_AFTER = timedelta(seconds=30)  # for all controllers, and for what the dashboard calls blocked
STALLED_AFTER = timedelta(minutes=30)  # a person must act: same time as the alert HauloutDrainBlocked
_MAX_NAMED = 2  # blockers per text


def describe_long_blocked(progress: DrainProgress, *, now: datetime) -> tuple[str, datetime | None]:
    """Return a text about blockers older than BLOCKED_AFTER; without any, when the first becomes so."""
    blockers = [active for active in progress.blockers if not active.blocker.is_progress]
    long_blocked = [active for active in blockers if active.since + BLOCKED_AFTER <= now]
    if long_blocked:
        return text.format_list(
            dict.fromkeys(str(active.blocker) for active in long_blocked), max_names=_MAX_NAMED
        ), None
    return "", min((active.since + BLOCKED_AFTER for active in blockers), default=None)
