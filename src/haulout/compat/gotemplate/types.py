"""What a template may touch: values that know their Go type.

A template of text/template sees Go values, and Go's types show everywhere: in what a missing key gives, in what can be
compared, in how a value is printed. So each value here is a pair of a type and plain data, and a `Type` says all there
is: the kind, the fields and methods that a template may use, and how data are read and printed. Nothing else can be
reached: no attribute of a Python object is ever looked up by a name from a template.

Python's plain values get the types that Go's JSON decoder would give them (`to_value`). The same types describe what a
template will get before there are any data; `check` walks a template along them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from typing import Any, TypeAlias

from haulout.compat.gotemplate.numbers import MAX_INT, MAX_UINT, MIN_INT
from haulout.compat.gotemplate.source import Problem


class Kind(Enum):
    """What a type is made of."""

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
    promoted: bool = False  # it belongs to an embedded struct, with which it is printed


@dataclass(frozen=True, slots=True)
class Method:
    """A method: the types of its arguments and of its result, and what to call with the data of all of them."""

    result: "Type"
    call: Callable[..., Any]
    parameters: tuple["Type", ...] = ()
    on_nil: Any = None  # its result for a pointer to nothing; most fail then


@dataclass(frozen=True, slots=True, eq=False)
class Type:
    """A Go type.

    `fields` and `methods` may be filled in after it was made, so that a type can speak of itself. `refused_names` are
    names that a template may know from elsewhere, with the reason why they cannot be had here.
    """

    name: str
    kind: Kind
    _: KW_ONLY
    element: "Type | None" = None  # of a slice, a map or a pointer
    fields: dict[str, Field] = field(default_factory=dict)
    methods: dict[str, Method] = field(default_factory=dict)
    refused_names: Mapping[str, str] = field(default_factory=dict)
    read: Callable[[Any], Any] | None = None  # raw to data; it must give the zero value for whatever it cannot read
    text: Callable[[Any], str] | None = None  # how it prints itself
    source_text: Callable[[Any], str] | None = None  # how it prints itself for %#v

    @property
    def dereferenced(self) -> "Type":
        """The type itself, or what it points to."""
        return self.element if self.kind is Kind.POINTER and self.element else self


@dataclass(frozen=True, slots=True)
class Value:
    """A value: of which type, and its data."""

    type: Type
    data: Any


OptionalValue: TypeAlias = Value | None  # None: no value at all, such as that of a missing key

BOOL = Type("bool", Kind.BOOL)
INT = Type("int", Kind.INT)
INT32 = Type("int32", Kind.INT)
INT64 = Type("int64", Kind.INT)
UINT64 = Type("uint64", Kind.UINT)
BYTE = Type("uint8", Kind.UINT)
FLOAT = Type("float64", Kind.FLOAT)
STRING = Type("string", Kind.STRING)
ANY = Type("interface {}", Kind.INTERFACE)


def map_of(element: Type, name: str = "") -> Type:
    """Return the type of maps from texts to an element."""
    return Type(name or f"map[string]{element.name}", Kind.MAP, element=element)


def list_of(element: Type) -> Type:
    """Return the type of lists of an element."""
    return Type(f"[]{element.name}", Kind.SLICE, element=element)


def pointer_to(element: Type) -> Type:
    """Return the type of pointers to an element: it may be absent."""
    return Type(f"*{element.name}", Kind.POINTER, element=element)


def string_type(name: str) -> Type:
    """Return a type of texts with a name of its own."""
    return Type(name, Kind.STRING)


ANY_MAP = map_of(ANY)
ANY_LIST = list_of(ANY)
NIL = Value(ANY, None)  # there is a value, and it is nil

_Converter: TypeAlias = Callable[[Any], Value]
_converters: dict[type, _Converter] = {}


def register_converter(python_type: type, converter: _Converter) -> None:
    """Declare how values of a Python class become values of a template."""
    _converters[python_type] = converter


def to_value(raw: Any) -> OptionalValue:
    """Return a plain Python value as a value; raises a `Problem` for anything that was not declared."""
    if raw is None or isinstance(raw, Value):
        return raw
    for python_type, converter in _converters.items():
        if isinstance(raw, python_type):
            return converter(raw)
    raise Problem(f"found a {type(raw).__name__}, which a template cannot use")


def to_typed_value(type_: Type, raw: Any) -> Value:
    """Return a raw value as one of a type; what cannot be read as such is its zero value."""
    if type_.kind is Kind.INTERFACE:
        return to_value(raw) or NIL
    return Value(type_, data_of(type_, raw))


def data_of(type_: Type, raw: Any) -> Any:
    """Return the data that a value of a type has for a raw value."""
    if type_.read is not None:
        return type_.read(raw)
    if type_.kind is Kind.POINTER and type_.element is not None:
        return None if raw is None else data_of(type_.element, raw)
    return _READERS_BY_KIND[type_.kind](raw)


def dereference(value: OptionalValue) -> OptionalValue:
    """Return what a pointer points to, and anything else as it is; a nil pointer stays one."""
    if value is not None and value.type.kind is Kind.POINTER and value.data is not None and value.type.element:
        return to_typed_value(value.type.element, value.data)
    return value


def unwrap_interface(value: OptionalValue) -> OptionalValue:
    """Return nothing for an interface that holds nothing."""
    return None if value is not None and value.type.kind is Kind.INTERFACE else value


def sorted_entries(value: Value) -> list[tuple[str, Any]]:
    """Return keys and raw values of a map, in the order in which Go shows them."""
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

register_converter(bool, lambda raw: Value(BOOL, raw))  # before int, which it is a kind of
register_converter(str, lambda raw: Value(STRING, raw))
register_converter(int, _integer_value)
register_converter(float, lambda raw: Value(FLOAT, float(raw)))
register_converter(Mapping, lambda raw: Value(ANY_MAP, raw))
register_converter(list, lambda raw: Value(ANY_LIST, raw))
register_converter(tuple, lambda raw: Value(ANY_LIST, raw))
