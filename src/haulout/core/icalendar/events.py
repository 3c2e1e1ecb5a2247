"""Events: their times, recurrence and exceptions.

Where the meaning of a time is ambiguous, a blackout is as long as possible: an event begins at the first possible
instant, and ends at the last. Durations are wall time, as in calendars: an event that ends at 06:00 ends at 06:00, also
in the night of a clock change. The first occurrence of a recurring event always counts, whether or not its rule
includes it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, tzinfo

from haulout.core.icalendar.recurrence import RecurrenceRule, parse_rule
from haulout.core.icalendar.syntax import (
    CalendarDuration,
    CalendarTime,
    Component,
    Property,
    PropertyError,
    abbreviate,
    duration_between,
    parse_duration,
    parse_period,
    parse_time,
    property_errors,
)
from haulout.core.icalendar.timezones import TimeZones
from haulout.core.windows import BusyPeriod

_MAX_REPEATED_DURATION = timedelta(days=366)
_MAX_TEXT_LENGTH = 200
# The maximum difference between a wall time and its instant, plus a day.
_MARGIN = timedelta(days=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A VEVENT (RFC 5545, 3.6.1), reduced to what decides when it is busy."""

    line: int
    uid: str
    title: str
    start: CalendarTime
    duration: CalendarDuration
    rules: tuple[RecurrenceRule, ...] = ()
    extra_times: tuple[tuple[CalendarTime, CalendarDuration], ...] = ()
    excluded_times: frozenset[CalendarTime] = frozenset()
    recurrence_id: CalendarTime | None = None  # the occurrence of the event with the same UID that this one replaces
    is_cancelled: bool = False

    def busy_periods(self, first: datetime, last: datetime, default_zone: tzinfo) -> Iterator[BusyPeriod]:
        """Yield the busy periods between two instants. Floating times are in `default_zone`."""
        exclusions = _Exclusions(self.excluded_times, default_zone)
        for start, duration in self._occurrences(first, last, default_zone):
            begins_at = start.instant(default_zone)
            ends_at = duration.latest_end(start, default_zone)
            if (
                begins_at < ends_at
                and begins_at < last
                and ends_at > first
                and not exclusions.contains(start, begins_at)
            ):
                yield BusyPeriod(begins_at, ends_at, self.title)

    def _occurrences(
        self, first: datetime, last: datetime, default_zone: tzinfo
    ) -> Iterator[tuple[CalendarTime, CalendarDuration]]:
        yield self.start, self.duration
        yield from self.extra_times
        begin = self.start.wall.date()
        first_day = (first - self.duration.approximate - _MARGIN).date()
        for recurrence in self.rules:
            for day in recurrence.days(begin, first=first_day, last=(last + _MARGIN).date()):
                start = self.start.on_day(day)
                # The start was yielded already: it is the first occurrence, whatever the rule says (RFC 5545, 3.8.5.3).
                if day != begin and _is_within(start, recurrence.until, default_zone):
                    yield start, self.duration


class _Exclusions:
    """The excluded occurrences of a recurring event: instants, or whole days."""

    def __init__(self, times: Iterable[CalendarTime], default_zone: tzinfo) -> None:
        # Some programs write EXDATE as a day for an event with a time, and mean the occurrence on that day.
        self._excluded_days = {excluded.wall.date() for excluded in times if excluded.is_day}
        self._excluded_instants = {excluded.instant(default_zone) for excluded in times if not excluded.is_day}

    def contains(self, start: CalendarTime, at: datetime) -> bool:
        return at in self._excluded_instants or start.wall.date() in self._excluded_days


def parse_event(component: Component, zones: TimeZones) -> Event:
    """Parse a VEVENT. Raise a ValueError if it is invalid or not supported."""
    line = component.get("DTSTART")
    if line is None:
        raise ValueError("expected DTSTART, found none")
    if exrule := component.get("EXRULE"):
        # RFC 5545 deprecates EXRULE (A.3). To ignore it would make the calendar busier than it is.
        raise PropertyError("it is not supported; expected EXDATE instead", exrule)
    start = _parse_time(line, zones)
    duration = _parse_duration(component, start, zones)
    rules = tuple(_parse_rule(recurrence_line) for recurrence_line in component.get_all("RRULE"))
    if rules and duration.approximate > _MAX_REPEATED_DURATION:
        raise ValueError("expected an event that is repeated to last at most 366 days")
    return Event(
        line=component.line,
        uid=_text(component, "UID"),
        title=_text(component, "SUMMARY") or "an event without a title",
        start=start,
        duration=duration,
        rules=rules,
        extra_times=tuple(
            more
            for recurrence_line in component.get_all("RDATE")
            for more in _parse_extra_times(recurrence_line, duration, zones)
        ),
        excluded_times=frozenset(
            excluded
            for recurrence_line in component.get_all("EXDATE")
            for excluded in _parse_times(recurrence_line, zones)
        ),
        recurrence_id=_parse_recurrence_id(component.get("RECURRENCE-ID"), zones),
        is_cancelled=_text(component, "STATUS").upper() == "CANCELLED",
    )


def apply_overrides(events: Iterable[Event]) -> list[Event]:
    """Return the events. Occurrences that another event replaces or cancels are excluded."""
    all_events = list(events)
    overridden: dict[str, set[CalendarTime]] = {}
    for candidate in all_events:
        if candidate.recurrence_id is not None and candidate.uid:
            overridden.setdefault(candidate.uid, set()).add(candidate.recurrence_id)
    return [
        candidate
        if candidate.recurrence_id is not None or candidate.uid not in overridden
        else replace(candidate, excluded_times=candidate.excluded_times | overridden[candidate.uid])
        for candidate in all_events
        if not candidate.is_cancelled
    ]


def _is_within(start: CalendarTime, until: CalendarTime | None, default_zone: tzinfo) -> bool:
    if until is None:
        return True
    if until.is_day or start.is_day:
        return start.wall.date() <= until.wall.date()
    # UNTIL should be in UTC. Without a zone, it is in that of the event.
    return start.instant(default_zone) <= until.instant(start.zone or default_zone)


def _parse_rule(line: Property) -> RecurrenceRule:
    with property_errors(line):
        return parse_rule(line.value)


def _parse_duration(component: Component, start: CalendarTime, zones: TimeZones) -> CalendarDuration:
    end, duration = component.get("DTEND"), component.get("DURATION")
    if end is not None and duration is not None:
        raise PropertyError("expected DTEND or DURATION, found both", duration)
    if end is not None:
        with property_errors(end):
            return _whole_days(duration_between(start, _parse_time(end, zones)), start)
    if duration is not None:
        with property_errors(duration):
            return parse_duration(duration.value)
    # The defaults of RFC 5545, 3.6.1: a day, or no time at all.
    return CalendarDuration(timedelta(days=1) if start.is_day else timedelta())


def _whole_days(duration: CalendarDuration, start: CalendarTime) -> CalendarDuration:
    # DTEND is exclusive: for a whole-day event, it is the day after it. Some programs write the day itself.
    return CalendarDuration(timedelta(days=1)) if start.is_day and not duration.nominal else duration


def _parse_recurrence_id(line: Property | None, zones: TimeZones) -> CalendarTime | None:
    if line is None:
        return None
    if line.parameters.get("RANGE"):
        raise PropertyError(f"RANGE={abbreviate(line.parameters['RANGE'])} is not supported", line)
    return _parse_time(line, zones)


def _parse_extra_times(
    line: Property, duration: CalendarDuration, zones: TimeZones
) -> Iterator[tuple[CalendarTime, CalendarDuration]]:
    if line.parameters.get("VALUE", "").upper() != "PERIOD":
        yield from ((item, duration) for item in _parse_times(line, zones))
        return
    with property_errors(line):
        zone = zones.zone_of(line)
        yield from [parse_period(item, zone) for item in line.value.split(",")]


def _parse_times(line: Property, zones: TimeZones) -> list[CalendarTime]:
    with property_errors(line):
        zone = zones.zone_of(line)
        return [parse_time(each, zone) for each in line.value.split(",") if each.strip()]


def _parse_time(line: Property, zones: TimeZones) -> CalendarTime:
    with property_errors(line):
        return parse_time(line.value, zones.zone_of(line))


def _text(component: Component, name: str) -> str:
    line = component.get(name)
    return " ".join(line.text.split())[:_MAX_TEXT_LENGTH] if line else ""
