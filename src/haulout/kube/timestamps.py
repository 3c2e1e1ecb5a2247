"""Instants, as the API server wants them written."""

from datetime import UTC, datetime


def micro_time(instant: datetime) -> str:
    """Return a MicroTime, always with six digits: the server refuses any other number of them."""
    return f"{instant.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def whole_seconds(instant: datetime) -> str:
    """Return a Time, which has no fraction of a second: the server would cut it off."""
    return f"{instant.astimezone(UTC).replace(tzinfo=None, microsecond=0).isoformat()}Z"
