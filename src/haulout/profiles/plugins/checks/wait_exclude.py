"""The check `waitExclude`."""

from collections.abc import Iterator
from dataclasses import dataclass

from haulout.core import duration, waiting, walltime
from haulout.profiles.options import option
from haulout.profiles.plugin import Check, Scene, Verdict, fails, passes
from haulout.profiles.texts import misread, misread_each
from haulout.profiles.words import clock_time, lasting


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitExclude(Check):
    """Passes if the profile has been in its state for longer than `duration`, some weekdays not counted.

    Weekdays are those of UTC. The time counts from the profile's last transition. If that was on an excluded day, it
    counts from the end of that day.
    """

    type = "waitExclude"
    example = "duration: 48h\nexclude: [sat, sun]"

    duration: str = option("How long, such as 90s, 5m or 1h30m. A unit is needed.")
    exclude: tuple[str, ...] = option("The weekdays that do not count, such as saturday or sat.")

    def look(self, scene: Scene) -> Verdict:
        """Return the verdict."""
        since = scene.entry.transition
        if since is None:
            return passes("nobody knows since when the profile has been in its state")
        excluded = frozenset(map(walltime.weekday, self.exclude))
        needed = duration.parse(self.duration)
        elapsed = waiting.elapsed_outside(excluded, since=since, now=scene.now)
        if elapsed > needed:
            return passes(f"{self.duration} is over")
        over_at = waiting.over_at(excluded, since=since, duration=needed)
        days = ", ".join(walltime.WEEKDAYS[day] for day in sorted(excluded))
        ends = f"which is over at {clock_time(over_at)}" if over_at else "which will never be over"
        why = f"another {lasting(needed - elapsed)} of {self.duration} without {days} is to be waited, {ends}"
        return fails(why, wakes_at=over_at, remaining_seconds=(needed - elapsed).total_seconds())

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield what makes no sense."""
        yield from misread("duration", self.duration, duration.parse)
        yield from misread_each("exclude", self.exclude, walltime.weekday)
        if not self.exclude:
            yield "exclude", "expected at least one weekday such as saturday or sat, found none; or use wait"
