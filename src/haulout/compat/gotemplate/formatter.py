"""Formats a single value for a verb of `printf`: sign, digits, quotes, width and precision.

`Style` has the flags between `%` and the verb. Each function returns a padded text.
"""

from dataclasses import dataclass

from haulout.compat.gotemplate import floats, strings
from haulout.compat.gotemplate.numbers import MAX_UINT

_BASES = {"b": 2, "o": 8, "O": 8, "d": 10, "v": 10, "x": 16, "X": 16}
_FORMATS = {2: "b", 8: "o", 10: "d", 16: "x"}
_USUAL_PRECISION = {"e": 6, "E": 6, "f": 6}
_SHARP_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Style:
    """Flags, width and precision of a verb. `+` and `#` have a special meaning for `%v`."""

    plus: bool = False
    minus: bool = False
    sharp: bool = False
    space: bool = False
    zero: bool = False
    width: int | None = None
    precision: int | None = None
    names_fields: bool = False  # %+v
    is_source: bool = False  # %#v


PLAIN = Style()


def pad(text: str, style: Style, *, zeros: bool | None = None) -> str:
    """Return the text padded to the width."""
    missing = (style.width or 0) - len(strings.join_surrogates(text))
    if missing <= 0:
        return text
    if style.minus:
        return text + " " * missing
    return ("0" if (style.zero if zeros is None else zeros) else " ") * missing + text


def format_boolean(value: bool, style: Style) -> str:  # noqa: FBT001 - the value that is formatted
    return pad("true" if value else "false", style)


def format_text(value: str, style: Style) -> str:
    """Return the text, truncated to the precision."""
    return pad(_truncate(value, style), style)


def format_quoted(value: str, style: Style) -> str:
    """Return the text in quotes, truncated to the precision."""
    value = _truncate(value, style)
    if style.sharp and strings.can_backquote(value):
        return pad(f"`{value}`", style)
    return pad(strings.quote(value, ascii_only=style.plus), style)


def format_hexadecimal(value: str, verb: str, style: Style) -> str:
    """Return the bytes of a text as hexadecimal digits."""
    data = strings.to_bytes(value)
    if style.precision is not None:
        data = data[: style.precision]
    if not data:
        return pad("", style)
    prefix = "0x" if style.sharp else ""
    shown = prefix + data.hex()
    if style.space:
        shown = " ".join(f"{prefix}{byte:02x}" for byte in data)
    return pad(shown.upper() if verb == "X" else shown, style)


def format_integer(number: int, verb: str, style: Style) -> str:
    """Return an integer in the base of a verb."""
    base = _BASES[verb]
    if style.precision == 0 and number == 0:
        return pad("", style, zeros=False)
    sign = "-" if number < 0 else "+" if style.plus else " " if style.space else ""
    shown = format(abs(number), _FORMATS[base])
    if style.precision is not None:
        shown = shown.zfill(style.precision)
    elif style.zero and not style.minus and style.width is not None:
        shown = shown.zfill(style.width - len(sign))
    prefix = _prefix(shown, base, verb, style)
    shown = prefix + shown
    return pad(sign + (shown.upper() if verb == "X" else shown), style, zeros=False)


def _prefix(shown: str, base: int, verb: str, style: Style) -> str:
    if verb == "O":
        return "0o0" if style.sharp and not shown.startswith("0") else "0o"
    if not style.sharp:
        return ""
    if base == 8:  # noqa: PLR2004 - octal
        return "" if shown.startswith("0") else "0"
    return {2: "0b", 16: "0x"}.get(base, "")


def format_character(number: int, style: Style) -> str:
    """Return the character with this code point."""
    return pad(strings.rune(number), style)


def format_quoted_character(number: int, style: Style) -> str:
    """Return the character with this code point, in quotes."""
    return pad(strings.quote(strings.rune(number), quote="'", ascii_only=style.plus), style)


def format_code_point(number: int, style: Style) -> str:
    """Return U+0041, with `#` followed by the character."""
    unsigned = number & MAX_UINT
    shown = f"U+{unsigned:0{max(style.precision or 0, 4)}X}"
    if style.sharp and unsigned <= strings.MAX_RUNE and strings.is_printable(chr(unsigned)):
        shown += f" '{chr(unsigned)}'"
    return pad(shown, style, zeros=False)


def format_float(number: float, verb: str, style: Style) -> str:
    form = {"v": "g", "F": "f"}.get(verb, verb)
    precision = style.precision if style.precision is not None else _USUAL_PRECISION.get(form)
    shown = floats.digits(number, form, precision)
    sign, shown = (shown[0], shown[1:]) if shown[0] in "+-" else ("+", shown)
    if style.space and sign == "+" and not style.plus:
        sign = " "
    if shown in ("Inf", "NaN"):
        shows_sign = shown == "Inf" or style.space or style.plus
        hides_plus = shown == "Inf" and sign == "+" and not style.plus
        return pad(("" if hides_plus or not shows_sign else sign) + shown, style, zeros=False)
    if style.sharp and form != "b":
        shown = _with_point_and_zeros(shown, form, precision)
    if sign == "+" and not style.plus:
        return pad(shown, style)
    if style.zero and not style.minus and style.width is not None:
        return sign + shown.zfill(style.width - 1)
    return pad(sign + shown, style)


def _with_point_and_zeros(shown: str, form: str, precision: int | None) -> str:
    """Return a number with its decimal point and trailing zeros, for the flag `#`."""
    mark = "p" if form in "xX" else "e"
    at = shown.lower().find(mark)
    number, tail = (shown[:at], shown[at:]) if at >= 0 else (shown, "")
    figures = 0
    if form in "gGx":
        figures = _SHARP_DIGITS if precision is None else precision
        figures -= len(number.replace(".", "").lstrip("0"))
    if "." not in number:
        if number == "0":
            figures -= 1
        number += "."
    return number + "0" * max(figures, 0) + tail


def _truncate(value: str, style: Style) -> str:
    return value if style.precision is None else strings.join_surrogates(value)[: style.precision]
