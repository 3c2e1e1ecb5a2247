"""`printf`: formats values with the verbs of a format.

    printf "%-20s %5.1f%%" .Node.Name 12.5

Errors in a format appear in the output, as in Go: `%!d(string=x)`, `%!s(MISSING)`, `%!(EXTRA int=1)`, `%!(BADINDEX)`,
`%!(NOVERB)`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from haulout.compat.gotemplate.formatter import PLAIN, Style
from haulout.compat.gotemplate.limits import WorkBudget
from haulout.compat.gotemplate.printer import Printer
from haulout.compat.gotemplate.types import Kind, OptionalValue, unwrap_interface

_MAX_NUMBER = 1_000_000  # maximum width or precision
_DIGITS = "0123456789"
_FLAGS = {"+": "plus", "-": "minus", "#": "sharp", " ": "space", "0": "zero"}


def sprintf(format_text: str, values: Sequence[OptionalValue], budget: WorkBudget) -> str:
    """Return the format with its verbs replaced by values."""
    return _Formatter(format_text, values, budget).run()


@dataclass(slots=True)
class _Verb:
    """The parsed part of a verb."""

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
