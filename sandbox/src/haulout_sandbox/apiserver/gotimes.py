"""Instants in objects: RFC 3339, and what Go's `time.Parse` says about texts that are something else."""

import re
from calendar import monthrange
from functools import lru_cache

SECONDS = "2006-01-02T15:04:05Z07:00"
MICROSECONDS = "2006-01-02T15:04:05.000000Z07:00"

_PARTS = (
    ("2006", r"[0-9]{4}"),
    ("-", "-"),
    ("01", r"[0-9]{2}"),
    ("-", "-"),
    ("02", r"[0-9]{2}"),
    ("T", "T"),
    ("15", r"[0-9]{1,2}"),
    (":", ":"),
    ("04", r"[0-9]{2}"),
    (":", ":"),
    ("05", r"[0-9]{2}"),
)
_ZONE = ("Z07:00", r"Z|[+-][0-9]{2}:[0-9]{2}")
_MOST = {"15": (23, "hour"), "04": (59, "minute"), "05": (59, "second")}
_LAST_MONTH = 12


@lru_cache(maxsize=1024)  # an object repeats most of its instants each time it is written
def problem(text: str, layout: str) -> str:
    """Return why `text` is no instant of that layout; nothing if it is one."""
    fraction = (".000000", r"\.[0-9]{6}") if layout == MICROSECONDS else ("", r"(?:[.,][0-9]+)?")
    found: dict[str, int] = {}
    rest, out_of_range = text, ""
    for name, pattern in (*_PARTS, fraction, _ZONE):
        match = re.match(pattern, rest)
        if match is None:
            return f'parsing time "{text}" as "{layout}": cannot parse "{rest}" as "{name}"'
        if name.isdigit():
            found[name] = int(match[0])
            out_of_range = out_of_range or _out_of_range(name, found)
        if out_of_range:
            return f'parsing time "{text}": {out_of_range} out of range'
        rest = rest[match.end() :]
    if rest:
        return f'parsing time "{text}": extra text: "{rest}"'
    if not 1 <= found["02"] <= monthrange(found["2006"] or 4, found["01"])[1]:
        return f'parsing time "{text}": day out of range'
    return ""


def _out_of_range(name: str, found: dict[str, int]) -> str:
    if name == "01" and not 1 <= found[name] <= _LAST_MONTH:
        return "month"
    most, what = _MOST.get(name, (0, ""))
    return what if what and found[name] > most else ""
