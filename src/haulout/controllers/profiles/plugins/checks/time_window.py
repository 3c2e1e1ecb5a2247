"""The check `timeWindow`.

The rules of time are those of `haulout.core.windows`; here is how they are configured. A calendar file is asked for
like everything that is outside, so that an edit of it counts without a restart. While it cannot be read, the check
does not pass: what it would forbid is not known. One that is broken when the configuration is read is told then, too.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from haulout.controllers.profiles.config.options import option
from haulout.controllers.profiles.plugin import (
    Check,
    CheckResult,
    ExternalClient,
    NamedFile,
    PluginContext,
    passes,
    unknown,
)
from haulout.controllers.profiles.plugins.validation import parse_problems, parse_problems_each
from haulout.core import walltime
from haulout.core.busy_period import BusyPeriod
from haulout.core.windows import Open, Timetable, WeeklyWindow, state_at
from haulout.errors import ConfigError, ExternalError

if TYPE_CHECKING:
    from haulout.core.icalendar import Calendar

_ALL_DAYS = frozenset(range(len(walltime.WEEKDAYS)))
_ALWAYS = WeeklyWindow(weekdays=_ALL_DAYS, start=time(), end=time(), ends_next_day=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One of several windows."""

    weekdays: tuple[str, ...] = option("The days on which it starts, such as monday or mon.", default=())
    start: str = option("After this time of day it is open.", default="")
    end: str = option("At this time of day it closes.", default="")
    across_midnight: bool = option("Whether it ends on the day after the one on which it starts.", default=False)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield what makes no sense."""
        if not self.weekdays:
            yield "weekdays", "expected at least one weekday such as monday or mon, found none"
        yield from parse_problems_each("weekdays", self.weekdays, walltime.parse_weekday)
        wrong = [
            *parse_problems("start", self.start, walltime.parse_time_of_day),
            *parse_problems("end", self.end, walltime.parse_time_of_day),
        ]
        yield from wrong
        if wrong or self.across_midnight:
            return
        if walltime.parse_time_of_day(self.start) > walltime.parse_time_of_day(self.end):
            late = f"expected a time before the end, {self.end}, found {self.start}"
            yield "start", f"{late}; if the window ends on the next day, say so: acrossMidnight: true"

    @property
    def weekly(self) -> WeeklyWindow:
        """What it means."""
        return WeeklyWindow(
            weekdays=frozenset(map(walltime.parse_weekday, self.weekdays)),
            start=walltime.parse_time_of_day(self.start),
            end=walltime.parse_time_of_day(self.end),
            ends_next_day=self.across_midnight,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Blackout:
    """A time in which nothing may be done."""

    start: str = option(
        "When it begins: a date, or a time such as 2026-12-24 18:00 or 2026-12-24T18:00:00Z.", default=""
    )
    end: str = option("When it is over. A date means the end of that day.", default="")
    reason: str = option("What it is for; people read this when they ask why nothing happens.", default="")

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield what makes no sense."""
        wrong = [
            *parse_problems("start", self.start, walltime.parse_date_or_time),
            *parse_problems("end", self.end, walltime.parse_date_or_time),
        ]
        yield from wrong
        # In which zone both are makes no difference here, unless they are less than a day apart.
        if not wrong and (busy := self.busy(UTC)).start >= busy.end:
            yield "end", f"expected a time after the start, {self.start}, found {self.end}"

    def busy(self, zone: tzinfo) -> BusyPeriod:
        """Return what it means; the longest, if it may mean two things."""
        start, end = walltime.parse_date_or_time(self.start), walltime.parse_date_or_time(self.end)
        if isinstance(end, datetime):
            return BusyPeriod(_instant(start, zone), _instant(end, zone, last=True), self.reason)
        return BusyPeriod(_instant(start, zone), walltime.midnight(end + walltime.DAY, zone), self.reason)


@dataclass(frozen=True, slots=True)
class CalendarFileQuery:
    """Asks for an iCalendar file."""

    path: str
    max_age: timedelta | None = None

    async def fetch(self, external: ExternalClient) -> "Calendar":
        """Return what the file holds; raises `ExternalError` with what is wrong with it."""
        data = await external.read_file(self.path)
        try:
            return _read(data, file=self.path)
        except ConfigError as error:
            raise ExternalError(str(error)) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeWindow(Check):
    """Passes inside of time windows: on some weekdays, strictly between two times of day, in UTC unless told otherwise.

    A window that ends on the day after its start says `acrossMidnight: true`; its weekdays are those on which it
    starts. Several windows stand in `windows`; those that overlap or touch are one. Excluded days and blackouts close
    them all. A blackout comes from the configuration, or is an event in an iCalendar file. With blackouts alone,
    without any window, the check passes at all other times.

    The page on time windows tells what happens when clocks are changed.
    """

    type = "timeWindow"
    example = (
        "start: '22:00'\nend: '04:00'\nacrossMidnight: true\nweekdays: [mon, tue, wed, thu]\n"
        "timezone: Europe/Berlin\nexclude: [Dec 24, Dec 31]\n"
        "blackouts:\n- start: 2026-11-23\n  end: 2026-11-30\n  reason: Black Friday\n"
        "calendars: [config/holidays.ics]"
    )

    start: str = option("After this time of day it is open, such as 9:30 or 22:00.", default="")
    end: str = option("At this time of day it closes.", default="")
    weekdays: tuple[str, ...] = option("The days on which a window starts, such as monday or mon.", default=())
    exclude: tuple[str, ...] = option("Days of each year that are closed, such as Dec 24.", default=())
    across_midnight: bool = option("Whether a window ends on the day after the one on which it starts.", default=False)
    timezone: str = option("The time zone of all times without one of their own, such as Europe/Berlin.", default="UTC")
    windows: tuple[Window, ...] = option("Several windows, instead of the one above.", default=())
    blackouts: tuple[Blackout, ...] = option("Times in which nothing may be done.", default=())
    calendars: tuple[str, ...] = option("iCalendar files, whose events are blackouts.", default=())

    def evaluate(self, context: PluginContext) -> CheckResult:
        """Return the verdict."""
        calendars: list[Calendar] = []
        for path in self.calendars:
            result = context.cluster.query_result(CalendarFileQuery(path))
            if result is None:
                return unknown(f"calendar {path} is being read")
            if result.problem:
                return unknown(f"no calendar, so nobody knows what is forbidden: {result.problem}")
            calendars.append(result.value)
        return self.result_at(self.timetable(tuple(calendars)), context.now)

    def timetable(self, calendars: tuple["Calendar", ...] = ()) -> Timetable:
        """Return what it means, with what its calendars hold."""
        return _timetable(self, calendars)

    def result_at(self, timetable: Timetable, now: datetime) -> CheckResult:
        """Return what a timetable says."""
        found = state_at(timetable, now)
        if isinstance(found, Open):
            ends = f" until {walltime.format_instant(found.until, timetable.zone)}" if found.until else ""
            return passes(f"the window is open{ends}", requeue_at=found.recheck_at)
        info = {"reason": found.reason} if found.is_day_closed else {}
        return CheckResult(False, found.reason, info, found.recheck_at)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield what makes no sense."""
        yield from parse_problems("timezone", self.timezone, walltime.zone)
        yield from parse_problems_each("exclude", self.exclude, walltime.parse_day_of_year)
        for number, path in enumerate(self.calendars):
            if not path.strip():
                yield f"calendars[{number}]", "expected the path of an iCalendar file, found nothing"
        if not self._has_only_blackouts and not (self.windows and not self._has_own_window):
            yield from self._own_window.problems()

    def files(self) -> Iterator[NamedFile]:
        """Yield its calendars."""
        for number, path in enumerate(self.calendars):
            yield NamedFile(f"calendars[{number}]", path, partial(_read, file=path))

    @property
    def _own_window(self) -> Window:
        return Window(weekdays=self.weekdays, start=self.start, end=self.end, across_midnight=self.across_midnight)

    @property
    def _has_own_window(self) -> bool:
        return self._own_window != Window()

    @property
    def _has_only_blackouts(self) -> bool:
        has_blackouts = bool(self.blackouts or self.calendars)
        return has_blackouts and not self._has_own_window and not self.windows

    def weekly(self) -> tuple[WeeklyWindow, ...]:
        """Return the windows."""
        if self._has_only_blackouts:
            return (_ALWAYS,)
        own = (self._own_window,) if self._has_own_window else ()
        return tuple(window.weekly for window in (*own, *self.windows))


@lru_cache(maxsize=256)
def _read(data: bytes, *, file: str) -> "Calendar":
    from haulout.core import icalendar  # which most have no use for

    return icalendar.parse(data, file=file)


@lru_cache(maxsize=256)
def _timetable(check: TimeWindow, calendars: tuple["Calendar", ...]) -> Timetable:
    """Return what a check means; the same one each time, since it remembers what it has worked out."""
    zone = walltime.zone(check.timezone)
    return Timetable(
        zone=zone,
        windows=check.weekly(),
        excluded=frozenset(map(walltime.parse_day_of_year, check.exclude)),
        blackouts=tuple(blackout.busy(zone) for blackout in check.blackouts),
        calendars=calendars,
    )


def _instant(moment: datetime | date, zone: tzinfo, *, last: bool = False) -> datetime:
    if not isinstance(moment, datetime):
        return walltime.midnight(moment, zone)
    return walltime.instant(moment, zone, last=last) if moment.tzinfo is None else moment.astimezone(UTC)
