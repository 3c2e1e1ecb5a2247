"""Describes the plugins of a configuration: which they are, their options, and what they do.

Secret options are not shown, and the value of a `${NAME}` is shown as `${NAME}`, since it may be a secret.
"""

import dataclasses
import enum
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from haulout.controllers.profiles.config.model import Configuration, Member, NotificationMember
from haulout.controllers.profiles.config.options import REST, Option, options_of
from haulout.controllers.profiles.plugin import Plugin
from haulout.core import duration
from haulout.core.redaction import MIN_VALUE_LENGTH, REDACTED, replace_value

_CREDENTIALS = re.compile(r"://[^/@\s]+@")


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceDescription:
    """The description of an instance."""

    family: str  # check, notification or trigger
    name: str
    type: str
    options: Mapping[str, str]  # by key; without those that equal their defaults
    summary: str  # first sentence of the plugin's docstring

    @property
    def settings(self) -> str:
        """The options in one line."""
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
        if value.strip() == text:
            return f"${{{name}}}"
        if len(value) >= MIN_VALUE_LENGTH:
            text = replace_value(text, value, f"${{{name}}}")
    return _CREDENTIALS.sub(f"://{REDACTED}@", text)
