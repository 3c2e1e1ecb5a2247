"""The check `waitExclude`: whether the profile has been in its state long enough, without excluded weekdays.

Days are UTC days. An excluded day does not count at all. The day of the start is special if it is excluded: the rest of
that day is subtracted at once, so that the result is negative until midnight, and zero then. The SAP
maintenance-controller does the same. It also has a bug that is fixed here: it subtracts each later excluded day twice,
from the time of day of the start until midnight, so that a wait that was over could continue.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from haulout.controllers.profiles.config.options import option, parse_problems, parse_problems_each
from haulout.controllers.profiles.plugin import Check, CheckResult, PluginContext, fails, passes
from haulout.core import duration, walltime
from haulout.core.text import format_duration, format_time
from haulout.core.walltime import DAY, TICK, WEEKDAYS

_WEEK = len(WEEKDAYS)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitExclude(Check):
    """Passes if the profile has been in its state for longer than `duration`, without certain weekdays.

    Weekdays are in UTC. The time counts from the profile's last transition. If that was on an excluded day, the time
    counts from the end of that day.
    """

    type = "waitExclude"
    example = "duration: 48h\nexclude: [sat, sun]"

    duration: str = option("How long, such as 90s, 5m or 1h30m. A unit is needed.")
    exclude: tuple[str, ...] = option("The weekdays that do not count, such as saturday or sat.")

    def evaluate(self, context: PluginContext) -> CheckResult:
        since = context.status.transition
        if since is None:
            return passes("the time at which the profile entered its state is unknown")
        excluded = frozenset(map(walltime.parse_weekday, self.exclude))
        needed = duration.parse(self.duration)
        elapsed = elapsed_without(excluded, since=since, now=context.now)
        if elapsed > needed:
            return passes(f"{self.duration} is over")
        over_at = elapses_at(excluded, since=since, duration=needed)
        days = ", ".join(walltime.WEEKDAYS[day] for day in sorted(excluded))
        ends = f"until {format_time(over_at)}" if over_at else "which never ends"
        reason = f"waiting {format_duration(needed - elapsed)} more of {self.duration} without {days}, {ends}"
        return fails(reason, requeue_at=over_at, remaining_seconds=(needed - elapsed).total_seconds())

    def problems(self) -> Iterator[tuple[str, str]]:
        yield from parse_problems("duration", self.duration, duration.parse)
        yield from parse_problems_each("exclude", self.exclude, walltime.parse_weekday)
        if not self.exclude:
            yield "exclude", "expected at least one weekday such as saturday or sat, found none; or use wait"


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
