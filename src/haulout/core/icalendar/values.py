"""iCalendar values: dates, times, periods and durations, as in RFC 5545.

A `CalendarTime` preserves what was written: the wall time, with or without a zone. A time without a zone ("floating")
and a whole day are in the reader's time zone, so the conversion to an instant needs that zone.
"""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from haulout.core import walltime

# Beyond any useful calendar, and within the range of `date` arithmetic.
FIRST_YEAR = walltime.EARLIEST.year
LAST_YEAR = walltime.LATEST.year - 1
MAX_DURATION = timedelta(days=366 * 100)

_TIME = re.compile(r"(\d{4})(\d{2})(\d{2})(?:T(\d{2})(\d{2})(\d{2})(Z?))?", re.ASCII)
_DURATION = re.compile(
    r"([+-]?)P(?:(\d{1,6})W|(?:(\d{1,6})D)?(?:T(?:(\d{1,7})H)?(?:(\d{1,8})M)?(?:(\d{1,9})S)?)?)", re.ASCII
)
_OFFSET = re.compile(r"([+-])(\d{2})(\d{2})(\d{2})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class CalendarTime:
    """A day, or a wall time in a zone. `zone` is None for the reader's zone."""

    wall: datetime
    zone: tzinfo | None
    is_day: bool = False

    def instant(self, default_zone: tzinfo, *, last: bool = False) -> datetime:
        """Return the instant in the reader's zone."""
        return walltime.instant(self.wall, self.zone or default_zone, last=last and not self.is_day)

    def shifted(self, by: timedelta) -> "CalendarTime":
        """Return the wall time later by this duration."""
        return CalendarTime(self.wall + by, self.zone, self.is_day)

    def on_day(self, day: date) -> "CalendarTime":
        """Return the same time on another day."""
        return CalendarTime(datetime.combine(day, self.wall.time()), self.zone, self.is_day)


@dataclass(frozen=True, slots=True)
class CalendarDuration:
    """A duration: first in wall time (`nominal`), then in elapsed time (`exact`)."""

    nominal: timedelta = timedelta()
    exact: timedelta = timedelta()

    @property
    def approximate(self) -> timedelta:
        """Return the approximate length."""
        return self.nominal + self.exact

    def latest_end(self, start: CalendarTime, default_zone: tzinfo) -> datetime:
        """Return the last possible end."""
        return start.shifted(self.nominal).instant(default_zone, last=True) + self.exact


def parse_time(text: str, zone: tzinfo | None, *, first_year: int = FIRST_YEAR) -> CalendarTime:
    """Parse `20261224`, `20261224T180000` or `20261224T180000Z`. Raise ValueError."""
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"expected a day or a time such as 20261224 or 20261224T180000Z, found {text[:40]!r}")
    year, month, day = int(found[1]), int(found[2]), int(found[3])
    if not first_year <= year <= LAST_YEAR:
        raise ValueError(f"expected a year from {first_year} to {LAST_YEAR}, found {year}")
    try:
        day_begins = datetime(year, month, day)  # noqa: DTZ001 - a wall time has no zone
        if found[4] is None:
            return CalendarTime(day_begins, None, is_day=True)
        # A leap second becomes the second before it.
        at = time(int(found[4]), int(found[5]), min(int(found[6]), 59))
    except ValueError as error:
        raise ValueError(f"expected a day or a time that exists, found {text.strip()!r}: {error}") from None
    return CalendarTime(datetime.combine(day_begins, at), UTC if found[7] else zone)


def parse_duration(text: str) -> CalendarDuration:
    """Parse `P1D`, `PT90M` or `P2W`. Raise ValueError."""
    found = _DURATION.fullmatch(text.strip())
    if found is None or not any(found.groups()[1:]):
        raise ValueError(f"expected a length such as PT1H30M or P1D, found {text[:40]!r}")
    weeks, days, hours, minutes, seconds = (int(group or 0) for group in found.groups()[1:])
    duration = CalendarDuration(
        timedelta(weeks=weeks, days=days), timedelta(hours=hours, minutes=minutes, seconds=seconds)
    )
    if found[1] == "-" or duration.approximate > MAX_DURATION:
        raise ValueError(f"expected a length of 0 to 100 years, found {text.strip()}")
    return duration


def duration_between(start: CalendarTime, end: CalendarTime) -> CalendarDuration:
    """Return the duration between two times, in wall time at the start. Raise ValueError."""
    if start.is_day is not end.is_day:
        raise ValueError("expected a start and an end that are both days, or both times")
    if (start.zone is None) is not (end.zone is None):
        raise ValueError("expected a start and an end that are both with a time zone, or both without")
    wall = end.wall
    if start.zone is not None and end.zone is not None and start.zone is not end.zone:
        wall = walltime.wall_clock(end.instant(UTC), start.zone)
    nominal = wall - start.wall
    if nominal < timedelta():
        raise ValueError("the end must not be before the start")
    if nominal > MAX_DURATION:
        raise ValueError("expected an end within 100 years of the start")
    return CalendarDuration(nominal)


def parse_period(text: str, zone: tzinfo | None) -> tuple[CalendarTime, CalendarDuration]:
    """Parse `20261224T180000Z/PT2H` or `20261224T180000Z/20261224T200000Z`. Raise ValueError."""
    begin, slash, end = text.partition("/")
    if not slash:
        raise ValueError(f"expected a period such as 20261224T180000Z/PT2H, found {text[:40]!r}")
    start = parse_time(begin, zone)
    return start, parse_duration(end) if end.lstrip("+-").startswith("P") else duration_between(
        start, parse_time(end, zone)
    )


def parse_offset(text: str) -> timedelta:
    """Parse an offset such as `+0100`. Raise ValueError."""
    found = _OFFSET.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"expected an offset such as +0100, found {text[:40]!r}")
    magnitude = timedelta(hours=int(found[2]), minutes=int(found[3]), seconds=int(found[4] or 0))
    if magnitude >= walltime.DAY:
        raise ValueError(f"expected an offset of less than a day, found {text.strip()}")
    return -magnitude if found[1] == "-" else magnitude
