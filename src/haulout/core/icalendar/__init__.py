"""iCalendar files (RFC 5545) as a source of blackouts.

    calendar = icalendar.parse(path.read_bytes(), file="holidays.ics")
    calendar.busy_periods(now, now + timedelta(days=400), zone) -> BusyPeriod(start, end, reason), …

Every VEVENT counts unless it is cancelled, including one that is marked as free (as public holidays usually are). The
parser supports whole days and times, time zones, recurring events with exceptions, and more in the modules of this
package.

An event that is not supported, and would therefore be missed, makes the file invalid: no calendar is better than an
incomplete one, and the error names the lines. Content that does not affect times (alarms, tasks, attendees) is ignored;
`warnings` lists what may surprise users.

Work on hostile files is bounded: by size, by number of events, by occurrences of all recurring events in a year, and by
steps to expand a COUNT.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo
from hashlib import sha256
from itertools import accumulate

from haulout.core.icalendar.events import Event, apply_overrides, parse_event
from haulout.core.icalendar.recurrence import RecurrenceRule
from haulout.core.icalendar.syntax import MAX_BYTES, Component, ErrorCollector, abbreviate, parse_components
from haulout.core.icalendar.timezones import TimeZones
from haulout.core.windows import BusyPeriod

__all__ = ["MAX_BYTES", "Calendar", "parse"]

# Limits on hostile files. Real calendars of holidays and change freezes have some hundred events.
_MAX_EVENTS = 20_000
_MAX_DATES = 20_000  # listed dates: exceptions and additions
_MAX_STEPS = 100_000
_MAX_TIMES = 50_000  # of all recurring events in one year
_PROPERTY_NAMES = (
    *("VERSION", "TZID", "TZOFFSETFROM", "TZOFFSETTO", "UID", "SUMMARY", "STATUS", "DTSTART", "DTEND", "DURATION"),
    *("RRULE", "RDATE", "EXDATE", "EXRULE", "RECURRENCE-ID"),
)


@dataclass(frozen=True, slots=True)
class Calendar:
    """The events of a file. Calendars are equal if their files are."""

    digest: str
    events: tuple[Event, ...] = field(default=(), compare=False)
    warnings: tuple[str, ...] = field(default=(), compare=False)

    def busy_periods(self, first: datetime, last: datetime, default_zone: tzinfo) -> Iterator[BusyPeriod]:
        """Yield the busy periods between two instants. Days and floating times are in `default_zone`."""
        for event in self.events:
            yield from event.busy_periods(first, last, default_zone)


def parse(data: bytes, *, file: str) -> Calendar:
    """Parse a file. Raise `ConfigErrors` with everything that is invalid or not supported."""
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
    """Return an upper bound of the occurrences of all recurring events in any year."""
    changes: Counter[int] = Counter()
    for event in events:
        for rule in event.rules:
            until = rule.until.wall.year if rule.until else rule.last.year
            # A sweep over the years: rules that never overlap must not add up.
            changes[event.start.wall.year] += rule.max_per_year
            changes[min(until, rule.last.year) + 1] -= rule.max_per_year
    return max(accumulate(changes[year] for year in sorted(changes)), default=0)


class _EventReader:
    """Parses events, and counts them against the limits."""

    def __init__(self, problems: ErrorCollector) -> None:
        self.warnings: list[str] = []
        self._problems = problems
        self._events = 0
        self._dates = 0
        self._steps_left = _MAX_STEPS

    def events(self, calendar: Component) -> Iterator[Event]:
        version = calendar.get("VERSION")
        if version is not None and version.value.strip() != "2.0":
            self._problems.add(version.line, f"expected 2.0, found {abbreviate(version.value)}", key="VERSION")
        zones = TimeZones((part for part in calendar.components if part.name == "VTIMEZONE"), self._problems)
        for part in calendar.components:
            if part.name == "VEVENT":
                yield from self._event(part, zones)
            elif part.name == "VFREEBUSY":
                self._problems.add(part.line, "it is not supported; expected events (VEVENT)", key="VFREEBUSY")
        for name in sorted({part.name for part in calendar.components} & {"VTODO", "VJOURNAL"}):
            self.warnings.append(f"{name} entries are not events: they are ignored")

    def _event(self, part: Component, zones: TimeZones) -> Iterator[Event]:
        try:
            self._check_limits(part)
            parsed = parse_event(part, zones)
            parsed = replace(parsed, rules=self._bounded_rules(parsed))
        except ValueError as error:
            self._problems.add_component_error(part, error)
            return
        if not parsed.duration.approximate and not parsed.extra_times:
            self.warnings.append(f"line {part.line}: {parsed.title} has no duration and therefore no effect")
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
