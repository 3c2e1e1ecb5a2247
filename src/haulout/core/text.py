"""Counts, lists, durations and times as text for users."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from haulout.core import duration

_MAX_NAMES = 3


def format_pod_count(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"


def format_list(names: Iterable[str], *, max_names: int = _MAX_NAMES) -> str:
    """Return the first names and the number of others: `a, b, c and 4 more`."""
    listed = list(names)
    shown, rest = ", ".join(listed[:max_names]), len(listed) - max_names
    return f"{shown} and {rest} more" if rest > 0 else shown


def format_count(number: int, noun: str) -> str:
    """Return a number with its noun, which must form its plural with s: `1 node`, `3 nodes`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def format_duration(time: timedelta) -> str:
    """Return a duration in whole seconds, rounded up: `1h30m0s`."""
    return duration.format(timedelta(seconds=-(-time // timedelta(seconds=1))))


def format_time(instant: datetime) -> str:
    """Return an instant to the second, in UTC."""
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC"


def format_instant(instant: datetime) -> str:
    """Return an instant in UTC, to the minute if it is a whole one."""
    return format_time(instant).replace(":00 UTC", " UTC")


def closest_match(word: str, known: Iterable[str]) -> str | None:
    """Return the word in `known` that is most similar to `word`; None if none is similar."""
    import difflib  # a large module, needed only for suggestions

    matches = difflib.get_close_matches(word, list(known), n=1)
    return matches[0] if matches else None
