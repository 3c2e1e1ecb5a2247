"""Timestamps in the formats of the API server."""

from datetime import UTC, datetime


def micro_time(instant: datetime) -> str:
    """Return a MicroTime, always with six fractional digits: the server rejects any other number."""
    return f"{instant.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def whole_seconds(instant: datetime) -> str:
    """Return a Time without fractional seconds: the server would truncate them."""
    return f"{instant.astimezone(UTC).replace(tzinfo=None, microsecond=0).isoformat()}Z"
