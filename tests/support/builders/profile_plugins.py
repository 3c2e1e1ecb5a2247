"""Plugins with options and without behaviour, for tests of configuration files."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from haulout.controllers.profiles.config.loader import Registries
from haulout.controllers.profiles.config.options import option
from haulout.controllers.profiles.plugin import Check, Need, Notification, Schedule, State, Trigger


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelCheck(Check):
    """Has a key and a value."""

    type = "hasLabel"

    key: str = option("the key")
    value: str = option("the value", default="")

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield the problems of the options."""
        if " " in self.key:
            yield "key", "expected a key without blanks"


@dataclass(frozen=True, slots=True, kw_only=True)
class AffinityCheck(Check):
    """Requires nothing, and is valid in one state only."""

    type = "affinity"
    needs = frozenset({Need.PODS})

    min_operational: int = option("how many", default=0)

    def problems_in(self, state: State) -> Iterator[str]:
        """Yield the problems of the options in a state."""
        if state is not State.REQUIRED:
            yield "it works only in maintenance-required"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitCheck(Check):
    """Waits."""

    type = "wait"

    duration: timedelta = option("how long")


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelTrigger(Trigger):
    """Sets a label."""

    type = "alterLabel"
    key: str = option("the key")


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageNotification(Notification):
    """Sends a message."""

    type = "slack"

    message: str = option("what is sent")


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodicSchedule(Schedule):
    """Is due periodically."""

    type = "periodic"

    interval: timedelta = option("how often", default=timedelta(hours=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeOfDaySchedule(Schedule):
    """Is due at a time of day."""

    type = "scheduled"

    instant: str = option("the time of day")
    weekdays: tuple[str, ...] = option("the days")


REGISTRIES = Registries(
    checks={"hasLabel": LabelCheck, "affinity": AffinityCheck, "wait": WaitCheck},
    triggers={"alterLabel": LabelTrigger},
    notifications={"slack": MessageNotification},
    schedules={"periodic": PeriodicSchedule, "scheduled": TimeOfDaySchedule},
)
