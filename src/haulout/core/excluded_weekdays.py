"""Elapsed time without excluded weekdays.

Days are UTC days. An excluded day does not count at all. The day of the start is special if it is excluded: the rest of
that day is subtracted at once, so that the result is negative until midnight, and zero then. (The SAP
maintenance-controller does the same. It also has a bug that is fixed here: it subtracts each later excluded day twice,
from the time of day of the start until midnight, so that a wait that was over could continue.)
"""

from collections.abc import Collection
from datetime import UTC, date, datetime, time, timedelta

from haulout.core.walltime import DAY, TICK, WEEKDAYS

_WEEK = len(WEEKDAYS)


def elapsed_without(excluded: Collection[int], *, since: datetime, now: datetime) -> timedelta:
    """Return the time from `since` to `now` without the excluded weekdays (Monday is 0)."""
    start, today = since.astimezone(UTC), now.astimezone(UTC)
    counted = today - start
    if start.weekday() in excluded:
        counted -= DAY - _since_midnight(start)
    if start.date() < today.date():
        counted -= _excluded_days_between(start.date(), today.date(), excluded) * DAY
        if today.weekday() in excluded:
            counted -= _since_midnight(today)
    return counted


def elapses_at(excluded: Collection[int], *, since: datetime, duration: timedelta) -> datetime | None:
    """Return the first instant at which more than `duration` has elapsed outside excluded days; None: never."""
    try:
        return _elapses_at(set(excluded), since.astimezone(UTC), duration + TICK)
    except OverflowError:
        return None


def _elapses_at(excluded: set[int], since: datetime, needed: timedelta) -> datetime | None:
    at, remaining = since, needed
    # The first day always counts; if it is excluded, with a negative start.
    if at.weekday() in excluded:
        remaining += DAY - _since_midnight(at)
    rest_of_day = DAY - _since_midnight(at)
    if remaining <= rest_of_day:
        return at + remaining
    at, remaining = at + rest_of_day, remaining - rest_of_day
    counted_days = _WEEK - len(excluded)
    if not counted_days:
        return None
    # Skip whole weeks at once, but leave a remainder for the days of the last week.
    weeks = (remaining - TICK) // (counted_days * DAY)
    at, remaining = at + weeks * _WEEK * DAY, remaining - weeks * counted_days * DAY
    while at.weekday() in excluded or remaining > DAY:
        remaining -= timedelta() if at.weekday() in excluded else DAY
        at += DAY
    return at + remaining


def _excluded_days_between(first: date, last: date, excluded: Collection[int]) -> int:
    """Return the number of excluded days between two days, both exclusive."""
    days = (last - first).days - 1
    weeks, rest = divmod(days, _WEEK)
    return weeks * len(set(excluded)) + sum((first.weekday() + 1 + each) % _WEEK in excluded for each in range(rest))


def _since_midnight(at: datetime) -> timedelta:
    return at - datetime.combine(at.date(), time(), UTC)
