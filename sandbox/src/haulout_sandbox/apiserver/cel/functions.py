"""CEL's functions: each with the types that it takes. A method is a function whose first argument is its target."""

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
    """Return the function that takes so many values; None if there is none."""
    candidates = _overloads.get((name, count))
    if candidates is None:
        return None

    def call(*arguments: Any) -> Any:
        for types, function in candidates:
            if all(map(_is, arguments, types)):
                return function(*arguments)
        raise no_overload()

    return call


def _is(value: Any, kind: type) -> bool:
    return type(value) is int if kind is int else isinstance(value, kind)


def _define(types: tuple[type, ...], **named: Function) -> None:
    for name, function in named.items():
        _overloads.setdefault((name, len(types)), []).append((types, function))


def _parsed(kind: str, parse: Callable[[Any], Any], text: Any) -> Any:
    try:
        return parse(text)
    except (ValueError, OverflowError, KeyError, OSError):
        raise CelError(f"{text!r} is no {kind}") from None


# Texts


@functools.cache
def pattern(source: str) -> re.Pattern[str]:
    """Return a regular expression of RE2's, as far as Python's are the same; `$` is the very end of a text."""
    try:
        return re.compile(re.sub(r"(?<!\\)\$$", r"\\Z", source), re.ASCII)
    except re.error as error:
        raise ValueError(f"{source} is no regular expression: {error}") from None


def _found(text: str, source: str) -> list[str]:
    return [each[0] for each in _parsed("regular expression", pattern, source).finditer(text)]


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
    rest = iter(values)

    def filled(found: re.Match[str]) -> str:
        if found[0] == "%%":
            return "%"
        try:
            value = next(rest)
            return _string(value) if found[2] == "s" else f"{value:{found[1] or ''}{found[2]}}"
        except (StopIteration, ValueError, TypeError):
            raise CelError(f"no value for {found[0]}") from None

    return re.sub(r"%(?:%|(\.\d+)?([sdfex]))", filled, template)


_sized: tuple[type, ...] = (str, list, dict)
for _kind in _sized:
    _define((_kind,), size=len)
_define(
    (str, str),
    contains=str.__contains__,
    startsWith=str.startswith,
    endsWith=str.endswith,
    matches=lambda text, source: bool(_found(text, source)),
    find=lambda text, source: (_found(text, source) or [""])[0],
    findAll=_found,
    indexOf=str.find,
    lastIndexOf=str.rfind,
    split=lambda text, separator: text.split(separator) if separator else list(text),
)
_define(
    (str,),
    lowerAscii=lambda text: text.encode().lower().decode(),
    upperAscii=lambda text: text.encode().upper().decode(),
    trim=str.strip,
)
_define((str, str, str), replace=str.replace)
_define((str, int), substring=_substring, charAt=lambda text, at: _substring(text, at, at + 1))
_define((str, int, int), substring=_substring)
_define((str, list), format=_format)
_define((list,), join=_join)
_define((list, str), join=_join)

# Lists


def _sorted(items: list[Any]) -> list[Any]:
    return sorted(items, key=functools.cmp_to_key(lambda one, other: less(other, one) - less(one, other)))


def _extreme(items: list[Any], at: int) -> Any:
    if not items:
        raise CelError("the list is empty")
    return _sorted(items)[at]


def _distinct(items: list[Any]) -> list[Any]:
    kept: list[Any] = []
    for item in items:
        if not contains(kept, item):
            kept.append(item)
    return kept


_define(
    (list,),
    sum=lambda items: functools.reduce(OPERATORS["_+_"], items) if items else 0,
    min=lambda items: _extreme(items, 0),
    max=lambda items: _extreme(items, -1),
    sort=_sorted,
    isSorted=lambda items: not any(map(less, items[1:], items)),
    reverse=lambda items: items[::-1],
    distinct=_distinct,
)
_define(
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


def instant(text: str) -> datetime:
    """Return the instant that RFC 3339 writes so; raise `ValueError` if that is none."""
    found = datetime.fromisoformat(text)
    if found.tzinfo is None or "T" not in text.upper():
        raise ValueError(text)
    return found


for _kind in (str, int, float, datetime):
    _define((_kind,), int=lambda value: _parsed("whole number", _int, value))
for _kind in (str, int, float):
    _define((_kind,), double=lambda value: _parsed("number", float, value))
for _kind in (str, bool, int, float, datetime, timedelta):
    _define((_kind,), string=_string)
_define((bool,), bool=bool)
_define((str,), bool=lambda text: _parsed("boolean", {"true": True, "false": False}.__getitem__, text))
_define((object,), dyn=lambda value: value, type=type_of)

# Times


def _in_zone(at: datetime, zone: str) -> datetime:
    offset = re.fullmatch(r"[+-]\d\d:\d\d", zone)
    found = datetime.strptime(zone, "%z").tzinfo if offset else _parsed("time zone", ZoneInfo, zone)
    return at.astimezone(found)


_define((str,), duration=lambda text: _parsed("duration", duration.parse, text))
_define((str,), timestamp=lambda text: _parsed("timestamp", instant, text))
_define((int,), timestamp=lambda seconds: _EPOCH + timedelta(seconds=seconds))
_PARTS: dict[str, Callable[[datetime], int]] = {
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
for _name, _part in _PARTS.items():
    _define((datetime,), **{_name: lambda at, part=_part: part(at.astimezone(UTC))})
    _define((datetime, str), **{_name: lambda at, zone, part=_part: part(_in_zone(at, zone))})
_define(
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


_define((str,), quantity=lambda text: _parsed("quantity", quantity.parse, text), isQuantity=_is_quantity)
_define(
    (Quantity, Quantity),
    isGreaterThan=lambda one, other: one > other,
    isLessThan=lambda one, other: one < other,
    compareTo=lambda one, other: (one > other) - (one < other),
    add=lambda one, other: one + other,
    sub=lambda one, other: one - other,
)
_define(
    (Quantity,),
    sign=lambda amount: (amount.nano > 0) - (amount.nano < 0),
    asInteger=lambda amount: amount.value,
    asApproximateFloat=lambda amount: amount.nano / _NANO,
)
