"""Recurrence rules (`FREQ=MONTHLY;BYDAY=-1FR`) as the days on which something happens again.

Rules by the day, week, month or year, which is what calendars export; one that repeats within a day is not understood,
and that is told. So a rule is a matter of days alone: the time of day stays what it was.

A rule is asked for the days of a range, and goes there directly: how long ago it began costs nothing. Only a rule with
a COUNT must be followed from its beginning; `closed` does that once, within limits, and turns the count into a day.
"""

import calendar
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date, timedelta
from enum import StrEnum

from haulout.core.icalendar.values import LAST_YEAR, Stamp, stamp

_WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_BYDAY = re.compile(r"([+-]?\d{1,2})?(MO|TU|WE|TH|FR|SA|SU)", re.ASCII)
_MOST_INTERVAL = 10_000
_MOST_WEEKS = 53
_MOST_DAYS = 366
_MONTHS = 12
_KNOWN = {"FREQ", "INTERVAL", "COUNT", "UNTIL", "BYDAY", "BYMONTHDAY", "BYMONTH", "BYSETPOS", "WKST"}


class Frequency(StrEnum):
    """How often."""

    DAILY = "DAILY"
    WEEKLY = "WEEKLY"
    MONTHLY = "MONTHLY"
    YEARLY = "YEARLY"


_PERIODS = {Frequency.DAILY: 366, Frequency.WEEKLY: 54, Frequency.MONTHLY: 12, Frequency.YEARLY: 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule; sets that are empty do not matter."""

    frequency: Frequency
    interval: int = 1
    count: int | None = None
    until: Stamp | None = None
    # The day after which there is no more, as `closed` found it.
    last: date = date(LAST_YEAR, 12, 31)
    weekdays: frozenset[tuple[int, int]] = frozenset()  # which one of the month or year (0: all), and the day
    month_days: frozenset[int] = frozenset()
    months: frozenset[int] = frozenset()
    positions: tuple[int, ...] = ()
    week_begins: int = 0

    def days(self, start: date, *, first: date, last: date) -> Iterator[date]:
        """Yield the days of something that first happened on `start`, from `first` to `last`, in order."""
        last = min(last, self.last)
        number = self._period_of(start, max(first, start))
        while (begins := self._begin(start, number)) is not None and begins <= last:
            for day in self._chosen(start, begins):
                if max(first, start) <= day <= last:
                    yield day
            number += 1

    def closed(self, start: date, *, most: int) -> tuple["Rule", int]:
        """Return the rule with its count as a last day, and the periods that this took; at most so many."""
        if self.count is None:
            return self, 0
        # The start is the first of the count, whether or not the rule would choose it.
        left, day = self.count - 1, start
        for number in range(most):
            begins = self._begin(start, number)
            if left == 0 or begins is None:
                return replace(self, count=None, last=day if left == 0 else self.last), number
            for each in [each for each in self._chosen(start, begins) if each > start][:left]:
                left, day = left - 1, each
        raise ValueError(f"expected a COUNT that is reached sooner than {self.count} from {start} on, or UNTIL instead")

    @property
    def times_a_year(self) -> int:
        """How often that is, at most."""
        periods = -(-_PERIODS[self.frequency] // self.interval)
        if self.positions:
            return periods * len(self.positions)
        match self.frequency:
            case Frequency.DAILY:
                each = 1
            case Frequency.WEEKLY:
                each = len(self.weekdays) or 1
            case Frequency.MONTHLY:
                each = len(self.month_days) or 5 * len(self.weekdays) or 1
            case Frequency.YEARLY if self.weekdays:
                each = (5 * len(self.months) or _MOST_WEEKS) * len(self.weekdays)
            case Frequency.YEARLY:
                each = (len(self.months) or _MONTHS) * (len(self.month_days) or 1)
        return periods * each

    def _period_of(self, start: date, day: date) -> int:
        """Return the number of the period that a day lies in, or of one before it."""
        match self.frequency:
            case Frequency.DAILY:
                passed = (day - start).days
            case Frequency.WEEKLY:
                passed = (day - self._week_of(start)).days // 7
            case Frequency.MONTHLY:
                passed = (day.year - start.year) * _MONTHS + day.month - start.month
            case Frequency.YEARLY:
                passed = day.year - start.year
        return passed // self.interval

    def _begin(self, start: date, number: int) -> date | None:
        """Return the first day of a period; None: after all times."""
        steps = number * self.interval
        match self.frequency:
            case Frequency.DAILY:
                begins = _later(start, steps)
            case Frequency.WEEKLY:
                begins = _later(self._week_of(start), steps * 7)
            case Frequency.MONTHLY:
                year, month = divmod(start.year * _MONTHS + start.month - 1 + steps, _MONTHS)
                begins = date(year, month + 1, 1) if year <= LAST_YEAR else None
            case Frequency.YEARLY:
                begins = date(start.year + steps, 1, 1) if start.year + steps <= LAST_YEAR else None
        return begins

    def _week_of(self, day: date) -> date:
        return day - timedelta(days=(day.weekday() - self.week_begins) % 7)

    def _chosen(self, start: date, begins: date) -> list[date]:
        days = sorted(set(self._candidates(start, begins)))
        if not self.positions:
            return days
        picked = {days[each - 1 if each > 0 else each] for each in self.positions if abs(each) <= len(days)}
        return sorted(picked)

    def _candidates(self, start: date, begins: date) -> Iterator[date]:
        match self.frequency:
            case Frequency.DAILY:
                yield from (day for day in [begins] if self._fits(day))
            case Frequency.WEEKLY:
                wanted = {weekday for _, weekday in self.weekdays} or {start.weekday()}
                week = (begins + timedelta(days=each) for each in range(7))
                yield from (day for day in week if day.weekday() in wanted and self._in_month(day))
            case Frequency.MONTHLY:
                yield from self._in_months(start, begins.year, {begins.month} & (self.months or {begins.month}))
            case Frequency.YEARLY:
                yield from self._in_year(start, begins.year)

    def _in_year(self, start: date, year: int) -> Iterator[date]:
        if self.months:
            yield from self._in_months(start, year, self.months)
        elif self.weekdays:
            # Without months, the second Monday is that of the year.
            for day in self._weekdays_of(date(year, 1, 1), date(year, 12, 31)):
                if not self.month_days or self._is_month_day(day):
                    yield day
        else:
            yield from self._in_months(start, year, range(1, 13) if self.month_days else {start.month})

    def _in_months(self, start: date, year: int, months: "frozenset[int] | set[int] | range") -> Iterator[date]:
        for month in months:
            days = calendar.monthrange(year, month)[1]
            if self.weekdays:
                for day in self._weekdays_of(date(year, month, 1), date(year, month, days)):
                    if not self.month_days or self._is_month_day(day):
                        yield day
                continue
            for number in self.month_days or {start.day}:
                day_number = number if number > 0 else days + 1 + number
                if 1 <= day_number <= days:
                    yield date(year, month, day_number)

    def _weekdays_of(self, first: date, last: date) -> Iterator[date]:
        """Yield the weekdays that are meant within a month or a year."""
        for which, weekday in self.weekdays:
            if which >= 0:
                day = first + timedelta(days=(weekday - first.weekday()) % 7 + 7 * max(which - 1, 0))
            else:
                day = last - timedelta(days=(last.weekday() - weekday) % 7 + 7 * (-which - 1))
            step = timedelta(days=7)
            while first <= day <= last:
                yield day
                if which:
                    break
                day += step

    def _fits(self, day: date) -> bool:
        on_weekday = not self.weekdays or any(weekday == day.weekday() for _, weekday in self.weekdays)
        return on_weekday and self._in_month(day) and (not self.month_days or self._is_month_day(day))

    def _in_month(self, day: date) -> bool:
        return not self.months or day.month in self.months

    def _is_month_day(self, day: date) -> bool:
        days = calendar.monthrange(day.year, day.month)[1]
        return day.day in self.month_days or day.day - days - 1 in self.month_days


def rule(text: str) -> Rule:
    """Return what an RRULE says; raises a ValueError with what is wrong or not understood."""
    parts = _parts(text)
    for unknown in sorted(parts.keys() - _KNOWN):
        raise ValueError(f"{unknown} is not understood; there are {', '.join(sorted(_KNOWN))}")
    frequency = _frequency(parts.get("FREQ", ""))
    weekdays = frozenset(_weekday(each) for each in _listed(parts.get("BYDAY", "")))
    found = Rule(
        frequency=frequency,
        interval=_number("INTERVAL", parts.get("INTERVAL", "1"), 1, _MOST_INTERVAL),
        count=_number("COUNT", parts["COUNT"], 1, 10**6) if "COUNT" in parts else None,
        until=stamp(parts["UNTIL"], None) if "UNTIL" in parts else None,
        weekdays=weekdays,
        month_days=_numbers("BYMONTHDAY", parts, most=31, backwards=True),
        months=_numbers("BYMONTH", parts, most=12),
        positions=tuple(sorted(_numbers("BYSETPOS", parts, most=_MOST_DAYS, backwards=True))),
        week_begins=_weekday(parts["WKST"])[1] if "WKST" in parts else 0,
    )
    if found.count is not None and found.until is not None:
        raise ValueError("expected COUNT or UNTIL, found both")
    if frequency in {Frequency.DAILY, Frequency.WEEKLY} and any(which for which, _ in weekdays):
        raise ValueError(f"expected BYDAY without numbers in a {frequency} rule, found {parts['BYDAY'][:40]}")
    if frequency is Frequency.WEEKLY and found.month_days:
        raise ValueError("expected no BYMONTHDAY in a WEEKLY rule")
    return found


def _parts(text: str) -> dict[str, str]:
    parts: dict[str, str] = {}
    for part in text.strip().upper().rstrip(";").split(";"):
        name, equals, value = part.partition("=")
        if not equals or not value:
            raise ValueError(f"expected parts such as FREQ=DAILY, found {part[:40]!r}")
        if name in parts:
            raise ValueError(f"expected {name} once, found it twice")
        parts[name] = value
    return parts


def _frequency(text: str) -> Frequency:
    try:
        return Frequency(text)
    except ValueError:
        found = f"found {text[:40]}" if text else "found none"
        raise ValueError(f"expected FREQ to be DAILY, WEEKLY, MONTHLY or YEARLY, {found}") from None


def _weekday(text: str) -> tuple[int, int]:
    found = _BYDAY.fullmatch(text)
    which = int(found[1] or 0) if found else 0
    if found is None or abs(which) > _MOST_WEEKS or (found[1] and not which):
        raise ValueError(f"expected a weekday such as MO, 1MO or -1FR, found {text[:40]!r}")
    return which, _WEEKDAYS.index(found[2])


def _numbers(name: str, parts: dict[str, str], *, most: int, backwards: bool = False) -> frozenset[int]:
    least = -most if backwards else 1
    numbers = frozenset(_number(name, each, least, most) for each in _listed(parts.get(name, "")))
    if 0 in numbers:
        raise ValueError(f"expected {name} to be a number other than 0")
    return numbers


def _number(name: str, text: str, least: int, most: int) -> int:
    found = re.fullmatch(r"[+-]?[0-9]{1,7}", text)
    if found is None or not least <= int(text) <= most:
        raise ValueError(f"expected {name} to be a number from {least} to {most}, found {text[:40]!r}")
    return int(text)


def _listed(text: str) -> list[str]:
    return text.split(",") if text else []


def _later(day: date, days: int) -> date | None:
    try:
        later = day + timedelta(days=days)
    except OverflowError:
        return None
    return later if later.year <= LAST_YEAR else None
