"""The iCalendar syntax: folded lines, properties with parameters, nested components.

    DTSTART;TZID=Europe/Berlin:20261224T180000

This module does not interpret properties. The parser never raises: it records each error with its line and continues,
so that a user sees all errors at once. The time for a hostile file is linear in its size, which is limited to the
maximum of a ConfigMap, and there is no recursion. Most of a typical file is attendees, alarms and colors: properties
that the caller does not need are skipped without parsing.

Values are dates, times, periods and durations, as in RFC 5545. A `CalendarTime` preserves what was written: the
wall time, with or without a zone. A time without a zone ("floating") and a whole day are in the reader's time zone, so
the conversion to an instant needs that zone.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from haulout.core import walltime
from haulout.errors import ConfigError, ConfigErrors

MAX_BYTES = 1024 * 1024
# A user corrects a few errors at a time. A file of another kind would have thousands.
_MAX_PROBLEMS = 20
_MAX_DEPTH = 8
_MAX_ABBREVIATED = 60

_NAME = re.compile(r"[A-Za-z0-9-]+", re.ASCII)
_PARAMETER = re.compile(r';([A-Za-z0-9-]+)=((?:"[^"]*"|[^";:,]*)(?:,(?:"[^"]*"|[^";:,]*))*)', re.ASCII)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)

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
class Property:
    """One line: `name;parameters:value`. Names are in upper case."""

    line: int
    name: str
    parameters: Mapping[str, str]
    value: str

    @property
    def text(self) -> str:
        """The value as text, with escapes (a backslash before a comma, an n and so on) resolved."""
        return _ESCAPED.sub(lambda found: "\n" if found[1] in "nN" else found[1], self.value)


@dataclass(slots=True)
class Component:
    """The properties and inner components between BEGIN and END."""

    name: str
    line: int
    properties: list[Property] = field(default_factory=list)
    components: list["Component"] = field(default_factory=list)

    def get_all(self, name: str) -> list[Property]:
        """Return the properties with this name, in the order of the file."""
        return [line for line in self.properties if line.name == name]

    def get(self, name: str) -> Property | None:
        return next((line for line in self.properties if line.name == name), None)


class PropertyError(ValueError):
    """The value of a property is invalid."""

    def __init__(self, problem: str, line: Property) -> None:
        super().__init__(problem)
        self.line = line


@contextmanager
def property_errors(line: Property) -> Iterator[None]:
    """Convert a ValueError in the context to a `PropertyError` of this property."""
    try:
        yield
    except PropertyError:
        raise
    except ValueError as error:
        raise PropertyError(str(error), line) from None


class ErrorCollector:
    """Collects the errors of a file, up to a limit."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._errors: list[ConfigError] = []

    def add(self, line: int, text: str, *, key: str | None = None) -> None:
        if len(self._errors) < _MAX_PROBLEMS:
            self._errors.append(ConfigError(text, file=self._file, line=line, key=key))

    def add_component_error(self, component: "Component", error: ValueError) -> None:
        """Add an error of a component, or of one of its properties."""
        if isinstance(error, PropertyError):
            self.add(error.line.line, str(error), key=error.line.name)
        else:
            self.add(component.line, str(error), key=component.name)

    def raise_if_any(self) -> None:
        if self._errors:
            raise ConfigErrors(self._errors)


def parse_components(data: bytes, property_names: Collection[str], problems: ErrorCollector) -> list[Component]:
    """Return the calendars of a file, with the given properties only."""
    if len(data) > MAX_BYTES:
        problems.add(1, f"expected at most {MAX_BYTES} bytes, found {len(data)}")
        return []
    names = {name.encode() for name in (*property_names, "BEGIN", "END")}
    root = Component("", 0)
    open_components = [root]
    for line, raw in _unfold(data):
        name = raw.partition(b":")[0].partition(b";")[0].upper()
        # Lines without a separator are parsed, too, so that they are reported as errors.
        if name not in names and name != raw.upper():
            continue
        text = _decode(line, raw, problems)
        line_property = _parse_property(line, text)
        if line_property is None:
            problems.add(line, f"expected a line such as SUMMARY:Freeze, found {abbreviate(text)}")
            if open_components == [root]:
                return []  # another kind of file, such as a web page: every line would be an error
        elif line_property.name == "BEGIN":
            _begin(line_property, open_components, problems)
        elif line_property.name == "END":
            _end(line_property, open_components, problems)
        else:
            open_components[-1].properties.append(line_property)
    for unclosed in open_components[1:]:
        problems.add(unclosed.line, f"expected END:{unclosed.name} for this; the file seems to be cut off")
    return root.components


def abbreviate(text: str) -> str:
    """Return a text for a message, shortened if it is long."""
    return repr(text if len(text) <= _MAX_ABBREVIATED else f"{text[:_MAX_ABBREVIATED]}…")


def _begin(begin: Property, open_components: list[Component], problems: ErrorCollector) -> None:
    component = Component(begin.value.strip().upper(), begin.line)
    if len(open_components) == 1 and component.name != "VCALENDAR":
        problems.add(component.line, f"expected BEGIN:VCALENDAR, found BEGIN:{abbreviate(component.name)}")
    if len(open_components) > _MAX_DEPTH:
        problems.add(component.line, f"expected at most {_MAX_DEPTH} components inside each other")
        return
    open_components[-1].components.append(component)
    open_components.append(component)


def _end(end: Property, open_components: list[Component], problems: ErrorCollector) -> None:
    name = end.value.strip().upper()
    if name == open_components[-1].name and len(open_components) > 1:
        open_components.pop()
        return
    expected = f"END:{open_components[-1].name}" if open_components[-1].name else "BEGIN:VCALENDAR"
    problems.add(end.line, f"expected {expected}, found END:{name}")


def _unfold(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield unfolded lines with their line numbers. Lines may be folded between the bytes of a character."""
    folded: list[bytes] = []
    first_line = 1
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if line[:1] in {b" ", b"\t"} and folded:
            folded.append(line.removesuffix(b"\r")[1:])
            continue
        if unfolded := b"".join(folded).strip():
            yield first_line, unfolded
        folded, first_line = [line.removesuffix(b"\r")], number
    if unfolded := b"".join(folded).strip():
        yield first_line, unfolded


def _decode(number: int, line: bytes, problems: ErrorCollector) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        problems.add(number, "expected text in UTF-8, found other bytes")
        return line.decode(errors="replace")


def _parse_property(line: int, text: str) -> Property | None:
    name = _NAME.match(text)
    if name is None:
        return None
    position = name.end()
    parameters: dict[str, str] = {}
    while found := _PARAMETER.match(text, position):
        parameters[found[1].upper()] = found[2].strip('"')
        position = found.end()
    if text[position : position + 1] != ":":
        return None
    return Property(line, name[0].upper(), parameters, text[position + 1 :])


@dataclass(frozen=True, slots=True)
class CalendarTime:
    """A day, or a wall time in a zone. `zone` is None for the reader's zone."""

    wall: datetime
    zone: tzinfo | None
    is_day: bool = False

    def instant(self, default_zone: tzinfo, *, last: bool = False) -> datetime:
        return walltime.instant(self.wall, self.zone or default_zone, last=last and not self.is_day)

    def shifted(self, by: timedelta) -> "CalendarTime":
        return CalendarTime(self.wall + by, self.zone, self.is_day)

    def on_day(self, day: date) -> "CalendarTime":
        return CalendarTime(datetime.combine(day, self.wall.time()), self.zone, self.is_day)


@dataclass(frozen=True, slots=True)
class CalendarDuration:
    """A duration: first in wall time (`nominal`), then in elapsed time (`exact`).

    Days are wall time and hours are elapsed time (RFC 5545, 3.3.6): P1D over a clock change is not PT24H.
    """

    nominal: timedelta = timedelta()
    exact: timedelta = timedelta()

    @property
    def approximate(self) -> timedelta:
        """The length if there is no clock change. It may be wrong by the size of one."""
        return self.nominal + self.exact

    def latest_end(self, start: CalendarTime, default_zone: tzinfo) -> datetime:
        """Return the last possible end: where a wall time exists twice, that of the second."""
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
    """Parse a start with a duration or an end: `20261224T180000Z/PT2H`. Raise ValueError."""
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
