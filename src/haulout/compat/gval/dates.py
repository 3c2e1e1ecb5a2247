"""`date("…")` in an expression: the date formats of gval, in UTC.

Operators treat a date only as the text that Go prints for it, so this module converts one text to the other.
"""

import re
from datetime import datetime, timedelta

from haulout.compat.gval.values import Date, GvalError

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


def parse(text: str) -> Date:
    """Parse a date. Raise `GvalError`."""
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
