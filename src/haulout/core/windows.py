"""When something may be done: weekly windows, and blackouts that close them.

    office = Timetable(zone=berlin, windows=(Weekly(weekdays={0, 1}, start=time(9), end=time(17)),))
    openness(office, now) -> Open(until) | Closed(reason, opens_at)

An answer always comes with the first instant at which it is another one, so nobody has to ask in between. These are
the rules, which `docs/reference/time-windows.md` tells to users:

- A window is open strictly between its start and its end. Its weekdays are those on which it starts. It may end on
  the next day. Windows that overlap or touch are one.
- A blackout closes from its first instant on until its end, at which things are open again. So do excluded days, each
  year. They count against every instant, not only against the start of a window.
- Wall times are those of the timetable's zone; `haulout.core.walltime` says what they mean when clocks are changed.
  A window takes the first meaning of both of its ends; a blackout is the longest that can be meant.

Instants have microseconds, so what is open after 09:00 opens at 09:00:00.000001: `opens_at` is the first instant that
is open, `until` the first that is not. None: not within `HORIZON`, and `looks_again_at` is then where it ends.
"""

from bisect import bisect_right
from calendar import isleap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from itertools import islice, takewhile
from typing import TYPE_CHECKING

from haulout.core import walltime
from haulout.core.busy import Busy
from haulout.core.walltime import DAY, MONTHS, TICK, WEEKDAYS, midnight

if TYPE_CHECKING:  # most have none
    from haulout.core.icalendar import Calendar

HORIZON = timedelta(days=400)
# How far back a window may have started that is open, or touches one that is: it ends on the next day, at most.
_BEFORE = timedelta(days=3)
_LEAP_DAY = (2, 29)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weekly:
    """A window of each week; Monday is 0."""

    weekdays: frozenset[int]
    start: time
    end: time
    ends_next_day: bool = False

    def __str__(self) -> str:
        next_day = " of the next day" if self.ends_next_day else ""
        return f"{self.start:%H:%M} and {self.end:%H:%M}{next_day}"

    @property
    def opens(self) -> bool:
        """Whether it ever does."""
        return bool(self.weekdays) and (self.ends_next_day or self.start < self.end)

    @property
    def is_always(self) -> bool:
        """Whether each of its windows lasts until the next one."""
        return self.ends_next_day and self.start <= self.end and len(self.weekdays) == len(WEEKDAYS)

    def on(self, day: date, zone: tzinfo) -> "Span | None":
        """Return the window that starts on a day, if one does."""
        if day.weekday() not in self.weekdays:
            return None
        start = walltime.instant(datetime.combine(day, self.start), zone)
        end = walltime.instant(datetime.combine(day + DAY if self.ends_next_day else day, self.end), zone)
        return Span(start, end) if start < end else None


@dataclass(frozen=True, slots=True)
class Span:
    """From an instant to another."""

    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Timetable:
    """Windows, and what closes them."""

    windows: tuple[Weekly, ...]
    zone: tzinfo = UTC
    excluded: frozenset[tuple[int, int]] = frozenset()  # months and days
    blackouts: tuple[Busy, ...] = ()
    calendars: tuple["Calendar", ...] = ()
    # Many nodes ask the same. What is closed from a year's beginning on, and what comes next after an instant:
    _closures: "dict[int, _Closures]" = field(default_factory=dict)
    _next: dict[datetime, Span] = field(default_factory=dict)

    def next_open(self, now: datetime, horizon: datetime) -> Span | None:
        """Return from when to when (exclusive) it is open now, or next."""
        for asked, span in self._next.items():
            if asked <= now < span.end:
                return span
        found = _next_open(self, now, horizon)
        self._next.clear()
        # What the horizon cuts off goes on further for who asks later.
        if found is not None and found.end < horizon:
            self._next[now] = found
        return found

    def closures(self, now: datetime) -> "_Closures":
        """Return the blackouts, as far as one can see from `now`."""
        if now.year not in self._closures:
            self._closures.clear()
            first = datetime(now.year, 1, 1, tzinfo=UTC)
            self._closures[now.year] = _Closures(self.busy(first, first + 367 * DAY + HORIZON))
        return self._closures[now.year]

    def busy(self, first: datetime, last: datetime) -> Iterator[Busy]:
        """Yield the blackouts between two instants, and maybe others, with their reasons."""
        for each in self.blackouts:
            yield Busy(each.start, each.end, f"blackout: {each.reason}" if each.reason else "blackout")
        for calendar in self.calendars:
            for each in calendar.busy(first, last, self.zone):
                yield Busy(each.start, each.end, f"blackout: {each.reason}")
        for year in range(first.year - 1, last.year + 1):
            for month, day in self.excluded:
                yield from self._excluded(year, month, day)

    def _excluded(self, year: int, month: int, day: int) -> Iterator[Busy]:
        if (month, day) == _LEAP_DAY and not isleap(year):
            return
        whole = date(year, month, day)
        why = f"{MONTHS[month - 1]} {day} is an excluded day"
        yield Busy(midnight(whole, self.zone), midnight(whole + DAY, self.zone), why)


@dataclass(frozen=True, slots=True)
class Open:
    """It may be done, until an instant."""

    until: datetime | None
    looks_again_at: datetime


@dataclass(frozen=True, slots=True)
class Closed:
    """It may not be done, and why; from `opens_at` on it may."""

    reason: str
    opens_at: datetime | None
    looks_again_at: datetime
    is_day_closed: bool = False  # because of the day, not of the time of day


def openness(timetable: Timetable, now: datetime) -> Open | Closed:
    """Return whether things may be done, and until when the answer holds."""
    horizon = now + HORIZON
    opening = timetable.next_open(now, horizon)
    if opening is not None and opening.start <= now:
        until = opening.end if opening.end < horizon else None
        return Open(until, until or horizon)
    opens_at = opening.start if opening else None
    reason, is_day_closed = _why_closed(timetable, now)
    return Closed(_with_opening(reason, opens_at, timetable.zone), opens_at, opens_at or horizon, is_day_closed)


def openings(timetable: Timetable, start: datetime, end: datetime) -> Iterator[Span]:
    """Yield when it is open between two instants, cut off there; nothing if it always is but for blackouts."""
    if any(window.is_always for window in timetable.windows):
        return
    # A timetable of its own: what the other one remembers is for those who ask about now.
    alike = replace(timetable, _closures={}, _next={})
    at = start
    while at < end and (found := _next_open(alike, at, end)) and found.start < end:
        yield Span(max(found.start, start), min(found.end, end))
        at = found.end


def closings(timetable: Timetable, start: datetime, end: datetime) -> Iterator[Busy]:
    """Yield the blackouts between two instants, those that overlap each by itself; they are not cut off."""
    for each in timetable.busy(start, end):
        if each.start < end and each.end > start:
            yield each


def _next_open(timetable: Timetable, now: datetime, horizon: datetime) -> Span | None:
    """Return from when to when (exclusive) it is open now, or next."""
    closures = timetable.closures(now)
    at = now
    while at < horizon and (window := _window_at(timetable, at, horizon)):
        # Strictly between both ends: the first instant that is open is one tick after the start.
        at = max(at, window.start + TICK)
        closed_until = closures.end_at(at)
        if closed_until is None:
            return Span(at, min(window.end, closures.next_after(at) or window.end)) if at < window.end else None
        at = closed_until
    return None


def _window_at(timetable: Timetable, at: datetime, horizon: datetime) -> Span | None:
    """Return the first window that ends after an instant, with all that overlap or touch it."""
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
    """Yield the windows around and after an instant, in the order of their starts."""
    windows = [window for window in timetable.windows if window.opens]
    day = walltime.wall_clock(at, timetable.zone).date() - _BEFORE
    last = walltime.wall_clock(horizon, timetable.zone).date()
    while windows and day <= last:
        spans = (window.on(day, timetable.zone) for window in windows)
        yield from sorted((span for span in spans if span), key=lambda span: span.start)
        day += DAY


class _Closures:
    """Blackouts that may overlap: when it is closed, and why."""

    __slots__ = ("_ends", "_first_of", "_listed", "_starts")

    def __init__(self, busy: Iterable[Busy]) -> None:
        self._listed = sorted((each for each in busy if each.start < each.end), key=lambda each: each.start)
        # Those that overlap or touch are one closure; each knows the first of its blackouts.
        self._starts: list[datetime] = []
        self._ends: list[datetime] = []
        self._first_of: list[int] = []
        for number, each in enumerate(self._listed):
            if self._ends and each.start <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], each.end)
            else:
                self._starts.append(each.start)
                self._ends.append(each.end)
                self._first_of.append(number)

    def end_at(self, at: datetime) -> datetime | None:
        """Return when the closure ends that holds at an instant; None: there is none."""
        number = bisect_right(self._starts, at) - 1
        return self._ends[number] if number >= 0 and at < self._ends[number] else None

    def next_after(self, at: datetime) -> datetime | None:
        """Return when the next closure begins."""
        number = bisect_right(self._starts, at)
        return self._starts[number] if number < len(self._starts) else None

    def why(self, at: datetime) -> str:
        """Return the reason for which it is closed: that of the blackout that lasts longest; empty: it is not."""
        if self.end_at(at) is None:
            return ""
        first = self._first_of[bisect_right(self._starts, at) - 1]
        begun = takewhile(lambda each: each.start <= at, islice(self._listed, first, None))
        return max((each for each in begun if at < each.end), key=lambda each: each.end).reason


def _why_closed(timetable: Timetable, now: datetime) -> tuple[str, bool]:
    """Return why it is closed, and whether the day is the reason."""
    closure = timetable.closures(now).why(now)
    if closure:
        return closure, True
    wall = walltime.wall_clock(now, timetable.zone)
    today = [window for window in timetable.windows if wall.weekday() in window.weekdays]
    if not today:
        days = {day for window in timetable.windows for day in window.weekdays}
        names = ", ".join(WEEKDAYS[day] for day in sorted(days)) or "none"
        return f"{WEEKDAYS[wall.weekday()]} is not one of the weekdays ({names})", True
    times = " or ".join(sorted({str(window) for window in today}))
    return f"{wall:%H:%M:%S} is not between {times} {timetable.zone}", False


def _with_opening(reason: str, opens_at: datetime | None, zone: tzinfo) -> str:
    if opens_at is None:
        return f"{reason}; it does not open within {HORIZON.days} days"
    return f"{reason}; it opens {walltime.written(opens_at, zone)}"
