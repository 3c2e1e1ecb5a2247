"""Instants as text: in Go's notation, in HTTP headers and in the formats of the API server.

Go's notation is RFC 3339 with up to nine fractional digits. `datetime` has no nanoseconds and no year 0, and does not
keep the text. A `GoTime` keeps the text that it was parsed from, so that an unchanged value is written unchanged, and
compares by its instant, to the nanosecond.

Dates in HTTP headers and cloud APIs are `Thu, 14 May 2026 09:30:00 GMT`, with or without the weekday. `strptime`
depends on the locale, and `email.utils` would add the package `email` to the memory of every agent.

Arithmetic on instants may overflow, since annotations, leases and files can contain any instant.
"""

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import total_ordering

_SHAPE = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))?(?:Z|([+-])([0-9]{2}):([0-9]{2}))"
)
_EXPECTED_GO_TIME = "expected an instant such as 2024-05-01T10:00:00.123456789Z"
_SECOND = 1_000_000_000
_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_HTTP_DATE = re.compile(
    r"(?:[A-Z][a-z]{2}, )?(\d{1,2}) ([A-Z][a-z]{2}) (\d{4}) (\d{2}):(\d{2}):(\d{2}) (?:GMT|UTC)", re.ASCII
)
_EXPECTED_HTTP_DATE = "expected a date such as Thu, 14 May 2026 09:30:00 GMT"

_MARGIN = timedelta(days=2)  # for other time zones, and for callers that add a little


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class GoTime:
    """An instant, with the text that it was parsed from."""

    text: str
    nanoseconds: int = field(repr=False)  # since 1970

    @property
    def instant(self) -> datetime:
        """Return the instant in UTC, truncated to microseconds and limited to the years 1 to 9999."""
        try:
            return _EPOCH + timedelta(microseconds=self.nanoseconds // 1_000)
        except OverflowError:
            return datetime.min.replace(tzinfo=UTC) if self.nanoseconds < 0 else datetime.max.replace(tzinfo=UTC)

    @property
    def is_finer_than_microseconds(self) -> bool:
        """Return whether the instant needs more precision than a `datetime` has."""
        return self.nanoseconds % 1_000 != 0

    @property
    def is_never(self) -> bool:
        """Return whether it is Go's zero time, which stands for "never"."""
        return self.nanoseconds == GO_ZERO_TIME.nanoseconds

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GoTime) and self.nanoseconds == other.nanoseconds

    def __lt__(self, other: "GoTime") -> bool:
        return self.nanoseconds < other.nanoseconds

    def __hash__(self) -> int:
        return hash(self.nanoseconds)

    def __str__(self) -> str:
        return self.text


def parse_go_time(text: str) -> GoTime:
    """Parse an instant as time.Time's UnmarshalJSON does. Raise ValueError.

    An offset of 24 hours or more is rejected: Go parses it, but cannot write it.
    """
    shape = _SHAPE.fullmatch(text)
    if shape is None:
        raise ValueError(f"{_EXPECTED_GO_TIME}, found {text!r}")
    year, month, day, hour, minute, second = (int(shape[at]) for at in range(1, 7))
    offset_hours, offset_minutes = int(shape[9] or 0), int(shape[10] or 0)
    is_date = 1 <= month <= len(_DAYS) and 1 <= day <= _days_in(year, month)
    is_time = hour < 24 and minute < 60 and second < 60  # noqa: PLR2004 - hours, minutes and seconds
    if not (is_date and is_time and offset_hours < 24 and offset_minutes < 60):  # noqa: PLR2004 - hours and minutes
        raise ValueError(f"{_EXPECTED_GO_TIME}, found {text!r}, which is not a valid date")
    offset = (offset_hours * 3600 + offset_minutes * 60) * (-1 if shape[8] == "-" else 1)
    seconds = _days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset
    return GoTime(text, seconds * _SECOND + int((shape[7] or "")[:9].ljust(9, "0")))


def go_time_of(instant: datetime) -> GoTime:
    """Return an instant as Go writes it in UTC, with as many fractional digits as needed."""
    in_utc = instant.astimezone(UTC)
    fraction = f".{in_utc.microsecond:06}".rstrip("0").rstrip(".")
    text = f"{in_utc.replace(tzinfo=None, microsecond=0).isoformat()}{fraction}Z"
    return GoTime(text, (in_utc - _EPOCH) // timedelta(microseconds=1) * 1_000)


def _days_in(year: int, month: int) -> int:
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return _DAYS[month - 1] + (month == 2 and is_leap)  # noqa: PLR2004 - February


def _days_since_1970(year: int, month: int, day: int) -> int:
    # `date` has no year 0. It is a leap year like 400, which is 146,097 days (four centuries) later.
    if year == 0:
        return datetime(400, month, day, tzinfo=UTC).toordinal() - 146_097 - _EPOCH.toordinal()
    return datetime(year, month, day, tzinfo=UTC).toordinal() - _EPOCH.toordinal()


GO_ZERO_TIME = parse_go_time("0001-01-01T00:00:00Z")


def parse_http_date(text: str) -> datetime:
    """Return the instant. Raise `ValueError` if the text is not such a date, or the date does not exist."""
    found = _HTTP_DATE.fullmatch(text.strip())
    if found is None or found[2] not in _MONTHS:
        raise ValueError(_EXPECTED_HTTP_DATE)
    day, year, hour, minute, second = (int(found[group]) for group in (1, 3, 4, 5, 6))
    try:
        return datetime(year, _MONTHS.index(found[2]) + 1, day, hour, minute, second, tzinfo=UTC)
    except ValueError as error:
        raise ValueError(f"{_EXPECTED_HTTP_DATE} ({error})") from None


def micro_time(instant: datetime) -> str:
    """Return a MicroTime, always with six fractional digits: the server rejects any other number."""
    return f"{instant.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def whole_seconds(instant: datetime) -> str:
    """Return a Time without fractional seconds: the server would truncate them."""
    return f"{instant.astimezone(UTC).replace(tzinfo=None, microsecond=0).isoformat()}Z"


def add_saturating(instant: datetime, time: timedelta) -> datetime:
    """Return `instant + time`, limited to shortly before the latest `datetime`."""
    try:
        return min(instant + time, _last(instant))
    except OverflowError:
        return _last(instant)


def _last(like: datetime) -> datetime:
    return datetime.max.replace(tzinfo=like.tzinfo) - _MARGIN
