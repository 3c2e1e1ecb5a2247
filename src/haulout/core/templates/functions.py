"""The functions that a template can call: Go's own, and no others.

`and` and `or` stand here only with their signatures: they look at no more arguments than they must, so evaluation
itself does their work. `call` is there to be refused: no data here have functions in them.
"""

from collections.abc import Callable
from dataclasses import dataclass

from haulout.core.templates import comparison, escapes, printf, printing, strings
from haulout.core.templates.limits import Budget
from haulout.core.templates.source import Problem
from haulout.core.templates.types import (
    ANY,
    BOOL,
    BYTE,
    INT,
    STRING,
    Kind,
    Maybe,
    Type,
    Value,
    pointed,
    typed,
    without_interface,
)

_MOST_SLICE_INDEXES = 3


@dataclass(frozen=True, slots=True)
class Builtin:
    """A function: what it takes, what it gives (None: that depends), and how."""

    parameters: tuple[Type, ...]
    call: Callable[..., Maybe]  # with the budget first
    result: Type | None
    takes_more: bool = False  # any number of arguments of any type after the parameters

    def wrong_count(self, count: int) -> str:
        """Return what was expected instead of this number of arguments, or nothing if it is right."""
        least = len(self.parameters)
        if count == least or (self.takes_more and count > least):
            return ""
        return f"{'at least ' if self.takes_more else ''}{least} argument{'' if least == 1 else 's'}"


def index(_: Budget, item: Maybe, *indexes: Maybe) -> Maybe:
    """Return the element of a map, a list or a text (as a byte), one level for each index."""
    item = without_interface(item)
    if item is None:
        raise Problem("there is nothing to index: the value is null or missing")
    for each in indexes:
        item = _element(item, without_interface(each))
    return item


def _element(item: Maybe, at: Maybe) -> Value:
    item = pointed(item)
    match item:
        case Value(type=Type(kind=Kind.MAP, element=Type() as element)):
            return typed(element, (item.data or {}).get(_key(at)))
        case Value(type=Type(kind=Kind.SLICE, element=Type() as element)):
            data = item.data or ()
            return typed(element, data[_position(at, len(data), inside=True)])
        case Value(type=Type(kind=Kind.STRING)):
            data = strings.to_bytes(item.data)
            return Value(BYTE, data[_position(at, len(data), inside=True)])
    raise Problem(f"expected a map, a list or a text to index, found {_described(item)}")


def _key(at: Maybe) -> str:
    if at is None or at.type.kind is not Kind.STRING:
        raise Problem(f"expected a text as the key of a map, found {_described(at)}")
    return str(at.data)


def _position(at: Maybe, length: int, *, inside: bool = False) -> int:
    at = without_interface(at)
    if at is None or at.type.kind not in (Kind.INT, Kind.UINT):
        raise Problem(f"expected a whole number as an index, found {_described(at)}")
    if not 0 <= at.data <= length - (1 if inside else 0):
        raise Problem(f"index {at.data} is out of range: the length is {length}")
    return int(at.data)


def cut(_: Budget, item: Maybe, *indexes: Maybe) -> Maybe:
    """Return a part of a list or a text (counted in bytes): from an index, up to another."""
    item = pointed(without_interface(item))
    if item is None or item.type.kind not in (Kind.SLICE, Kind.STRING):
        raise Problem(f"expected a list or a text to slice, found {_described(item)}")
    is_text = item.type.kind is Kind.STRING
    most = _MOST_SLICE_INDEXES - 1 if is_text else _MOST_SLICE_INDEXES
    if len(indexes) > most:
        raise Problem(f"expected at most {most} indexes for a {'text' if is_text else 'list'}, found {len(indexes)}")
    data = strings.to_bytes(item.data) if is_text else item.data or []
    positions = [_position(each, len(data)) for each in indexes]
    bounds = [*positions, *[0, len(data)][len(positions) :]]
    if bounds != sorted(bounds):
        raise Problem(f"expected rising indexes, found {', '.join(map(str, bounds))}")
    part = data[bounds[0] : bounds[1]]
    return Value(item.type, strings.from_bytes(part) if isinstance(part, bytes) else part)


def length(_: Budget, item: Maybe) -> Maybe:
    """Return the length of a map, a list or a text (in bytes)."""
    item = pointed(without_interface(item))
    if item is None or item.type.kind not in (Kind.MAP, Kind.SLICE, Kind.STRING):
        raise Problem(f"expected a map, a list or a text, found {_described(item)}")
    data = strings.to_bytes(item.data) if item.type.kind is Kind.STRING else item.data or ()
    return Value(INT, len(data))


def _described(value: Maybe) -> str:
    if value is None or (value.type.kind is Kind.POINTER and value.data is None):
        return "nothing"
    return f"a value of type {value.type.name}"


def _refused(*_: object) -> Maybe:
    raise Problem("call is of no use here: no value is a function; a method is called by its name, with its arguments")


def _tells(compare: Callable[..., bool]) -> Callable[..., Maybe]:
    return lambda _, *arguments: Value(BOOL, compare(*arguments))


def _escaped(escape: Callable[[str], str]) -> Callable[..., Maybe]:
    def call(budget: Budget, *arguments: Maybe) -> Maybe:
        shown = [_printable(each) for each in arguments]
        text = escape(printing.line(shown, budget))
        budget.spend(len(text))
        return Value(STRING, text)

    return call


def _printable(value: Maybe) -> Maybe:
    value = without_interface(pointed(value))
    return Value(STRING, "<no value>") if value is None else value


FUNCTIONS: dict[str, Builtin] = {
    "and": Builtin((ANY,), _refused, None, takes_more=True),
    "or": Builtin((ANY,), _refused, None, takes_more=True),
    "not": Builtin((ANY,), _tells(lambda value: not comparison.is_true(value)), BOOL),
    "eq": Builtin((ANY,), _tells(comparison.equal), BOOL, takes_more=True),
    "ne": Builtin((ANY, ANY), _tells(comparison.not_equal), BOOL),
    "lt": Builtin((ANY, ANY), _tells(comparison.less), BOOL),
    "le": Builtin((ANY, ANY), _tells(comparison.less_or_equal), BOOL),
    "gt": Builtin((ANY, ANY), _tells(comparison.greater), BOOL),
    "ge": Builtin((ANY, ANY), _tells(comparison.greater_or_equal), BOOL),
    "index": Builtin((ANY,), index, None, takes_more=True),
    "slice": Builtin((ANY,), cut, None, takes_more=True),
    "len": Builtin((ANY,), length, INT),
    "print": Builtin((), lambda budget, *values: Value(STRING, printing.line(values, budget)), STRING, takes_more=True),
    "println": Builtin(
        (), lambda budget, *values: Value(STRING, printing.spaced_line(values, budget)), STRING, takes_more=True
    ),
    "printf": Builtin(
        (STRING,),
        lambda budget, form, *values: Value(STRING, printf.filled_in(form.data, values, budget)),
        STRING,
        takes_more=True,
    ),
    "html": Builtin((), _escaped(escapes.html), STRING, takes_more=True),
    "js": Builtin((), _escaped(escapes.js), STRING, takes_more=True),
    "urlquery": Builtin((), _escaped(escapes.url_query), STRING, takes_more=True),
    "call": Builtin((ANY,), _refused, None, takes_more=True),
}
