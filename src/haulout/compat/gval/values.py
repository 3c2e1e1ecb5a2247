"""The values of expressions, and how operators convert them, as in gval.

A value is a float, a text, a boolean, a list, a `Date` or None. An operator first checks whether its operands have the
same type, then tries to convert them: to numbers, to booleans, to texts, in this order.

`parse_date` implements `date("…")` in an expression: the date formats of gval, in UTC. Operators treat a date only as
the text that Go prints for it, so it converts one text to the other.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from haulout.compat import goliterals

_INT64 = 1 << 64
_SIGN = 1 << 63
_TRUE = frozenset({"true", "TRUE"})
_FALSE = frozenset({"false", "FALSE"})
_MAX_TEXT = 10_000
_NAMES = {float: "a number", str: "a text", bool: "true or false", list: "a list", type(None): "nothing"}

_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_MONTH = rf"(?P<name>{'|'.join(_MONTHS)})"
_CLOCK = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?P<fraction>\.\d+)?"
_ZONE = r"(?P<zone>Z|[+-]\d\d:?\d\d)"
_LAYOUTS = [
    re.compile(form, re.ASCII)
    for form in (
        rf"{_DAY} {_MONTH} [ ]?(?P<day>\d\d?) {_CLOCK} (?:(?P<known>UTC|GMT) )?(?P<year>\d{{4}})",
        rf"{_DAY} {_MONTH} (?P<day>\d\d) {_CLOCK} (?P<zone>[+-]\d{{4}}) (?P<year>\d{{4}})",
        r"(?P<hour>\d\d?):(?P<minute>\d\d)(?P<half>AM|PM)",
        rf"(?P<year>\d{{4}})-(?P<month>\d\d)-(?P<day>\d\d)T{_CLOCK}{_ZONE}",
        rf"(?P<year>\d{{4}})-(?P<month>\d\d)-(?P<day>\d\d)T(?P<hour>\d\d)(?::(?P<minute>\d\d))?{_ZONE}",
        rf"(?P<year>\d{{4}})-(?P<month>\d\d)-(?P<day>\d\d)(?: {_CLOCK}(?P<zone>[+-]\d\d:\d\d)?)?",
        r"(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d) (?P<hour>\d\d):(?P<minute>\d\d)",
    )
]
_NOON = 12


class GvalError(ValueError):
    """An expression is invalid, or cannot be evaluated for this value."""


@dataclass(frozen=True, slots=True)
class Date:
    """An instant, as the text that Go prints for it. Operators use only this text."""

    text: str


def describe(value: Any) -> str:
    """Return the type of a value for users."""
    return _NAMES.get(type(value), "a date")


def to_text(value: Any) -> str:
    """Return a value as Go prints it."""
    match value:
        case None:
            return "<nil>"
        case bool():
            return "true" if value else "false"
        case float():
            return goliterals.format_float(value)
        case list():
            return f"[{' '.join(map(to_text, value))}]"
        case Date(text):
            return text
    return str(value)


def to_number(value: Any) -> float | None:
    """Convert a value to a number; None if that is not possible."""
    if isinstance(value, float):
        return value
    return goliterals.parse_float(value) if isinstance(value, str) else None


def to_bool(value: Any) -> bool | None:
    """Convert a value to a boolean; None if that is not possible."""
    if value is None or isinstance(value, bool):
        return bool(value)
    if isinstance(value, str) and value in _TRUE | _FALSE:
        return value in _TRUE
    number = to_number(value)
    return None if number is None else number != 0


def is_zero(value: Any) -> bool:
    """Return whether `? :` and `??` treat a value as absent."""
    return value is None or value is False or value == "" or (isinstance(value, float) and value == 0)


def is_same(left: Any, right: Any) -> bool:
    """Return whether two values have the same type and are equal. Lists are compared by their items."""
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(is_same, left, right))
    return type(left) is type(right) and bool(left == right)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """The implementations of an operator for each type. `fallback` is for operands without a common type."""

    precedence: int
    numbers: Callable[[float, float], Any] | None = None
    booleans: Callable[[bool, bool], Any] | None = None
    strings: Callable[[str, str], Any] | None = None
    fallback: Callable[[Any, Any], Any] | None = None
    short_circuit: Callable[[Any], Any] = lambda _: None  # the result, if the left operand determines it

    def apply(self, symbol: str, left: Any, right: Any) -> Any:
        """Return the result for two operands, converted if necessary. Raise `GvalError`."""
        of_one_type = {float: self.numbers, bool: self.booleans, str: self.strings}.get(type(left))
        if of_one_type is not None and type(left) is type(right):
            return _check_length(of_one_type(left, right))
        conversions: list[tuple[Callable[[Any], Any], Callable[[Any, Any], Any] | None]] = [
            (to_number, self.numbers),
            (to_bool, self.booleans),
            (_to_text_or_none, None if self.fallback else self.strings),
        ]
        for convert, operation in conversions:
            if operation is None:
                continue
            converted = convert(left), convert(right)
            if None not in converted:
                return _check_length(operation(*converted))
        if self.fallback is not None:
            return self.fallback(left, right)
        raise GvalError(f"expected operands for {symbol}, found {describe(left)} {symbol} {describe(right)}")


def _to_text_or_none(value: Any) -> str | None:
    return None if value is None else to_text(value)


def _check_length(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _MAX_TEXT:
        raise GvalError(f"expected texts of at most {_MAX_TEXT} characters")
    return value


def _divide(left: float, right: float) -> float:
    if right != 0:
        return left / right
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1, right)


def _remainder(left: float, right: float) -> float:
    return math.nan if right == 0 or math.isinf(left) else math.fmod(left, right)


def _power(left: float, right: float) -> float:
    try:
        return math.pow(left, right)
    except OverflowError:
        return -math.inf if left < 0 and right % 2 == 1 else math.inf
    except ValueError:
        return math.inf if left == 0 else math.nan


def to_bits(number: float) -> int:
    """Convert a number to a signed 64-bit integer. A number out of range becomes the minimum."""
    # Go leaves this conversion undefined; amd64 returns the minimum.
    whole = int(number) if math.isfinite(number) else -_SIGN
    return whole if -_SIGN <= whole < _SIGN else -_SIGN


def _wrap(bits: int) -> float:
    return float((bits + _SIGN) % _INT64 - _SIGN)


def _shift(left: float, right: float, *, up: bool) -> float:
    places = to_bits(right)
    bits = to_bits(left)
    if not 0 <= places < 64:  # noqa: PLR2004 - all bits are shifted out
        return -1.0 if bits < 0 and not up else 0.0
    return _wrap(bits << places) if up else float(bits >> places)


def _contains(value: Any, items: Any) -> bool:
    if not isinstance(items, list):
        raise GvalError(f"expected a list such as [1, 2] after in, found {describe(items)}")
    return any(is_same(value, item) for item in items)


def _matches(left: Any, right: Any) -> bool:
    return compile_pattern(to_text(right)).search(to_text(left)) is not None


def compile_pattern(text: str) -> re.Pattern[str]:
    """Compile a regular expression. Raise `GvalError`.

    The syntax is Python's, which includes nearly all of Go's RE2.
    """
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise GvalError(f"expected a regular expression, found {text!r} ({error})") from None


# The precedences are those in gval.go.
OPERATORS: Mapping[str, Operator] = {
    "??": Operator(
        precedence=0,
        fallback=lambda left, right: right if is_zero(left) else left,
        short_circuit=lambda left: None if is_zero(left) else left,
    ),
    "||": Operator(
        precedence=20, booleans=lambda a, b: a or b, short_circuit=lambda left: True if left is True else None
    ),
    "&&": Operator(
        precedence=21, booleans=lambda a, b: a and b, short_circuit=lambda left: False if left is False else None
    ),
    "==": Operator(precedence=40, numbers=lambda a, b: a == b, booleans=lambda a, b: a == b, fallback=is_same),
    "!=": Operator(
        precedence=40,
        numbers=lambda a, b: a != b,
        booleans=lambda a, b: a != b,
        fallback=lambda left, right: not is_same(left, right),
    ),
    ">": Operator(precedence=40, numbers=lambda a, b: a > b, strings=lambda a, b: a > b),
    ">=": Operator(precedence=40, numbers=lambda a, b: a >= b, strings=lambda a, b: a >= b),
    "<": Operator(precedence=40, numbers=lambda a, b: a < b, strings=lambda a, b: a < b),
    "<=": Operator(precedence=40, numbers=lambda a, b: a <= b, strings=lambda a, b: a <= b),
    "=~": Operator(precedence=40, fallback=_matches),
    "!~": Operator(precedence=40, fallback=lambda left, right: not _matches(left, right)),
    "in": Operator(precedence=40, fallback=_contains),
    "^": Operator(precedence=60, numbers=lambda a, b: _wrap(to_bits(a) ^ to_bits(b))),
    "&": Operator(precedence=60, numbers=lambda a, b: _wrap(to_bits(a) & to_bits(b))),
    "|": Operator(precedence=60, numbers=lambda a, b: _wrap(to_bits(a) | to_bits(b))),
    "<<": Operator(precedence=90, numbers=lambda a, b: _shift(a, b, up=True)),
    ">>": Operator(precedence=90, numbers=lambda a, b: _shift(a, b, up=False)),
    "+": Operator(precedence=120, numbers=lambda a, b: a + b, strings=lambda a, b: a + b),
    "-": Operator(precedence=120, numbers=lambda a, b: a - b),
    "*": Operator(precedence=150, numbers=lambda a, b: a * b),
    "/": Operator(precedence=150, numbers=_divide),
    "%": Operator(precedence=150, numbers=_remainder),
    "**": Operator(precedence=200, numbers=_power),
}


def parse_date(text: str) -> Date:
    """Parse a date in any of the formats of gval. Raise `GvalError`."""
    for layout in _LAYOUTS:
        found = layout.fullmatch(text)
        if found:
            return _build_date(found.groupdict(), text)
    raise GvalError(f"expected a date such as 2024-05-01 or 2024-05-01T10:00:00Z, found {text!r}")


def _build_date(parts: dict[str, str | None], text: str) -> Date:
    month = _MONTHS.index(parts["name"] or "") + 1 if parts.get("name") else int(parts.get("month") or 1)
    hour = int(parts.get("hour") or 0)
    if parts.get("half"):
        hour = hour % _NOON + (_NOON if parts["half"] == "PM" else 0)
    try:
        # A time of day alone is in the year 0, which Python does not support.
        found = datetime(  # noqa: DTZ001 - only its parts are used
            int(parts.get("year") or 0) or 4,
            month,
            int(parts.get("day") or 1),
            hour,
            int(parts.get("minute") or 0),
            int(parts.get("second") or 0),
        )
    except ValueError as error:
        raise GvalError(f"expected a date of the calendar, found {text!r} ({error})") from None
    year = f"{int(parts.get('year') or 0):04}"
    fraction = (parts.get("fraction") or "")[:10].rstrip("0").rstrip(".")
    return Date(f"{year}{found:-%m-%d %H:%M:%S}{fraction} {_format_zone(parts.get('zone'))}")


def _format_zone(zone: str | None) -> str:
    if zone in {None, "Z"}:
        return "+0000 UTC"
    digits = str(zone).replace(":", "")
    offset = timedelta(hours=int(digits[1:3]), minutes=int(digits[3:5]))
    return f"{digits} {digits}" if offset else "+0000 UTC"
