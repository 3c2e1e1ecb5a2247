"""The check `waitExclude`."""

from collections.abc import Iterator
from dataclasses import dataclass

from haulout.controllers.profiles.config.options import option
from haulout.controllers.profiles.plugin import Check, CheckResult, PluginContext, fails, passes
from haulout.controllers.profiles.plugins.validation import parse_problems, parse_problems_each
from haulout.core import duration, excluded_weekdays, walltime
from haulout.core.text_format import format_duration, format_time


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
        elapsed = excluded_weekdays.elapsed_without(excluded, since=since, now=context.now)
        if elapsed > needed:
            return passes(f"{self.duration} is over")
        over_at = excluded_weekdays.elapses_at(excluded, since=since, duration=needed)
        days = ", ".join(walltime.WEEKDAYS[day] for day in sorted(excluded))
        ends = f"until {format_time(over_at)}" if over_at else "which never ends"
        reason = f"waiting {format_duration(needed - elapsed)} more of {self.duration} without {days}, {ends}"
        return fails(reason, requeue_at=over_at, remaining_seconds=(needed - elapsed).total_seconds())

    def problems(self) -> Iterator[tuple[str, str]]:
        yield from parse_problems("duration", self.duration, duration.parse)
        yield from parse_problems_each("exclude", self.exclude, walltime.parse_weekday)
        if not self.exclude:
            yield "exclude", "expected at least one weekday such as saturday or sat, found none; or use wait"
