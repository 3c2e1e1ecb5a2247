"""CEL's functions with the types of their arguments. A method is a function whose first argument is its target."""

import functools
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from haulout.core import duration, quantity
from haulout.core.quantity import Quantity
from haulout_sandbox.apiserver.cel.values import OPERATORS, CelError, contains, equal, less, no_overload, type_of

Function = Callable[..., Any]

_SECOND = timedelta(seconds=1)
_NANO = 10**9
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_overloads: dict[tuple[str, int], list[tuple[tuple[type, ...], Function]]] = {}


def find(name: str, count: int) -> Function | None:
    """Return the function with this number of arguments, or None."""
    candidates = _overloads.get((name, count))
    if candidates is None:
        return None

    def call(*arguments: Any) -> Any:
        for types, function in candidates:
            if all(map(_is_instance, arguments, types)):
                return function(*arguments)
        raise no_overload()

    return call


def _is_instance(value: Any, kind: type) -> bool:
    return type(value) is int if kind is int else isinstance(value, kind)


def _register(types: tuple[type, ...], **functions: Function) -> None:
    for name, function in functions.items():
        _overloads.setdefault((name, len(types)), []).append((types, function))


def _parse_as(kind: str, parse: Callable[[Any], Any], text: Any) -> Any:
    try:
        return parse(text)
    except (ValueError, OverflowError, KeyError, OSError):
        raise CelError(f"{text!r} is no {kind}") from None


# Strings


@functools.cache
def compile_pattern(source: str) -> re.Pattern[str]:
    """Return a compiled RE2 pattern, as far as Python's syntax agrees; `$` matches only at the very end."""
    try:
        return re.compile(re.sub(r"(?<!\\)\$$", r"\\Z", source), re.ASCII)
    except re.error as error:
        raise ValueError(f"{source} is no regular expression: {error}") from None


def _find_matches(text: str, source: str) -> list[str]:
    return [each[0] for each in _parse_as("regular expression", compile_pattern, source).finditer(text)]


def _substring(text: str, start: int, end: int | None = None) -> str:
    end = len(text) if end is None else end
    if not 0 <= start <= end <= len(text):
        raise CelError(f"index out of range: {start}:{end}")
    return text[start:end]


def _join(items: list[Any], separator: str = "") -> str:
    if not all(isinstance(item, str) for item in items):
        raise no_overload()
    return separator.join(items)


def _format(template: str, values: list[Any]) -> str:
    remaining = iter(values)

    def format_value(match: re.Match[str]) -> str:
        if match[0] == "%%":
            return "%"
        try:
            value = next(remaining)
            return _string(value) if match[2] == "s" else f"{value:{match[1] or ''}{match[2]}}"
        except (StopIteration, ValueError, TypeError):
            raise CelError(f"no value for {match[0]}") from None

    return re.sub(r"%(?:%|(\.\d+)?([sdfex]))", format_value, template)


_sized: tuple[type, ...] = (str, list, dict)
for _kind in _sized:
    _register((_kind,), size=len)
_register(
    (str, str),
    contains=str.__contains__,
    startsWith=str.startswith,
    endsWith=str.endswith,
    matches=lambda text, source: bool(_find_matches(text, source)),
    find=lambda text, source: (_find_matches(text, source) or [""])[0],
    findAll=_find_matches,
    indexOf=str.find,
    lastIndexOf=str.rfind,
    split=lambda text, separator: text.split(separator) if separator else list(text),
)
_register(
    (str,),
    lowerAscii=lambda text: text.encode().lower().decode(),
    upperAscii=lambda text: text.encode().upper().decode(),
    trim=str.strip,
)
_register((str, str, str), replace=str.replace)
_register((str, int), substring=_substring, charAt=lambda text, at: _substring(text, at, at + 1))
_register((str, int, int), substring=_substring)
_register((str, list), format=_format)
_register((list,), join=_join)
_register((list, str), join=_join)

# Lists


def _sorted(items: list[Any]) -> list[Any]:
    return sorted(items, key=functools.cmp_to_key(lambda one, other: less(other, one) - less(one, other)))


def _extreme(items: list[Any], index: int) -> Any:
    if not items:
        raise CelError("the list is empty")
    return _sorted(items)[index]


def _distinct(items: list[Any]) -> list[Any]:
    distinct: list[Any] = []
    for item in items:
        if not contains(distinct, item):
            distinct.append(item)
    return distinct


_register(
    (list,),
    sum=lambda items: functools.reduce(OPERATORS["_+_"], items) if items else 0,
    min=lambda items: _extreme(items, 0),
    max=lambda items: _extreme(items, -1),
    sort=_sorted,
    isSorted=lambda items: not any(map(less, items[1:], items)),
    reverse=lambda items: items[::-1],
    distinct=_distinct,
)
_register(
    (list, object),
    indexOf=lambda items, item: next((at for at, each in enumerate(items) if equal(each, item)), -1),
)

# Conversions


def _int(value: Any) -> int:
    return int((value - _EPOCH) // _SECOND) if isinstance(value, datetime) else int(value)


def _string(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case datetime():
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case timedelta():
            return f"{value / _SECOND:g}s"
        case float():
            return f"{value:g}"
        case list():
            return f"[{', '.join(map(_string, value))}]"
    return str(value)


def parse_timestamp(text: str) -> datetime:
    """Return the instant of an RFC 3339 string; raise `ValueError` if it is invalid."""
    time = datetime.fromisoformat(text)
    if time.tzinfo is None or "T" not in text.upper():
        raise ValueError(text)
    return time


for _kind in (str, int, float, datetime):
    _register((_kind,), int=lambda value: _parse_as("whole number", _int, value))
for _kind in (str, int, float):
    _register((_kind,), double=lambda value: _parse_as("number", float, value))
for _kind in (str, bool, int, float, datetime, timedelta):
    _register((_kind,), string=_string)
_register((bool,), bool=bool)
_register((str,), bool=lambda text: _parse_as("boolean", {"true": True, "false": False}.__getitem__, text))
_register((object,), dyn=lambda value: value, type=type_of)

# Times


def _in_zone(time: datetime, zone: str) -> datetime:
    offset = re.fullmatch(r"[+-]\d\d:\d\d", zone)
    tzinfo = datetime.strptime(zone, "%z").tzinfo if offset else _parse_as("time zone", ZoneInfo, zone)
    return time.astimezone(tzinfo)


_register((str,), duration=lambda text: _parse_as("duration", duration.parse, text))
_register((str,), timestamp=lambda text: _parse_as("timestamp", parse_timestamp, text))
_register((int,), timestamp=lambda seconds: _EPOCH + timedelta(seconds=seconds))
_TIMESTAMP_GETTERS: dict[str, Callable[[datetime], int]] = {
    "getFullYear": lambda at: at.year,
    "getMonth": lambda at: at.month - 1,
    "getDate": lambda at: at.day,
    "getDayOfMonth": lambda at: at.day - 1,
    "getDayOfWeek": lambda at: at.isoweekday() % 7,
    "getDayOfYear": lambda at: at.timetuple().tm_yday - 1,
    "getHours": lambda at: at.hour,
    "getMinutes": lambda at: at.minute,
    "getSeconds": lambda at: at.second,
}
for _name, _part in _TIMESTAMP_GETTERS.items():
    _register((datetime,), **{_name: lambda at, part=_part: part(at.astimezone(UTC))})
    _register((datetime, str), **{_name: lambda at, zone, part=_part: part(_in_zone(at, zone))})
_register(
    (timedelta,),
    getHours=lambda span: int(span / timedelta(hours=1)),
    getMinutes=lambda span: int(span / timedelta(minutes=1)),
    getSeconds=lambda span: int(span / _SECOND),
)

# Quantities


def _is_quantity(text: str) -> bool:
    try:
        quantity.parse(text)
    except ValueError:
        return False
    return True


_register((str,), quantity=lambda text: _parse_as("quantity", quantity.parse, text), isQuantity=_is_quantity)
_register(
    (Quantity, Quantity),
    isGreaterThan=lambda one, other: one > other,
    isLessThan=lambda one, other: one < other,
    compareTo=lambda one, other: (one > other) - (one < other),
    add=lambda one, other: one + other,
    sub=lambda one, other: one - other,
)
_register(
    (Quantity,),
    sign=lambda amount: (amount.nano > 0) - (amount.nano < 0),
    asInteger=lambda amount: amount.value,
    asApproximateFloat=lambda amount: amount.nano / _NANO,
)
