"""`printf`: a format with verbs, filled in with values.

    printf "%-20s %5.1f%%" .Node.Name 12.5

What is wrong with a format shows in the text, as in Go: `%!d(string=x)`, `%!s(MISSING)`, `%!(EXTRA int=1)`,
`%!(BADINDEX)`, `%!(NOVERB)`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from haulout.core.templates.formatting import PLAIN, Style
from haulout.core.templates.limits import Budget
from haulout.core.templates.printing import Printer
from haulout.core.templates.types import Kind, Maybe, without_interface

_LARGEST = 1_000_000  # width or precision
_DIGITS = "0123456789"
_FLAGS = {"+": "plus", "-": "minus", "#": "sharp", " ": "space", "0": "zero"}


def filled_in(form: str, values: Sequence[Maybe], budget: Budget) -> str:
    """Return a format with values in the places of its verbs."""
    return _Format(form, values, budget).run()


@dataclass(slots=True)
class _Verb:
    """What has been read of a verb so far."""

    flags: dict[str, bool]
    width: int | None = None
    precision: int | None = None
    good_index: bool = True

    def style(self, verb: str) -> Style:
        flags = dict(self.flags)
        special = {}
        if verb == "v":
            special = {"is_source": flags.pop("sharp", False), "names_fields": flags.pop("plus", False)}
        return Style(**flags, **special, width=self.width, precision=self.precision)


class _Format:
    def __init__(self, form: str, values: Sequence[Maybe], budget: Budget) -> None:
        self._form = form
        self._values = values
        self._printer = Printer(budget)
        self._write = self._printer.sink.write
        self._at = 0
        self._argument = 0
        self._reordered = False

    def run(self) -> str:
        while True:
            percent = self._form.find("%", self._at)
            if percent < 0:
                break
            self._write(self._form[self._at : percent])
            self._at = percent + 1
            self._verb()
        self._write(self._form[self._at :])
        if not self._reordered and self._argument < len(self._values):
            self._extra(self._values[self._argument :])
        return self._printer.sink.text

    def _verb(self) -> None:
        read = _Verb({})
        while self._here() in _FLAGS:
            read.flags[_FLAGS[self._here()]] = True
            self._at += 1
        after_index = self._index(read)
        after_index = self._width(read, after_index=after_index)
        after_index = self._precision(read, after_index=after_index)
        if not after_index:
            self._index(read)
        verb = self._here()
        if not verb:
            self._write("%!(NOVERB)")
            return
        self._at += 1
        self._apply(verb, read)

    def _apply(self, verb: str, read: _Verb) -> None:
        if verb == "%":
            self._write("%")
        elif not read.good_index:
            self._write(f"%!{verb}(BADINDEX)")
        elif self._argument >= len(self._values):
            self._write(f"%!{verb}(MISSING)")
        else:
            self._printer.argument(self._values[self._argument], verb, read.style(verb))
            self._argument += 1

    def _width(self, read: _Verb, *, after_index: bool) -> bool:
        if self._here() != "*":
            read.width = self._number()
            if after_index and read.width is not None:
                read.good_index = False
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
        if self._here() != "." or self._at + 1 >= len(self._form):
            return after_index
        self._at += 1
        if after_index:
            read.good_index = False
        after_index = self._index(read)
        if self._here() != "*":
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
        """Read `[2]`, if it is here, and tell whether it was."""
        if self._here() != "[":
            return False
        self._reordered = True
        closing = self._form.find("]", self._at)
        if closing < 0:
            self._at += 1
            read.good_index = False
            return False
        inside = self._form[self._at + 1 : closing]
        self._at = closing + 1
        is_number = bool(inside) and all(each in _DIGITS for each in inside) and len(inside) <= len(str(_LARGEST))
        if is_number and 1 <= int(inside) <= len(self._values):
            self._argument = int(inside) - 1
            return True
        read.good_index = False
        return is_number

    def _number(self) -> int | None:
        start = self._at
        while self._here() and self._here() in _DIGITS:
            self._at += 1
        shown = self._form[start : self._at].lstrip("0")
        if len(shown) > len(str(_LARGEST)) + 1 or int(shown[:-1] or "0") > _LARGEST:
            self._at = len(self._form)  # as Go: nothing more is read
            return None
        return int(shown or "0") if self._at > start else None

    def _number_from_argument(self) -> int | None:
        if self._argument >= len(self._values):
            return None
        value = without_interface(self._values[self._argument])
        self._argument += 1
        if value is None or value.type.kind not in (Kind.INT, Kind.UINT) or abs(value.data) > _LARGEST:
            return None
        return int(value.data)

    def _extra(self, values: Sequence[Maybe]) -> None:
        self._write("%!(EXTRA ")
        for at, value in enumerate(values):
            self._write(", " if at else "")
            present = without_interface(value)
            if present is None:
                self._write("<nil>")
                continue
            self._write(f"{present.type.name}=")
            self._printer.argument(present, "v", PLAIN)
        self._write(")")

    def _here(self) -> str:
        return self._form[self._at : self._at + 1]
