"""Profiles as configured: immutable values that the loader builds and decisions evaluate."""

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
    """A plugin in a chain, with the name of its instance."""

    name: str
    plugin: P


@dataclass(frozen=True, slots=True)
class NotificationMember(Member[Notification]):
    """A notification in a chain, with its schedule."""

    schedule: Schedule


@dataclass(frozen=True, slots=True)
class CheckChain:
    """Checks and the expression that combines them. An unknown result makes the chain unknown if it matters."""

    text: str
    members: tuple[Member[Check], ...]
    # Excluded from comparison: equal texts over equal members mean the same, although each has its own function.
    evaluate: Callable[[Mapping[str, bool | None]], bool | None] = field(compare=False, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its members, in the order of the text."""
        return tuple(member.name for member in self.members)


@dataclass(frozen=True, slots=True)
class StateTransition:
    """A transition out of a state: it happens if `check` passes, and `trigger` runs on the way."""

    check: CheckChain
    next: State
    trigger: tuple[Member[Trigger], ...] = ()


@dataclass(frozen=True, slots=True)
class StateConfig:
    """What happens in a state: triggers on entry, then notifications, then the first transition whose checks pass."""

    enter: tuple[Member[Trigger], ...] = ()
    notify: tuple[NotificationMember, ...] = ()
    transitions: tuple[StateTransition, ...] = ()


_NO_ACTIONS = StateConfig()


@dataclass(frozen=True, slots=True)
class Profile:
    """A state machine for nodes. All nodes share the same value; the state of a node is in its annotations."""

    name: str
    states: Mapping[State, StateConfig] = field(default_factory=lambda: dict.fromkeys(State, _NO_ACTIONS))
    selector: Selector | None = None  # nodes that have the profile without the label
    on_notice: bool = False  # only while the node has a maintenance notice, and until the profile is operational again
    is_ending: bool = False  # no longer configured: kept only for nodes that it has not finished with

    def members(self) -> Iterator[tuple[str, Plugin]]:
        """Yield all plugins in its chains with their instance names; a schedule has the name of its notification."""
        for state in self.states.values():
            for notification in state.notify:
                yield notification.name, notification.plugin
                yield notification.name, notification.schedule
            yield from ((member.name, member.plugin) for member in state.enter)
            for transition in state.transitions:
                yield from ((member.name, member.plugin) for member in transition.check.members)
                yield from ((member.name, member.plugin) for member in transition.trigger)

    def paths_to(self, state: State) -> Iterator[tuple[CheckChain, ...]]:
        """Yield the paths from operational to a state: for each, the chains that must pass, in order."""
        for first in self.states[State.OPERATIONAL].transitions:
            if first.next is state is not State.OPERATIONAL:
                yield (first.check,)
            # There are three states, so no path has more than two transitions that lead forward.
            elif first.next is State.REQUIRED and state is State.IN_MAINTENANCE:
                second_transitions = self.states[State.REQUIRED].transitions
                yield from ((first.check, second.check) for second in second_transitions if second.next is state)

    def is_reachable(self, state: State, outcome_of: Callable[[Check], bool | None]) -> bool:
        """Return whether a path to a state may be open with these outcomes of checks, and one on it passes.

        The outcome None means that the check may pass or not.
        """
        for path in self.paths_to(state):
            outcomes = [(chain, {member.name: outcome_of(member.plugin) for member in chain.members}) for chain in path]
            passes = any(value for _, values in outcomes for value in values.values())
            if passes and all(chain.evaluate(values) is not False for chain, values in outcomes):
                return True
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationRule:
    """Which events of objects to send, and by which notifications."""

    members: tuple[Member[Notification], ...]
    events: frozenset[EventName] = frozenset(EventName)
    after: timedelta = timedelta()  # how long an object must have been blocked


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """A whole configuration file, immutable. An edited file becomes a new value."""

    requeue: timedelta  # default maximum age of external query results
    profiles: Mapping[str, Profile]  # empty: profiles manage nothing, not even the default one
    label_filter: tuple[str, ...] = ()
    needs: frozenset[Need] = frozenset()
    budget: Budget = NO_BUDGET  # shared by profiles and all other causes of maintenance
    notifications: tuple[NotificationRule, ...] = ()  # for objects; those of profiles are in their states
    sections: Mapping[str, Any] = field(default_factory=dict)  # other sections, for the components that own them

    def plugins(self) -> Iterator[Plugin]:
        """Yield all plugins in chains; one that is used several times is yielded as often."""
        yield from (plugin for _, plugin in self.members())

    def members(self) -> Iterator[tuple[str, Plugin]]:
        for profile in self.profiles.values():
            yield from profile.members()
        for rule in self.notifications:
            yield from ((member.name, member.plugin) for member in rule.members)


def needs_of(profiles: Collection[Profile]) -> frozenset[Need]:
    """Return what informers must watch for profiles and their plugins."""
    own_needs = frozenset({Need.NOTICES} if any(profile.on_notice for profile in profiles) else ())
    return own_needs.union(*(getattr(plugin, "needs", ()) for profile in profiles for _, plugin in profile.members()))
