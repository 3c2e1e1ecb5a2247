"""Arithmetic on instants that may overflow: annotations, leases and files can contain any instant."""

from datetime import datetime, timedelta

_MARGIN = timedelta(days=2)  # for other time zones, and for callers that add a little


def add_saturating(instant: datetime, time: timedelta) -> datetime:
    """Return `instant + time`, limited to shortly before the latest `datetime`."""
    try:
        return min(instant + time, _last(instant))
    except OverflowError:
        return _last(instant)


def _last(like: datetime) -> datetime:
    return datetime.max.replace(tzinfo=like.tzinfo) - _MARGIN
