"""Counts, lists, durations and times as text for users."""

from datetime import datetime, timedelta

from haulout.core import duration
from haulout.core.text import format_list

__all__ = ["format_count", "format_duration", "format_list", "format_time"]


def format_count(number: int, noun: str) -> str:
    """Return `1 node` or `3 nodes`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def format_duration(time: timedelta) -> str:
    """Return a duration in whole seconds, rounded up: `1h30m0s`."""
    return duration.format(timedelta(seconds=-(-time // timedelta(seconds=1))))


def format_time(instant: datetime) -> str:
    """Return an instant to the second, in UTC."""
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC"
