"""CEL values and operators.

CEL values are Python values: bool, int, float, str, list, dict, None, datetime, timedelta and `Quantity`. `Type` is the
result of `type(…)`. There are no implicit conversions: 1 + 1.0 is an error, while 1 == 1.0 is true.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from haulout.core.quantity import Quantity

_TYPE_NAMES: tuple[tuple[type, str], ...] = (
    (bool, "bool"),
    (int, "int"),
    (float, "double"),
    (str, "string"),
    (list, "list"),
    (dict, "map"),
    (datetime, "google.protobuf.Timestamp"),
    (timedelta, "google.protobuf.Duration"),
    (Quantity, "kubernetes.Quantity"),
    (type(None), "null_type"),
)
_ORDERED = (str, bool, datetime, timedelta)
MISSING = object()


class CelError(Exception):
    """The evaluation failed."""


@dataclass(frozen=True, slots=True)
class Type:
    """A type, by its CEL name."""

    name: str


TYPES = {name: Type(name) for name in ("bool", "int", "double", "string", "list", "map", "null_type", "type")}


def no_overload() -> CelError:
    """Return the error for operands of unsupported types."""
    return CelError("no such overload")


def type_of(value: Any) -> Type:
    if isinstance(value, Type):
        return TYPES["type"]
    return Type(next((name for kind, name in _TYPE_NAMES if isinstance(value, kind)), "dyn"))


def require_boolean(value: Any) -> bool:
    """Return the value; raise `CelError` if it is not a boolean."""
    if not isinstance(value, bool):
        raise no_overload()
    return value


def is_number(value: Any) -> bool:
    """Return whether the value is a number; booleans are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def equal(one: Any, other: Any) -> bool:
    """Return the result of `==`: values of different types are not equal, which is no error."""
    if is_number(one) and is_number(other):
        return bool(one == other)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(equal(value, other[name]) for name, value in one.items())
    return type(one) is type(other) and bool(one == other)


def contains(items: Any, item: Any) -> bool:
    """Return whether a list contains `item`, or a map has it as a key."""
    if not isinstance(items, list | dict):
        raise no_overload()
    return any(equal(each, item) for each in items)


def less(one: Any, other: Any) -> bool:
    if (is_number(one) and is_number(other)) or (type(one) is type(other) and isinstance(one, _ORDERED)):
        return bool(one < other)
    raise no_overload()


def lookup(operand: Any, key: Any) -> Any:
    """Return the value at `key`, or `MISSING`; a value that is not a map has no keys."""
    if isinstance(operand, dict):
        return operand.get(key, MISSING)
    if not isinstance(operand, list):
        return MISSING
    if type(key) is not int:
        raise no_overload()
    return operand[key] if 0 <= key < len(operand) else MISSING


def index(operand: Any, key: Any) -> Any:
    """Return the result of `operand[key]` and `operand.key`."""
    found = lookup(operand, key)
    if found is MISSING:
        raise CelError(f"{'index out of bounds' if isinstance(operand, list) else 'no such key'}: {key}")
    return found


def _add(one: Any, other: Any) -> Any:
    match one, other:
        case (str(), str()) | (list(), list()):
            return one + other
        case (datetime(), timedelta()) | (timedelta(), datetime()) | (timedelta(), timedelta()):
            return one + other
    return _arithmetic(one, other, lambda: one + other)


def _subtract(one: Any, other: Any) -> Any:
    match one, other:
        case (datetime(), datetime()) | (datetime(), timedelta()) | (timedelta(), timedelta()):
            return one - other
    return _arithmetic(one, other, lambda: one - other)


def _divide(one: Any, other: Any) -> Any:
    """Divide; integers are truncated towards zero."""
    if isinstance(one, float) and isinstance(other, float):
        return one / other if other else one * float("inf")
    if not other and is_number(other):
        raise CelError("division by zero")
    return _arithmetic(one, other, lambda: abs(one) // abs(other) * (1 if (one < 0) == (other < 0) else -1))


def _remainder(one: Any, other: Any) -> Any:
    """Return the remainder, with the sign of the left operand."""
    if isinstance(one, float) or isinstance(other, float):
        raise no_overload()
    if not other and is_number(other):
        raise CelError("modulus by zero")
    return _arithmetic(one, other, lambda: abs(one) % abs(other) * (-1 if one < 0 else 1))


def _negate(value: Any) -> Any:
    if is_number(value) or isinstance(value, timedelta):
        return -value
    raise no_overload()


def _arithmetic(one: Any, other: Any, result: Callable[[], Any]) -> Any:
    if not is_number(one) or type(one) is not type(other):
        raise no_overload()
    return result()


OPERATORS: dict[str, Callable[..., Any]] = {
    "_[_]": index,
    "_+_": _add,
    "_-_": _subtract,
    "_*_": lambda one, other: _arithmetic(one, other, lambda: one * other),
    "_/_": _divide,
    "_%_": _remainder,
    "-_": _negate,
    "!_": lambda value: not require_boolean(value),
    "_==_": equal,
    "_!=_": lambda one, other: not equal(one, other),
    "_<_": less,
    "_>_": lambda one, other: less(other, one),
    "_<=_": lambda one, other: less(one, other) or equal(one, other),
    "_>=_": lambda one, other: less(other, one) or equal(one, other),
    "@in": lambda item, items: contains(items, item),
}
