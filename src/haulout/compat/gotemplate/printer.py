"""Prints values like Go's package fmt: for `{{ .X }}`, `print`, `println` and `printf`.

Maps are sorted; `%v` prints a list as `[a b]` and a struct as `{a b}`. A verb that does not fit its value prints
`%!d(string=hi)` instead of raising an error. A pointer prints its target, because its address has no meaning here.
"""

from collections.abc import Sequence
from dataclasses import replace

from haulout.compat.gotemplate import formatter
from haulout.compat.gotemplate.formatter import PLAIN, Style
from haulout.compat.gotemplate.limits import BoundedOutput, WorkBudget
from haulout.compat.gotemplate.types import (
    ANY,
    STRING,
    Kind,
    OptionalValue,
    Value,
    dereference,
    sorted_entries,
    to_typed_value,
    unwrap_interface,
)

_NIL = "<nil>"
_TEXT_VERBS = frozenset("vsxXq")
_FLOAT_VERBS = frozenset("vbgGxXfFeE")
_ADDRESS_VERBS = frozenset("bodxX")  # Go prints the address of a pointer with these; that of nil is 0
_MAX_DEPTH = 60  # of nested lists and mappings


def print_action(value: OptionalValue, budget: WorkBudget) -> str:
    """Return what an action prints for a value."""
    value = unwrap_interface(dereference(value))
    return "<no value>" if value is None else sprint([value], budget)


def sprint(values: Sequence[OptionalValue], budget: WorkBudget) -> str:
    """Return the result of `print`: spaces only between two values of which neither is a text."""
    printer = Printer(budget)
    after_text = True
    for value in values:
        is_text = value is not None and value.type.kind is Kind.STRING
        if not (is_text or after_text):
            printer.sink.write(" ")
        printer.argument(value, "v", PLAIN)
        after_text = is_text
    return printer.sink.text


def sprintln(values: Sequence[OptionalValue], budget: WorkBudget) -> str:
    """Return the result of `println`: spaces between all values, and a line break."""
    printer = Printer(budget)
    for at, value in enumerate(values):
        printer.sink.write(" " if at else "")
        printer.argument(value, "v", PLAIN)
    return f"{printer.sink.text}\n"


class Printer:
    """Prints values into a bounded output."""

    def __init__(self, budget: WorkBudget) -> None:
        self.sink = BoundedOutput(budget)
        self._in_bad_verb = False  # then String methods are not used

    def argument(self, value: OptionalValue, verb: str, style: Style) -> None:
        """Print an argument of a `print` function."""
        value = unwrap_interface(value)
        if value is None:
            shown = formatter.pad(_NIL, style) if verb in "Tv" else f"%!{verb}({_NIL})"
            self.sink.write(shown)
        elif verb == "T":
            self.sink.write(formatter.format_text(value.type.name, style))
        elif verb in "wp":  # for errors and addresses, which do not exist here
            self._bad_verb(value, verb, style)
        else:
            self._value(value, verb, style, 0)

    def _value(self, value: Value, verb: str, style: Style, depth: int) -> None:
        if depth > _MAX_DEPTH:
            self.sink.write("...")
            return
        if value.type.kind is Kind.POINTER:
            self._pointer(value, verb, style, depth)
            return
        own = self._stringer_text(value, verb, style)
        if own is not None:
            self._text(value, own, verb, style)
            return
        match value.type.kind:
            case Kind.INTERFACE:
                self.sink.write(f"{value.type.name}(nil)" if style.is_source else _NIL)
            case Kind.MAP | Kind.SLICE | Kind.STRUCT:
                self._compound(value, verb, style, depth)
            case Kind.STRING:
                self._text(value, value.data, verb, style)
            case _:
                self._scalar(value, verb, style)

    def _stringer_text(self, value: Value, verb: str, style: Style) -> str | None:
        if self._in_bad_verb and value.type.kind is not Kind.STRUCT:
            return None
        if style.is_source:
            return value.type.source_text(value.data) if value.type.source_text else None
        has_only_promoted_fields = (
            all(field.promoted for field in value.type.fields.values()) and value.type.kind is Kind.STRUCT
        )
        if value.type.text is not None and (verb in _TEXT_VERBS or has_only_promoted_fields):
            return value.type.text(value.data)
        return None

    def _pointer(self, value: Value, verb: str, style: Style, depth: int) -> None:
        target = dereference(value)
        if target is None or target.type.kind is Kind.POINTER:
            self.sink.write(_nil_pointer(value, verb, style))
            return
        if depth == 0 and target.type.kind in (Kind.STRUCT, Kind.MAP, Kind.SLICE) and not target.type.text:
            self.sink.write("&")
        self._value(target, verb, style, depth)

    def _text(self, value: Value, text: str, verb: str, style: Style) -> None:
        match verb:
            case "v" if style.is_source and value.type.kind is Kind.STRING:
                self.sink.write(formatter.format_quoted(text, style))
            case "v" | "s":
                self.sink.write(formatter.format_text(text, style))
            case "q":
                self.sink.write(formatter.format_quoted(text, style))
            case "x" | "X":
                self.sink.write(formatter.format_hexadecimal(text, verb, style))
            case _:
                self._bad_verb(value, verb, style)

    def _scalar(self, value: Value, verb: str, style: Style) -> None:
        shown = _scalar_text(value, verb, style)
        if shown is None:
            self._bad_verb(value, verb, style)
        else:
            self.sink.write(shown)

    def _bad_verb(self, value: Value, verb: str, style: Style) -> None:
        self.sink.write(f"%!{verb}({value.type.name}=")
        if value.type.text is not None and value.type.kind is Kind.STRUCT:
            self.sink.write(value.type.text(value.data))
        else:
            self._in_bad_verb = True
            self._value(value, "v", style, 0)
            self._in_bad_verb = False
        self.sink.write(")")

    def _compound(self, value: Value, verb: str, style: Style, depth: int) -> None:
        kind, name = value.type.kind, value.type.name
        if style.is_source and value.data is None:
            self.sink.write(f"{name}(nil)")
            return
        opening, closing = ("{", "}") if style.is_source or kind is Kind.STRUCT else ("[", "]")
        before = name if style.is_source else "map" if kind is Kind.MAP else ""
        self.sink.write(before + opening)
        for at, (label, each) in enumerate(_parts(value, style)):
            if at:
                self.sink.write(", " if style.is_source else " ")
            if isinstance(label, Value):
                self._value(label, verb, style, depth + 1)
                self.sink.write(":")
            elif label:
                self.sink.write(f"{label}:")
            self._value(each, verb, style, depth + 1)
        self.sink.write(closing)


def _nil_pointer(value: Value, verb: str, style: Style) -> str:
    if verb in _ADDRESS_VERBS:
        return formatter.format_integer(0, verb, style)
    shown = formatter.pad(f"({value.type.name})(nil)" if style.is_source else _NIL, style)
    return shown if verb == "v" else f"%!{verb}({value.type.name}={shown})"


def _parts(value: Value, style: Style) -> list[tuple[Value | str, Value]]:
    """Return the parts of a compound value: keys or labels (empty for elements and plain fields), and values."""
    element = value.type.element or ANY
    match value.type.kind:
        case Kind.MAP:
            return [(Value(STRING, key), to_typed_value(element, raw)) for key, raw in sorted_entries(value)]
        case Kind.SLICE:
            return [("", to_typed_value(element, raw)) for raw in value.data or ()]
    return [
        (name if style.names_fields or style.is_source else "", to_typed_value(field.type, field.get(value.data)))
        for name, field in value.type.fields.items()
        if not field.promoted
    ]


def _scalar_text(value: Value, verb: str, style: Style) -> str | None:
    match value.type.kind:
        case Kind.BOOL:
            return formatter.format_boolean(value.data, style) if verb in "tv" else None
        case Kind.FLOAT:
            return formatter.format_float(value.data, verb, style) if verb in _FLOAT_VERBS else None
    return _integer_text(value, verb, style)


def _integer_text(value: Value, verb: str, style: Style) -> str | None:
    match verb:
        case "v" if style.is_source and value.type.kind is Kind.UINT:
            return formatter.format_integer(value.data, "x", replace(style, sharp=True))
        case "v" | "d" | "b" | "o" | "O" | "x" | "X":
            return formatter.format_integer(value.data, verb, style)
        case "c":
            return formatter.format_character(value.data, style)
        case "q":
            return formatter.format_quoted_character(value.data, style)
        case "U":
            return formatter.format_code_point(value.data, style)
    return None
