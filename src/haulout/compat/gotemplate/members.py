"""The fields and methods of types, and the errors about missing ones.

The evaluator and the type checker share these functions, so that they report the same errors.
"""

from haulout.compat.gotemplate.types import ANY, Field, Kind, Method, Type, data_of
from haulout.core.text import closest_match

_TYPE_NAMES = {"string": "a text", "bool": "true or false", "float64": "a number", "int": "a whole number"}
_MAX_NAMES = 12  # names in an error without a suggestion


def member(type_: Type, name: str) -> Field | Method | Type | str:
    """Return the field or method of a type, the type of a map's elements, or an error."""
    if name in type_.refused_names:
        return type_.refused_names[name]
    if name in type_.methods:
        return type_.methods[name]
    if name in type_.fields:
        return type_.fields[name]
    if type_.kind is Kind.MAP and type_.element is not None:
        return type_.element
    if type_.kind is Kind.INTERFACE:
        return ANY
    return f"there is no .{name} in {type_.name}; {_suggestion(type_, name)}"


def _suggestion(type_: Type, name: str) -> str:
    known = [*type_.fields, *type_.methods]
    if not known:
        return "it has no fields"
    by_case = {each.lower(): each for each in reversed(known)}
    match = closest_match(name.lower(), by_case)
    return f"did you mean {by_case[match]}?" if match else f"there are {', '.join(known[:_MAX_NAMES])}"


def not_iterable(type_: Type) -> str:
    """Return why `range` does not accept a type."""
    if type_.kind in (Kind.INT, Kind.UINT):
        return f"range with two variables needs a map or a list, found a value of type {type_.name}"
    return f"range needs a map, a list or a whole number, found a value of type {type_.name}"


def wrong_method_count(name: str, method: Method, count: int) -> str:
    """Return the error for a wrong number of arguments of a method."""
    wanted = [describe_type(each) for each in method.parameters]
    expected = f"{len(wanted)} argument{'' if len(wanted) == 1 else 's'}"
    which = f" ({', '.join(wanted)})" if wanted else ""
    return f".{name} takes {expected}{which}, found {count}"


def fits(type_: Type, wanted: Type) -> bool:
    """Return whether a value of `type_` is accepted where `wanted` is expected."""
    if type_.kind is not wanted.kind:
        return False
    if wanted.kind is not Kind.STRUCT:
        return True
    return type_ is wanted or type(data_of(type_, None)) is type(data_of(wanted, None)) is not dict


def describe_type(type_: Type) -> str:
    """Return the name of a type for users."""
    return _TYPE_NAMES.get(type_.name, f"a {type_.name}")
