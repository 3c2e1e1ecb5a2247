"""The values of iCalendar: days, times, periods and lengths, as RFC 5545 writes them.

A `Stamp` keeps what was written: the wall time and its zone, or that it has none. A time without a zone ("floating")
and a whole day mean what the reader's clocks show, so who asks for an instant says in which zone the reader is.
"""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from haulout.core import walltime

# Further than anything that a calendar is for; so that no arithmetic leaves what a date can hold.
FIRST_YEAR = walltime.EARLIEST.year
LAST_YEAR = walltime.LATEST.year - 1
LONGEST = timedelta(days=366 * 100)

_STAMP = re.compile(r"(\d{4})(\d{2})(\d{2})(?:T(\d{2})(\d{2})(\d{2})(Z?))?", re.ASCII)
_LENGTH = re.compile(
    r"([+-]?)P(?:(\d{1,6})W|(?:(\d{1,6})D)?(?:T(?:(\d{1,7})H)?(?:(\d{1,8})M)?(?:(\d{1,9})S)?)?)", re.ASCII
)
_OFFSET = re.compile(r"([+-])(\d{2})(\d{2})(\d{2})?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Stamp:
    """A day, or a wall time in a zone; None: in that of the reader."""

    wall: datetime
    zone: tzinfo | None
    is_day: bool = False

    def instant(self, reader: tzinfo, *, last: bool = False) -> datetime:
        """Return what it means to a reader."""
        return walltime.instant(self.wall, self.zone or reader, last=last and not self.is_day)

    def moved(self, by: timedelta) -> "Stamp":
        """Return what clocks show so much later."""
        return Stamp(self.wall + by, self.zone, self.is_day)

    def on(self, day: date) -> "Stamp":
        """Return the same time of another day."""
        return Stamp(datetime.combine(day, self.wall.time()), self.zone, self.is_day)


@dataclass(frozen=True, slots=True)
class Length:
    """How long something is: by what clocks show, and then by what passes."""

    shown: timedelta = timedelta()
    passed: timedelta = timedelta()

    @property
    def rough(self) -> timedelta:
        """About how long that is."""
        return self.shown + self.passed

    def end_of(self, start: Stamp, reader: tzinfo) -> datetime:
        """Return the last instant at which it can end."""
        return start.moved(self.shown).instant(reader, last=True) + self.passed


def stamp(text: str, zone: tzinfo | None, *, first_year: int = FIRST_YEAR) -> Stamp:
    """Return what `20261224`, `20261224T180000` or `20261224T180000Z` says."""
    found = _STAMP.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"expected a day or a time such as 20261224 or 20261224T180000Z, found {text[:40]!r}")
    year, month, day = int(found[1]), int(found[2]), int(found[3])
    if not first_year <= year <= LAST_YEAR:
        raise ValueError(f"expected a year from {first_year} to {LAST_YEAR}, found {year}")
    try:
        day_begins = datetime(year, month, day)  # noqa: DTZ001 - a wall time has no zone
        if found[4] is None:
            return Stamp(day_begins, None, is_day=True)
        # A leap second is told as the second before it.
        at = time(int(found[4]), int(found[5]), min(int(found[6]), 59))
    except ValueError as error:
        raise ValueError(f"expected a day or a time that exists, found {text.strip()!r}: {error}") from None
    return Stamp(datetime.combine(day_begins, at), UTC if found[7] else zone)


def length(text: str) -> Length:
    """Return what `P1D`, `PT90M` or `P2W` says."""
    found = _LENGTH.fullmatch(text.strip())
    if found is None or not any(found.groups()[1:]):
        raise ValueError(f"expected a length such as PT1H30M or P1D, found {text[:40]!r}")
    weeks, days, hours, minutes, seconds = (int(each or 0) for each in found.groups()[1:])
    whole = Length(timedelta(weeks=weeks, days=days), timedelta(hours=hours, minutes=minutes, seconds=seconds))
    if found[1] == "-" or whole.rough > LONGEST:
        raise ValueError(f"expected a length of 0 to 100 years, found {text.strip()}")
    return whole


def between(start: Stamp, end: Stamp) -> Length:
    """Return the length from one to another, by what clocks show where it starts."""
    if start.is_day is not end.is_day:
        raise ValueError("expected a start and an end that are both days, or both times")
    if (start.zone is None) is not (end.zone is None):
        raise ValueError("expected a start and an end that are both with a time zone, or both without")
    wall = end.wall
    if start.zone is not None and end.zone is not None and start.zone is not end.zone:
        wall = walltime.wall_clock(end.instant(UTC), start.zone)
    shown = wall - start.wall
    if shown < timedelta():
        raise ValueError("the end must not be before the start")
    if shown > LONGEST:
        raise ValueError("expected an end within 100 years of the start")
    return Length(shown)


def period(text: str, zone: tzinfo | None) -> tuple[Stamp, Length]:
    """Return what `20261224T180000Z/PT2H` or `20261224T180000Z/20261224T200000Z` says."""
    begin, slash, end = text.partition("/")
    if not slash:
        raise ValueError(f"expected a period such as 20261224T180000Z/PT2H, found {text[:40]!r}")
    start = stamp(begin, zone)
    return start, length(end) if end.lstrip("+-").startswith("P") else between(start, stamp(end, zone))


def offset(text: str) -> timedelta:
    """Return what `+0100` says."""
    found = _OFFSET.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"expected an offset such as +0100, found {text[:40]!r}")
    ahead = timedelta(hours=int(found[2]), minutes=int(found[3]), seconds=int(found[4] or 0))
    if ahead >= walltime.DAY:
        raise ValueError(f"expected an offset of less than a day, found {text.strip()}")
    return -ahead if found[1] == "-" else ahead
