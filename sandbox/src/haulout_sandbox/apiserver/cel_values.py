"""The values of CEL, and what its operators do with them.

CEL's values are Python's where Python has them: bool, int (64 bits), float, str, bytes, list, dict, None, datetime and
timedelta; `Uint`, `Maybe` and `Type` are its own. Nothing is converted by itself: 1 + 1.0 is an error, 1 == 1.0 is
true. Lists that a schema calls sets or maps are equal, and add up, as such.
"""

from datetime import datetime, timedelta
from typing import Any

from haulout_sandbox.apiserver.cel_syntax import Uint

_INT64 = range(-(1 << 63), 1 << 63)
_UINT64 = range(1 << 64)
_TYPE_NAMES: tuple[tuple[type, str], ...] = (
    (bool, "bool"),
    (Uint, "uint"),
    (int, "int"),
    (float, "double"),
    (str, "string"),
    (bytes, "bytes"),
    (list, "list"),
    (dict, "map"),
    (datetime, "google.protobuf.Timestamp"),
    (timedelta, "google.protobuf.Duration"),
    (type(None), "null_type"),
)


class CelError(Exception):
    """An evaluation that failed; the message is CEL's."""


class SetList(list[Any]):
    """A list in which order means nothing and every item is there once."""


class MapList(list[Any]):
    """A list of objects with keys; order means nothing."""

    keys: tuple[str, ...] = ()


class Maybe:
    """CEL's optional: a value, or none."""

    __slots__ = ("items",)

    def __init__(self, *items: Any) -> None:
        self.items = items


class Type:
    """What `type(…)` returns."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


def no_overload() -> CelError:
    """Say that the operator or function is not for such values."""
    return CelError("no such overload")


def type_name(value: Any) -> str:
    """Return CEL's name for the type of a value."""
    if isinstance(value, Maybe | Type):
        return "optional_type" if isinstance(value, Maybe) else "type"
    return next(name for kind, name in _TYPE_NAMES if isinstance(value, kind))


def is_number(value: Any) -> bool:
    """Tell whether this is a number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def equal(one: Any, other: Any) -> bool:
    """Return what `==` does: values of different types are just not equal."""
    if is_number(one) and is_number(other):
        return bool(one == other)
    if isinstance(one, list) and isinstance(other, list):
        return _equal_lists(one, other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(value, other[name]) for name, value in one.items())
    if isinstance(one, Maybe) and isinstance(other, Maybe):
        return _equal_lists(list(one.items), list(other.items))
    if isinstance(one, Type) and isinstance(other, Type):
        return one.name == other.name
    return type(one) is type(other) and bool(one == other)


def _equal_lists(one: list[Any], other: list[Any]) -> bool:
    if len(one) != len(other):
        return False
    if isinstance(one, SetList):
        return all(contains(one, item) for item in other)
    if isinstance(one, MapList):
        return all(any(_same_key(one, mine, item) and equal(mine, item) for mine in one) for item in other)
    return all(map(equal, one, other))


def _same_key(among: MapList, one: Any, other: Any) -> bool:
    return all(equal(one.get(key), other.get(key)) for key in among.keys)


def contains(items: Any, item: Any) -> bool:
    """Return what `in` does."""
    if isinstance(items, dict):
        return any(equal(name, item) for name in items)
    if isinstance(items, list):
        return any(equal(each, item) for each in items)
    raise no_overload()


def less(one: Any, other: Any) -> bool:
    """Return what `<` does."""
    orders = (str, bytes, bool, datetime, timedelta)
    if (is_number(one) and is_number(other)) or any(
        isinstance(one, kind) and isinstance(other, kind) for kind in orders
    ):
        return bool(one < other)
    raise no_overload()


def added(one: Any, other: Any) -> Any:
    """Return what `+` does."""
    match one, other:
        case (str(), str()) | (bytes(), bytes()):
            return one + other
        case list(), list():
            return _joined(one, other)
        case (datetime(), timedelta()) | (timedelta(), datetime()) | (timedelta(), timedelta()):
            return _in_time(lambda: one + other)
    return _number(one, other, lambda: one + other)


def subtracted(one: Any, other: Any) -> Any:
    """Return what `-` does."""
    match one, other:
        case (datetime(), datetime()) | (datetime(), timedelta()) | (timedelta(), timedelta()):
            return _in_time(lambda: one - other)
    return _number(one, other, lambda: one - other)


def multiplied(one: Any, other: Any) -> Any:
    """Return what `*` does."""
    return _number(one, other, lambda: one * other)


def divided(one: Any, other: Any) -> Any:
    """Return what `/` does: towards zero for whole numbers."""
    if isinstance(one, float) and isinstance(other, float):
        return one / other if other else one * float("inf")
    if not other and is_number(other):
        raise CelError("division by zero")
    return _number(one, other, lambda: abs(one) // abs(other) * (1 if (one < 0) == (other < 0) else -1))


def remainder(one: Any, other: Any) -> Any:
    """Return what `%` does: the sign is that of the left side."""
    if isinstance(one, float) or isinstance(other, float):
        raise no_overload()
    if not other and is_number(other):
        raise CelError("modulus by zero")
    return _number(one, other, lambda: abs(one) % abs(other) * (-1 if one < 0 else 1))


def negated(value: Any) -> Any:
    """Return what a `-` before a value does."""
    if isinstance(value, Uint) or not is_number(value):
        if isinstance(value, timedelta):
            return -value
        raise no_overload()
    return in_range(-value)


def in_range(value: Any) -> Any:
    """Return a number if 64 bits hold it."""
    if isinstance(value, Uint) and value not in _UINT64:
        raise CelError("unsigned integer overflow")
    if isinstance(value, int) and not isinstance(value, Uint) and value not in _INT64:
        raise CelError("integer overflow")
    return value


def _joined(one: list[Any], other: list[Any]) -> list[Any]:
    if isinstance(one, SetList):
        return SetList([*one, *(item for item in other if not contains(one, item))])
    if isinstance(one, MapList):
        merged = MapList(one)
        merged.keys = one.keys
        for item in other:
            at = next((at for at, mine in enumerate(merged) if _same_key(one, mine, item)), len(merged))
            merged[at : at + 1] = [item]
        return merged
    return [*one, *other]


def _number(one: Any, other: Any, result: Any) -> Any:
    if not is_number(one) or type(one) is not type(other):
        raise no_overload()
    return in_range(type(one)(result()))


def _in_time(result: Any) -> Any:
    try:
        return result()
    except OverflowError:
        raise CelError("timestamp overflow") from None
