"""Go literals: numbers and strings.

Files that were written for Go programs contain numbers such as `0o10`, `1_000` or `0x1p4`, which must have the same
value here. `parse_int` is strconv.ParseInt (or ParseUint) with base 0, `parse_float` is strconv.ParseFloat, and
`format_float` is `%v`. `unquote` parses string literals: in double quotes with escapes, `'x'`, and raw ones in
backquotes.
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

_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\"}
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|([0-7]{3})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))|([^\\])", re.DOTALL)
_MAX_BYTE = 0xFF
_MAX_RUNE = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


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


def unquote(quoted: str) -> str:
    """Return the text of a literal. Raise ValueError."""
    quote = quoted[:1]
    if len(quoted) < len('""') or quote not in {'"', "'", "`"} or not quoted.endswith(quote):
        raise ValueError(f"expected a text in quotes, found {quoted}")
    inside = quoted[1:-1]
    if quote == "`":
        if "`" in inside:
            raise ValueError(f"expected one text in backquotes, found {quoted}")
        # The Go specification: carriage returns are discarded from raw string literals.
        return inside.replace("\r", "")
    if "\n" in inside:
        raise ValueError(f"expected the closing {quote} in the same line")
    text = _unescaped(inside, quote)
    if quote == "'" and len(text) != 1:
        raise ValueError(f'expected one character in single quotes, found {quoted}; texts are in double quotes: "…"')
    return text


def _unescaped(inside: str, quote: str) -> str:
    # \x and \123 denote bytes, not characters, so the text is assembled as bytes.
    parts = bytearray()
    position = 0
    while position < len(inside):
        found = _ESCAPE.match(inside, position)
        if found is None or found[0] == quote:
            raise ValueError(f"expected {quote} only at the end, or as \\{quote}")
        parts += _bytes_of(found, quote)
        position = found.end()
    return parts.decode(errors="replace")


def _bytes_of(found: re.Match[str], quote: str) -> bytes:
    in_hex, in_octal, short, long, simple, plain = found.groups()
    if plain is not None:
        return str(plain).encode(errors="replace")
    if in_hex or in_octal:
        byte = int(in_hex, 16) if in_hex else int(in_octal, 8)
        if byte <= _MAX_BYTE:
            return bytes([byte])
    elif short or long:
        code = int(short or long, 16)
        if code <= _MAX_RUNE and code not in _SURROGATES:
            return chr(code).encode()
    elif simple == quote or simple in _SIMPLE:
        return (quote if simple == quote else _SIMPLE[simple]).encode()
    raise ValueError(f"expected a known escape such as \\n or \\u00e9, found {found[0]}")
