"""Parse times and time spans of the command line, and format them.

A time without a zone is refused: its author means local time, and its reader may be in another zone.
"""

import re
from datetime import UTC, datetime, timedelta

from haulout.cli.cordon_owners import format_elapsed
from haulout.core import duration
from haulout.core.duration import DurationError

SPAN_EXAMPLES = "such as 90m, 12h, 7d or 2w"
INSTANT_EXAMPLES = "such as 2026-12-01T03:00:00Z, 2026-12-01T03:00+01:00, +20m, +1h30m, +2d or now"
_SPAN = re.compile(r"(?:(?P<weeks>[0-9]{1,4})w)?(?:(?P<days>[0-9]{1,5})d)?(?P<rest>.*)", re.DOTALL)
_STAMP = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[Tt ](?P<time>[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?))?"
    r" ?(?P<zone>[Zz]|[+-][0-9]{2}:?[0-9]{2})?"
)


def parse_span(text: str) -> timedelta:
    """Parse a time span such as `7d`, `1d12h` or `90m`; raise `ValueError` with the expected syntax."""
    parts = _SPAN.fullmatch(text.strip())
    try:
        if parts is None or not text.strip():
            raise DurationError("invalid duration", text)
        rest = duration.parse(parts["rest"]) if parts["rest"] else timedelta()
    except DurationError:
        raise ValueError(f"expected a duration {SPAN_EXAMPLES}, found {text!r}") from None
    return timedelta(weeks=int(parts["weeks"] or 0), days=int(parts["days"] or 0)) + rest


def parse_instant(text: str, *, now: datetime) -> datetime:
    """Parse an instant, in UTC and in whole seconds if it is relative to now; raise `ValueError`."""
    typed = text.strip()
    if typed.lower() == "now":
        return now.replace(microsecond=0)
    if typed.startswith("+"):
        return now.replace(microsecond=0) + _parse_offset(typed)
    return parse_timestamp(text)


def parse_timestamp(text: str) -> datetime:
    """Parse an instant with date, time and zone, to UTC; raise `ValueError`."""
    found = _STAMP.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"expected a time {INSTANT_EXAMPLES}, found {text!r}")
    if found["time"] is None:
        raise ValueError(f"the time of day is missing; expected a time {INSTANT_EXAMPLES}, found {text!r}")
    if found["zone"] is None:
        local_time = f"{found['date']}T{found['time']}"
        raise ValueError(
            f"the time zone of {text!r} is missing; add Z for UTC, or an offset: {local_time}Z, {local_time}+01:00"
        )
    try:
        return datetime.fromisoformat(f"{found['date']}T{found['time']}{found['zone'].upper()}").astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is not a valid time; expected one {INSTANT_EXAMPLES}") from None


def _parse_offset(typed: str) -> timedelta:
    try:
        offset = parse_span(typed.removeprefix("+"))
    except ValueError:
        raise ValueError(f"expected a time {INSTANT_EXAMPLES}, found {typed!r}") from None
    if offset < timedelta():
        raise ValueError(f"expected a time {INSTANT_EXAMPLES}, found {typed!r}")
    return offset


def format_timestamp(when: datetime) -> str:
    """Return an instant in UTC without its zone; seconds only if they are not 0."""
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M:%S}".removesuffix(":00")


def format_relative(when: datetime, *, now: datetime) -> str:
    """Return the distance of an instant: `in 20m0s` or `5m0s ago`."""
    return f"in {format_elapsed(when - now)}" if when > now else f"{format_elapsed(now - when)} ago"


def format_instant(when: datetime, *, now: datetime) -> str:
    """Return an instant with its distance."""
    return f"{format_timestamp(when)} UTC ({format_relative(when, now=now)})"
