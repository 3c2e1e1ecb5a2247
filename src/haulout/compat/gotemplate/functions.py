"""The functions that a template can call: those of text/template, and no others.

`and` and `or` have only their signatures here: they do not evaluate more arguments than needed, so the evaluator
implements them. `call` always fails, because no data contains functions.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote_plus

from haulout.compat.gotemplate import comparison, printer, printf, strings
from haulout.compat.gotemplate.limits import WorkBudget
from haulout.compat.gotemplate.source import Problem
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


def escape_html(text: str) -> str:
    """Return a text escaped for HTML."""
    return text.translate(_HTML_ESCAPES)


def escape_js(text: str) -> str:
    """Return a text escaped for a JavaScript string."""
    return _JS_SPECIAL_CHARACTERS.sub(lambda special: _escape_js_character(special[0]), join_surrogates(text))


def escape_url_query(text: str) -> str:
    """Return a text escaped for the query of a URL."""
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
    return Value(STRING, "<no value>") if value is None else value


FUNCTIONS: dict[str, Builtin] = {
    "and": Builtin((ANY,), _refuse_call, None, is_variadic=True),
    "or": Builtin((ANY,), _refuse_call, None, is_variadic=True),
    "not": Builtin((ANY,), _boolean_function(lambda value: not comparison.is_true(value)), BOOL),
    "eq": Builtin((ANY,), _boolean_function(comparison.equal), BOOL, is_variadic=True),
    "ne": Builtin((ANY, ANY), _boolean_function(comparison.not_equal), BOOL),
    "lt": Builtin((ANY, ANY), _boolean_function(comparison.less), BOOL),
    "le": Builtin((ANY, ANY), _boolean_function(comparison.less_or_equal), BOOL),
    "gt": Builtin((ANY, ANY), _boolean_function(comparison.greater), BOOL),
    "ge": Builtin((ANY, ANY), _boolean_function(comparison.greater_or_equal), BOOL),
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
        lambda budget, form, *values: Value(STRING, printf.sprintf(form.data, values, budget)),
        STRING,
        is_variadic=True,
    ),
    "html": Builtin((), _escaping_function(escape_html), STRING, is_variadic=True),
    "js": Builtin((), _escaping_function(escape_js), STRING, is_variadic=True),
    "urlquery": Builtin((), _escaping_function(escape_url_query), STRING, is_variadic=True),
    "call": Builtin((ANY,), _refuse_call, None, is_variadic=True),
}
