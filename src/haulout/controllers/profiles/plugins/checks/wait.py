"""The check `wait`: whether the profile has been in its state long enough."""

from collections.abc import Iterator
from dataclasses import dataclass

from haulout.controllers.profiles.config.options import option, parse_problems
from haulout.controllers.profiles.plugin import Check, CheckResult, PluginContext, fails, passes
from haulout.core import duration
from haulout.core.text import format_duration
from haulout.core.timestamps import add_saturating
from haulout.core.walltime import TICK


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitCheck(Check):
    """Passes if the profile has been in its state for longer than `duration`.

    The time counts from the profile's last transition; for a profile that is new to the node, from its first
    evaluation.
    """

    type = "wait"
    example = "duration: 1h30m"

    duration: str = option("How long, such as 90s, 5m or 1h30m. A unit is needed.")

    def evaluate(self, context: PluginContext) -> CheckResult:
        since = context.status.transition
        if since is None:
            return passes("the time at which the profile entered its state is unknown")
        over_at = add_saturating(since, duration.parse(self.duration) + TICK)
        if context.now >= over_at:
            return passes(f"{self.duration} is over")
        remaining = over_at - TICK - context.now
        reason = f"waiting {format_duration(remaining)} more of {self.duration}"
        return fails(reason, requeue_at=over_at, remaining_seconds=remaining.total_seconds())

    def problems(self) -> Iterator[tuple[str, str]]:
        yield from parse_problems("duration", self.duration, duration.parse)
