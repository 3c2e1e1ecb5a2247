"""Formats of timestamps and durations in OCI."""

from datetime import UTC, datetime, timedelta

from haulout.core import timestamps
from haulout.errors import CloudError


def format_time(at: datetime) -> str:
    """Return an instant with milliseconds and a Z."""
    return f"{at.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"


def parse_time(text: object) -> datetime:
    try:
        return timestamps.parse_go_time(str(text)).instant
    except ValueError as error:
        raise CloudError(str(error), doing="reading a time", status=400, code="InvalidParameter") from None


def format_duration(duration: timedelta | None) -> str | None:
    """Return a duration in ISO 8601 format."""
    if duration is None:
        return None
    days, seconds = duration.days, duration.seconds
    if days and not seconds:
        return f"P{days}D"
    return f"P{days}DT{seconds}S" if days else f"PT{seconds}S"
