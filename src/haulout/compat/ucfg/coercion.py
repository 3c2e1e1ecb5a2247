"""Single values as the type that is wanted: what Go's go-ucfg accepts is accepted, with the same outcome.

| Wanted | Accepts |
| --- | --- |
| text | anything single: true becomes `true`, 010 becomes `8`, 1.10 becomes `1.1` |
| true or false | booleans, and the texts 1 t T TRUE true True 0 f F FALSE false False |
| whole number | whole numbers, fractions cut off, texts such as `5` or `0x1f` |
| number | numbers, texts such as `1.5` |
| duration | texts as Go has them, such as 1h30m; a number means seconds, but not one out of a `${…}` |

What does not fit raises a `ConversionError`, whose message is what was expected.
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
    """A value that is not what is wanted; the message says what was expected."""


def boolean(value: Plain) -> bool:
    """Return it as true or false."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value in _TRUE | _FALSE:
        return value in _TRUE
    raise ConversionError("true or false")


def integer(value: Plain) -> int:
    """Return it as a whole number of at most 64 bits, with its sign."""
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
    """Return it as a number."""
    found = gonumbers.parse_float(value) if isinstance(value, str) else value
    if found is None or isinstance(found, bool | str):
        raise ConversionError("a number")
    return float(found)


def duration_of(value: Plain, *, dynamic: bool = False) -> timedelta:
    """Return it as a duration; a number is seconds, unless it came out of a `${…}`."""
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
