"""Kubernetes quantities of CPU, memory and other resources: `250m`, `1.5Gi`, `2e3`.

A quantity is exact: a whole number of billionths. Smaller fractions are rounded away from zero, as the API server does
(`apimachinery/pkg/api/resource`). Quantities are equal if their amounts are, whatever their notation: `1Gi` equals
`1073741824`.

`str` returns the canonical form: no fraction, and the largest possible suffix of the same format.
"""

import re
from dataclasses import dataclass, field
from enum import Enum
from functools import total_ordering

_NANO = 10**9
_MILLI = 10**6  # billionths in a thousandth
_MAX_BINARY = 2**63 - 1  # the maximum amount with a binary suffix
_LARGEST_EXPONENT = 300  # larger than in any cluster; without a limit, `1e999999999` would exhaust the memory
_SHAPE = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?(?P<suffix>[numkMGTPE]?|[KMGTPE]i|[eE][+-]?[0-9]+)"
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL_SUFFIXES = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIXES = {exponent: suffix for suffix, exponent in _BINARY.items()}


class Format(Enum):
    """The suffix format of a quantity; it survives parsing and arithmetic."""

    DECIMAL_SI = "k, M, G"
    BINARY_SI = "Ki, Mi, Gi"
    DECIMAL_EXPONENT = "e3, e6, e9"


@total_ordering
@dataclass(frozen=True, slots=True)
class Quantity:
    """An exact amount in billionths, and its format."""

    nano: int
    format: Format = field(default=Format.DECIMAL_SI, compare=False)

    @classmethod
    def of(cls, number: int, style: Format = Format.DECIMAL_SI) -> "Quantity":
        return cls(number * _NANO, style)

    @property
    def value(self) -> int:
        """Return the amount in whole units, rounded up: bytes of memory, number of pods."""
        return -(-self.nano // _NANO)

    @property
    def milli(self) -> int:
        """Return the amount in thousandths, rounded up: the unit of CPU."""
        return -(-self.nano // _MILLI)

    def __lt__(self, other: "Quantity") -> bool:
        return self.nano < other.nano

    def __add__(self, other: "Quantity") -> "Quantity":
        # As Quantity.Add upstream: zero takes over the format of the other.
        return Quantity(self.nano + other.nano, self.format if self.nano else other.format)

    def __sub__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nano - other.nano, self.format if self.nano else other.format)

    def __neg__(self) -> "Quantity":
        return Quantity(-self.nano, self.format)

    def __bool__(self) -> bool:
        return self.nano != 0

    def __str__(self) -> str:
        if not self.nano:
            return "0"
        # Below 1024 or with a fraction, a binary suffix cannot represent the amount exactly.
        if self.format is Format.BINARY_SI and abs(self.nano) >= 1024 * _NANO and self.nano % _NANO == 0:
            number, exponent = _strip_factors(self.nano // _NANO, 1024, max_times=max(_BINARY_SUFFIXES))
            return f"{number}{_BINARY_SUFFIXES.get(exponent, '')}"
        most = None if self.format is Format.DECIMAL_EXPONENT else max(_DECIMAL_SUFFIXES) // 3 + 3
        number, thousands = _strip_factors(self.nano, 1000, max_times=most)
        exponent = thousands * 3 - 9
        if self.format is Format.DECIMAL_EXPONENT:
            return f"{number}e{exponent}" if exponent else str(number)
        return f"{number}{_DECIMAL_SUFFIXES[exponent]}"


def parse(text: str) -> Quantity:
    """Parse a quantity as the API server does. Raise ValueError if it is invalid."""
    match = _SHAPE.fullmatch(text)
    if not text or match is None:
        raise ValueError(f"the quantity {text!r} is not a number with a suffix such as m, k, M, Ki, Mi or e3")
    part, suffix = match["part"] or "", match["suffix"]
    digits = int((match["whole"] + part) or "0")
    style, exponent = _parse_suffix(text, suffix)
    if style is Format.BINARY_SI:
        nano = _scale(digits * 1024**exponent, 9 - len(part))
        nano = min(nano, _MAX_BINARY * _NANO)
    else:
        nano = _scale(digits, exponent + 9 - len(part))
    return Quantity(-nano if match["sign"] == "-" else nano, style)


def _parse_suffix(text: str, suffix: str) -> tuple[Format, int]:
    if suffix in _DECIMAL:
        return Format.DECIMAL_SI, _DECIMAL[suffix]
    if suffix in _BINARY:
        return Format.BINARY_SI, _BINARY[suffix]
    exponent = int(suffix[1:])
    if exponent > _LARGEST_EXPONENT:
        raise ValueError(f"the quantity {text!r} is too large: the exponent may be at most {_LARGEST_EXPONENT}")
    return Format.DECIMAL_EXPONENT, exponent


def _scale(digits: int, exponent: int) -> int:
    """Return `digits` times ten to the `exponent`, rounded up."""
    # A result below one billionth: to compute the power would take long for `1e-99999999`.
    if -exponent > len(str(digits)):
        return 1 if digits else 0
    power: int = 10 ** abs(exponent)
    return digits * power if exponent >= 0 else -(-digits // power)


def _strip_factors(number: int, base: int, *, max_times: int | None) -> tuple[int, int]:
    """Divide by `base` as often as possible, at most `max_times`. Return the quotient and the number of divisions."""
    times = 0
    while number % base == 0 and times != max_times:
        number //= base
        times += 1
    return number, times
