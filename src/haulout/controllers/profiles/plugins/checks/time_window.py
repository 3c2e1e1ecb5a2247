"""The check `timeWindow`.

`haulout.core.windows` implements the rules of time; this module defines their configuration. Calendar files are read by
external queries, so that an edit takes effect without a restart. While a calendar cannot be read, the check does not
pass, since its blackouts are unknown. An invalid calendar is also reported when the configuration is loaded.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from haulout.controllers.profiles.config.options import option, parse_problems, parse_problems_each
from haulout.controllers.profiles.plugin import (
    Check,
    CheckResult,
    ExternalClient,
    NamedFile,
    PluginContext,
    passes,
    unknown,
)
from haulout.core import walltime
from haulout.core.windows import BusyPeriod, Open, Timetable, WeeklyWindow, state_at
from haulout.errors import ConfigError, ExternalError

if TYPE_CHECKING:
    from haulout.core.icalendar import Calendar

_ALL_DAYS = frozenset(range(len(walltime.WEEKDAYS)))
_ALWAYS = WeeklyWindow(weekdays=_ALL_DAYS, start=time(), end=time(), ends_next_day=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One of several windows."""

    weekdays: tuple[str, ...] = option("The days on which it starts, such as monday or mon.", default=())
    start: str = option("The time of day at which it opens.", default="")
    end: str = option("The time of day at which it closes.", default="")
    across_midnight: bool = option("Whether it ends on the day after the one on which it starts.", default=False)

    def problems(self) -> Iterator[tuple[str, str]]:
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
            yield "start", f"{late}; if the window ends on the next day, set acrossMidnight: true"

    @property
    def weekly(self) -> WeeklyWindow:
        """The window as a value of `haulout.core.windows`."""
        return WeeklyWindow(
            weekdays=frozenset(map(walltime.parse_weekday, self.weekdays)),
            start=walltime.parse_time_of_day(self.start),
            end=walltime.parse_time_of_day(self.end),
            ends_next_day=self.across_midnight,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Blackout:
    """A period in which nothing may be done."""

    start: str = option(
        "When it begins: a date, or a time such as 2026-12-24 18:00 or 2026-12-24T18:00:00Z.", default=""
    )
    end: str = option("When it ends. A date means the end of that day.", default="")
    reason: str = option("The reason, which is shown while the check does not pass.", default="")

    def problems(self) -> Iterator[tuple[str, str]]:
        wrong = [
            *parse_problems("start", self.start, walltime.parse_date_or_time),
            *parse_problems("end", self.end, walltime.parse_date_or_time),
        ]
        yield from wrong
        # The time zone of both does not matter here, unless they are less than a day apart.
        if not wrong and (busy := self.busy(UTC)).start >= busy.end:
            yield "end", f"expected a time after the start, {self.start}, found {self.end}"

    def busy(self, zone: tzinfo) -> BusyPeriod:
        """Return the blackout as a period; the longest possible one if a time is ambiguous."""
        start, end = walltime.parse_date_or_time(self.start), walltime.parse_date_or_time(self.end)
        if isinstance(end, datetime):
            return BusyPeriod(_instant(start, zone), _instant(end, zone, last=True), self.reason)
        return BusyPeriod(_instant(start, zone), walltime.midnight(end + walltime.DAY, zone), self.reason)


@dataclass(frozen=True, slots=True)
class CalendarFileQuery:
    """An external query for an iCalendar file."""

    path: str
    max_age: timedelta | None = None

    async def fetch(self, external: ExternalClient) -> "Calendar":
        """Return the calendar. Raise `ExternalError` if it cannot be read or parsed."""
        data = await external.read_file(self.path)
        try:
            return _read(data, file=self.path)
        except ConfigError as error:
            raise ExternalError(str(error)) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeWindow(Check):
    """Passes inside time windows: on certain weekdays, strictly between two times of day, in UTC by default.

    A window that ends on the day after its start has `acrossMidnight: true`; its weekdays are those on which it starts.
    Several windows are listed in `windows`; windows that overlap or touch are merged. Excluded days and blackouts close
    all windows. A blackout is defined in the configuration, or is an event in an iCalendar file. With blackouts alone,
    without any window, the check passes at all other times.

    The page on time windows explains what happens at daylight saving time changes.
    """

    type = "timeWindow"
    example = (
        "start: '22:00'\nend: '04:00'\nacrossMidnight: true\nweekdays: [mon, tue, wed, thu]\n"
        "timezone: Europe/Berlin\nexclude: [Dec 24, Dec 31]\n"
        "blackouts:\n- start: 2026-11-23\n  end: 2026-11-30\n  reason: Black Friday\n"
        "calendars: [config/holidays.ics]"
    )

    start: str = option("The time of day at which it opens, such as 9:30 or 22:00.", default="")
    end: str = option("The time of day at which it closes.", default="")
    weekdays: tuple[str, ...] = option("The days on which a window starts, such as monday or mon.", default=())
    exclude: tuple[str, ...] = option("Days of each year that are closed, such as Dec 24.", default=())
    across_midnight: bool = option("Whether a window ends on the day after the one on which it starts.", default=False)
    timezone: str = option("The time zone of all times without one of their own, such as Europe/Berlin.", default="UTC")
    windows: tuple[Window, ...] = option("Several windows, instead of the one above.", default=())
    blackouts: tuple[Blackout, ...] = option("Times in which the check does not pass.", default=())
    calendars: tuple[str, ...] = option("iCalendar files, whose events are blackouts.", default=())

    def evaluate(self, context: PluginContext) -> CheckResult:
        calendars: list[Calendar] = []
        for path in self.calendars:
            result = context.cluster.query_result(CalendarFileQuery(path))
            if result is None:
                return unknown(f"calendar {path} is being read")
            if result.problem:
                return unknown(f"the calendars are not available: {result.problem}")
            calendars.append(result.value)
        return self.result_at(self.timetable(tuple(calendars)), context.now)

    def timetable(self, calendars: tuple["Calendar", ...] = ()) -> Timetable:
        """Return the timetable of the check, with the events of its calendars."""
        return _timetable(self, calendars)

    def result_at(self, timetable: Timetable, now: datetime) -> CheckResult:
        """Return the result for a timetable at an instant."""
        found = state_at(timetable, now)
        if isinstance(found, Open):
            ends = f" until {walltime.format_instant(found.until, timetable.zone)}" if found.until else ""
            return passes(f"the window is open{ends}", requeue_at=found.recheck_at)
        info = {"reason": found.reason} if found.is_day_closed else {}
        return CheckResult(False, found.reason, info, found.recheck_at)

    def problems(self) -> Iterator[tuple[str, str]]:
        yield from parse_problems("timezone", self.timezone, walltime.zone)
        yield from parse_problems_each("exclude", self.exclude, walltime.parse_day_of_year)
        for number, path in enumerate(self.calendars):
            if not path.strip():
                yield f"calendars[{number}]", "expected the path of an iCalendar file, found nothing"
        if not self._has_only_blackouts and not (self.windows and not self._has_own_window):
            yield from self._own_window.problems()

    def files(self) -> Iterator[NamedFile]:
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
        """Return the weekly windows; one that is always open if there are only blackouts."""
        if self._has_only_blackouts:
            return (_ALWAYS,)
        own = (self._own_window,) if self._has_own_window else ()
        return tuple(window.weekly for window in (*own, *self.windows))


@lru_cache(maxsize=256)
def _read(data: bytes, *, file: str) -> "Calendar":
    from haulout.core import icalendar  # most configurations do not need it

    return icalendar.parse(data, file=file)


@lru_cache(maxsize=256)
def _timetable(check: TimeWindow, calendars: tuple["Calendar", ...]) -> Timetable:
    """Return the timetable of a check. Cached, since a timetable remembers its computed periods."""
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
