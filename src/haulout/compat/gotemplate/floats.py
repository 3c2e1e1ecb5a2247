"""Floating-point numbers in Go's notation.

Python and Go produce the same digits: the shortest that parse to the same number, or a given number of digits, rounded
exactly. They differ in when they use an exponent, and in the binary and hexadecimal formats.
"""

import math
from decimal import Decimal

_USUAL_THRESHOLD = 6  # exponents from here on are written, if there is no precision
_MANTISSA_BITS = 52
_SMALLEST_EXPONENT = -1022


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
