"""Instants that may lie beyond the calendar: annotations, leases and files can name any."""

from datetime import datetime, timedelta

_MARGIN = timedelta(days=2)  # for other time zones, and for whoever adds a little


def add_saturating(instant: datetime, time: timedelta) -> datetime:
    """Return the instant that lies `time` after another one, or nearly the last that there is."""
    try:
        return min(instant + time, _last(instant))
    except OverflowError:
        return _last(instant)


def _last(like: datetime) -> datetime:
    return datetime.max.replace(tzinfo=like.tzinfo) - _MARGIN
