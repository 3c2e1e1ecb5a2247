"""The check `wait`."""

from collections.abc import Iterator
from dataclasses import dataclass

from haulout.core import duration
from haulout.core.walltime import TICK
from haulout.profiles.instants import later
from haulout.profiles.options import option
from haulout.profiles.plugin import Check, Scene, Verdict, fails, passes
from haulout.profiles.texts import misread
from haulout.profiles.words import lasting


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait(Check):
    """Passes if the profile has been in its state for longer than `duration`.

    The time counts from the profile's last transition; for a profile that the node has just got, from then on.
    """

    type = "wait"
    example = "duration: 1h30m"

    duration: str = option("How long, such as 90s, 5m or 1h30m. A unit is needed.")

    def look(self, scene: Scene) -> Verdict:
        """Return the verdict."""
        since = scene.entry.transition
        if since is None:
            return passes("nobody knows since when the profile has been in its state")
        over_at = later(since, duration.parse(self.duration) + TICK)
        if scene.now >= over_at:
            return passes(f"{self.duration} is over")
        left = over_at - TICK - scene.now
        why = f"another {lasting(left)} of {self.duration} is to be waited"
        return fails(why, wakes_at=over_at, remaining_seconds=left.total_seconds())

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield what makes no sense."""
        yield from misread("duration", self.duration, duration.parse)
