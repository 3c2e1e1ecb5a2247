"""The functions that a template can call: those of text/template, and no others.

`and` and `or` have only their signatures here: they do not evaluate more arguments than needed, so the evaluator
implements them. `call` always fails, because no data contains functions.

The rules are those of src/text/template/funcs.go. Zero, empty and nil are false, a struct is always true. Only values
of the same basic kind can be compared: `eq 1 1.0` is an error.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote_plus

from haulout.compat.gotemplate import printer, strings
from haulout.compat.gotemplate.errors import Problem, WorkBudget
from haulout.compat.gotemplate.printer import sprintf
from haulout.compat.gotemplate.strings import is_printable, join_surrogates, to_bytes
from haulout.compat.gotemplate.types import (
    ANY,
    BOOL,
    BYTE,
    INT,
    STRING,
    Kind,
    OptionalValue,
    Type,
    Value,
    dereference,
    to_typed_value,
    unwrap_interface,
)

_HTML_ESCAPES = str.maketrans(
    {"\0": "\ufffd", '"': "&#34;", "'": "&#39;", "&": "&amp;", "<": "&lt;", ">": "&gt;"},
)
_JS_ESCAPES = {"\\": "\\\\", "'": "\\'", '"': '\\"'}
_JS_SPECIAL_CHARACTERS = re.compile("[\\\\'\"<>&=\0-\x1f]|[^\0-\x7f\udc80-\udcff]")

_INTEGERS = (Kind.INT, Kind.UINT)
_ORDERED = (Kind.INT, Kind.UINT, Kind.FLOAT, Kind.STRING)
_BASIC = (*_ORDERED, Kind.BOOL)
_MAY_BE_NIL = (Kind.MAP, Kind.SLICE, Kind.POINTER)


def escape_html(text: str) -> str:
    return text.translate(_HTML_ESCAPES)


def escape_js(text: str) -> str:
    return _JS_SPECIAL_CHARACTERS.sub(lambda special: _escape_js_character(special[0]), join_surrogates(text))


def escape_url_query(text: str) -> str:
    return quote_plus(to_bytes(text))


def _escape_js_character(character: str) -> str:
    if not character.isascii() and is_printable(character):
        return character
    return _JS_ESCAPES.get(character) or f"\\u{ord(character):04X}"


_MAX_SLICE_INDEXES = 3


@dataclass(frozen=True, slots=True)
class Builtin:
    """A function: its parameters, its result (None: depends on the arguments), and its implementation."""

    parameters: tuple[Type, ...]
    call: Callable[..., OptionalValue]  # the work budget is the first argument
    result: Type | None
    is_variadic: bool = False  # accepts further arguments of any type after the parameters

    def wrong_count(self, count: int) -> str:
        """Return the expected number of arguments if `count` is wrong; empty if it is right."""
        least = len(self.parameters)
        if count == least or (self.is_variadic and count > least):
            return ""
        return f"{'at least ' if self.is_variadic else ''}{least} argument{'' if least == 1 else 's'}"


def index(_: WorkBudget, item: OptionalValue, *indexes: OptionalValue) -> OptionalValue:
    """Return an element of a map, a list or a text (a byte), one level for each index."""
    item = unwrap_interface(item)
    if item is None:
        raise Problem("there is nothing to index: the value is null or missing")
    for each in indexes:
        item = _element(item, unwrap_interface(each))
    return item


def _element(item: OptionalValue, at: OptionalValue) -> Value:
    item = dereference(item)
    match item:
        case Value(type=Type(kind=Kind.MAP, element=Type() as element)):
            return to_typed_value(element, (item.data or {}).get(_key(at)))
        case Value(type=Type(kind=Kind.SLICE, element=Type() as element)):
            data = item.data or ()
            return to_typed_value(element, data[_position(at, len(data), inside=True)])
        case Value(type=Type(kind=Kind.STRING)):
            data = strings.to_bytes(item.data)
            return Value(BYTE, data[_position(at, len(data), inside=True)])
    raise Problem(f"expected a map, a list or a text to index, found {_describe(item)}")


def _key(at: OptionalValue) -> str:
    if at is None or at.type.kind is not Kind.STRING:
        raise Problem(f"expected a text as the key of a map, found {_describe(at)}")
    return str(at.data)


def _position(at: OptionalValue, length: int, *, inside: bool = False) -> int:
    at = unwrap_interface(at)
    if at is None or at.type.kind not in (Kind.INT, Kind.UINT):
        raise Problem(f"expected a whole number as an index, found {_describe(at)}")
    if not 0 <= at.data <= length - (1 if inside else 0):
        raise Problem(f"index {at.data} is out of range: the length is {length}")
    return int(at.data)


def slice_value(_: WorkBudget, item: OptionalValue, *indexes: OptionalValue) -> OptionalValue:
    """Return a part of a list or a text (in bytes): from an index, up to another."""
    item = dereference(unwrap_interface(item))
    if item is None or item.type.kind not in (Kind.SLICE, Kind.STRING):
        raise Problem(f"expected a list or a text to slice, found {_describe(item)}")
    is_text = item.type.kind is Kind.STRING
    most = _MAX_SLICE_INDEXES - 1 if is_text else _MAX_SLICE_INDEXES
    if len(indexes) > most:
        raise Problem(f"expected at most {most} indexes for a {'text' if is_text else 'list'}, found {len(indexes)}")
    data = strings.to_bytes(item.data) if is_text else item.data or []
    positions = [_position(each, len(data)) for each in indexes]
    bounds = [*positions, *[0, len(data)][len(positions) :]]
    if bounds != sorted(bounds):
        raise Problem(f"expected rising indexes, found {', '.join(map(str, bounds))}")
    part = data[bounds[0] : bounds[1]]
    return Value(item.type, strings.from_bytes(part) if isinstance(part, bytes) else part)


def length(_: WorkBudget, item: OptionalValue) -> OptionalValue:
    """Return the length of a map, a list or a text (in bytes)."""
    item = dereference(unwrap_interface(item))
    if item is None or item.type.kind not in (Kind.MAP, Kind.SLICE, Kind.STRING):
        raise Problem(f"expected a map, a list or a text, found {_describe(item)}")
    data = strings.to_bytes(item.data) if item.type.kind is Kind.STRING else item.data or ()
    return Value(INT, len(data))


def _describe(value: OptionalValue) -> str:
    if value is None or (value.type.kind is Kind.POINTER and value.data is None):
        return "nothing"
    return f"a value of type {value.type.name}"


def _refuse_call(*_: object) -> OptionalValue:
    raise Problem(
        "call is not supported here: no value is a function; a method is called by its name, with its arguments"
    )


def _boolean_function(compare: Callable[..., bool]) -> Callable[..., OptionalValue]:
    return lambda _, *arguments: Value(BOOL, compare(*arguments))


def _escaping_function(escape: Callable[[str], str]) -> Callable[..., OptionalValue]:
    def call(budget: WorkBudget, *arguments: OptionalValue) -> OptionalValue:
        shown = [_printable_value(each) for each in arguments]
        text = escape(printer.sprint(shown, budget))
        budget.spend_characters(len(text))
        return Value(STRING, text)

    return call


def _printable_value(value: OptionalValue) -> OptionalValue:
    value = unwrap_interface(dereference(value))
    # What Go prints for a missing key. Escaping must not turn it into an error.
    return Value(STRING, "<no value>") if value is None else value


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


FUNCTIONS: dict[str, Builtin] = {
    "and": Builtin((ANY,), _refuse_call, None, is_variadic=True),
    "or": Builtin((ANY,), _refuse_call, None, is_variadic=True),
    "not": Builtin((ANY,), _boolean_function(lambda value: not is_true(value)), BOOL),
    "eq": Builtin((ANY,), _boolean_function(equal), BOOL, is_variadic=True),
    "ne": Builtin((ANY, ANY), _boolean_function(not_equal), BOOL),
    "lt": Builtin((ANY, ANY), _boolean_function(less), BOOL),
    "le": Builtin((ANY, ANY), _boolean_function(less_or_equal), BOOL),
    "gt": Builtin((ANY, ANY), _boolean_function(greater), BOOL),
    "ge": Builtin((ANY, ANY), _boolean_function(greater_or_equal), BOOL),
    "index": Builtin((ANY,), index, None, is_variadic=True),
    "slice": Builtin((ANY,), slice_value, None, is_variadic=True),
    "len": Builtin((ANY,), length, INT),
    "print": Builtin(
        (), lambda budget, *values: Value(STRING, printer.sprint(values, budget)), STRING, is_variadic=True
    ),
    "println": Builtin(
        (), lambda budget, *values: Value(STRING, printer.sprintln(values, budget)), STRING, is_variadic=True
    ),
    "printf": Builtin(
        (STRING,),
        lambda budget, form, *values: Value(STRING, sprintf(form.data, values, budget)),
        STRING,
        is_variadic=True,
    ),
    "html": Builtin((), _escaping_function(escape_html), STRING, is_variadic=True),
    "js": Builtin((), _escaping_function(escape_js), STRING, is_variadic=True),
    "urlquery": Builtin((), _escaping_function(escape_url_query), STRING, is_variadic=True),
    "call": Builtin((ANY,), _refuse_call, None, is_variadic=True),
}
