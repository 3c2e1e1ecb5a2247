"""Profiles as they are configured: values, as the loader makes them and the machine walks through them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Generic, TypeVar

from haulout.budget.limits import NO_BUDGET, Budget
from haulout.kube.selectors import Selector
from haulout.profiles.plugin import Check, Need, Notification, Plugin, Schedule, State, Trigger

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Member(Generic[P]):
    """A plugin in a chain, by the name of its instance."""

    name: str
    plugin: P


@dataclass(frozen=True, slots=True)
class NotificationMember(Member[Notification]):
    """A notification in a chain, with when it is sent."""

    schedule: Schedule


@dataclass(frozen=True, slots=True)
class CheckChain:
    """Checks, and how their verdicts go together; an unknown one makes an unknown chain, unless it does not matter."""

    text: str
    members: tuple[Member[Check], ...]
    # Equal texts over equal members say the same, though each has a function of its own.
    evaluate: Callable[[Mapping[str, bool | None]], bool | None] = field(compare=False, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its members, in the order of the text."""
        return tuple(member.name for member in self.members)


@dataclass(frozen=True, slots=True)
class Transition:
    """A way out of a state."""

    check: CheckChain
    next: State
    trigger: tuple[Member[Trigger], ...] = ()


@dataclass(frozen=True, slots=True)
class StateConfig:
    """What happens in a state."""

    enter: tuple[Member[Trigger], ...] = ()
    notify: tuple[NotificationMember, ...] = ()
    transitions: tuple[Transition, ...] = ()


_NOTHING = StateConfig()


@dataclass(frozen=True, slots=True)
class Profile:
    """A state machine for nodes."""

    name: str
    states: Mapping[State, StateConfig] = field(default_factory=lambda: dict.fromkeys(State, _NOTHING))
    selector: Selector | None = None  # nodes that have it though no label says so


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """A whole file."""

    requeue: timedelta  # how old an answer from outside may be
    profiles: Mapping[str, Profile]  # none: nothing is done by profiles, not even the default one
    label_filter: tuple[str, ...] = ()
    needs: frozenset[Need] = frozenset()
    budget: Budget = NO_BUDGET  # that profiles share with all others who take nodes out of service
    sections: Mapping[str, Any] = field(default_factory=dict)  # what else the file has, for those who know it

    def plugins(self) -> Iterator[Plugin]:
        """Yield all plugins in chains, those that are used more than once as often."""
        yield from (plugin for _, plugin in self.members())

    def members(self) -> Iterator[tuple[str, Plugin]]:
        """Yield the same, each with the name of its instance; a schedule has that of its notification."""
        for profile in self.profiles.values():
            for state in profile.states.values():
                for notification in state.notify:
                    yield notification.name, notification.plugin
                    yield notification.name, notification.schedule
                yield from ((member.name, member.plugin) for member in state.enter)
                for transition in state.transitions:
                    yield from ((member.name, member.plugin) for member in transition.check.members)
                    yield from ((member.name, member.plugin) for member in transition.trigger)
