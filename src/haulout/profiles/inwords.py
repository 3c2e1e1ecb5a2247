"""Plugins of a configuration in words: which they are, how they are set, and what they do.

Options that are secrets are not shown, and what a `${…}` has become is shown as `${NAME}`: it may be one.
"""

import dataclasses
import enum
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from haulout.core import duration
from haulout.core.redaction import HIDDEN, RECOGNIZABLE, replace_value
from haulout.profiles.model import Configuration, Member, NotificationMember
from haulout.profiles.options import REST, Option, options_of
from haulout.profiles.plugin import Plugin

_CREDENTIALS = re.compile(r"://[^/@\s]+@")


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """An instance in words."""

    family: str  # check, notification or trigger
    name: str
    type: str
    options: Mapping[str, str]  # those that differ from their defaults, by their keys
    prose: str  # the first sentence of its description

    @property
    def settings(self) -> str:
        """The options in one line."""
        return ", ".join(f"{key}: {value}" for key, value in self.options.items())


def tell_all(configuration: Configuration, values: Mapping[str, str]) -> tuple[Told, ...]:
    """Return all instances that are used, in the order in which chains name them; `values` are those of variables."""
    found = {(family, member.name): _told(family, member, values) for family, member in _members(configuration)}
    return tuple(found.values())


def prose_of(plugin: type) -> str:
    """Return the first sentence of what a plugin says about itself."""
    text = " ".join((plugin.__doc__ or "").split("\n\n")[0].split())
    return re.split(r"(?<=[.:!?]) (?=[A-Z`])", text)[0].rstrip(":")


def settings_of(plugin: Plugin, values: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a plugin that differ from their defaults, as text."""
    hidden = {field.name for field in dataclasses.fields(plugin) if not field.repr}  # type: ignore[arg-type]  # all are
    shown: dict[str, str] = {}
    for option in options_of(type(plugin)):
        value = getattr(plugin, option.field)
        if value == option.default and not option.required:
            continue
        if option.kind is REST:
            shown |= {key: masked(_text(each), values) for key, each in value.items()}
        else:
            shown[option.key] = HIDDEN if option.field in hidden else masked(_text(value), values)
    return shown


def _members(configuration: Configuration) -> Iterator[tuple[str, Member[Any]]]:
    for profile in configuration.profiles.values():
        for state in profile.states.values():
            yield from (("check", member) for way in state.transitions for member in way.check.members)
            yield from (("trigger", member) for member in state.enter)
            yield from (("trigger", member) for way in state.transitions for member in way.trigger)
            yield from (("notification", member) for member in state.notify)


def _told(family: str, member: Member[Any], values: Mapping[str, str]) -> Told:
    options = settings_of(member.plugin, values)
    if isinstance(member, NotificationMember):
        schedule = settings_of(member.schedule, values)
        options["schedule"] = " ".join([member.schedule.type, *(f"{key} {value}" for key, value in schedule.items())])
    return Told(
        family=family,
        name=member.name,
        type=member.plugin.type,
        options=options,
        prose=prose_of(type(member.plugin)),
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
    inner = {it.key: getattr(value, it.field) for it in _options(value)}
    return _text({key: each for key, each in inner.items() if each not in (None, "", ())}) if inner else str(value)


def _options(value: object) -> tuple[Option, ...]:
    return options_of(type(value)) if dataclasses.is_dataclass(value) else ()


def masked(text: str, values: Mapping[str, str]) -> str:
    """Return a text in which the values of variables are their names, and addresses have no credentials."""
    for name, value in values.items():
        if value.strip() == text:
            return f"${{{name}}}"
        if len(value) >= RECOGNIZABLE:
            text = replace_value(text, value, f"${{{name}}}")
    return _CREDENTIALS.sub(f"://{HIDDEN}@", text)
