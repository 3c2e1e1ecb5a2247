"""Dates in HTTP headers and cloud APIs: `Thu, 14 May 2026 09:30:00 GMT`, with or without the weekday.

`strptime` depends on the locale, and `email.utils` would add the package `email` to the memory of every agent.
"""

import re
from datetime import UTC, datetime

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DATE = re.compile(
    r"(?:[A-Z][a-z]{2}, )?(\d{1,2}) ([A-Z][a-z]{2}) (\d{4}) (\d{2}):(\d{2}):(\d{2}) (?:GMT|UTC)", re.ASCII
)
_EXPECTED = "expected a date such as Thu, 14 May 2026 09:30:00 GMT"


def parse(text: str) -> datetime:
    """Return the instant. Raise `ValueError` if the text is not such a date, or the date does not exist."""
    found = _DATE.fullmatch(text.strip())
    if found is None or found[2] not in _MONTHS:
        raise ValueError(_EXPECTED)
    day, year, hour, minute, second = (int(found[group]) for group in (1, 3, 4, 5, 6))
    try:
        return datetime(year, _MONTHS.index(found[2]) + 1, day, hour, minute, second, tzinfo=UTC)
    except ValueError as error:
        raise ValueError(f"{_EXPECTED} ({error})") from None
