"""Maintenance windows: weekly windows, and blackouts that close them.

    office = Timetable(zone=berlin, windows=(WeeklyWindow(weekdays=frozenset({0, 1}), start=time(9), end=time(17)),))
    state_at(office, now) -> Open(until) | Closed(reason, opens_at)

A result always includes the first instant at which it changes, so nothing has to poll. These are the rules, which
`docs/reference/time-windows.md` explains to users:

- A window is open strictly between its start and its end. Its weekdays are those on which it starts. It may end on the
  next day. Windows that overlap or touch are merged.
- A blackout closes from its first instant until its end, which is open again. Excluded days are yearly blackouts.
  Blackouts apply at every instant, not only at the start of a window.
- Wall times are in the timetable's zone; `haulout.core.walltime` defines them around clock changes. Both ends of a
  window use the first possible instant; a blackout has the longest possible duration.

Instants have microseconds, so a window after 09:00 opens at 09:00:00.000001: `opens_at` is the first open instant,
`until` the first closed one. None means not within `HORIZON`; `recheck_at` is then the end of the horizon.
"""

from bisect import bisect_right
from calendar import isleap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from itertools import islice, takewhile
from typing import TYPE_CHECKING

from haulout.core import walltime
from haulout.core.walltime import DAY, MONTHS, TICK, WEEKDAYS, midnight

if TYPE_CHECKING:  # most timetables have no calendar
    from haulout.core.icalendar import Calendar

HORIZON = timedelta(days=400)  # more than a year, so that a yearly day is always within it
# How early a window may have started that is open, or touches an open one: windows end on the next day at the latest.
_LOOKBACK = timedelta(days=3)
_LEAP_DAY = (2, 29)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeeklyWindow:
    """A weekly window. Weekdays are numbers, and Monday is 0."""

    weekdays: frozenset[int]
    start: time
    end: time
    ends_next_day: bool = False

    def __str__(self) -> str:
        next_day = " of the next day" if self.ends_next_day else ""
        return f"{self.start:%H:%M} and {self.end:%H:%M}{next_day}"

    @property
    def ever_opens(self) -> bool:
        return bool(self.weekdays) and (self.ends_next_day or self.start < self.end)

    @property
    def is_always(self) -> bool:
        """Return whether each window lasts until the next one starts."""
        return self.ends_next_day and self.start <= self.end and len(self.weekdays) == len(WEEKDAYS)

    def window_starting_on(self, day: date, zone: tzinfo) -> "Span | None":
        """Return the window that starts on this day; None if there is none."""
        if day.weekday() not in self.weekdays:
            return None
        start = walltime.instant(datetime.combine(day, self.start), zone)
        end = walltime.instant(datetime.combine(day + DAY if self.ends_next_day else day, self.end), zone)
        return Span(start, end) if start < end else None


@dataclass(frozen=True, slots=True)
class Span:
    """The time between two instants; who makes one says which ends belong to it."""

    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class BusyPeriod:
    """The period from `start` to `end` (exclusive), and its reason."""

    start: datetime
    end: datetime
    reason: str


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Timetable:
    """Windows, and the blackouts that close them."""

    windows: tuple[WeeklyWindow, ...]
    zone: tzinfo = UTC
    excluded: frozenset[tuple[int, int]] = frozenset()  # months and days
    blackouts: tuple[BusyPeriod, ...] = ()
    calendars: tuple["Calendar", ...] = ()
    # Many nodes ask for the same instants, so cache the blackouts of a year, and the next open span.
    _closures: "dict[int, _ClosedPeriods]" = field(default_factory=dict)
    _next: dict[datetime, Span] = field(default_factory=dict)

    def next_open(self, now: datetime, horizon: datetime) -> Span | None:
        """Return the current or next open span; its end is exclusive."""
        for asked_at, span in self._next.items():
            if asked_at <= now < span.end:
                return span
        found = _next_open(self, now, horizon)
        self._next.clear()
        # Do not cache a span that the horizon truncates: it is longer at a later time.
        if found is not None and found.end < horizon:
            self._next[now] = found
        return found

    def closed_periods(self, now: datetime) -> "_ClosedPeriods":
        """Return the blackouts from the beginning of the year of `now` to beyond the horizon."""
        if now.year not in self._closures:
            # One year at a time: queries are about the present, and a year is some hundred blackouts.
            self._closures.clear()
            first = datetime(now.year, 1, 1, tzinfo=UTC)
            self._closures[now.year] = _ClosedPeriods(self.busy_periods(first, first + 367 * DAY + HORIZON))
        return self._closures[now.year]

    def busy_periods(self, first: datetime, last: datetime) -> Iterator[BusyPeriod]:
        """Yield the blackouts between two instants, and possibly others, with their reasons."""
        for period in self.blackouts:
            yield BusyPeriod(period.start, period.end, f"blackout: {period.reason}" if period.reason else "blackout")
        for calendar in self.calendars:
            for period in calendar.busy_periods(first, last, self.zone):
                yield BusyPeriod(period.start, period.end, f"blackout: {period.reason}")
        for year in range(first.year - 1, last.year + 1):
            for month, day in self.excluded:
                yield from self._excluded_day(year, month, day)

    def _excluded_day(self, year: int, month: int, day: int) -> Iterator[BusyPeriod]:
        if (month, day) == _LEAP_DAY and not isleap(year):
            return
        excluded_day = date(year, month, day)
        reason = f"{MONTHS[month - 1]} {day} is an excluded day"
        yield BusyPeriod(midnight(excluded_day, self.zone), midnight(excluded_day + DAY, self.zone), reason)


@dataclass(frozen=True, slots=True)
class Open:
    """The window is open until an instant."""

    until: datetime | None
    recheck_at: datetime


@dataclass(frozen=True, slots=True)
class Closed:
    """The window is closed, with the reason; it opens at `opens_at`."""

    reason: str
    opens_at: datetime | None
    recheck_at: datetime
    is_day_closed: bool = False  # closed because of the day, not of the time of day


def state_at(timetable: Timetable, now: datetime) -> Open | Closed:
    """Return whether the timetable is open, and until when this holds."""
    horizon = now + HORIZON
    span = timetable.next_open(now, horizon)
    if span is not None and span.start <= now:
        until = span.end if span.end < horizon else None
        return Open(until, until or horizon)
    opens_at = span.start if span else None
    reason, is_day_closed = _closed_reason(timetable, now)
    return Closed(_with_opening_time(reason, opens_at, timetable.zone), opens_at, opens_at or horizon, is_day_closed)


def open_spans(timetable: Timetable, start: datetime, end: datetime) -> Iterator[Span]:
    """Yield the open spans between two instants, truncated to them.

    Yield nothing if only blackouts ever close the timetable.
    """
    if any(window.is_always for window in timetable.windows):
        return
    # A copy with its own cache: the cache of the original is for queries about the present.
    uncached = replace(timetable, _closures={}, _next={})
    at = start
    while at < end and (found := _next_open(uncached, at, end)) and found.start < end:
        yield Span(max(found.start, start), min(found.end, end))
        at = found.end


def blackouts_between(timetable: Timetable, start: datetime, end: datetime) -> Iterator[BusyPeriod]:
    """Yield the blackouts that overlap the time between two instants. They are neither merged nor truncated."""
    for period in timetable.busy_periods(start, end):
        if period.start < end and period.end > start:
            yield period


def _next_open(timetable: Timetable, now: datetime, horizon: datetime) -> Span | None:
    """Return the current or next open span; its end is exclusive."""
    closed_periods = timetable.closed_periods(now)
    at = now
    while at < horizon and (window := _window_at(timetable, at, horizon)):
        # Strictly between both ends: the first open instant is one tick after the start.
        at = max(at, window.start + TICK)
        closed_until = closed_periods.end_at(at)
        if closed_until is None:
            return Span(at, min(window.end, closed_periods.next_after(at) or window.end)) if at < window.end else None
        at = closed_until
    return None


def _window_at(timetable: Timetable, at: datetime, horizon: datetime) -> Span | None:
    """Return the first window that ends after an instant, merged with all that overlap or touch it."""
    if any(window.is_always for window in timetable.windows):
        return Span(at - DAY, horizon)
    found: Span | None = None
    for span in _spans(timetable, at, horizon):
        if found is not None and span.start <= found.end:
            found = Span(found.start, max(found.end, span.end))
        elif found is not None and found.end > at:
            return found
        else:
            found = span
    return found if found is not None and found.end > at else None


def _spans(timetable: Timetable, at: datetime, horizon: datetime) -> Iterator[Span]:
    """Yield the windows around and after an instant, ordered by start."""
    windows = [window for window in timetable.windows if window.ever_opens]
    day = walltime.wall_clock(at, timetable.zone).date() - _LOOKBACK
    last = walltime.wall_clock(horizon, timetable.zone).date()
    while windows and day <= last:
        spans = (window.window_starting_on(day, timetable.zone) for window in windows)
        yield from sorted((span for span in spans if span), key=lambda span: span.start)
        day += DAY


class _ClosedPeriods:
    """Blackouts, merged where they overlap, with their reasons."""

    __slots__ = ("_ends", "_first_period", "_periods", "_starts")

    def __init__(self, periods: Iterable[BusyPeriod]) -> None:
        self._periods = sorted(
            (period for period in periods if period.start < period.end), key=lambda period: period.start
        )
        # Overlapping and touching blackouts form one closed period. Each remembers the index of its first blackout.
        self._starts: list[datetime] = []
        self._ends: list[datetime] = []
        self._first_period: list[int] = []
        for number, period in enumerate(self._periods):
            if self._ends and period.start <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], period.end)
            else:
                self._starts.append(period.start)
                self._ends.append(period.end)
                self._first_period.append(number)

    def end_at(self, at: datetime) -> datetime | None:
        """Return the end of the closed period at an instant; None if there is none."""
        number = bisect_right(self._starts, at) - 1
        return self._ends[number] if number >= 0 and at < self._ends[number] else None

    def next_after(self, at: datetime) -> datetime | None:
        """Return the start of the next closed period; None if there is none."""
        number = bisect_right(self._starts, at)
        return self._starts[number] if number < len(self._starts) else None

    def reason_at(self, at: datetime) -> str:
        """Return the reason of the blackout that lasts longest; empty if there is none at this instant."""
        if self.end_at(at) is None:
            return ""
        first = self._first_period[bisect_right(self._starts, at) - 1]
        started = takewhile(lambda period: period.start <= at, islice(self._periods, first, None))
        return max((period for period in started if at < period.end), key=lambda period: period.end).reason


def _closed_reason(timetable: Timetable, now: datetime) -> tuple[str, bool]:
    """Return why the timetable is closed, and whether the day is the reason."""
    blackout_reason = timetable.closed_periods(now).reason_at(now)
    if blackout_reason:
        return blackout_reason, True
    wall = walltime.wall_clock(now, timetable.zone)
    today = [window for window in timetable.windows if wall.weekday() in window.weekdays]
    if not today:
        days = {day for window in timetable.windows for day in window.weekdays}
        names = ", ".join(WEEKDAYS[day] for day in sorted(days)) or "none"
        return f"{WEEKDAYS[wall.weekday()]} is not one of the weekdays ({names})", True
    times = " or ".join(sorted({str(window) for window in today}))
    return f"{wall:%H:%M:%S} is not between {times} {timetable.zone}", False


def _with_opening_time(reason: str, opens_at: datetime | None, zone: tzinfo) -> str:
    if opens_at is None:
        return f"{reason}; it does not open within {HORIZON.days} days"
    return f"{reason}; it opens {walltime.format_instant(opens_at, zone)}"
