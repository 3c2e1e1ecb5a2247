"""Truth and comparison in text/template.

Zero, empty and nil are false, a struct is always true. Only values of the same basic kind can be compared: `eq 1 1.0`
is an error, as in Go.
"""

from haulout.compat.gotemplate.source import Problem
from haulout.compat.gotemplate.types import Kind, OptionalValue, Type, Value, unwrap_interface

_INTEGERS = (Kind.INT, Kind.UINT)
_ORDERED = (Kind.INT, Kind.UINT, Kind.FLOAT, Kind.STRING)
_BASIC = (*_ORDERED, Kind.BOOL)
_MAY_BE_NIL = (Kind.MAP, Kind.SLICE, Kind.POINTER)


def is_true(value: OptionalValue) -> bool:
    """Return whether `if` treats a value as true."""
    value = unwrap_interface(value)
    if value is None:
        return False
    match value.type.kind:
        case Kind.STRUCT:
            return True
        case Kind.POINTER:
            return value.data is not None
    return bool(value.data)


def equal(first: OptionalValue, *others: OptionalValue) -> bool:
    """Return whether the first value is equal to one of the others. Raise `Problem` if they cannot be compared."""
    if not others:
        raise Problem("expected something to compare with")
    first = unwrap_interface(first)
    return any(_equal(first, unwrap_interface(other)) for other in others)


def not_equal(first: OptionalValue, second: OptionalValue) -> bool:
    return not equal(first, second)


def less(first: OptionalValue, second: OptionalValue) -> bool:
    """Return whether the first value is less. Raise `Problem` if they cannot be ordered."""
    left, right = _ordered(first), _ordered(second)
    if not _comparable_kinds(left.type.kind, right.type.kind):
        raise _mismatch(left, right)
    return bool(left.data < right.data)


def less_or_equal(first: OptionalValue, second: OptionalValue) -> bool:
    return less(first, second) or equal(first, second)


def greater(first: OptionalValue, second: OptionalValue) -> bool:
    """Return whether the first value is greater. As in Go, this is the negation of less or equal, so NaN is greater."""
    return not less_or_equal(first, second)


def greater_or_equal(first: OptionalValue, second: OptionalValue) -> bool:
    return not less(first, second)


def _equal(first: OptionalValue, second: OptionalValue) -> bool:
    if first is None or second is None:
        return _is_nil(first) and _is_nil(second)
    basic = first.type.kind in _BASIC, second.type.kind in _BASIC
    if all(basic):
        if not _comparable_kinds(first.type.kind, second.type.kind):
            raise _mismatch(first, second)
        return bool(first.data == second.data)
    if any(basic) or first.type.kind is not second.type.kind:
        raise _mismatch(first, second)
    if _is_nil(first) or _is_nil(second):
        return _is_nil(first) == _is_nil(second)
    if not _is_comparable(second.type):
        raise Problem(f"values of type {second.type.name} cannot be compared, only with nil")
    return first.type is second.type and bool(first.data == second.data)


def _comparable_kinds(first: Kind, second: Kind) -> bool:
    return first is second or (first in _INTEGERS and second in _INTEGERS)


def _is_nil(value: OptionalValue) -> bool:
    return value is None or (value.type.kind in _MAY_BE_NIL and value.data is None)


def _is_comparable(type_: Type) -> bool:
    if type_.kind is Kind.STRUCT:
        return all(_is_comparable(field.type) for field in type_.fields.values())
    return type_.kind not in (Kind.MAP, Kind.SLICE)


def _ordered(value: OptionalValue) -> Value:
    value = unwrap_interface(value)
    if value is None or value.type.kind not in _ORDERED:
        found = "nothing" if value is None else f"a value of type {value.type.name}"
        raise Problem(f"expected a number or a text to compare, found {found}")
    return value


def _mismatch(first: Value, second: Value) -> Problem:
    return Problem(f"expected two values of one kind to compare, found {first.type.name} and {second.type.name}")
