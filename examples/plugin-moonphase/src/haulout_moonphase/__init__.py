"""A check for Haulout: `moonPhase`. It is complete, and short enough to start your own plugin from."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from haulout.controllers.profiles.config.options import option
from haulout.controllers.profiles.plugin import Check, CheckResult, PluginContext, fails, passes

PHASES = ("new", "waxing", "full", "waning")

_A_NEW_MOON = datetime(2000, 1, 6, 18, 14, tzinfo=UTC)
_MONTH = timedelta(days=29.530588853)  # from one new moon to the next, on average
_QUARTER = _MONTH / len(PHASES)


@dataclass(frozen=True, slots=True, kw_only=True)
class MoonPhase(Check):
    """Passes in certain phases of the moon: `new`, `waxing`, `full` and `waning`.

    Each lasts a quarter of a month. `new` and `full` are the quarters around the new and the full moon. The real moon
    is up to some hours early or late.
    """

    type = "moonPhase"
    example = "phases: [new, waxing]"

    phases: tuple[str, ...] = option("The phases in which it passes.", required=True)

    def evaluate(self, context: PluginContext) -> CheckResult:
        """Return the result, and when it may change. So it is not polled."""
        phase, ends = phase_at(context.now)
        if phase in self.phases:
            return passes(f"the moon is {phase}", requeue_at=ends, phase=phase)
        return fails(f"the moon is {phase}, expected {' or '.join(self.phases)}", requeue_at=ends, phase=phase)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield invalid options. `haulout check` reports them with their line."""
        for phase in self.phases:
            if phase not in PHASES:
                yield "phases", f"expected {', '.join(PHASES)}, found {phase!r}"


def phase_at(now: datetime) -> tuple[str, datetime]:
    """Return the phase at an instant, and when it ends."""
    quarters, into = divmod(now - _A_NEW_MOON + _QUARTER / 2, _QUARTER)
    return PHASES[quarters % len(PHASES)], now - into + _QUARTER
