"""Go's `time.Time`, `time.Duration`, `time.Month` and `time.Weekday`, with the methods that are useful in a message.

Methods that need a zone database (`In`) are omitted. `Local` is UTC, as in a container.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from haulout.compat.gotemplate import layouts
from haulout.compat.gotemplate.moments import ZERO, Moment
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


def _name_formatter(names: tuple[str, ...], first: int, type_name: str) -> Callable[[int], str]:
    def text(number: int) -> str:
        known = first <= number < first + len(names)
        return names[number - first] if known else f"%!{type_name}({number})"

    return text


def _enumeration(name: str, names: tuple[str, ...], first: int) -> Type:
    text = _name_formatter(names, first, name)
    return Type(f"time.{name}", Kind.INT, text=text, methods={"String": Method(STRING, text)})


def format_time_string(moment: Moment) -> str:
    """Return a moment as Go's `Time.String` prints it."""
    return layouts.format_time(moment, _STRING_LAYOUT)


def _source_text(moment: Moment) -> str:
    local = moment.local
    zone = f"time.{moment.zone}" if moment.zone in ("UTC", "Local") else f'time.Location("{moment.zone}")'
    clock = f"{local.hour}, {local.minute}, {local.second}, {moment.nanoseconds}"
    return f"time.Date({local.year}, time.{layouts.MONTHS[local.month - 1]}, {local.day}, {clock}, {zone})"


def _read_time(raw: object) -> Moment:
    if isinstance(raw, Moment):
        return raw
    return Moment.from_datetime(raw) if isinstance(raw, datetime) else ZERO


MONTH = _enumeration("Month", layouts.MONTHS, 1)
WEEKDAY = _enumeration("Weekday", layouts.WEEKDAYS, 0)
DURATION = Type("time.Duration", Kind.INT, text=duration.format_nanoseconds)
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
    Format=Method(STRING, layouts.format_time, (STRING,)),
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
