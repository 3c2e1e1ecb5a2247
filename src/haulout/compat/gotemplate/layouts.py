"""Go's time layouts: a layout shows how Mon Jan 2 15:04:05 MST 2006 would be written.

format_time(moment, "Mon, 02 Jan 2006 15:04 MST")
"""

import re
from collections.abc import Callable

from haulout.compat.gotemplate.moments import Moment

MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_NOON = 12
# Longer elements come before their prefixes. A short name followed by lower-case letters is no element: `Month`,
# `Janet`. `_2006` is an underscore before a year.
_ELEMENT = re.compile(
    r"January|Jan(?![a-z])|Monday|Mon(?![a-z])|MST|_(?=2006)|__2|_2|002|0[1-6]|15|1|2006|2|[345]|PM|pm"
    r"|[-Z]07(?:0000|:00:00|00|:00)?|[.,](?:0+|9+)(?![0-9])"
)
_FORMATTERS: dict[str, Callable[[Moment], str]] = {
    "January": lambda moment: MONTHS[moment.local.month - 1],
    "Jan": lambda moment: MONTHS[moment.local.month - 1][:3],
    "1": lambda moment: str(moment.local.month),
    "01": lambda moment: f"{moment.local.month:02}",
    "Monday": lambda moment: WEEKDAYS[moment.local.isoweekday() % 7],
    "Mon": lambda moment: WEEKDAYS[moment.local.isoweekday() % 7][:3],
    "2": lambda moment: str(moment.local.day),
    "_2": lambda moment: f"{moment.local.day:2}",
    "02": lambda moment: f"{moment.local.day:02}",
    "__2": lambda moment: f"{moment.day_of_year:3}",
    "002": lambda moment: f"{moment.day_of_year:03}",
    "15": lambda moment: f"{moment.local.hour:02}",
    "3": lambda moment: str(moment.local.hour % _NOON or _NOON),
    "03": lambda moment: f"{moment.local.hour % _NOON or _NOON:02}",
    "4": lambda moment: str(moment.local.minute),
    "04": lambda moment: f"{moment.local.minute:02}",
    "5": lambda moment: str(moment.local.second),
    "05": lambda moment: f"{moment.local.second:02}",
    "2006": lambda moment: f"{moment.local.year:04}",
    "06": lambda moment: f"{moment.local.year % 100:02}",
    "PM": lambda moment: "PM" if moment.local.hour >= _NOON else "AM",
    "pm": lambda moment: "pm" if moment.local.hour >= _NOON else "am",
    "MST": lambda moment: moment.zone or _format_offset(moment, "00"),
    "_": lambda _: "_",
}


def format_time(moment: Moment, layout: str) -> str:
    """Format a moment with a layout."""
    return _ELEMENT.sub(lambda element: _format_element(moment, element[0]), layout)


def _format_element(moment: Moment, element: str) -> str:
    if element in _FORMATTERS:
        return _FORMATTERS[element](moment)
    if element[0] in ".,":
        return _format_fraction(moment, element)
    if element[0] == "Z" and moment.offset == 0:
        return "Z"
    return _format_offset(moment, element[3:])


def _format_fraction(moment: Moment, element: str) -> str:
    digits = f"{moment.nanoseconds:09}"[: len(element) - 1]
    if element[1] == "0":
        return element[0] + digits
    return f"{element[0]}{digits}".rstrip("0").rstrip(".,")


def _format_offset(moment: Moment, rest: str) -> str:
    """Return the offset from UTC: hours, and the parts in `rest`: minutes and seconds, with or without colons."""
    minutes, seconds = divmod(abs(moment.offset), 60)
    sign = "-" if moment.offset <= -60 else "+"  # noqa: PLR2004 - Go treats less than a minute as no offset
    colon = ":" if ":" in rest else ""
    parts = [f"{minutes // 60:02}", f"{minutes % 60:02}", f"{seconds:02}"]
    return sign + colon.join(parts[: 1 + len(rest.replace(":", "")) // 2])
