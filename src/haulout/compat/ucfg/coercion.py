"""Conversion of scalars to the wanted type, with the same results as Go's go-ucfg.

| Wanted | Accepts |
| --- | --- |
| text | any scalar: true becomes `true`, 010 becomes `8`, 1.10 becomes `1.1` |
| boolean | booleans, and the texts 1 t T TRUE true True 0 f F FALSE false False |
| integer | integers, truncated floats, texts such as `5` or `0x1f` |
| number | numbers, texts such as `1.5` |
| duration | Go durations, such as 1h30m; a number means seconds, unless it comes from a `${…}` |

A value that does not fit raises a `ConversionError`, whose message is what was expected.
"""

import math
from datetime import timedelta

from haulout.compat import gonumbers
from haulout.compat.ucfg.goyaml import Plain, format_scalar
from haulout.core import duration
from haulout.core.duration import DurationError

DURATION = "a duration such as 90s, 5m or 1h30m"

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_NANOSECONDS = 1_000_000_000


class ConversionError(ValueError):
    """A value cannot be converted. The message is what was expected."""


def boolean(value: Plain) -> bool:
    """Convert a value to a boolean."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value in _TRUE | _FALSE:
        return value in _TRUE
    raise ConversionError("true or false")


def integer(value: Plain) -> int:
    """Convert a value to a signed 64-bit integer."""
    number: int | None = None
    match value:
        case str(text):
            number = gonumbers.parse_int(text)
        case float() if math.isfinite(value):
            number = int(value)
        case int() if not isinstance(value, bool):
            number = value
    if number is None or not gonumbers.MIN_INT64 <= number <= gonumbers.MAX_INT64:
        raise ConversionError("a whole number")
    return number


def number(value: Plain) -> float:
    """Convert a value to a number."""
    found = gonumbers.parse_float(value) if isinstance(value, str) else value
    if found is None or isinstance(found, bool | str):
        raise ConversionError("a number")
    return float(found)


def duration_of(value: Plain, *, dynamic: bool = False) -> timedelta:
    """Convert a value to a duration. A number means seconds, unless it comes from a `${…}` (`dynamic`)."""
    try:
        if isinstance(value, str) or dynamic:
            return duration.parse(format_scalar(value))
    except DurationError as error:
        raise ConversionError(f"{DURATION} ({error.problem})" if not dynamic else DURATION) from None
    if value is None or isinstance(value, bool | str) or not math.isfinite(value):
        raise ConversionError(DURATION)
    if not gonumbers.MIN_INT64 <= value * _NANOSECONDS <= gonumbers.MAX_INT64:
        raise ConversionError("a duration of at most about 292 years")
    return duration.from_nanoseconds(int(value * _NANOSECONDS))
