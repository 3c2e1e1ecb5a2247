"""Wall times as people write them (`22:30`, `Europe/Berlin`, `mon`, `Dec 24`), and the instants that they denote.

A wall time and a time zone denote one instant, except around the two clock changes of a year:

- **Clocks go forward**: a time does not exist (02:30, when 02:00 becomes 03:00). It denotes the instant of the change.
  A span that is wholly inside the gap has length zero.
- **Clocks go back**: a time exists twice. It denotes the first one.

So a later wall time never denotes an earlier instant. Callers that need the latest possible instant use `last`: of two
the second; and for 02:30 in the gap the 02:30 without the change, which is 03:30. All instants that this module returns
are in UTC.
"""

import re
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache

from haulout.core.text import closest_match

DAY = timedelta(days=1)
# The resolution of instants: what is open "after" 10:00 is open from 10:00 plus one tick.
TICK = timedelta(microseconds=1)
EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)
LATEST = datetime(2200, 1, 1, tzinfo=UTC)

WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_LEAP_YEAR = 2024
# Files in the time zone database that are not zone names, such as the local setting of this machine.
_NOT_ZONES = {"localtime", "posixrules", "Factory"}

_TIME = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])", re.ASCII)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_DAY = re.compile(r"([A-Za-z]{3}) +([0-9]{1,2})", re.ASCII)


# Parsing. Each function raises a ValueError that says what was expected.


def parse_time_of_day(text: str) -> time:
    """Parse a time of day such as `9:05` or `09:05`. 24:00 is invalid; a window ends on the next day instead."""
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise ValueError(
            f"expected a time of day from 00:00 to 23:59, such as 9:30 or 22:00, found {_quote_input(text)}"
        )
    return time(int(found[1]), int(found[2]))


def parse_weekday(text: str) -> int:
    """Return the number of `Monday`, `mon` and so on; Monday is 0."""
    for number, name in enumerate(WEEKDAYS):
        if text.strip().lower() in {name.lower(), name[:3].lower()}:
            return number
    raise ValueError(f"expected a weekday such as monday or mon, found {_quote_input(text)}")


def parse_day_of_year(text: str) -> tuple[int, int]:
    """Return the month and the day of `Dec 24`."""
    found = _DAY.fullmatch(text.strip())
    name = found[1].capitalize() if found else ""
    if found is None or name not in MONTHS:
        raise ValueError(f"expected a day such as Dec 24, found {text!r}")
    month, day = MONTHS.index(name) + 1, int(found[2])
    try:
        date(_LEAP_YEAR, month, day)
    except ValueError:
        raise ValueError(f"expected a day such as Dec 24, found {text!r}: {name} has no day {day}") from None
    return month, day


@lru_cache(maxsize=256)
def zone(name: str) -> tzinfo:
    """Return a time zone by its IANA name, such as `Europe/Berlin`. Raise ValueError."""
    if name.upper() in {"UTC", "Z"}:
        return UTC  # the default needs no time zone data
    import zoneinfo  # not needed where all times are in UTC

    try:
        # `localtime` would be the zone of the machine, which differs between replicas.
        if name in _NOT_ZONES:
            raise zoneinfo.ZoneInfoNotFoundError
        return zoneinfo.ZoneInfo(name)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        raise ValueError(_no_such_zone(name)) from None


def parse_date_or_time(text: str) -> datetime | date:
    """Parse `2026-12-24`, `2026-12-24 18:00` or `2026-12-24T18:00:00+01:00`. The zone of a time is optional."""
    expected = "a date or a time, such as 2026-12-24, 2026-12-24 18:00 or 2026-12-24T18:00:00Z"
    found = text.strip()
    try:
        if _DATE.match(found) is None:
            raise ValueError
        parsed = date.fromisoformat(found) if _DATE.fullmatch(found) else datetime.fromisoformat(found)
    except ValueError:
        raise ValueError(f"expected {expected}, found {_quote_input(text)}") from None
    if not EARLIEST.year <= parsed.year < LATEST.year:
        raise ValueError(f"expected {expected}, of the years {EARLIEST.year} to {LATEST.year - 1}, found {text!r}")
    return parsed


# From wall times to instants


def instant(wall: datetime, zone: tzinfo, *, last: bool = False) -> datetime:
    """Return the instant at which clocks in `zone` show the naive `wall`. The module docstring explains `last`."""
    if zone is UTC:
        return wall.replace(tzinfo=UTC)
    before = wall.replace(tzinfo=zone, fold=0)
    after = wall.replace(tzinfo=zone, fold=1)
    # A wall time has two offsets only around a clock change.
    first, second = before.astimezone(UTC), after.astimezone(UTC)
    if last:
        return max(first, second)
    # PEP 495: for a time in a gap, fold=0 is the later instant. For a time that exists twice, it is the earlier one.
    return first if first <= second else _change_between(second, first, zone)


def midnight(day: date, zone: tzinfo) -> datetime:
    return instant(datetime.combine(day, time()), zone)


def wall_clock(at: datetime, zone: tzinfo) -> datetime:
    """Return what clocks in `zone` show at an instant, as a naive datetime."""
    return at.astimezone(zone).replace(tzinfo=None)


@lru_cache(maxsize=256)  # all nodes wait for the same few instants
def format_instant(at: datetime, zone: tzinfo = UTC) -> str:
    """Return an instant for users: `Mon 2026-12-28 09:30 Europe/Berlin`; with seconds only if they are not zero."""
    local = at.astimezone(zone)
    clock = f"{local:%H:%M:%S}" if local.second else f"{local:%H:%M}"
    return f"{WEEKDAYS[local.weekday()][:3]} {local:%Y-%m-%d} {clock} {zone}"


def _quote_input(text: str) -> str:
    return repr(text) if text.strip() else "nothing"


def _change_between(early: datetime, late: datetime, zone: tzinfo) -> datetime:
    """Return the instant between two others at which clocks go forward. It is on a whole second."""
    offset = late.astimezone(zone).utcoffset()
    early = early.replace(microsecond=0)
    seconds = int((late - early).total_seconds()) + 1
    low, high = 0, seconds
    while low < high:
        middle = (low + high) // 2
        if (early + timedelta(seconds=middle)).astimezone(zone).utcoffset() == offset:
            high = middle
        else:
            low = middle + 1
    return early + timedelta(seconds=low)


def _no_such_zone(name: str) -> str:
    from zoneinfo import available_timezones

    known = available_timezones() - _NOT_ZONES
    expected = f"expected the name of a time zone such as Europe/Berlin or UTC, found {name!r}"
    if not known:
        return f"{expected}; there is no time zone data on this machine (package tzdata)"
    by_lower = {zone_name.lower(): zone_name for zone_name in sorted(known)}
    cities = {zone_name.lower().rpartition("/")[2]: zone_name for zone_name in sorted(known)}
    normalized = name.strip().lower().replace(" ", "_")
    city = cities.get(normalized.rpartition("/")[2])
    suggestion = city or closest_match(normalized, by_lower)
    return f"{expected}; did you mean {by_lower[suggestion.lower()]}?" if suggestion else expected
