"""How lists and times are said to people."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from haulout.core import duration

_FEW = 3


def some(names: Iterable[str], *, most: int = _FEW) -> str:
    """Return the first names and how many more there are: `a, b, c and 4 more`."""
    listed = list(names)
    shown, rest = ", ".join(listed[:most]), len(listed) - most
    return f"{shown} and {rest} more" if rest > 0 else shown


def counted(number: int, noun: str) -> str:
    """Return `1 node` or `3 nodes`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def lasting(time: timedelta) -> str:
    """Return a time in whole seconds, rounded up: `1h30m0s`."""
    return duration.format(timedelta(seconds=-(-time // timedelta(seconds=1))))


def clock_time(instant: datetime) -> str:
    """Return an instant to the second, in UTC."""
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC"
