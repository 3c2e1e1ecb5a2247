"""The type system of templates: values with Go types.

A text/template sees Go values, and their types matter everywhere: for missing keys, comparisons and printing. So each
value is a pair of a type and plain data. A `Type` defines everything that a template may do: the kind, the fields and
methods, and how data is read and printed. Nothing else is accessible: no attribute of a Python object is ever looked up
by a name from a template.

Plain Python values get the types that Go's JSON decoder would give them (`to_value`). The same types describe a
template's data in advance; `check` walks a template with them.

`member` and the functions after it are shared by the evaluator and the type checker, so that both report the same
errors.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from typing import Any, TypeAlias

from haulout.compat.gotemplate.errors import Problem
from haulout.compat.gotemplate.numbers import MAX_INT, MAX_UINT, MIN_INT
from haulout.core.text import closest_match

_TYPE_NAMES = {"string": "a text", "bool": "true or false", "float64": "a number", "int": "a whole number"}
_MAX_NAMES = 12  # names in an error without a suggestion


class Kind(Enum):
    """The kind of a type, as in Go's package reflect."""

    BOOL = "bool"
    INT = "int"
    UINT = "uint"
    FLOAT = "float"
    STRING = "string"
    SLICE = "slice"
    MAP = "map"
    STRUCT = "struct"
    POINTER = "pointer"
    INTERFACE = "interface"


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a struct: its type, and how to get its raw value from the data of the struct."""

    type: "Type"
    get: Callable[[Any], Any]
    promoted: bool = False  # a field of an embedded struct, which prints it


@dataclass(frozen=True, slots=True)
class Method:
    """A method: the types of its parameters and of its result, and its implementation."""

    result: "Type"
    call: Callable[..., Any]
    parameters: tuple["Type", ...] = ()
    on_nil: Any = None  # the result for a nil pointer; None: the call fails


@dataclass(frozen=True, slots=True, eq=False)
class Type:
    """A Go type.

    `fields` and `methods` may be extended after creation, so that a type can refer to itself. `refused_names` are names
    that a template may know from elsewhere, with the reason why they are not available here.
    """

    name: str
    kind: Kind
    _: KW_ONLY
    element: "Type | None" = None  # of a slice, a map or a pointer
    fields: dict[str, Field] = field(default_factory=dict)
    methods: dict[str, Method] = field(default_factory=dict)
    refused_names: Mapping[str, str] = field(default_factory=dict)
    read: Callable[[Any], Any] | None = None  # converts raw data; must return the zero value for invalid data
    text: Callable[[Any], str] | None = None  # how a value prints itself
    source_text: Callable[[Any], str] | None = None  # how a value prints itself for %#v

    @property
    def dereferenced(self) -> "Type":
        """The type itself, or the target of a pointer."""
        return self.element if self.kind is Kind.POINTER and self.element else self


@dataclass(frozen=True, slots=True)
class Value:
    """A value as a template sees it: a type and plain Python data."""

    type: Type
    data: Any


OptionalValue: TypeAlias = Value | None  # None: no value, such as that of a missing key
STRING = Type("string", Kind.STRING)
FLOAT = Type("float64", Kind.FLOAT)
INT = Type("int", Kind.INT)

BOOL = Type("bool", Kind.BOOL)
INT32 = Type("int32", Kind.INT)
INT64 = Type("int64", Kind.INT)
UINT64 = Type("uint64", Kind.UINT)
BYTE = Type("uint8", Kind.UINT)
ANY = Type("interface {}", Kind.INTERFACE)


def map_of(element: Type, name: str = "") -> Type:
    """Return the type of maps from strings to `element`."""
    return Type(name or f"map[string]{element.name}", Kind.MAP, element=element)


def list_of(element: Type) -> Type:
    """Return the type of lists of `element`."""
    return Type(f"[]{element.name}", Kind.SLICE, element=element)


def pointer_to(element: Type) -> Type:
    """Return the type of pointers to `element`. A nil pointer means that the value is absent."""
    return Type(f"*{element.name}", Kind.POINTER, element=element)


def string_type(name: str) -> Type:
    """Return a string type with a name of its own, which `%T` prints."""
    return Type(name, Kind.STRING)


ANY_MAP = map_of(ANY)
ANY_LIST = list_of(ANY)
NIL = Value(ANY, None)  # an existing value that is nil

_Converter: TypeAlias = Callable[[Any], Value]
_converters: dict[type, _Converter] = {}


def register_converter(python_type: type, converter: _Converter) -> None:
    """Register how values of a Python class are converted to template values."""
    _converters[python_type] = converter


def to_value(raw: Any) -> OptionalValue:
    """Convert a plain Python value. Raise `Problem` for an unregistered class."""
    if raw is None or isinstance(raw, Value):
        return raw
    for python_type, converter in _converters.items():
        if isinstance(raw, python_type):
            return converter(raw)
    raise Problem(f"found a {type(raw).__name__}, which a template cannot use")


def to_typed_value(type_: Type, raw: Any) -> Value:
    """Convert a raw value to a type. Invalid data becomes the zero value."""
    if type_.kind is Kind.INTERFACE:
        return to_value(raw) or NIL
    return Value(type_, data_of(type_, raw))


def data_of(type_: Type, raw: Any) -> Any:
    """Return the data of a raw value for a type."""
    if type_.read is not None:
        return type_.read(raw)
    if type_.kind is Kind.POINTER and type_.element is not None:
        return None if raw is None else data_of(type_.element, raw)
    return _READERS_BY_KIND[type_.kind](raw)


def dereference(value: OptionalValue) -> OptionalValue:
    """Return the target of a pointer. Other values and nil pointers are returned unchanged."""
    if value is not None and value.type.kind is Kind.POINTER and value.data is not None and value.type.element:
        return to_typed_value(value.type.element, value.data)
    return value


def unwrap_interface(value: OptionalValue) -> OptionalValue:
    """Return None for an empty interface, and other values unchanged."""
    return None if value is not None and value.type.kind is Kind.INTERFACE else value


def sorted_entries(value: Value) -> list[tuple[str, Any]]:
    """Return keys and raw values of a map, in the order in which Go prints them.

    Raise `Problem` if a key is not a string.
    """
    data: Mapping[Any, Any] = value.data or {}
    if not all(isinstance(key, str) for key in data):
        raise Problem("found a mapping with keys that are no texts, which a template cannot use")
    return sorted(data.items(), key=lambda entry: str(entry[0]))


def _integer_value(raw: int) -> Value:
    if MIN_INT <= raw <= MAX_INT:
        return Value(INT, int(raw))
    return Value(UINT64, int(raw)) if 0 < raw <= MAX_UINT else Value(FLOAT, _to_float(raw))


def _to_float(raw: int) -> float:
    try:
        return float(raw)
    except OverflowError:
        return float("inf") if raw > 0 else float("-inf")


_READERS_BY_KIND: dict[Kind, Callable[[Any], Any]] = {
    Kind.BOOL: lambda raw: raw is True,
    Kind.INT: lambda raw: raw if isinstance(raw, int) and MIN_INT <= raw <= MAX_INT else 0,
    Kind.UINT: lambda raw: raw if isinstance(raw, int) and 0 <= raw <= MAX_UINT else 0,
    Kind.FLOAT: lambda raw: float(raw) if isinstance(raw, int | float) else 0.0,
    Kind.STRING: lambda raw: raw if isinstance(raw, str) else "",
    Kind.SLICE: lambda raw: raw if isinstance(raw, Sequence) and not isinstance(raw, str) else None,
    Kind.MAP: lambda raw: raw if isinstance(raw, Mapping) else None,
    Kind.STRUCT: lambda raw: raw if isinstance(raw, Mapping) else {},
}

register_converter(bool, lambda raw: Value(BOOL, raw))  # before int, because bool is a subclass of int
register_converter(str, lambda raw: Value(STRING, raw))
register_converter(int, _integer_value)
register_converter(float, lambda raw: Value(FLOAT, float(raw)))
register_converter(Mapping, lambda raw: Value(ANY_MAP, raw))
register_converter(list, lambda raw: Value(ANY_LIST, raw))
register_converter(tuple, lambda raw: Value(ANY_LIST, raw))


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
