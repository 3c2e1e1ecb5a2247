"""Numbers in Go's notation.

Files that were written for Go programs contain numbers such as `0o10`, `1_000` or `0x1p4`, which must have the same
value here. `parse_int` is strconv.ParseInt (or ParseUint) with base 0, `parse_float` is strconv.ParseFloat, and
`format_float` is `%v`.
"""

import math
import re
from decimal import Decimal

MIN_INT64 = -(1 << 63)
MAX_INT64 = (1 << 63) - 1
MAX_UINT64 = (1 << 64) - 1

# An underscore is allowed between two digits, or between the prefix and a digit.
_INT = re.compile(
    r"(?P<sign>[+-]?)(?:0[xX](?P<hex>(?:_?[0-9a-fA-F])+)|0[bB](?P<bin>(?:_?[01])+)"
    r"|0[oO](?P<oct>(?:_?[0-7])+)|0(?P<old>(?:_?[0-7])+)|(?P<dec>0|[1-9](?:_?[0-9])*))"
)
_BASES = {"hex": 16, "bin": 2, "oct": 8, "old": 8, "dec": 10}
_DIGITS = r"[0-9](?:_?[0-9])*"
_FLOAT = re.compile(rf"[+-]?(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?")
_HEX_DIGITS = r"[0-9a-fA-F](?:_?[0-9a-fA-F])*"
_HEX_FLOAT = re.compile(rf"[+-]?0[xX]_?(?:{_HEX_DIGITS}(?:\.(?:{_HEX_DIGITS})?)?|\.{_HEX_DIGITS})[pP][+-]?{_DIGITS}")
_WORD = re.compile(r"[+-]?(?:inf|infinity)|nan", re.IGNORECASE)
# No 64-bit value has more digits.
_MAX_DIGITS = 100

# Decimal exponents in this range are written without an exponent.
_PLAIN_EXPONENTS = range(-4, 6)


def parse_int(text: str) -> int | None:
    """Parse a signed or unsigned 64-bit integer; return None if the text is not one."""
    found = _INT.fullmatch(text)
    if found is None or len(text) > _MAX_DIGITS:
        return None
    kind = found.lastgroup or "dec"
    number = int(found[kind].replace("_", ""), _BASES[kind])
    if found["sign"]:
        # Only ParseInt accepts a sign.
        signed = -number if found["sign"] == "-" else number
        return signed if MIN_INT64 <= signed <= MAX_INT64 else None
    return number if number <= MAX_UINT64 else None


def parse_float(text: str) -> float | None:
    """Parse a number; return None if the text is not one or too large."""
    if _WORD.fullmatch(text):
        return float(text)
    try:
        if _HEX_FLOAT.fullmatch(text):
            return float.fromhex(text.replace("_", ""))
    except OverflowError:
        return None
    if not _FLOAT.fullmatch(text):
        return None
    number = float(text.replace("_", ""))
    return None if math.isinf(number) else number


def format_float(number: float) -> str:
    """Return a number as `%v` prints it: `1`, `1.5`, `1e+06`, `+Inf`."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    sign = "-" if math.copysign(1, number) < 0 else ""
    digits, exponent = _shortest(abs(number))
    if exponent not in _PLAIN_EXPONENTS:
        mantissa = digits[0] + (f".{digits[1:]}" if len(digits) > 1 else "")
        return f"{sign}{mantissa}e{'-' if exponent < 0 else '+'}{abs(exponent):02}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    whole, rest = digits[: exponent + 1].ljust(exponent + 1, "0"), digits[exponent + 1 :]
    return f"{sign}{whole}.{rest}" if rest else f"{sign}{whole}"


def _shortest(number: float) -> tuple[str, int]:
    # The fewest digits that parse to the same number, and the decimal exponent of the first digit.
    _, digits, exponent = Decimal(repr(number)).as_tuple()
    first = len(digits) - 1 + int(exponent)
    return "".join(map(str, digits)).rstrip("0") or "0", first if number else 0
