"""iCalendar files (RFC 5545), as a source of times at which nothing may be done.

    calendar = icalendar.read(path.read_bytes(), file="holidays.ics")
    calendar.busy(now, now + 400 days, zone) -> Busy(start, end, reason), …

Every VEVENT counts, also one that is shown as free (as public holidays are, mostly), unless it is cancelled. Understood
are whole days and times, with time zones, series with their exceptions, and more in the modules beside this one.

An event that is not understood, and so would be missed, makes the file unusable: better no calendar than one with
holes, and who reads the file tells what is wrong, with lines. What makes no difference to times (alarms, tasks,
attendees) is left alone; `notes` says what of it may surprise.

Work is bounded on hostile files: by size, number of events, times of all series in a year, steps of counted series.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo
from hashlib import sha256
from itertools import accumulate

from haulout.core.busy import Busy
from haulout.core.icalendar.events import Event, event, with_replacements
from haulout.core.icalendar.lines import MOST_BYTES, Component, Problems, components, shown
from haulout.core.icalendar.recurrence import Rule
from haulout.core.icalendar.zones import Zones

__all__ = ["MOST_BYTES", "Calendar", "read"]

_MOST_EVENTS = 20_000
_MOST_DATES = 20_000  # that are listed, as exceptions and additions
_MOST_STEPS = 100_000
_MOST_TIMES = 50_000  # of all series in one year
_WANTED = (
    *("VERSION", "TZID", "TZOFFSETFROM", "TZOFFSETTO", "UID", "SUMMARY", "STATUS", "DTSTART", "DTEND", "DURATION"),
    *("RRULE", "RDATE", "EXDATE", "EXRULE", "RECURRENCE-ID"),
)


@dataclass(frozen=True, slots=True)
class Calendar:
    """The events of a file; two are equal if the files are."""

    digest: str
    events: tuple[Event, ...] = field(default=(), compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)

    def busy(self, first: datetime, last: datetime, reader: tzinfo) -> Iterator[Busy]:
        """Yield what goes on between two instants; days and times without a zone are those of the reader's zone."""
        for each in self.events:
            yield from each.busy(first, last, reader)


def read(data: bytes, *, file: str) -> Calendar:
    """Return what a file holds; raises `ConfigErrors` with all that is wrong or not understood."""
    problems = Problems(file)
    calendars = components(data, _WANTED, problems)
    problems.end()
    if not calendars:
        problems.add(1, "expected BEGIN:VCALENDAR, found nothing")
    reader = _Reader(problems)
    events = [each for calendar in calendars for each in reader.events(calendar)]
    if _most_times_a_year(events) > _MOST_TIMES:
        problems.add(1, f"expected all series together to have at most {_MOST_TIMES} times in a year")
    problems.end()
    return Calendar(sha256(data).hexdigest(), tuple(with_replacements(events)), tuple(reader.notes))


def _most_times_a_year(events: Iterable[Event]) -> int:
    """Return how often, at most, something is repeated in any year."""
    changes: Counter[int] = Counter()
    for each in events:
        for rule in each.rules:
            until = rule.until.wall.year if rule.until else rule.last.year
            changes[each.start.wall.year] += rule.times_a_year
            changes[min(until, rule.last.year) + 1] -= rule.times_a_year
    return max(accumulate(changes[year] for year in sorted(changes)), default=0)


class _Reader:
    """Reads events, and counts what they cost."""

    def __init__(self, problems: Problems) -> None:
        self.notes: list[str] = []
        self._problems = problems
        self._events = 0
        self._dates = 0
        self._steps_left = _MOST_STEPS

    def events(self, calendar: Component) -> Iterator[Event]:
        """Yield the events of a calendar."""
        version = calendar.one("VERSION")
        if version is not None and version.value.strip() != "2.0":
            self._problems.add(version.line, f"expected 2.0, found {shown(version.value)}", key="VERSION")
        zones = Zones((part for part in calendar.parts if part.name == "VTIMEZONE"), self._problems)
        for part in calendar.parts:
            if part.name == "VEVENT":
                yield from self._event(part, zones)
            elif part.name == "VFREEBUSY":
                self._problems.add(part.line, "it is not understood; expected events (VEVENT)", key="VFREEBUSY")
        for name in sorted({part.name for part in calendar.parts} & {"VTODO", "VJOURNAL"}):
            self.notes.append(f"{name} entries are no events: they are left alone")

    def _event(self, part: Component, zones: Zones) -> Iterator[Event]:
        try:
            self._count(part)
            found = event(part, zones)
            found = replace(found, rules=self._closed(found))
        except ValueError as error:
            self._problems.of(part, error)
            return
        if not found.length.rough and not found.more:
            self.notes.append(f"line {part.line}: {found.title} has no length, so it blocks nothing")
        yield found

    def _closed(self, found: Event) -> tuple[Rule, ...]:
        rules: list[Rule] = []
        for each in found.rules:
            rule, steps = each.closed(found.start.wall.date(), most=self._steps_left)
            self._steps_left -= steps
            rules.append(rule)
        return tuple(rules)

    def _count(self, part: Component) -> None:
        self._events += 1
        self._dates += sum(each.value.count(",") + 1 for each in part.properties if each.name in {"RDATE", "EXDATE"})
        for number, most, what in (
            (self._events, _MOST_EVENTS, "events"),
            (self._dates, _MOST_DATES, "listed dates"),
        ):
            if number > most:
                raise ValueError(f"expected at most {most} {what} in a file")
