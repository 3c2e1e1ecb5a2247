"""Small plugins for tests of configuration files: they have options and do nothing."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from haulout.profiles.config import Registries
from haulout.profiles.options import option
from haulout.profiles.plugin import Check, Need, Notification, Schedule, State, Trigger


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled(Check):
    """Has a key and a value."""

    type = "hasLabel"

    key: str = option("the key")
    value: str = option("the value", default="")

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield what makes no sense."""
        if " " in self.key:
            yield "key", "expected a key without blanks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Affinity(Check):
    """Requires nothing, and makes sense in one state only."""

    type = "affinity"
    needs = frozenset({Need.PODS})

    min_operational: int = option("how many", default=0)

    def problems_in(self, state: State) -> Iterator[str]:
        """Yield what makes no sense in a state."""
        if state is not State.REQUIRED:
            yield "it works only in maintenance-required"


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting(Check):
    """Waits."""

    type = "wait"

    duration: timedelta = option("how long")


@dataclass(frozen=True, slots=True, kw_only=True)
class Marking(Trigger):
    """Puts a label on."""

    type = "alterLabel"
    key: str = option("the key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Message(Notification):
    """Sends a message."""

    type = "slack"

    message: str = option("what is sent")


@dataclass(frozen=True, slots=True, kw_only=True)
class Periodic(Schedule):
    """Comes again and again."""

    type = "periodic"

    interval: timedelta = option("how often", default=timedelta(hours=1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled(Schedule):
    """Comes at a time of day."""

    type = "scheduled"

    instant: str = option("the time of day")
    weekdays: tuple[str, ...] = option("the days")


REGISTRIES = Registries(
    checks={"hasLabel": Labelled, "affinity": Affinity, "wait": Waiting},
    triggers={"alterLabel": Marking},
    notifications={"slack": Message},
    schedules={"periodic": Periodic, "scheduled": Scheduled},
)
