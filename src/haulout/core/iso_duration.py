"""ISO 8601 durations: `PT2H`, `P1D`, `P1DT12H`, `P2W`, `PT0.5S`.

Years and months have no fixed length. This module uses their maximum length, so that a wait for an end is long enough.
"""

import re
from datetime import timedelta
from decimal import Decimal

_NUMBER = r"([0-9]{1,9}(?:[.,][0-9]{1,9})?)"
_DURATION = re.compile(
    rf"\+?P(?:{_NUMBER}Y)?(?:{_NUMBER}M)?(?:{_NUMBER}W)?(?:{_NUMBER}D)?"
    rf"(?:T(?=[0-9])(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?",
    re.ASCII | re.IGNORECASE,
)
_DAY = 86_400
_SECONDS = (366 * _DAY, 31 * _DAY, 7 * _DAY, _DAY, 3600, 60, 1)
_MAX_DURATION = timedelta(days=36_600)


def parse(text: str) -> timedelta:
    """Parse a duration. Raise ValueError."""
    found = _DURATION.fullmatch(text.strip())
    if found is None or not any(found.groups()):
        raise ValueError(f"expected a duration such as PT2H or P1D, found {text[:40]!r}")
    numbers = (Decimal((group or "0").replace(",", ".")) for group in found.groups())
    seconds = sum(number * unit for number, unit in zip(numbers, _SECONDS, strict=True))
    if seconds > _MAX_DURATION.total_seconds():
        raise ValueError(f"expected a duration of at most 100 years, found {text[:40]!r}")
    return timedelta(microseconds=int(seconds * 1_000_000))
