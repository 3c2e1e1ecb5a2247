"""Prints values like Go's package fmt: for `{{ .X }}`, `print`, `println` and `printf`.

Maps are sorted; `%v` prints a list as `[a b]` and a struct as `{a b}`. A verb that does not fit its value prints
`%!d(string=hi)` instead of raising an error. A pointer prints its target, because its address has no meaning here.

`sprintf` formats values with the verbs of a format:

    printf "%-20s %5.1f%%" .Node.Name 12.5

Errors in a format appear in the output, as in Go: `%!d(string=x)`, `%!s(MISSING)`, `%!(EXTRA int=1)`, `%!(BADINDEX)`,
`%!(NOVERB)`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from haulout.compat.gotemplate import formatter
from haulout.compat.gotemplate.errors import BoundedOutput, WorkBudget
from haulout.compat.gotemplate.formatter import PLAIN, Style
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

_MAX_NUMBER = 1_000_000  # maximum width or precision: `tooLarge` in Go's src/fmt/print.go
_DIGITS = "0123456789"
_FLAGS = {"+": "plus", "-": "minus", "#": "sharp", " ": "space", "0": "zero"}


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
    """Prints values into a bounded output, each with a verb and a style."""

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


def sprintf(format_text: str, values: Sequence[OptionalValue], budget: WorkBudget) -> str:
    """Return the format with its verbs replaced by values."""
    return _Formatter(format_text, values, budget).run()


@dataclass(slots=True)
class _Verb:
    """What was parsed of a verb so far: flags, width, precision and argument index."""

    flags: dict[str, bool]
    width: int | None = None
    precision: int | None = None
    has_valid_index: bool = True

    def style(self, verb: str) -> Style:
        flags = dict(self.flags)
        special = {}
        if verb == "v":
            special = {"is_source": flags.pop("sharp", False), "names_fields": flags.pop("plus", False)}
        return Style(**flags, **special, width=self.width, precision=self.precision)


class _Formatter:
    def __init__(self, format_text: str, values: Sequence[OptionalValue], budget: WorkBudget) -> None:
        self._format = format_text
        self._values = values
        self._printer = Printer(budget)
        self._write = self._printer.sink.write
        self._at = 0
        self._argument = 0
        self._reordered = False

    def run(self) -> str:
        while True:
            percent = self._format.find("%", self._at)
            if percent < 0:
                break
            self._write(self._format[self._at : percent])
            self._at = percent + 1
            self._verb()
        self._write(self._format[self._at :])
        if not self._reordered and self._argument < len(self._values):
            self._extra(self._values[self._argument :])
        return self._printer.sink.text

    def _verb(self) -> None:
        read = _Verb({})
        while self._peek() in _FLAGS:
            read.flags[_FLAGS[self._peek()]] = True
            self._at += 1
        after_index = self._index(read)
        after_index = self._width(read, after_index=after_index)
        after_index = self._precision(read, after_index=after_index)
        if not after_index:
            self._index(read)
        verb = self._peek()
        if not verb:
            self._write("%!(NOVERB)")
            return
        self._at += 1
        self._apply(verb, read)

    def _apply(self, verb: str, read: _Verb) -> None:
        if verb == "%":
            self._write("%")
        elif not read.has_valid_index:
            self._write(f"%!{verb}(BADINDEX)")
        elif self._argument >= len(self._values):
            self._write(f"%!{verb}(MISSING)")
        else:
            self._printer.argument(self._values[self._argument], verb, read.style(verb))
            self._argument += 1

    def _width(self, read: _Verb, *, after_index: bool) -> bool:
        if self._peek() != "*":
            read.width = self._number()
            if after_index and read.width is not None:
                read.has_valid_index = False
            return after_index
        self._at += 1
        read.width = self._number_from_argument()
        if read.width is None:
            self._write("%!(BADWIDTH)")
        elif read.width < 0:
            read.width = -read.width
            read.flags |= {"minus": True, "zero": False}
        return False

    def _precision(self, read: _Verb, *, after_index: bool) -> bool:
        if self._peek() != "." or self._at + 1 >= len(self._format):
            return after_index
        self._at += 1
        if after_index:
            read.has_valid_index = False
        after_index = self._index(read)
        if self._peek() != "*":
            read.precision = self._number() or 0
            return after_index
        self._at += 1
        read.precision = self._number_from_argument()
        if read.precision is not None and read.precision < 0:
            read.precision = None
        if read.precision is None:
            self._write("%!(BADPREC)")
        return False

    def _index(self, read: _Verb) -> bool:
        """Parse `[2]` at this position, if present. Return whether it was."""
        if self._peek() != "[":
            return False
        self._reordered = True
        closing = self._format.find("]", self._at)
        if closing < 0:
            self._at += 1
            read.has_valid_index = False
            return False
        inside = self._format[self._at + 1 : closing]
        self._at = closing + 1
        is_number = bool(inside) and all(each in _DIGITS for each in inside) and len(inside) <= len(str(_MAX_NUMBER))
        if is_number and 1 <= int(inside) <= len(self._values):
            self._argument = int(inside) - 1
            return True
        read.has_valid_index = False
        return is_number

    def _number(self) -> int | None:
        start = self._at
        while self._peek() and self._peek() in _DIGITS:
            self._at += 1
        shown = self._format[start : self._at].lstrip("0")
        if len(shown) > len(str(_MAX_NUMBER)) + 1 or int(shown[:-1] or "0") > _MAX_NUMBER:
            self._at = len(self._format)  # as in Go: the rest of the format is ignored
            return None
        return int(shown or "0") if self._at > start else None

    def _number_from_argument(self) -> int | None:
        if self._argument >= len(self._values):
            return None
        value = unwrap_interface(self._values[self._argument])
        self._argument += 1
        if value is None or value.type.kind not in (Kind.INT, Kind.UINT) or abs(value.data) > _MAX_NUMBER:
            return None
        return int(value.data)

    def _extra(self, values: Sequence[OptionalValue]) -> None:
        self._write("%!(EXTRA ")
        for at, value in enumerate(values):
            self._write(", " if at else "")
            present = unwrap_interface(value)
            if present is None:
                self._write("<nil>")
                continue
            self._write(f"{present.type.name}=")
            self._printer.argument(present, "v", PLAIN)
        self._write(")")

    def _peek(self) -> str:
        return self._format[self._at : self._at + 1]
