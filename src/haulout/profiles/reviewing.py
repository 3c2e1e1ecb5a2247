"""Looks through a configuration that loads for what is probably not meant.

None of this is an error, since the SAP maintenance-controller loads such files without a word: names given twice,
instances that no chain names, states that no way leads to or from, plugins where they make no sense.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from haulout.profiles.contradictions import contradictions
from haulout.profiles.model import Configuration, Member, Profile, StateConfig
from haulout.profiles.plugin import State
from haulout.profiles.reading import Reading

_FAMILIES = {"check": "check", "notify": "notification", "trigger": "trigger", "profile": "profile"}


@dataclass(slots=True)
class Places:
    """Where names are defined: the keys of those that count, by family and name."""

    keys: dict[tuple[str, str], str] = field(default_factory=dict)

    def note(self, family: str, name: str, key: str, reading: Reading) -> None:
        """Note a definition; one of the same name above it no longer counts."""
        before = self.keys.get((family, name))
        if before is not None and name:
            reading.warn(
                f"{key}.name",
                f"expected each {_FAMILIES[family]} to have a name of its own, found {name!r} in line "
                f"{reading.line_of(f'{before}.name')} too; the one in line {reading.line_of(f'{key}.name')} counts",
            )
        self.keys[family, name] = key


def review(configuration: Configuration, places: Places, reading: Reading) -> None:
    """Warn of what is probably not meant."""
    _warn_of_unused(configuration, places, reading)
    for profile in configuration.profiles.values():
        key = places.keys.get(("profile", profile.name))
        if key is not None:
            _review_profile(profile, key, reading)


def reachable(profile: Profile) -> set[State]:
    """Return the states that a node can get into, beginning with operational."""
    found: set[State] = set()
    ahead = [State.OPERATIONAL]
    while ahead:
        state = ahead.pop()
        if state not in found:
            found.add(state)
            ahead += [transition.next for transition in profile.states[state].transitions]
    return found


def _warn_of_unused(configuration: Configuration, places: Places, reading: Reading) -> None:
    states = [state for profile in configuration.profiles.values() for state in profile.states.values()]
    used = {
        "check": {member.name for state in states for way in state.transitions for member in way.check.members},
        "notify": {
            *(member.name for state in states for member in state.notify),
            *(member.name for rule in configuration.notifications for member in rule.members),
        },
        "trigger": {member.name for state in states for chain in _triggers(state) for member in chain},
    }
    for (family, name), key in places.keys.items():
        if name and name not in used.get(family, {name}):
            reading.warn(f"{key}.name", f"{_FAMILIES[family]} {name!r} is used in no chain")


def _triggers(state: StateConfig) -> Iterator[Sequence[Member[Any]]]:
    yield state.enter
    yield from (way.trigger for way in state.transitions)


def _review_profile(profile: Profile, key: str, reading: Reading) -> None:
    at_all = reachable(profile)
    for state, found in profile.states.items():
        at = f"{key}.{state.value}"
        is_empty = found == StateConfig()
        if state not in at_all:
            if not is_empty:
                reading.warn(at, "no transition leads to it, so nothing in it ever happens")
            continue
        if not found.transitions and state is not State.OPERATIONAL:
            reading.warn(at, "no transition leads out of it, so a node stays in it")
        for number, transition in enumerate(found.transitions):
            if transition.next is state:
                reading.warn(
                    f"{at}.transitions[{number}].next", f"it leads to {state.value}, where the node already is"
                )
        for where, problem in _misplaced(found, state):
            reading.warn(f"{at}.{where}", problem)
    for it in contradictions(profile):
        reading.warn(f"{key}.{it.state.value}.transitions[{it.number}].check", it.why)


def _misplaced(found: StateConfig, state: State) -> Iterator[tuple[str, str]]:
    yield from _problems(found.enter, state, "enter")
    yield from _problems(found.notify, state, "notify")
    for number, way in enumerate(found.transitions):
        yield from _problems(way.check.members, state, f"transitions[{number}].check")
        yield from _problems(way.trigger, state, f"transitions[{number}].trigger")


def _problems(members: Sequence[Member[Any]], state: State, where: str) -> Iterator[tuple[str, str]]:
    for name, plugin in {member.name: member.plugin for member in members}.items():
        tell = getattr(plugin, "problems_in", None)
        if callable(tell):
            yield from ((where, f"{name}: {problem}") for problem in tell(state))
