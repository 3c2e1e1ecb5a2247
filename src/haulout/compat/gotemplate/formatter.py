"""Formats a single value for a verb of `printf`: sign, digits, quotes, width and precision (Go's src/fmt/format.go).

`Style` has the flags between `%` and the verb. Each function returns a padded text.

Python and Go produce the same digits of floating-point numbers: the shortest that parse to the same number, or a given
number of digits, rounded exactly. They differ in when they use an exponent, and in the binary and hexadecimal formats.
"""

import math
from dataclasses import dataclass
from decimal import Decimal

from haulout.compat.gotemplate import strings
from haulout.compat.gotemplate.numbers import MAX_UINT

_BASES = {"b": 2, "o": 8, "O": 8, "d": 10, "v": 10, "x": 16, "X": 16}
_FORMATS = {2: "b", 8: "o", 10: "d", 16: "x"}
_USUAL_PRECISION = {"e": 6, "E": 6, "f": 6}
_SHARP_DIGITS = 6

_USUAL_THRESHOLD = 6  # exponents from here on are written, if there is no precision
_MANTISSA_BITS = 52
_SMALLEST_EXPONENT = -1022


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
    # Go counts runes, so a split character counts once its parts are joined.
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
    # After the zeros: `%#06x` of 255 is 0x0000ff, because Go pads the digits only.
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
    shown = digits(number, form, precision)
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


def digits(number: float, verb: str, precision: int | None) -> str:
    """Format a number with a verb (e E f g G b x X). Without a precision, use the fewest digits."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    match verb:
        case "e" | "E" | "f":
            return _fixed(number, verb, precision)
        case "b":
            return _binary(number)
        case "x" | "X":
            text = _hexadecimal(number, precision)
            return text.upper() if verb == "X" else text
    text = _general(number, precision)
    return text.upper() if verb == "G" else text


def _fixed(number: float, verb: str, precision: int | None) -> str:
    if precision is not None:
        return f"{number:.{precision}{verb}}"
    figures, point = _shortest(number)
    places = len(figures) - 1 if verb in "eE" else max(len(figures) - point, 0)
    return f"{number:.{places}{verb}}"


def _general(number: float, precision: int | None) -> str:
    """Return the shorter of the formats with and without an exponent."""
    if precision is None:
        figures, point = _shortest(number)
        threshold = _USUAL_THRESHOLD
    else:
        figures, point = _figures(f"{number:.{max(precision, 1) - 1}e}")
        threshold = max(precision, 1)
        if threshold > len(figures) >= point:
            threshold = len(figures)
    exponent = point - 1
    if exponent < -4 or exponent >= threshold:  # noqa: PLR2004 - as in C
        return f"{number:.{len(figures) - 1}e}"
    return f"{number:.{max(len(figures) - point, 0)}f}"


def _shortest(number: float) -> tuple[str, int]:
    return _figures(repr(number))


def _figures(text: str) -> tuple[str, int]:
    """Return the digits of a number without leading and trailing zeros, and the position of the decimal point."""
    _, figures, exponent = Decimal(text).as_tuple()
    plain = "".join(map(str, figures)).lstrip("0")
    point = len(plain) + int(exponent)
    trimmed = plain.rstrip("0")
    return (trimmed, point) if trimmed else ("0", 1)


def _parts(number: float) -> tuple[str, int, int]:
    """Return the sign, the mantissa with its leading bit, and the exponent of that bit."""
    sign = "-" if math.copysign(1.0, number) < 0 else ""
    if number == 0:
        return sign, 0, 0
    _, exponent = math.frexp(abs(number))
    exponent = max(exponent - 1, _SMALLEST_EXPONENT)
    return sign, int(math.ldexp(abs(number), _MANTISSA_BITS - exponent)), exponent


def _binary(number: float) -> str:
    sign, mantissa, exponent = _parts(number)
    if mantissa == 0:
        exponent = _SMALLEST_EXPONENT
    return f"{sign}{mantissa}p{exponent - _MANTISSA_BITS:+d}"


def _hexadecimal(number: float, precision: int | None) -> str:
    sign, mantissa, exponent = _parts(number)
    while mantissa and mantissa < 1 << _MANTISSA_BITS:  # a subnormal number has no leading bit
        mantissa <<= 1
        exponent -= 1
    places = _MANTISSA_BITS // 4
    if precision is not None and precision < places:
        cut = 4 * (places - precision)
        mantissa = round(mantissa / (1 << cut)) << cut if mantissa else 0
        if mantissa >= 1 << (_MANTISSA_BITS + 1):
            mantissa >>= 1
            exponent += 1
    fraction = f"{mantissa & ((1 << _MANTISSA_BITS) - 1):0{places}x}"
    fraction = fraction.rstrip("0") if precision is None else fraction[:precision].ljust(precision, "0")
    point = "." if fraction else ""
    return f"{sign}0x{mantissa >> _MANTISSA_BITS}{point}{fraction}p{'-' if exponent < 0 else '+'}{abs(exponent):02}"
