"""How long something has waited, if some weekdays do not count.

A day is one of UTC. An excluded day does not count at all. The day of the start is special if it is excluded: what is
left of it is subtracted at once, so that the count is below zero until midnight, and zero then. (So it was in the
system that this replaces. What was wrong there is right here: it subtracted each later excluded day twice, from the
time of day of the start until midnight, so that a wait that was over could be not over again.)
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
    """Return the first instant at which more than `duration` has elapsed outside of excluded days; None: never."""
    try:
        return _elapses_at(set(excluded), since.astimezone(UTC), duration + TICK)
    except OverflowError:
        return None


def _elapses_at(excluded: set[int], since: datetime, needed: timedelta) -> datetime | None:
    at, remaining = since, needed
    # The first day counts in any case; if it is excluded, from below zero on.
    if at.weekday() in excluded:
        remaining += DAY - _since_midnight(at)
    rest_of_day = DAY - _since_midnight(at)
    if remaining <= rest_of_day:
        return at + remaining
    at, remaining = at + rest_of_day, remaining - rest_of_day
    counted_days = _WEEK - len(excluded)
    if not counted_days:
        return None
    # Whole weeks at once, but so that something is left to find in the days of the last one.
    weeks = (remaining - TICK) // (counted_days * DAY)
    at, remaining = at + weeks * _WEEK * DAY, remaining - weeks * counted_days * DAY
    while at.weekday() in excluded or remaining > DAY:
        remaining -= timedelta() if at.weekday() in excluded else DAY
        at += DAY
    return at + remaining


def _excluded_days_between(first: date, last: date, excluded: Collection[int]) -> int:
    """Return how many excluded days lie between two days, both not counted."""
    days = (last - first).days - 1
    weeks, rest = divmod(days, _WEEK)
    return weeks * len(set(excluded)) + sum((first.weekday() + 1 + each) % _WEEK in excluded for each in range(rest))


def _since_midnight(at: datetime) -> timedelta:
    return at - datetime.combine(at.date(), time(), UTC)
