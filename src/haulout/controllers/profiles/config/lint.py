"""Warns about parts of a valid configuration that are probably not intended.

None of this is an error, since the SAP maintenance-controller loads such files silently: duplicate names, instances
that no chain names, states that no transition leads to or from, plugins in states where they make no sense.

`transition_loops` finds profiles that would take a node out of service for a notice and return it for the same one,
repeatedly. It is pure. It evaluates the notice checks for example maintenances: one that starts after the lead time of
each check, and one that has started. If a path into a state is open, and a way back is open because a check returns
that nothing is near, the two contradict each other: for example `due` with a lead time of 40m on the way in, and `!due`
with 15m or `!active` on the way back. Other checks are assumed to pass where that matters. The check `over` never
contradicts: it interprets a maintenance like the checks that took the node for it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import product
from typing import Any

from haulout.api.maintenancenotice import MaintenanceNotice, MaintenanceNoticeSpec, NoticeStage
from haulout.api.objects import ObjectMeta
from haulout.controllers.profiles.config.model import CheckChain, Configuration, Member, Profile, StateConfig
from haulout.controllers.profiles.config.reader import ConfigReader
from haulout.controllers.profiles.plugin import Check, State
from haulout.controllers.profiles.plugins.checks.notice import NoticeCheck, When
from haulout.core import duration

_FAMILY_NAMES = {"check": "check", "notify": "notification", "trigger": "trigger", "profile": "profile"}

# Any fixed time will do: examples are relative to it, and warnings must not depend on the clock.
_NOW = datetime(2024, 1, 1, tzinfo=UTC)
_ORDER = (State.OPERATIONAL, State.REQUIRED, State.IN_MAINTENANCE)
_OTHER_SOURCE = "\0"  # a source that no check names


@dataclass(slots=True)
class Definitions:
    """Where names are defined: the key of the effective definition, by family and name."""

    keys: dict[tuple[str, str], str] = field(default_factory=dict)

    def add(self, family: str, name: str, key: str, reading: ConfigReader) -> None:
        """Record a definition. It overrides an earlier one of the same name."""
        before = self.keys.get((family, name))
        if before is not None and name:
            reading.add_warning(
                f"{key}.name",
                f"expected each {_FAMILY_NAMES[family]} to have a unique name, found {name!r} in line "
                f"{reading.line_of(f'{before}.name')} too; the one in line {reading.line_of(f'{key}.name')} counts",
            )
        self.keys[family, name] = key


def lint(configuration: Configuration, places: Definitions, reading: ConfigReader) -> None:
    _warn_about_unused(configuration, places, reading)
    for profile in configuration.profiles.values():
        key = places.keys.get(("profile", profile.name))
        if key is not None:
            _lint_profile(profile, key, reading)


def reachable_states(profile: Profile) -> set[State]:
    """Return the states that a node can reach from operational."""
    found: set[State] = set()
    pending = [State.OPERATIONAL]
    while pending:
        state = pending.pop()
        if state not in found:
            found.add(state)
            pending += [transition.next for transition in profile.states[state].transitions]
    return found


def _warn_about_unused(configuration: Configuration, places: Definitions, reading: ConfigReader) -> None:
    states = [state for profile in configuration.profiles.values() for state in profile.states.values()]
    used = {
        "check": {
            member.name for state in states for transition in state.transitions for member in transition.check.members
        },
        "notify": {
            *(member.name for state in states for member in state.notify),
            *(member.name for rule in configuration.notifications for member in rule.members),
        },
        "trigger": {member.name for state in states for chain in _trigger_chains(state) for member in chain},
    }
    # Names of profiles are in no chain: nodes name them by their label.
    for (family, name), key in places.keys.items():
        if name and name not in used.get(family, {name}):
            reading.add_warning(f"{key}.name", f"{_FAMILY_NAMES[family]} {name!r} is used in no chain")


def _trigger_chains(state: StateConfig) -> Iterator[Sequence[Member[Any]]]:
    yield state.enter
    yield from (transition.trigger for transition in state.transitions)


def _lint_profile(profile: Profile, key: str, reading: ConfigReader) -> None:
    reachable = reachable_states(profile)
    for state, found in profile.states.items():
        state_key = f"{key}.{state.value}"
        is_empty = found == StateConfig()
        if state not in reachable:
            if not is_empty:
                reading.add_warning(state_key, "no transition leads to it, so nothing in it ever happens")
            continue
        if not found.transitions and state is not State.OPERATIONAL:
            reading.add_warning(state_key, "no transition leads out of it, so a node stays in it")
        for number, transition in enumerate(found.transitions):
            if transition.next is state:
                reading.add_warning(
                    f"{state_key}.transitions[{number}].next", f"it leads to {state.value}, where the node already is"
                )
        for where, problem in _misplaced_plugins(found, state):
            reading.add_warning(f"{state_key}.{where}", problem)
    for loop in transition_loops(profile):
        reading.add_warning(f"{key}.{loop.state.value}.transitions[{loop.number}].check", loop.reason)


def _misplaced_plugins(found: StateConfig, state: State) -> Iterator[tuple[str, str]]:
    yield from _plugin_problems(found.enter, state, "enter")
    yield from _plugin_problems(found.notify, state, "notify")
    for number, transition in enumerate(found.transitions):
        yield from _plugin_problems(transition.check.members, state, f"transitions[{number}].check")
        yield from _plugin_problems(transition.trigger, state, f"transitions[{number}].trigger")


def _plugin_problems(members: Sequence[Member[Any]], state: State, where: str) -> Iterator[tuple[str, str]]:
    for name, plugin in {member.name: member.plugin for member in members}.items():
        problems_in = getattr(plugin, "problems_in", None)
        if callable(problems_in):
            yield from ((where, f"{name}: {problem}") for problem in problems_in(state))


@dataclass(frozen=True, slots=True)
class TransitionLoop:
    """A transition, by its state and number, and why it makes a node loop."""

    state: State
    number: int
    reason: str


def transition_loops(profile: Profile) -> Iterator[TransitionLoop]:
    """Yield the transitions that return a node for the maintenance that it was taken for."""
    examples = tuple(_example_notices(profile))
    for state in _ORDER[1:]:
        for number, transition in enumerate(profile.states[state].transitions):
            leads_back = _ORDER.index(transition.next) < _ORDER.index(state)
            found = (
                when for notice, when in examples if leads_back and _loops(profile, state, transition.check, notice)
            )
            if when := next(found, ""):
                reason = f"{when} it passes, and so does a path to {state.value}: the node would go back and forth"
                advice = "A notice check with `when: over` waits for the end of the maintenance"
                yield TransitionLoop(state, number, f"{reason}. {advice}")


def _loops(profile: Profile, state: State, back: CheckChain, notice: MaintenanceNotice) -> bool:
    """Return whether a notice leads a node into a state, and back because a check does not match the notice."""
    if not profile.is_reachable(state, lambda check: _outcome(check, notice)):
        return False
    values = {member.name: _outcome(member.plugin, notice) for member in back.members}
    is_not_matched = any(_outcome(member.plugin, notice) is False for member in back.members)
    return is_not_matched and back.evaluate(values) is not False


def _outcome(check: Check, notice: MaintenanceNotice) -> bool | None:
    if not isinstance(check, NoticeCheck):
        return None
    return None if check.when is When.OVER else check.matches(notice, now=_NOW)


def _example_notices(profile: Profile) -> Iterator[tuple[MaintenanceNotice, str]]:
    checks = [check for _, check in profile.members() if isinstance(check, NoticeCheck)]
    lead_times = sorted({check.lead_time for check in checks if check.when is When.DUE}, reverse=True)
    kinds = dict.fromkeys(kind for check in checks for kind in check.kinds)
    sources = dict.fromkeys((_OTHER_SOURCE, *(source for check in checks for source in check.sources)))
    for kind, source in product(kinds, sources):
        for lead_time in lead_times:
            spec = MaintenanceNoticeSpec(kind=kind, source=source, stage=NoticeStage.SCHEDULED, start=_NOW + lead_time)
            yield _example_notice(spec), f"{duration.format_short(lead_time)} before a maintenance ({kind})"
        yield (
            _example_notice(MaintenanceNoticeSpec(kind=kind, source=source, stage=NoticeStage.STARTED)),
            f"during a maintenance ({kind})",
        )


def _example_notice(spec: MaintenanceNoticeSpec) -> MaintenanceNotice:
    return MaintenanceNotice(metadata=ObjectMeta(name="imagined"), spec=spec)
