"""Go's `time.Time`, `time.Duration`, `time.Month` and `time.Weekday`, with the methods that are useful in a message.

Methods that need a zone database (`In`) are omitted. `Local` is UTC, as in a container. A `Moment` has nanoseconds and
a time zone, like Go's `time.Time`.

A layout shows how Mon Jan 2 15:04:05 MST 2006 would be written (`nextStdChunk` in Go's src/time/format.go):

    format_time(moment, "Mon, 02 Jan 2006 15:04 MST")
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from haulout.compat.gotemplate.errors import Problem
from haulout.compat.gotemplate.numbers import MAX_INT, MIN_INT
from haulout.compat.gotemplate.types import (
    BOOL,
    FLOAT,
    INT,
    INT64,
    STRING,
    Kind,
    Method,
    Type,
    Value,
    register_converter,
)
from haulout.core import duration

_STRING_LAYOUT = "2006-01-02 15:04:05.999999999 -0700 MST"
_SECOND = 10**9

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - wall time, not an instant
_BILLION = 10**9
_YEARS = "a time outside of the years 1 to 9999"

MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_NOON = 12
# Longer elements come before their prefixes. A short name followed by lower-case letters is no element: `Month`,
# `Janet`. `_2006` is an underscore before a year.
_ELEMENT = re.compile(
    r"January|Jan(?![a-z])|Monday|Mon(?![a-z])|MST|_(?=2006)|__2|_2|002|0[1-6]|15|1|2006|2|[345]|PM|pm"
    r"|[-Z]07(?:0000|:00:00|00|:00)?|[.,](?:0+|9+)(?![0-9])"
)


def _name_formatter(names: tuple[str, ...], first: int, type_name: str) -> Callable[[int], str]:
    def text(number: int) -> str:
        known = first <= number < first + len(names)
        return names[number - first] if known else f"%!{type_name}({number})"

    return text


def _enumeration(name: str, names: tuple[str, ...], first: int) -> Type:
    text = _name_formatter(names, first, name)
    return Type(f"time.{name}", Kind.INT, text=text, methods={"String": Method(STRING, text)})


@dataclass(frozen=True, slots=True)
class Moment:
    """An instant: seconds and nanoseconds since 1970, and the zone in which it is shown."""

    seconds: int
    nanoseconds: int = 0
    offset: int = 0  # seconds east of UTC
    zone: str = "UTC"  # empty: only the offset is known

    @classmethod
    def from_datetime(cls, instant: datetime) -> "Moment":
        """Convert a datetime. A naive one is taken as UTC."""
        aware = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
        offset = aware.utcoffset() or timedelta()
        name = aware.tzname() or ""
        microseconds = (aware - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)
        return cls(
            microseconds // 10**6,
            microseconds % 10**6 * 1000,
            int(offset.total_seconds()),
            "" if name.startswith(("UTC+", "UTC-")) else name,  # Python's name of a bare offset
        )

    @property
    def local(self) -> datetime:
        """The wall time of the zone, to the second. Raise `Problem` if it is outside the years 1 to 9999."""
        try:
            return _EPOCH + timedelta(seconds=self.seconds + self.offset)
        except OverflowError:
            raise Problem(_YEARS) from None

    @property
    def day_of_year(self) -> int:
        """The day of the year, from 1."""
        return self.local.timetuple().tm_yday

    @property
    def total_nanoseconds(self) -> int:
        return self.seconds * _BILLION + self.nanoseconds

    @property
    def in_utc(self) -> "Moment":
        return Moment(self.seconds, self.nanoseconds)

    def at_nanoseconds(self, total: int) -> "Moment":
        """Return another instant in the same zone. Raise `Problem` if it is outside the years 1 to 9999."""
        moment = Moment(total // _BILLION, total % _BILLION, self.offset, self.zone)
        _ = moment.local
        return moment


def format_time_string(moment: Moment) -> str:
    """Return a moment as Go's `Time.String` prints it."""
    return format_time(moment, _STRING_LAYOUT)


def _source_text(moment: Moment) -> str:
    local = moment.local
    zone = f"time.{moment.zone}" if moment.zone in ("UTC", "Local") else f'time.Location("{moment.zone}")'
    clock = f"{local.hour}, {local.minute}, {local.second}, {moment.nanoseconds}"
    return f"time.Date({local.year}, time.{MONTHS[local.month - 1]}, {local.day}, {clock}, {zone})"


def _read_time(raw: object) -> Moment:
    if isinstance(raw, Moment):
        return raw
    return Moment.from_datetime(raw) if isinstance(raw, datetime) else ZERO


MONTH = _enumeration("Month", MONTHS, 1)
WEEKDAY = _enumeration("Weekday", WEEKDAYS, 0)
DURATION = Type("time.Duration", Kind.INT, text=duration.format_nanoseconds)

ZERO = Moment(-62_135_596_800)  # the first instant of the year 1: Go's zero time


def _format_offset(moment: Moment, rest: str) -> str:
    """Return the offset from UTC: hours, and the parts in `rest`: minutes and seconds, with or without colons."""
    minutes, seconds = divmod(abs(moment.offset), 60)
    sign = "-" if moment.offset <= -60 else "+"  # noqa: PLR2004 - Go treats less than a minute as no offset
    colon = ":" if ":" in rest else ""
    parts = [f"{minutes // 60:02}", f"{minutes % 60:02}", f"{seconds:02}"]
    return sign + colon.join(parts[: 1 + len(rest.replace(":", "")) // 2])


_FORMATTERS: dict[str, Callable[[Moment], str]] = {
    "January": lambda moment: MONTHS[moment.local.month - 1],
    "Jan": lambda moment: MONTHS[moment.local.month - 1][:3],
    "1": lambda moment: str(moment.local.month),
    "01": lambda moment: f"{moment.local.month:02}",
    "Monday": lambda moment: WEEKDAYS[moment.local.isoweekday() % 7],
    "Mon": lambda moment: WEEKDAYS[moment.local.isoweekday() % 7][:3],
    "2": lambda moment: str(moment.local.day),
    "_2": lambda moment: f"{moment.local.day:2}",
    "02": lambda moment: f"{moment.local.day:02}",
    "__2": lambda moment: f"{moment.day_of_year:3}",
    "002": lambda moment: f"{moment.day_of_year:03}",
    "15": lambda moment: f"{moment.local.hour:02}",
    "3": lambda moment: str(moment.local.hour % _NOON or _NOON),
    "03": lambda moment: f"{moment.local.hour % _NOON or _NOON:02}",
    "4": lambda moment: str(moment.local.minute),
    "04": lambda moment: f"{moment.local.minute:02}",
    "5": lambda moment: str(moment.local.second),
    "05": lambda moment: f"{moment.local.second:02}",
    "2006": lambda moment: f"{moment.local.year:04}",
    "06": lambda moment: f"{moment.local.year % 100:02}",
    "PM": lambda moment: "PM" if moment.local.hour >= _NOON else "AM",
    "pm": lambda moment: "pm" if moment.local.hour >= _NOON else "am",
    "MST": lambda moment: moment.zone or _format_offset(moment, "00"),
    "_": lambda _: "_",
}


def format_time(moment: Moment, layout: str) -> str:
    """Format a moment with a layout. What is no element of a layout is copied."""
    return _ELEMENT.sub(lambda element: _format_element(moment, element[0]), layout)


def _format_element(moment: Moment, element: str) -> str:
    if element in _FORMATTERS:
        return _FORMATTERS[element](moment)
    if element[0] in ".,":
        return _format_fraction(moment, element)
    if element[0] == "Z" and moment.offset == 0:
        return "Z"
    return _format_offset(moment, element[3:])


def _format_fraction(moment: Moment, element: str) -> str:
    digits = f"{moment.nanoseconds:09}"[: len(element) - 1]
    if element[1] == "0":
        return element[0] + digits
    return f"{element[0]}{digits}".rstrip("0").rstrip(".,")


TIME = Type("time.Time", Kind.STRUCT, read=_read_time, text=format_time_string, source_text=_source_text)


def _saturate(number: int) -> int:
    return max(MIN_INT, min(MAX_INT, number))


def _truncate_number(number: int, unit: int) -> int:
    return number if unit <= 0 else (abs(number) // unit * unit) * (-1 if number < 0 else 1)


def _round_number(number: int, unit: int) -> int:
    if unit <= 0:
        return number
    return (abs(number) + unit // 2) // unit * unit * (-1 if number < 0 else 1)


def _since_year_one(moment: Moment) -> int:
    return moment.total_nanoseconds - ZERO.total_nanoseconds


def _truncate(moment: Moment, unit: int) -> Moment:
    # Go truncates relative to the zero time, not to 1970. For a week, these differ.
    rest = _since_year_one(moment) % unit if unit > 0 else 0
    return moment.at_nanoseconds(moment.total_nanoseconds - rest)


def _round_time(moment: Moment, unit: int) -> Moment:
    rest = _since_year_one(moment) % unit if unit > 0 else 0
    up = unit - rest if rest * 2 >= unit > 0 else -rest
    return moment.at_nanoseconds(moment.total_nanoseconds + up)


def _add_date(moment: Moment, years: int, months: int, days: int) -> Moment:
    local = moment.local
    month = local.month - 1 + months
    try:
        first = local.replace(year=local.year + years + month // 12, month=month % 12 + 1, day=1)
        then = first + timedelta(days=local.day - 1 + days)
    except (ValueError, OverflowError):
        return moment.at_nanoseconds(10**30)  # raises the error for an unsupported year
    return replace(moment, seconds=moment.seconds + int((then - local).total_seconds()))


def _compare(first: Moment, second: Moment) -> int:
    return (first.total_nanoseconds > second.total_nanoseconds) - (first.total_nanoseconds < second.total_nanoseconds)


def _method(result: Type, call: Callable[[Moment], object]) -> Method:
    return Method(result, call)


TIME.methods.update(
    Format=Method(STRING, format_time, (STRING,)),
    String=Method(STRING, format_time_string),
    Unix=_method(INT64, lambda moment: moment.seconds),
    UnixMilli=_method(INT64, lambda moment: moment.total_nanoseconds // 10**6),
    UnixMicro=_method(INT64, lambda moment: moment.total_nanoseconds // 1000),
    UnixNano=_method(INT64, lambda moment: moment.total_nanoseconds),
    Year=_method(INT, lambda moment: moment.local.year),
    Month=_method(MONTH, lambda moment: moment.local.month),
    Day=_method(INT, lambda moment: moment.local.day),
    Hour=_method(INT, lambda moment: moment.local.hour),
    Minute=_method(INT, lambda moment: moment.local.minute),
    Second=_method(INT, lambda moment: moment.local.second),
    Nanosecond=_method(INT, lambda moment: moment.nanoseconds),
    Weekday=_method(WEEKDAY, lambda moment: moment.local.isoweekday() % 7),
    YearDay=_method(INT, lambda moment: moment.day_of_year),
    IsZero=_method(BOOL, lambda moment: moment.total_nanoseconds == ZERO.total_nanoseconds),
    UTC=_method(TIME, lambda moment: moment.in_utc),
    Local=_method(TIME, lambda moment: moment.in_utc),
    Add=Method(TIME, lambda moment, by: moment.at_nanoseconds(moment.total_nanoseconds + by), (DURATION,)),
    AddDate=Method(TIME, _add_date, (INT, INT, INT)),
    Sub=Method(DURATION, lambda moment, other: _saturate(_since_year_one(moment) - _since_year_one(other)), (TIME,)),
    Truncate=Method(TIME, _truncate, (DURATION,)),
    Round=Method(TIME, _round_time, (DURATION,)),
    Before=Method(BOOL, lambda moment, other: _compare(moment, other) < 0, (TIME,)),
    After=Method(BOOL, lambda moment, other: _compare(moment, other) > 0, (TIME,)),
    Equal=Method(BOOL, lambda moment, other: _compare(moment, other) == 0, (TIME,)),
    Compare=Method(INT, _compare, (TIME,)),
)

DURATION.methods.update(
    String=Method(STRING, duration.format_nanoseconds),
    Hours=Method(FLOAT, lambda length: length / (3600 * _SECOND)),
    Minutes=Method(FLOAT, lambda length: length / (60 * _SECOND)),
    Seconds=Method(FLOAT, lambda length: length / _SECOND),
    Milliseconds=Method(INT64, lambda length: _truncate_number(length, 10**6) // 10**6),
    Microseconds=Method(INT64, lambda length: _truncate_number(length, 1000) // 1000),
    Nanoseconds=Method(INT64, lambda length: length),
    Truncate=Method(DURATION, _truncate_number, (DURATION,)),
    Round=Method(DURATION, lambda length, unit: _saturate(_round_number(length, unit)), (DURATION,)),
    Abs=Method(DURATION, lambda length: _saturate(abs(length))),
)

register_converter(Moment, lambda raw: Value(TIME, raw))
register_converter(datetime, lambda raw: Value(TIME, Moment.from_datetime(raw)))
register_converter(timedelta, lambda raw: Value(DURATION, _saturate(raw // timedelta(microseconds=1) * 1000)))
