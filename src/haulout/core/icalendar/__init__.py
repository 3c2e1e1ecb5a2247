"""iCalendar files (RFC 5545), as a source of times at which nothing may be done.

    calendar = icalendar.read(path.read_bytes(), file="holidays.ics")
    calendar.busy(now, now + 400 days, zone) -> Busy(start, end, reason), …

Every VEVENT counts, also one that is shown as free (as public holidays are, mostly), unless it is cancelled. Understood
are whole days and times, with time zones, series with their exceptions, and more in the modules beside this one.

An event that is not understood, and so would be missed, makes the file unusable: better no calendar than one with
holes, and who reads the file tells what is wrong, with lines. What makes no difference to times (alarms, tasks,
attendees) is left alone; `warnings` says what of it may surprise.

Work is bounded on hostile files: by size, number of events, times of all series in a year, steps of counted series.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo
from hashlib import sha256
from itertools import accumulate

from haulout.core.busy_period import BusyPeriod
from haulout.core.icalendar.content_lines import MAX_BYTES, Component, ErrorCollector, abbreviate, parse_components
from haulout.core.icalendar.events import Event, apply_overrides, parse_event
from haulout.core.icalendar.recurrence import RecurrenceRule
from haulout.core.icalendar.timezones import TimeZones

__all__ = ["MAX_BYTES", "Calendar", "parse"]

_MAX_EVENTS = 20_000
_MAX_DATES = 20_000  # that are listed, as exceptions and additions
_MAX_STEPS = 100_000
_MAX_TIMES = 50_000  # of all series in one year
_PROPERTY_NAMES = (
    *("VERSION", "TZID", "TZOFFSETFROM", "TZOFFSETTO", "UID", "SUMMARY", "STATUS", "DTSTART", "DTEND", "DURATION"),
    *("RRULE", "RDATE", "EXDATE", "EXRULE", "RECURRENCE-ID"),
)


@dataclass(frozen=True, slots=True)
class Calendar:
    """The events of a file; two are equal if the files are."""

    digest: str
    events: tuple[Event, ...] = field(default=(), compare=False)
    warnings: tuple[str, ...] = field(default=(), compare=False)

    def busy_periods(self, first: datetime, last: datetime, default_zone: tzinfo) -> Iterator[BusyPeriod]:
        """Yield what goes on between two instants; days and times without a zone are those of the reader's zone."""
        for event in self.events:
            yield from event.busy_periods(first, last, default_zone)


def parse(data: bytes, *, file: str) -> Calendar:
    """Return what a file holds; raises `ConfigErrors` with all that is wrong or not understood."""
    problems = ErrorCollector(file)
    calendars = parse_components(data, _PROPERTY_NAMES, problems)
    problems.raise_if_any()
    if not calendars:
        problems.add(1, "expected BEGIN:VCALENDAR, found nothing")
    event_reader = _EventReader(problems)
    events = [event for calendar in calendars for event in event_reader.events(calendar)]
    if _max_occurrences_per_year(events) > _MAX_TIMES:
        problems.add(1, f"expected all series together to have at most {_MAX_TIMES} times in a year")
    problems.raise_if_any()
    return Calendar(sha256(data).hexdigest(), tuple(apply_overrides(events)), tuple(event_reader.warnings))


def _max_occurrences_per_year(events: Iterable[Event]) -> int:
    """Return how often, at most, something is repeated in any year."""
    changes: Counter[int] = Counter()
    for event in events:
        for rule in event.rules:
            until = rule.until.wall.year if rule.until else rule.last.year
            changes[event.start.wall.year] += rule.max_per_year
            changes[min(until, rule.last.year) + 1] -= rule.max_per_year
    return max(accumulate(changes[year] for year in sorted(changes)), default=0)


class _EventReader:
    """Reads events, and counts what they cost."""

    def __init__(self, problems: ErrorCollector) -> None:
        self.warnings: list[str] = []
        self._problems = problems
        self._events = 0
        self._dates = 0
        self._steps_left = _MAX_STEPS

    def events(self, calendar: Component) -> Iterator[Event]:
        """Yield the events of a calendar."""
        version = calendar.get("VERSION")
        if version is not None and version.value.strip() != "2.0":
            self._problems.add(version.line, f"expected 2.0, found {abbreviate(version.value)}", key="VERSION")
        zones = TimeZones((part for part in calendar.components if part.name == "VTIMEZONE"), self._problems)
        for part in calendar.components:
            if part.name == "VEVENT":
                yield from self._event(part, zones)
            elif part.name == "VFREEBUSY":
                self._problems.add(part.line, "it is not understood; expected events (VEVENT)", key="VFREEBUSY")
        for name in sorted({part.name for part in calendar.components} & {"VTODO", "VJOURNAL"}):
            self.warnings.append(f"{name} entries are no events: they are left alone")

    def _event(self, part: Component, zones: TimeZones) -> Iterator[Event]:
        try:
            self._check_limits(part)
            parsed = parse_event(part, zones)
            parsed = replace(parsed, rules=self._bounded_rules(parsed))
        except ValueError as error:
            self._problems.add_component_error(part, error)
            return
        if not parsed.duration.approximate and not parsed.extra_times:
            self.warnings.append(f"line {part.line}: {parsed.title} has no length, so it blocks nothing")
        yield parsed

    def _bounded_rules(self, event: Event) -> tuple[RecurrenceRule, ...]:
        rules: list[RecurrenceRule] = []
        for unbounded_rule in event.rules:
            rule, steps = unbounded_rule.with_last_day(event.start.wall.date(), max_periods=self._steps_left)
            self._steps_left -= steps
            rules.append(rule)
        return tuple(rules)

    def _check_limits(self, part: Component) -> None:
        self._events += 1
        self._dates += sum(line.value.count(",") + 1 for line in part.properties if line.name in {"RDATE", "EXDATE"})
        for number, limit, noun in (
            (self._events, _MAX_EVENTS, "events"),
            (self._dates, _MAX_DATES, "listed dates"),
        ):
            if number > limit:
                raise ValueError(f"expected at most {limit} {noun} in a file")
