"""The time zones of a calendar file: IANA zones, or zones that the file defines.

A TZID is usually an IANA name such as Europe/Berlin, sometimes with a prefix. That zone is used instead of the file's
VTIMEZONE, which may be outdated. Outlook uses its own names ("W. Europe Standard Time"). In that case the VTIMEZONE is
used, which defines the offsets by recurrence rules.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta, tzinfo

from haulout.core import walltime
from haulout.core.icalendar.recurrence import Frequency, parse_rule
from haulout.core.icalendar.syntax import (
    LAST_YEAR,
    CalendarTime,
    Component,
    ErrorCollector,
    Property,
    abbreviate,
    parse_offset,
    parse_time,
    property_errors,
)

_MAX_OBSERVANCES = 500
_MAX_YEARS = 400
# Outlook's rules begin in 1601. Changes before 1970 matter to no maintenance, and would be 369 years of work.
_FIRST_DAY = date(1970, 1, 1)
_LAST_DAY = date(LAST_YEAR, 12, 31)


class TimeZones:
    """Finds zones by TZID, and builds each zone that a file defines only once."""

    def __init__(self, definitions: Iterable[Component], problems: ErrorCollector) -> None:
        self._problems = problems
        self._definitions = {
            name.value.strip(): definition for definition in definitions if (name := definition.get("TZID"))
        }
        self._zones: dict[str, tzinfo | None] = {}

    def zone_of(self, line: Property) -> tzinfo | None:
        """Return the zone of a property; None if it has no TZID. Raise ValueError if the zone is unknown."""
        name = line.parameters.get("TZID")
        if not name:
            return None
        if name not in self._zones:
            # The IANA zone first: the VTIMEZONE in a file is as old as the program that wrote it.
            self._zones[name] = _iana_zone(name) or self._build_zone(name)
        if self._zones[name] is None:
            raise ValueError(
                f"expected a time zone that is known, or defined by a VTIMEZONE, found TZID {abbreviate(name)}"
            )
        return self._zones[name]

    def _build_zone(self, name: str) -> tzinfo | None:
        definition = self._definitions.get(name)
        if definition is None:
            return None
        changes: list[_OffsetChange] = []
        for observance in definition.components[:_MAX_OBSERVANCES]:
            try:
                changes.extend(_offset_changes(observance))
            except ValueError as error:
                self._problems.add_component_error(observance, error)
        return CustomTimeZone(name, sorted(changes, key=lambda change: change.at)) if changes else None


@dataclass(frozen=True, slots=True)
class _OffsetChange:
    at: datetime  # naive, in UTC
    before: timedelta
    after: timedelta


class CustomTimeZone(tzinfo):
    """A time zone that is defined by its offset changes."""

    def __init__(self, name: str, changes: list[_OffsetChange]) -> None:
        self._name = name
        self._offsets = [changes[0].before, *(change.after for change in changes)]
        self._instants = [change.at for change in changes]
        # Around a change, a wall time may have two offsets. The earlier one applies until the later of both wall times.
        local_times = [(change.at + change.before, change.at + change.after) for change in changes]
        self._earlier_until = [max(pair) for pair in local_times]
        self._later_from = [min(pair) for pair in local_times]

    def __str__(self) -> str:
        return self._name

    def utcoffset(self, wall: datetime | None) -> timedelta:
        if wall is None:
            return self._offsets[0]
        changes = self._later_from if wall.fold else self._earlier_until
        return self._offsets[bisect_right(changes, wall.replace(tzinfo=None, fold=0))]

    def dst(self, wall: datetime | None) -> None:
        """Return None: the daylight saving part of the offset is unknown."""

    def tzname(self, wall: datetime | None) -> str:
        del wall
        return self._name

    def fromutc(self, at: datetime) -> datetime:
        wall = at + self._offsets[bisect_right(self._instants, at.replace(tzinfo=None))]
        is_second = self.utcoffset(wall) != wall - at
        return wall.replace(fold=1) if is_second else wall


def _iana_zone(name: str) -> tzinfo | None:
    """Return a zone by its IANA name, which may have a prefix: /example.org/2005_1/Europe/Berlin."""
    parts = name.strip().strip("/").split("/")[-6:]
    for first in range(len(parts)):
        candidate = "/".join(parts[first:])
        # After a prefix, a single word is not a zone name.
        if first and "/" not in candidate:
            return None
        try:
            return walltime.zone(candidate)
        except ValueError:
            continue
    return None


def _offset_changes(observance: Component) -> list[_OffsetChange]:
    values = _required_values(observance, ("DTSTART", "TZOFFSETFROM", "TZOFFSETTO"))
    start = parse_time(values["DTSTART"], None, first_year=1)
    before, after = parse_offset(values["TZOFFSETFROM"]), parse_offset(values["TZOFFSETTO"])
    local_times = {start.wall} if start.wall.date() >= _FIRST_DAY else set()
    for line in observance.get_all("RRULE"):
        with property_errors(line):
            local_times |= set(_repeated_times(line.value, start, before))
    for line in observance.get_all("RDATE"):
        with property_errors(line):
            local_times |= {parse_time(item, None).wall for item in line.value.split(",")}
    if not local_times:
        local_times = {start.wall}
    return [_OffsetChange(wall - before, before, after) for wall in local_times]


def _repeated_times(text: str, start: CalendarTime, before: timedelta) -> Iterable[datetime]:
    recurrence = parse_rule(text)
    if recurrence.frequency is not Frequency.YEARLY:
        raise ValueError(f"expected a YEARLY rule, found {recurrence.frequency}")
    bounded, _ = recurrence.with_last_day(start.wall.date(), max_periods=_MAX_YEARS * 2)
    for day in bounded.days(start.wall.date(), first=_FIRST_DAY, last=_LAST_DAY):
        wall = datetime.combine(day, start.wall.time())
        if recurrence.until is None or wall - before <= recurrence.until.wall:
            yield wall


def _required_values(part: Component, names: Iterable[str]) -> Mapping[str, str]:
    found = {name: line.value for name in names if (line := part.get(name))}
    for name in names:
        if name not in found:
            raise ValueError(f"expected {name}, found none")
    return found
