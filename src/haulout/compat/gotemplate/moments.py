"""Instants with nanoseconds and a time zone, like Go's `time.Time`."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from haulout.compat.gotemplate.source import Problem

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - wall time, not an instant
_BILLION = 10**9
_YEARS = "a time outside of the years 1 to 9999"


@dataclass(frozen=True, slots=True)
class Moment:
    """An instant: seconds and nanoseconds since 1970, and the zone in which it is shown."""

    seconds: int
    nanoseconds: int = 0
    offset: int = 0  # seconds east of UTC
    zone: str = "UTC"  # empty: only the offset is known

    @classmethod
    def from_datetime(cls, instant: datetime) -> "Moment":
        """Convert a datetime. A naive one is taken as UTC."""
        aware = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
        offset = aware.utcoffset() or timedelta()
        name = aware.tzname() or ""
        microseconds = (aware - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)
        return cls(
            microseconds // 10**6,
            microseconds % 10**6 * 1000,
            int(offset.total_seconds()),
            "" if name.startswith(("UTC+", "UTC-")) else name,  # Python's name of a bare offset
        )

    @property
    def local(self) -> datetime:
        """The wall time of the zone, to the second. Raise `Problem` if it is outside the years 1 to 9999."""
        try:
            return _EPOCH + timedelta(seconds=self.seconds + self.offset)
        except OverflowError:
            raise Problem(_YEARS) from None

    @property
    def day_of_year(self) -> int:
        """The day of the year, from 1."""
        return self.local.timetuple().tm_yday

    @property
    def total_nanoseconds(self) -> int:
        """Nanoseconds since 1970."""
        return self.seconds * _BILLION + self.nanoseconds

    @property
    def in_utc(self) -> "Moment":
        """The same instant in UTC."""
        return Moment(self.seconds, self.nanoseconds)

    def at_nanoseconds(self, total: int) -> "Moment":
        """Return another instant in the same zone. Raise `Problem` if it is outside the years 1 to 9999."""
        moment = Moment(total // _BILLION, total % _BILLION, self.offset, self.zone)
        _ = moment.local
        return moment


ZERO = Moment(-62_135_596_800)  # the first instant of the year 1: Go's zero time
