"""CEL's functions, as far as the rules of custom resources use them: each with the types it takes.

Of what Kubernetes 1.36 offers there are not: url, ip, cidr, quantity, semver, format, authorizer, comprehensions with
two variables, sortBy. A rule that calls one is refused when its CustomResourceDefinition is created.
"""

import functools
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

from haulout.core import duration
from haulout_sandbox.apiserver import fields, formats
from haulout_sandbox.apiserver.cel_syntax import Uint
from haulout_sandbox.apiserver.cel_values import (
    CelError,
    Maybe,
    Type,
    added,
    contains,
    equal,
    in_range,
    less,
    no_overload,
    type_name,
)

Function = Callable[..., Any]
NAMESPACES = frozenset({"sets", "optional", "lists"})

_OFFSET = re.compile(r"([+-]?)(\d\d):(\d\d)")
_INSTANT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)")
_CLAUSE = re.compile(r"%(?:%|(\.\d+)?([sdfexXob]))")
_MILLISECOND = timedelta(milliseconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_overloads: dict[tuple[str, bool], list[tuple[tuple[type, ...], Function]]] = {}


def find(name: str, *, member: bool, count: int) -> Function | None:
    """Return the function that takes `count` arguments, its target among them; None if there is none."""
    candidates = [each for each in _overloads.get((name, member), ()) if len(each[0]) == count]
    if not candidates:
        return None

    def call(*arguments: Any) -> Any:
        for types, function in candidates:
            if all(map(_is, arguments, types)):
                return function(*arguments)
        raise no_overload()

    return call


def exists(name: str) -> bool:
    """Tell whether any function has this name."""
    return any(known == name for known, _ in _overloads)


def _is(value: Any, kind: type) -> bool:
    return type(value) is int if kind is int else isinstance(value, kind)


def _define(name: str, *types: type, member: bool = True) -> Callable[[Function], Function]:
    def remember(function: Function) -> Function:
        _overloads.setdefault((name, member), []).append((types, function))
        return function

    return remember


def _define_all(functions: dict[str, Function], *types: type, member: bool = True) -> None:
    for name, function in functions.items():
        _define(name, *types, member=member)(function)


def _define_each(functions: dict[str, Function], *types: type, member: bool = True) -> None:
    for kind in types:
        _define_all(functions, kind, member=member)


# Sizes and strings

_define_each({"size": len}, str, bytes, list, dict)
_define_each({"size": len}, str, bytes, list, dict, member=False)


def _matches(text: str, pattern: str) -> bool:
    return bool(_pattern(pattern).search(text))


def _pattern(source: str) -> re.Pattern[str]:
    try:
        return formats.pattern(source)
    except formats.PatternError as error:
        raise CelError(f"error parsing regexp: {error}") from None


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    found = [each[0] for each in _pattern(pattern).finditer(text)]
    return found if limit < 0 else found[:limit]


def _at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise CelError(f"index out of range: {index}")
    return text[index : index + 1]


def _index(text: str, part: str, start: int = 0) -> int:
    _at(text, start)
    return text.find(part, start)


def _last_index(text: str, part: str, start: int | None = None) -> int:
    if start is not None:
        _at(text, start)
    return text.rfind(part) if start is None else text.rfind(part, 0, start + len(part))


def _substring(text: str, start: int, end: int | None = None) -> str:
    end = len(text) if end is None else end
    if start > end:
        raise CelError(f"invalid substring range. start: {start}, end: {end}")
    _at(text, start)
    _at(text, end)
    return text[start:end]


def _split(text: str, separator: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    if not separator:
        return list(text) if limit < 0 else [*text[: limit - 1], text[limit - 1 :]]
    return text.split(separator, limit - 1 if limit > 0 else -1)


def _join(items: list[Any], separator: str = "") -> str:
    if not all(isinstance(item, str) for item in items):
        raise no_overload()
    return separator.join(items)


def _ascii(text: str, change: Callable[[str], str]) -> str:
    return "".join(change(character) if character.isascii() else character for character in text)


def _replace(text: str, old: str, new: str, limit: int = -1) -> str:
    return text.replace(old, new, limit)


def _format(template: str, values: list[Any]) -> str:
    rest = iter(values)

    def filled(found: re.Match[str]) -> str:
        if found[0] == "%%":
            return "%"
        value = next(rest, rest)
        if value is rest:
            raise CelError(f"index {len(values)} out of range")
        return _formatted(value, found[2], found[1])

    return _CLAUSE.sub(filled, template)


def _formatted(value: Any, verb: str, precision: str | None) -> str:
    if verb == "s":
        return _shown(value)
    if verb in "fe":
        return f"{value:{precision or '.6'}{verb}}"
    return f"{value:{verb}}" if not isinstance(value, str) else value.encode().hex()


def _shown(value: Any) -> str:
    match value:
        case list():
            return f"[{', '.join(map(_shown, value))}]"
        case dict():
            return f"{{{', '.join(sorted(f'{_shown(name)}: {_shown(item)}' for name, item in value.items()))}}}"
        case None:
            return "null"
        case Type():
            return value.name
    return str(_string(value))


_define_all(
    {
        "contains": str.__contains__,
        "startsWith": str.startswith,
        "endsWith": str.endswith,
        "matches": _matches,
        "find": lambda text, pattern: (_find_all(text, pattern, 1) or [""])[0],
        "findAll": _find_all,
        "indexOf": _index,
        "lastIndexOf": _last_index,
        "split": _split,
    },
    str,
    str,
)
_define_all({"matches": _matches}, str, str, member=False)
_define_all({"findAll": _find_all, "indexOf": _index, "lastIndexOf": _last_index, "split": _split}, str, str, int)
_define_all({"charAt": _at, "substring": _substring}, str, int)
_define_all({"substring": _substring}, str, int, int)
_define_all({"replace": _replace}, str, str, str)
_define_all({"replace": _replace}, str, str, str, int)
_define_all(
    {
        "lowerAscii": lambda text: _ascii(text, str.lower),
        "upperAscii": lambda text: _ascii(text, str.upper),
        "trim": str.strip,
    },
    str,
)
_define_all({"join": _join}, list)
_define_all({"join": _join}, list, str)
_define_all({"format": _format}, str, list)

# Lists and sets


def _sorted(items: list[Any]) -> list[Any]:
    return sorted(items, key=functools.cmp_to_key(lambda one, other: less(other, one) - less(one, other)))


def _extreme(items: list[Any], at: int, name: str) -> Any:
    if not items:
        raise CelError(f"{name} called on empty list")
    return _sorted(items)[at]


def _sum(items: list[Any]) -> Any:
    return functools.reduce(added, items) if items else 0


def _positions(items: list[Any], item: Any) -> list[int]:
    return [at for at, each in enumerate(items) if equal(each, item)] or [-1]


def _slice(items: list[Any], start: int, end: int) -> list[Any]:
    if start < 0 or end < 0:
        raise CelError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise CelError(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if end > len(items):
        raise CelError(f"cannot slice({start}, {end}), list is length {len(items)}")
    return items[start:end]


def _flatten(items: list[Any], depth: int = 1) -> list[Any]:
    if depth < 0:
        raise CelError("level must be non-negative")
    if not depth:
        return items
    parts = (_flatten(item, depth - 1) if isinstance(item, list) else [item] for item in items)
    return [item for part in parts for item in part]


def _distinct(items: Sequence[Any]) -> list[Any]:
    kept: list[Any] = []
    for item in items:
        if not contains(kept, item):
            kept.append(item)
    return kept


def _within(items: list[Any], part: list[Any]) -> bool:
    return all(contains(items, item) for item in part)


_define_all(
    {
        "isSorted": lambda items: not any(map(less, items[1:], items)),
        "sum": _sum,
        "min": lambda items: _extreme(items, 0, "min"),
        "max": lambda items: _extreme(items, -1, "max"),
        "sort": _sorted,
        "reverse": lambda items: items[::-1],
        "distinct": _distinct,
        "flatten": _flatten,
    },
    list,
)
_define_all({"flatten": _flatten}, list, int)
_define_all({"slice": _slice}, list, int, int)
_define_all(
    {
        "indexOf": lambda items, item: _positions(items, item)[0],
        "lastIndexOf": lambda items, item: _positions(items, item)[-1],
    },
    list,
    object,
)
_define_all({"lists.range": lambda count: list(range(count))}, int, member=False)
_define_all(
    {
        "sets.contains": _within,
        "sets.equivalent": lambda one, other: _within(one, other) and _within(other, one),
        "sets.intersects": lambda one, other: any(contains(one, item) for item in other),
    },
    list,
    list,
    member=False,
)

# Conversions


def _int(value: Any) -> int:
    match value:
        case str():
            return int(in_range(_parsed(value, r"[+-]?\d+", int, "ParseInt")))
        case float() if not abs(value) < float(1 << 63):
            raise CelError("integer overflow")
        case datetime():
            return int((value - _EPOCH) // timedelta(seconds=1))
    return int(in_range(int(value)))


def _uint(value: Any) -> Uint:
    number = _parsed(value, r"\d+", int, "ParseUint") if isinstance(value, str) else int(value)
    if number < 0:
        raise CelError("unsigned integer overflow")
    return Uint(in_range(Uint(number)))


def _double(value: Any) -> float:
    return float(_parsed(value, r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", float, "ParseFloat"))


def _parsed(text: str, shape: str, kind: Callable[[str], Any], name: str) -> Any:
    if not re.fullmatch(shape, text):
        raise CelError(f"strconv.{name}: parsing {fields.quoted(text)}: invalid syntax")
    return kind(text)


def _string(value: Any) -> str:
    match value:
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                raise CelError("invalid UTF-8 in bytes, cannot convert to string") from None
        case datetime():
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case timedelta():
            return f"{fields.plain(value / timedelta(seconds=1))}s"
    return fields.plain(value)


def _bool(text: str) -> bool:
    if text not in ("1", "t", "T", "true", "TRUE", "True", "0", "f", "F", "false", "FALSE", "False"):
        raise CelError(f"strconv.ParseBool: parsing {fields.quoted(text)}: invalid syntax")
    return text[0] in "1tT"


def _duration(text: str) -> timedelta:
    try:
        return duration.parse(text)
    except duration.DurationError as error:
        raise CelError(error.problem) from None


def instant(text: str) -> datetime:
    """Return the instant that RFC 3339 writes so."""
    found = _INSTANT.fullmatch(text)
    try:
        if found:
            return datetime.fromisoformat(f"{found[1]}{(found[2] or '')[:7]}{found[3]}")
    except ValueError:
        pass
    raise CelError(f"parsing time {fields.quoted(text)} as RFC 3339")


_define_each({"int": _int}, str, int, float, Uint, datetime, member=False)
_define_each({"uint": _uint}, str, int, float, Uint, member=False)
_define_all({"double": _double}, str, member=False)
_define_each({"double": float}, int, float, Uint, member=False)
_define_each({"string": _string}, str, bool, int, float, Uint, bytes, datetime, timedelta, member=False)
_define_all({"bool": bool}, bool, member=False)
_define_all({"bool": _bool, "duration": _duration, "timestamp": instant, "bytes": str.encode}, str, member=False)
_define_all({"bytes": bytes}, bytes, member=False)
_define_all({"duration": lambda value: value}, timedelta, member=False)
_define_all({"timestamp": lambda value: value}, datetime, member=False)
_define_all({"timestamp": lambda seconds: _EPOCH + timedelta(seconds=seconds)}, int, member=False)
_define_all({"dyn": lambda value: value, "type": lambda value: Type(type_name(value))}, object, member=False)

# Times


def _in_zone(at: datetime, zone: str) -> datetime:
    found = _OFFSET.fullmatch(zone)
    if found:
        sign = -1 if found[1] == "-" else 1
        return at.astimezone(timezone(sign * timedelta(hours=int(found[2]), minutes=int(found[3]))))
    try:
        return at.astimezone(ZoneInfo(zone))
    except (KeyError, ValueError, OSError):
        raise CelError(f"unknown time zone {zone}") from None


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
    "getMilliseconds": lambda at: at.microsecond // 1000,
}


def _define_part(name: str, part: Callable[[datetime], int]) -> None:
    _define(name, datetime)(lambda at: part(at.astimezone(UTC)))
    _define(name, datetime, str)(lambda at, zone: part(_in_zone(at, zone)))


for _name, _part in _PARTS.items():
    _define_part(_name, _part)
_define_all(
    {
        "getHours": lambda span: int(span / timedelta(hours=1)),
        "getMinutes": lambda span: int(span / timedelta(minutes=1)),
        "getSeconds": lambda span: int(span / timedelta(seconds=1)),
        "getMilliseconds": lambda span: int(span / _MILLISECOND),
    },
    timedelta,
)

# Optionals


def _value(maybe: Maybe) -> Any:
    if not maybe.items:
        raise CelError("optional.none() dereference")
    return maybe.items[0]


_define_all({"optional.of": Maybe}, object, member=False)
_define_all({"optional.ofNonZeroValue": lambda value: Maybe(value) if value else Maybe()}, object, member=False)
_define_all({"optional.none": Maybe}, member=False)
_define_all({"hasValue": lambda maybe: bool(maybe.items), "value": _value}, Maybe)
_define_all({"or": lambda maybe, other: maybe if maybe.items else other}, Maybe, Maybe)
_define_all({"orValue": lambda maybe, other: maybe.items[0] if maybe.items else other}, Maybe, object)
