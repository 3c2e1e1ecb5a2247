"""Recurrence rules (`FREQ=MONTHLY;BYDAY=-1FR`), expanded to days.

Rules may be daily, weekly, monthly or yearly, as calendars export them. A rule that recurs within a day is not
supported, and raises an error. So a rule only selects days; the time of day is constant.

A rule is expanded for a range of days without iterating from its start. Only a rule with a COUNT must be expanded from
its start; `with_last_day` does that once, within limits, and converts the count to a last day.
"""

import calendar
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date, timedelta
from enum import StrEnum

from haulout.core.icalendar.syntax import LAST_YEAR, CalendarTime, parse_time

_WEEKDAYS = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_BYDAY = re.compile(r"([+-]?\d{1,2})?(MO|TU|WE|TH|FR|SA|SU)", re.ASCII)
_MAX_INTERVAL = 10_000
_MAX_WEEKS = 53
_MAX_DAYS = 366
_MONTHS = 12
_KNOWN_PARTS = {"FREQ", "INTERVAL", "COUNT", "UNTIL", "BYDAY", "BYMONTHDAY", "BYMONTH", "BYSETPOS", "WKST"}


class Frequency(StrEnum):
    """The unit of recurrence. HOURLY and shorter ones of RFC 5545 are not supported."""

    DAILY = "DAILY"
    WEEKLY = "WEEKLY"
    MONTHLY = "MONTHLY"
    YEARLY = "YEARLY"


# Upper bounds: a year touches up to 54 weeks.
_PERIODS_PER_YEAR = {Frequency.DAILY: 366, Frequency.WEEKLY: 54, Frequency.MONTHLY: 12, Frequency.YEARLY: 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrenceRule:
    """A recurrence rule. Empty sets do not restrict it."""

    frequency: Frequency
    interval: int = 1
    count: int | None = None
    until: CalendarTime | None = None
    # The last possible day of an occurrence, as computed by `with_last_day`.
    last: date = date(LAST_YEAR, 12, 31)
    weekdays: frozenset[tuple[int, int]] = frozenset()  # the ordinal within the month or year (0: all), and the weekday
    month_days: frozenset[int] = frozenset()
    months: frozenset[int] = frozenset()
    positions: tuple[int, ...] = ()
    week_start: int = 0

    def days(self, start: date, *, first: date, last: date) -> Iterator[date]:
        """Yield the occurrences from `first` to `last`, in order, of an event that starts on `start`."""
        last = min(last, self.last)
        period = self._period_index(start, max(first, start))
        while (period_start := self._period_start(start, period)) is not None and period_start <= last:
            for day in self._occurrences(start, period_start):
                if max(first, start) <= day <= last:
                    yield day
            period += 1

    def with_last_day(self, start: date, *, max_periods: int) -> tuple["RecurrenceRule", int]:
        """Return the rule with its COUNT converted to a last day, and the number of periods that this took.

        Raise ValueError if it takes more than `max_periods`.
        """
        if self.count is None:
            return self, 0
        # The start is the first of the count, whether or not the rule includes it.
        remaining, day = self.count - 1, start
        for number in range(max_periods):
            period_start = self._period_start(start, number)
            if remaining == 0 or period_start is None:
                return replace(self, count=None, last=day if remaining == 0 else self.last), number
            for occurrence in [
                occurrence for occurrence in self._occurrences(start, period_start) if occurrence > start
            ][:remaining]:
                remaining, day = remaining - 1, occurrence
        raise ValueError(f"expected a COUNT that is reached sooner than {self.count} from {start} on, or UNTIL instead")

    @property
    def max_per_year(self) -> int:
        """Return an upper bound of the occurrences in a year."""
        periods = -(-_PERIODS_PER_YEAR[self.frequency] // self.interval)
        if self.positions:
            return periods * len(self.positions)
        match self.frequency:
            case Frequency.DAILY:
                per_period = 1
            case Frequency.WEEKLY:
                per_period = len(self.weekdays) or 1
            case Frequency.MONTHLY:
                per_period = len(self.month_days) or 5 * len(self.weekdays) or 1
            case Frequency.YEARLY if self.weekdays:
                per_period = (5 * len(self.months) or _MAX_WEEKS) * len(self.weekdays)
            case Frequency.YEARLY:
                per_period = (len(self.months) or _MONTHS) * (len(self.month_days) or 1)
        return periods * per_period

    def _period_index(self, start: date, day: date) -> int:
        """Return the index of the period that contains a day, or of an earlier one."""
        match self.frequency:
            case Frequency.DAILY:
                elapsed = (day - start).days
            case Frequency.WEEKLY:
                elapsed = (day - self._week_of(start)).days // 7
            case Frequency.MONTHLY:
                elapsed = (day.year - start.year) * _MONTHS + day.month - start.month
            case Frequency.YEARLY:
                elapsed = day.year - start.year
        return elapsed // self.interval

    def _period_start(self, start: date, number: int) -> date | None:
        """Return the first day of a period; None if it is after the last supported year."""
        steps = number * self.interval
        match self.frequency:
            case Frequency.DAILY:
                period_start = _add_days(start, steps)
            case Frequency.WEEKLY:
                period_start = _add_days(self._week_of(start), steps * 7)
            case Frequency.MONTHLY:
                year, month = divmod(start.year * _MONTHS + start.month - 1 + steps, _MONTHS)
                period_start = date(year, month + 1, 1) if year <= LAST_YEAR else None
            case Frequency.YEARLY:
                period_start = date(start.year + steps, 1, 1) if start.year + steps <= LAST_YEAR else None
        return period_start

    def _week_of(self, day: date) -> date:
        return day - timedelta(days=(day.weekday() - self.week_start) % 7)

    def _occurrences(self, start: date, period_start: date) -> list[date]:
        days = sorted(set(self._candidates(start, period_start)))
        if not self.positions:
            return days
        selected = {
            days[position - 1 if position > 0 else position]
            for position in self.positions
            if abs(position) <= len(days)
        }
        return sorted(selected)

    def _candidates(self, start: date, period_start: date) -> Iterator[date]:
        match self.frequency:
            case Frequency.DAILY:
                yield from (day for day in [period_start] if self._matches(day))
            case Frequency.WEEKLY:
                weekdays = {weekday for _, weekday in self.weekdays} or {start.weekday()}
                week = (period_start + timedelta(days=day_offset) for day_offset in range(7))
                yield from (day for day in week if day.weekday() in weekdays and self._in_month(day))
            case Frequency.MONTHLY:
                yield from self._in_months(
                    start, period_start.year, {period_start.month} & (self.months or {period_start.month})
                )
            case Frequency.YEARLY:
                yield from self._in_year(start, period_start.year)

    def _in_year(self, start: date, year: int) -> Iterator[date]:
        if self.months:
            yield from self._in_months(start, year, self.months)
        elif self.weekdays:
            # Without months, the second Monday is that of the year.
            for day in self._matching_weekdays(date(year, 1, 1), date(year, 12, 31)):
                if not self.month_days or self._is_month_day(day):
                    yield day
        else:
            yield from self._in_months(start, year, range(1, 13) if self.month_days else {start.month})

    def _in_months(self, start: date, year: int, months: "frozenset[int] | set[int] | range") -> Iterator[date]:
        for month in months:
            days = calendar.monthrange(year, month)[1]
            if self.weekdays:
                for day in self._matching_weekdays(date(year, month, 1), date(year, month, days)):
                    if not self.month_days or self._is_month_day(day):
                        yield day
                continue
            for number in self.month_days or {start.day}:
                day_number = number if number > 0 else days + 1 + number
                if 1 <= day_number <= days:
                    yield date(year, month, day_number)

    def _matching_weekdays(self, first: date, last: date) -> Iterator[date]:
        """Yield the days that match BYDAY within a month or a year."""
        for ordinal, weekday in self.weekdays:
            if ordinal >= 0:
                day = first + timedelta(days=(weekday - first.weekday()) % 7 + 7 * max(ordinal - 1, 0))
            else:
                day = last - timedelta(days=(last.weekday() - weekday) % 7 + 7 * (-ordinal - 1))
            step = timedelta(days=7)
            while first <= day <= last:
                yield day
                if ordinal:
                    break
                day += step

    def _matches(self, day: date) -> bool:
        on_weekday = not self.weekdays or any(weekday == day.weekday() for _, weekday in self.weekdays)
        return on_weekday and self._in_month(day) and (not self.month_days or self._is_month_day(day))

    def _in_month(self, day: date) -> bool:
        return not self.months or day.month in self.months

    def _is_month_day(self, day: date) -> bool:
        days = calendar.monthrange(day.year, day.month)[1]
        return day.day in self.month_days or day.day - days - 1 in self.month_days


def parse_rule(text: str) -> RecurrenceRule:
    """Parse an RRULE. Raise a ValueError if it is invalid or not supported."""
    parts = _parse_parts(text)
    for unknown in sorted(parts.keys() - _KNOWN_PARTS):
        raise ValueError(f"{unknown} is not supported; there are {', '.join(sorted(_KNOWN_PARTS))}")
    frequency = _parse_frequency(parts.get("FREQ", ""))
    weekdays = frozenset(_parse_weekday(item) for item in _split_list(parts.get("BYDAY", "")))
    found = RecurrenceRule(
        frequency=frequency,
        interval=_parse_number("INTERVAL", parts.get("INTERVAL", "1"), 1, _MAX_INTERVAL),
        count=_parse_number("COUNT", parts["COUNT"], 1, 10**6) if "COUNT" in parts else None,
        until=parse_time(parts["UNTIL"], None) if "UNTIL" in parts else None,
        weekdays=weekdays,
        month_days=_parse_numbers("BYMONTHDAY", parts, maximum=31, allows_negative=True),
        months=_parse_numbers("BYMONTH", parts, maximum=12),
        positions=tuple(sorted(_parse_numbers("BYSETPOS", parts, maximum=_MAX_DAYS, allows_negative=True))),
        week_start=_parse_weekday(parts["WKST"])[1] if "WKST" in parts else 0,
    )
    if found.count is not None and found.until is not None:
        raise ValueError("expected COUNT or UNTIL, found both")
    # RFC 5545, 3.3.10, forbids these combinations, and says nothing about their meaning.
    if frequency in {Frequency.DAILY, Frequency.WEEKLY} and any(ordinal for ordinal, _ in weekdays):
        raise ValueError(f"expected BYDAY without numbers in a {frequency} rule, found {parts['BYDAY'][:40]}")
    if frequency is Frequency.WEEKLY and found.month_days:
        raise ValueError("expected no BYMONTHDAY in a WEEKLY rule")
    return found


def _parse_parts(text: str) -> dict[str, str]:
    parts: dict[str, str] = {}
    for part in text.strip().upper().rstrip(";").split(";"):
        name, equals, value = part.partition("=")
        if not equals or not value:
            raise ValueError(f"expected parts such as FREQ=DAILY, found {part[:40]!r}")
        if name in parts:
            raise ValueError(f"expected {name} once, found it twice")
        parts[name] = value
    return parts


def _parse_frequency(text: str) -> Frequency:
    try:
        return Frequency(text)
    except ValueError:
        found = f"found {text[:40]}" if text else "found none"
        raise ValueError(f"expected FREQ to be DAILY, WEEKLY, MONTHLY or YEARLY, {found}") from None


def _parse_weekday(text: str) -> tuple[int, int]:
    found = _BYDAY.fullmatch(text)
    ordinal = int(found[1] or 0) if found else 0
    if found is None or abs(ordinal) > _MAX_WEEKS or (found[1] and not ordinal):
        raise ValueError(f"expected a weekday such as MO, 1MO or -1FR, found {text[:40]!r}")
    return ordinal, _WEEKDAYS.index(found[2])


def _parse_numbers(name: str, parts: dict[str, str], *, maximum: int, allows_negative: bool = False) -> frozenset[int]:
    minimum = -maximum if allows_negative else 1
    numbers = frozenset(_parse_number(name, item, minimum, maximum) for item in _split_list(parts.get(name, "")))
    if 0 in numbers:
        raise ValueError(f"expected {name} to be a number other than 0")
    return numbers


def _parse_number(name: str, text: str, minimum: int, maximum: int) -> int:
    found = re.fullmatch(r"[+-]?[0-9]{1,7}", text)
    if found is None or not minimum <= int(text) <= maximum:
        raise ValueError(f"expected {name} to be a number from {minimum} to {maximum}, found {text[:40]!r}")
    return int(text)


def _split_list(text: str) -> list[str]:
    return text.split(",") if text else []


def _add_days(day: date, days: int) -> date | None:
    try:
        later = day + timedelta(days=days)
    except OverflowError:
        return None
    return later if later.year <= LAST_YEAR else None
