"""Durations in Go's notation: `90s`, `1h30m`, `1.5h`.

Configuration files, annotations and flags of the systems that Haulout replaces contain Go durations. So this module
accepts what Go's `time.ParseDuration` accepts, with the same value to the nanosecond, rejects what it rejects, and
writes what `Duration.String` writes. The rest of Haulout uses `timedelta`, which has no nanoseconds: `parse` truncates
to microseconds toward zero, as Go's `Duration.Microseconds` does.

A `DurationError` begins with Go's message, so that a web search finds help, and ends with what was expected.
"""

import re
from datetime import timedelta

# The largest magnitude: a Go duration is a signed 64-bit number of nanoseconds.
_MAX_NANOSECONDS = 1 << 63
_MAX_DIGITS = len(str(_MAX_NANOSECONDS))

_UNITS = {
    "ns": 1,
    "us": 1_000,
    "\N{MICRO SIGN}s": 1_000,
    "\N{GREEK SMALL LETTER MU}s": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
# A number has a digit on at least one side of its point. Everything up to the next digit or point is the unit, as in
# Go: "1h 5m" has the unknown unit "h ".
_TERM = re.compile(r"(?=\.?[0-9])(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?(?P<unit>[^.0-9]*)")

_EXPECTED = "expected numbers with units (ns, us, ms, s, m, h), such as 90s, 1.5h or 1h30m"
_EXPECTED_SHORTER = "a duration is at most about 292 years, 2562047h47m16.854775807s"


class DurationError(ValueError):
    """A text is not a duration. `problem` is Go's message."""

    def __init__(self, problem: str, text: str, *, expected: str = _EXPECTED) -> None:
        self.problem = f"time: {problem} {_quote(text)}"
        super().__init__(f"{self.problem}: {expected}")


def parse(text: str) -> timedelta:
    """Return the duration in `text`, truncated to microseconds."""
    return from_nanoseconds(parse_nanoseconds(text))


def from_nanoseconds(nanoseconds: int) -> timedelta:
    """Return a number of nanoseconds as a duration, truncated to microseconds."""
    microseconds = abs(nanoseconds) // 1_000
    return timedelta(microseconds=-microseconds if nanoseconds < 0 else microseconds)


def format(duration: timedelta) -> str:  # noqa: A001 - read as duration.format, the counterpart of duration.parse
    """Return `duration` in Go's notation: `1h30m0s`, `1.5s`, `0s`."""
    return format_nanoseconds(duration // timedelta(microseconds=1) * 1_000)


def format_short(duration: timedelta) -> str:
    """Return `duration` without trailing zero parts: `2m`, not `2m0s`."""
    text = format(duration)
    text = text.removesuffix("0s") if text.endswith("m0s") else text
    return text.removesuffix("0m") if text.endswith("h0m") else text


def parse_nanoseconds(text: str) -> int:
    """Return the nanoseconds in `text`. Raise `DurationError` where Go's ParseDuration fails."""
    negative = text.startswith("-")
    terms = text[1:] if text.startswith(("-", "+")) else text
    if terms == "0":
        return 0
    if not terms:
        raise DurationError("invalid duration", text)
    total = 0
    position = 0
    while position < len(terms):
        term = _TERM.match(terms, position)
        if term is None:
            raise DurationError("invalid duration", text)
        total += _parse_term(term, text)
        # Go adds in 64 bits and accepts a sum of exactly 1 << 64 as zero. This is not reproduced.
        if total > _MAX_NANOSECONDS:
            raise _too_long(text)
        position = term.end()
    if total == _MAX_NANOSECONDS and not negative:
        raise _too_long(text)
    return -total if negative else total


def format_nanoseconds(nanoseconds: int) -> str:
    """Return the result of Go's Duration.String. Values beyond Go's range have the same format."""
    sign = "-" if nanoseconds < 0 else ""
    rest = abs(nanoseconds)
    if rest == 0:
        return "0s"
    for unit in ("ns", "\N{MICRO SIGN}s", "ms"):
        if rest < 1_000 * _UNITS[unit]:
            return f"{sign}{_decimal(rest, _UNITS[unit])}{unit}"
    minutes, rest = divmod(rest, _UNITS["m"])
    seconds = f"{_decimal(rest, _UNITS['s'])}s"
    if minutes == 0:
        return f"{sign}{seconds}"
    hours, minutes = divmod(minutes, 60)
    return f"{sign}{hours}h{minutes}m{seconds}" if hours else f"{sign}{minutes}m{seconds}"


def _parse_term(term: re.Match[str], text: str) -> int:
    # Check in Go's order: the number, the unit, both together.
    whole = term["whole"].lstrip("0")
    if len(whole) > _MAX_DIGITS or int(whole or "0") > _MAX_NANOSECONDS:
        raise _too_long(text)
    if not term["unit"]:
        raise DurationError("missing unit in duration", text)
    unit = _UNITS.get(term["unit"])
    if unit is None:
        raise DurationError(f"unknown unit {_quote(term['unit'])} in duration", text)
    nanoseconds = int(whole or "0") * unit + _parse_fraction(term["fraction"] or "", unit)
    if nanoseconds > _MAX_NANOSECONDS:
        raise _too_long(text)
    return nanoseconds


def _parse_fraction(digits: str, unit: int) -> int:
    # Go computes this in floating point and ignores the digits that 63 bits cannot hold. The result depends on both.
    value = 0
    scale = 1.0
    for digit in digits:
        longer = value * 10 + int(digit)
        if longer > _MAX_NANOSECONDS:
            break
        value = longer
        scale *= 10
    return int(float(value) * (float(unit) / scale))


def _decimal(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    places = len(str(unit)) - 1
    return f"{whole}.{rest:0{places}}".rstrip("0").rstrip(".") if rest else str(whole)


def _too_long(text: str) -> DurationError:
    return DurationError("invalid duration", text, expected=_EXPECTED_SHORTER)


def _quote(text: str) -> str:
    return f'"{"".join(map(_escape, text))}"'


def _escape(character: str) -> str:
    if character in {'"', "\\"}:
        return f"\\{character}"
    if " " <= character <= "\x7f":
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode(errors="surrogatepass"))
