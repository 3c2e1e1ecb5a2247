"""Profiles as they are configured: values, as the loader makes them and the machine walks through them."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Generic, TypeVar

from haulout.api.notification_events import EventName
from haulout.budget.limits import NO_BUDGET, Budget
from haulout.controllers.profiles.plugin import Check, Need, Notification, Plugin, Schedule, State, Trigger
from haulout.kube.selectors import Selector

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


_NO_ACTIONS = StateConfig()


@dataclass(frozen=True, slots=True)
class Profile:
    """A state machine for nodes."""

    name: str
    states: Mapping[State, StateConfig] = field(default_factory=lambda: dict.fromkeys(State, _NO_ACTIONS))
    selector: Selector | None = None  # nodes that have it though no label says so
    on_notice: bool = False  # of these, only those that it has to do with: something is announced, or was
    is_ending: bool = False  # only nodes that it is not done with yet: it is not configured any more

    def members(self) -> Iterator[tuple[str, Plugin]]:
        """Yield all plugins in its chains by the names of their instances; a schedule has that of its notification."""
        for state in self.states.values():
            for notification in state.notify:
                yield notification.name, notification.plugin
                yield notification.name, notification.schedule
            yield from ((member.name, member.plugin) for member in state.enter)
            for transition in state.transitions:
                yield from ((member.name, member.plugin) for member in transition.check.members)
                yield from ((member.name, member.plugin) for member in transition.trigger)

    def paths_to(self, state: State) -> Iterator[tuple[CheckChain, ...]]:
        """Yield the ways from operational to a state: each the chains that have to pass, one after the other."""
        for first in self.states[State.OPERATIONAL].transitions:
            if first.next is state is not State.OPERATIONAL:
                yield (first.check,)
            elif first.next is State.REQUIRED and state is State.IN_MAINTENANCE:
                second_transitions = self.states[State.REQUIRED].transitions
                yield from ((first.check, second.check) for second in second_transitions if second.next is state)

    def is_reachable(self, state: State, outcome_of: Callable[[Check], bool | None]) -> bool:
        """Tell whether a way to a state may be open if checks say this, and one on it passes; None: it may or not."""
        for path in self.paths_to(state):
            outcomes = [(chain, {member.name: outcome_of(member.plugin) for member in chain.members}) for chain in path]
            passes = any(value for _, values in outcomes for value in values.values())
            if passes and all(chain.evaluate(values) is not False for chain, values in outcomes):
                return True
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationRule:
    """Which events of objects are told, and by which notifications."""

    members: tuple[Member[Notification], ...]
    events: frozenset[EventName] = frozenset(EventName)
    after: timedelta = timedelta()  # how long something must have been blocked


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """A whole file."""

    requeue: timedelta  # how old an answer from outside may be
    profiles: Mapping[str, Profile]  # none: nothing is done by profiles, not even the default one
    label_filter: tuple[str, ...] = ()
    needs: frozenset[Need] = frozenset()
    budget: Budget = NO_BUDGET  # that profiles share with all others who take nodes out of service
    notifications: tuple[NotificationRule, ...] = ()  # of objects; those of profiles are in their states
    sections: Mapping[str, Any] = field(default_factory=dict)  # what else the file has, for those who know it

    def plugins(self) -> Iterator[Plugin]:
        """Yield all plugins in chains, those that are used more than once as often."""
        yield from (plugin for _, plugin in self.members())

    def members(self) -> Iterator[tuple[str, Plugin]]:
        """Yield the same, each with the name of its instance."""
        for profile in self.profiles.values():
            yield from profile.members()
        for rule in self.notifications:
            yield from ((member.name, member.plugin) for member in rule.members)


def needs_of(profiles: Collection[Profile]) -> frozenset[Need]:
    """Return what is followed for profiles and their plugins."""
    own_needs = frozenset({Need.NOTICES} if any(profile.on_notice for profile in profiles) else ())
    return own_needs.union(*(getattr(plugin, "needs", ()) for profile in profiles for _, plugin in profile.members()))
