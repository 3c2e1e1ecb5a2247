"""The schedule `scheduled`: at a time of day, whatever the state."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime

from haulout.controllers.profiles.config.options import option, parse_problems, parse_problems_each
from haulout.controllers.profiles.plugin import ProfileStatus, Schedule, SendDecision
from haulout.core import walltime
from haulout.core.walltime import DAY, WEEKDAYS


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled(Schedule):
    """Sends at a time of day on certain weekdays, whatever the state, once a day.

    If that time is missed, the notification is sent later on the same day. Times are in UTC by default. A time that is
    skipped when clocks are put forward counts as the moment of the change; of a time that occurs twice, the first
    counts.
    """

    type = "scheduled"
    example = "instant: '9:00'\nweekdays: [mon, tue, wed, thu, fri]\ntimezone: Europe/Berlin"

    instant: str = option("The time of day, such as 9:00 or 16:30.")
    weekdays: tuple[str, ...] = option("The days on which it is sent, such as monday or mon.")
    timezone: str = option("The time zone of the time and the days, such as Europe/Berlin.", default="UTC")

    def due(self, *, status: ProfileStatus, last_sent: datetime | None, now: datetime) -> SendDecision:
        del status
        zone = walltime.zone(self.timezone)
        today = walltime.wall_clock(now, zone).date()
        # Compare full dates: the same day of another month is another day.
        done_on = walltime.wall_clock(last_sent, zone).date() if last_sent else None
        # One week beyond the next possible day, since that one may be done already.
        days = (today + DAY * number for number in range(2 * len(WEEKDAYS) + 1))
        instants = (self._at(day) for day in days if day != done_on and self._is_on(day))
        at = next(instants)
        return SendDecision(is_due=True) if now >= at else SendDecision(is_due=False, requeue_at=at)

    def _is_on(self, day: date) -> bool:
        return day.weekday() in map(walltime.parse_weekday, self.weekdays)

    def _at(self, day: date) -> datetime:
        wall = datetime.combine(day, walltime.parse_time_of_day(self.instant))
        return walltime.instant(wall, walltime.zone(self.timezone))

    def problems(self) -> Iterator[tuple[str, str]]:
        yield from parse_problems("instant", self.instant, walltime.parse_time_of_day)
        yield from parse_problems_each("weekdays", self.weekdays, walltime.parse_weekday)
        yield from parse_problems("timezone", self.timezone, walltime.zone)
        if not self.weekdays:
            yield "weekdays", "expected at least one weekday such as monday or mon, found none"
