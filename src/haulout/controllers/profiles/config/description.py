"""Describes the plugins and profiles of a configuration, for `haulout check`, the dashboard and documentation.

Secret options are not shown, and the value of a `${NAME}` is shown as `${NAME}`, since it may be a secret. `mermaid`
returns a profile as a state diagram that GitHub, GitLab and most editors render; `explain` yields it as lines for a
terminal.
"""

import dataclasses
import enum
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from haulout.controllers.profiles.config.lint import reachable_states
from haulout.controllers.profiles.config.model import (
    Configuration,
    Member,
    NotificationMember,
    Profile,
    StateConfig,
    StateTransition,
)
from haulout.controllers.profiles.config.options import REST, Option, options_of
from haulout.controllers.profiles.plugin import Plugin, State
from haulout.core import duration
from haulout.core.redaction import MIN_VALUE_LENGTH, REDACTED, replace_value

_CREDENTIALS = re.compile(r"://[^/@\s]+@")

Members = Sequence[Member[Any]]

_IDS = {State.OPERATIONAL: "operational", State.REQUIRED: "required", State.IN_MAINTENANCE: "maintenance"}


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceDescription:
    """An instance of a plugin that a chain names, without secrets."""

    family: str  # check, notification or trigger
    name: str
    type: str
    options: Mapping[str, str]  # by key; without those that equal their defaults
    summary: str  # first sentence of the plugin's docstring

    @property
    def settings(self) -> str:
        return ", ".join(f"{key}: {value}" for key, value in self.options.items())


def describe_instances(configuration: Configuration, values: Mapping[str, str]) -> tuple[InstanceDescription, ...]:
    """Return all instances in use, in the order in which chains name them; `values` are those of variables."""
    found = {(family, member.name): _describe(family, member, values) for family, member in _members(configuration)}
    return tuple(found.values())


def summary_of(plugin: type) -> str:
    """Return the first sentence of a plugin's docstring."""
    text = " ".join((plugin.__doc__ or "").split("\n\n")[0].split())
    return re.split(r"(?<=[.:!?]) (?=[A-Z`])", text)[0].rstrip(":")


def settings_of(plugin: Plugin, values: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a plugin that differ from their defaults, as text, with secrets redacted."""
    secret_fields = {field.name for field in dataclasses.fields(plugin) if not field.repr}  # type: ignore[arg-type]  # all are
    texts: dict[str, str] = {}
    for option in options_of(type(plugin)):
        value = getattr(plugin, option.field)
        if value == option.default and not option.required:
            continue
        if option.kind is REST:
            texts |= {key: mask_values(_text(each), values) for key, each in value.items()}
        else:
            texts[option.key] = REDACTED if option.field in secret_fields else mask_values(_text(value), values)
    return texts


def _members(configuration: Configuration) -> Iterator[tuple[str, Member[Any]]]:
    for profile in configuration.profiles.values():
        for state in profile.states.values():
            yield from (("check", member) for transition in state.transitions for member in transition.check.members)
            yield from (("trigger", member) for member in state.enter)
            yield from (("trigger", member) for transition in state.transitions for member in transition.trigger)
            yield from (("notification", member) for member in state.notify)


def _describe(family: str, member: Member[Any], values: Mapping[str, str]) -> InstanceDescription:
    options = settings_of(member.plugin, values)
    if isinstance(member, NotificationMember):
        schedule = settings_of(member.schedule, values)
        options["schedule"] = " ".join([member.schedule.type, *(f"{key} {value}" for key, value in schedule.items())])
    return InstanceDescription(
        family=family,
        name=member.name,
        type=member.plugin.type,
        options=options,
        summary=summary_of(type(member.plugin)),
    )


def _text(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case timedelta():
            return duration.format(value)
        case enum.Enum():
            return str(value.value)
        case Mapping():
            return "{" + ", ".join(f"{key}: {_text(each)}" for key, each in value.items()) + "}"
        case tuple() | list():
            return "[" + ", ".join(map(_text, value)) + "]"
    inner = {option.key: getattr(value, option.field) for option in _options(value)}
    return _text({key: each for key, each in inner.items() if each not in (None, "", ())}) if inner else str(value)


def _options(value: object) -> tuple[Option, ...]:
    return options_of(type(value)) if dataclasses.is_dataclass(value) else ()


def mask_values(text: str, values: Mapping[str, str]) -> str:
    """Replace values of variables in a text by their names, and redact credentials in URLs."""
    for name, value in values.items():
        # Any value that is the whole option is masked, even a short one. Inside a longer text, short values would match
        # by chance.
        if value.strip() == text:
            return f"${{{name}}}"
        if len(value) >= MIN_VALUE_LENGTH:
            text = replace_value(text, value, f"${{{name}}}")
    return _CREDENTIALS.sub(f"://{REDACTED}@", text)


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


def _label(transition: StateTransition) -> str:
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
