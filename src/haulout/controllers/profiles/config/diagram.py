"""A profile as a diagram and as text: for `haulout check` and for documentation.

`mermaid` returns a state diagram that GitHub, GitLab and most editors render; `explain` yields lines for a terminal.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from haulout.controllers.profiles.config.lint import reachable_states
from haulout.controllers.profiles.config.model import Configuration, Member, Profile, StateConfig, Transition
from haulout.controllers.profiles.plugin import State

Members = Sequence[Member[Any]]

_IDS = {State.OPERATIONAL: "operational", State.REQUIRED: "required", State.IN_MAINTENANCE: "maintenance"}


def mermaid(profile: Profile) -> str:
    return "\n".join([*_diagram(profile), ""])


def explain(configuration: Configuration) -> Iterator[str]:
    """Yield lines that describe what each profile does with a node."""
    for number, profile in enumerate(configuration.profiles.values()):
        if number:
            yield ""
        yield from explain_profile(profile)


def _diagram(profile: Profile) -> Iterator[str]:
    yield "stateDiagram-v2"
    for state, name in _IDS.items():
        yield f'    state "{state.value}" as {name}'
    if profile.on_notice:
        yield f"    [*] --> {_IDS[State.OPERATIONAL]} : maintenance is announced"
        yield f"    {_IDS[State.OPERATIONAL]} --> [*] : nothing is announced any more"
    else:
        yield f"    [*] --> {_IDS[State.OPERATIONAL]}"
    for state, found in profile.states.items():
        for transition in found.transitions:
            yield f"    {_IDS[state]} --> {_IDS[transition.next]} : {_label(transition)}"
    for state, found in profile.states.items():
        notes = [f"{verb} {_escaped(_names(members))}" for verb, members in _state_actions(found)]
        if notes:
            yield f"    note right of {_IDS[state]}"
            yield from (f"        {note}" for note in notes)
            yield "    end note"


def _label(transition: Transition) -> str:
    label = _escaped(" ".join(transition.check.text.split()))
    return f"{label}<br/>then {_escaped(_names(transition.trigger))}" if transition.trigger else label


def explain_profile(profile: Profile) -> Iterator[str]:
    """Yield lines that describe what a profile does with a node."""
    yield f"profile {profile.name}{_node_selection(profile)}"
    if all(found == StateConfig() for found in profile.states.values()):
        yield "  nothing happens: nodes stay operational"
        return
    reachable = reachable_states(profile)
    for state, found in profile.states.items():
        is_reached = "" if state in reachable else "   (no transition leads here)"
        yield f"  {state.value}{is_reached}"
        yield from (f"    {verb} {_names(members)}" for verb, members in _state_actions(found))
        for transition in found.transitions:
            then = f", then {_names(transition.trigger)}" if transition.trigger else ""
            yield f"    to {transition.next.value} when {' '.join(transition.check.text.split())}{then}"
        if not found.transitions:
            yield "    stays here"


def _node_selection(profile: Profile) -> str:
    named = f" with {profile.selector}" if profile.selector else ""
    if profile.on_notice:
        return f" (for nodes{named} while maintenance is announced for them)"
    return f" (for nodes{named})" if named else ""


def _state_actions(found: StateConfig) -> Iterator[tuple[str, Members]]:
    if found.enter:
        yield "on entering:", found.enter
    if found.notify:
        yield "notifies:", found.notify


def _names(members: Members) -> str:
    return ", ".join(member.name for member in members)


def _escaped(text: str) -> str:
    # Mermaid parses these as syntax. It accepts HTML entity codes with # instead of &.
    codes = {"#": "#35;", ";": "#59;", ":": "#58;", "<": "#lt;", ">": "#gt;", '"': "#quot;", "&": "#amp;"}
    return "".join(codes.get(character, character) for character in text)
