"""Parse an untrusted edit of the configuration safely. Pure.

    parsed = parse_edit(text, file, registries, in_force=configuration)
    parsed.findings, parsed.edited

It runs in a thread. The YAML reader bounds aliases, depth and size. This module bounds what an edit can learn:

- No file that it names is opened.
- Of the environment it sees only variables that the file in force uses for non-secret values. All
  others get a placeholder, as in `haulout check --ignore-env`.
- Messages contain names of variables instead of their values, and no secrets.

For comparison, the file in force is parsed once more in the same way. A check that is equal in both is then replaced by
the one in force, with its secrets, so that its cached results apply.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import yaml

from haulout.controllers.profiles.config import dry_run
from haulout.controllers.profiles.config.description import mask_values
from haulout.controllers.profiles.config.dry_run import DryRun
from haulout.controllers.profiles.config.loader import Registries
from haulout.controllers.profiles.config.model import (
    Configuration,
    Member,
    NotificationMember,
    Profile,
    StateConfig,
    StateTransition,
)
from haulout.controllers.profiles.config.redaction import RedactedConfig, redact_config
from haulout.controllers.profiles.plugin import Check, CheckResult, Plugin, PluginContext, unknown
from haulout.controllers.profiles.plugins.checks.prometheus_instant import PrometheusInstant
from haulout.core import yaml_nodes
from haulout.dashboard.api.configuration.view import ConfigurationFile, findings_of, profile_texts
from haulout.dashboard.api.types import Finding, Level, ProfileDescription
from haulout.errors import ConfigError

MAX_BYTES = 1 << 20
_MAX_FITTED_BYTES = 128 << 10  # bytes: finding placeholders parses a file many times
_MAX_FITTED_NAMES = 10  # variables with placeholders
_MAX_VALUES = 20_000
_MAX_CHECKS = 2_000  # in all chains, evaluated per node
_REGEX_OPERATORS = ("=~", "!~")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedEdit:
    """A parsed edit."""

    findings: tuple[Finding, ...]
    profiles: tuple[ProfileDescription, ...] = ()
    edited: Configuration | None = None  # None: invalid
    is_too_large: bool = False  # to evaluate on nodes
    redaction: RedactedConfig = field(default_factory=lambda: RedactedConfig("", ()))
    values: Mapping[str, str] = field(default_factory=dict, repr=False)


def parse_edit(text: str, file: ConfigurationFile, registries: Registries, *, in_force: Configuration) -> ParsedEdit:
    """Parse an edit; `in_force` is the configuration in force, with all secrets."""
    data = text.encode("utf-8", "replace")
    if len(data) > MAX_BYTES:
        return ParsedEdit(findings=(Finding(message=f"expected at most {MAX_BYTES >> 20} MiB, found more"),))
    if _has_too_many_values(text):
        return ParsedEdit(findings=(Finding(message=f"expected at most {_MAX_VALUES} values in a file, found more"),))
    redaction = redact_config(text, registries, also=secrets_of(in_force))
    variables = _known_variables(file, registries, in_force)
    found = _load(data, registries, variables, path=file.path)
    values = {**variables, **{name: f"value-of-{name}" for name in found.unset}}
    findings = findings_of(found.errors, found.warnings, redaction, values)
    if found.loaded is None:
        return ParsedEdit(findings=findings)
    findings += tuple(_unresolved_variables(found, redaction, values))
    edited = found.loaded.configuration
    current = _load(file.last_good or b"", registries, variables, path=file.path)
    pairs = {} if current.loaded is None else _plugin_pairs(current.loaded.configuration, in_force)
    return ParsedEdit(
        findings=findings,
        profiles=profile_texts(edited, values, redaction),
        edited=replace(
            edited, profiles={name: _restore_plugins(profile, pairs) for name, profile in edited.profiles.items()}
        ),
        is_too_large=sum(1 for _ in edited.members()) > _MAX_CHECKS,
        redaction=redaction,
        values=values,
    )


def _has_too_many_values(text: str) -> bool:
    """Return whether parsing would block the thread for too long; invalid YAML is reported later."""
    try:
        for number, _ in enumerate(yaml_nodes.first_document_events(text, file="")):
            if number > _MAX_VALUES:
                return True
    except (ConfigError, yaml.YAMLError, UnicodeEncodeError):
        return False
    return False


def _load(data: bytes, registries: Registries, variables: Mapping[str, str], *, path: str) -> DryRun:
    first = dry_run.load_once(data, registries, variables, file=path, opens_files=False)
    if not first.errors or not first.missing or len(first.missing) > _MAX_FITTED_NAMES or len(data) > _MAX_FITTED_BYTES:
        return first
    return dry_run.dry_run(data, registries, variables, file=path, opens_files=False, assume_placeholders=True)


def _unresolved_variables(found: DryRun, redaction: RedactedConfig, values: Mapping[str, str]) -> Iterator[Finding]:
    for name in found.unset:
        variable = f"${{{mask_values(name, values)}}}"
        text = f"{variable} is not resolved in the preview, as it may be a secret: a placeholder is used"
        yield Finding(message=redaction.redact(text), level=Level.INFO)


# Values that an edit may use


def _known_variables(file: ConfigurationFile, registries: Registries, in_force: Configuration) -> Mapping[str, str]:
    """Return the variables that the file in force uses for non-secret values."""
    if file.last_good is None:
        return {}
    used = dry_run.load_once(file.last_good, registries, file.environ, file=file.path, opens_files=False).values
    secrets = tuple(secrets_of(in_force))
    return {name: value for name, value in used.items() if not any(value.strip() in secret for secret in secrets)}


def secrets_of(configuration: Configuration) -> Iterator[str]:
    """Yield the values of all secret options."""
    for plugin in configuration.plugins():
        for option in dataclasses.fields(plugin):  # type: ignore[arg-type]  # all plugins are dataclasses
            value = getattr(plugin, option.name)
            if not option.repr and isinstance(value, str) and value:
                yield value


# Plugins that both configurations have


def _plugin_pairs(parsed: Configuration, in_force: Configuration) -> dict[tuple[str, str], tuple[Plugin, Plugin]]:
    """Return by type and name the plugin as parsed without secrets, and the one in force."""
    current_plugins = {(plugin.type, name): plugin for name, plugin in in_force.members()}
    parsed_plugins = {(plugin.type, name): plugin for name, plugin in parsed.members()}
    return {key: (parsed_plugins[key], current_plugins[key]) for key in parsed_plugins.keys() & current_plugins.keys()}


def _restore_plugins(profile: Profile, pairs: Mapping[tuple[str, str], tuple[Plugin, Plugin]]) -> Profile:
    def member(original: Member[Any]) -> Member[Any]:
        parsed_plugin, in_force = pairs.get((original.plugin.type, original.name), (None, None))
        if parsed_plugin is not None and parsed_plugin == original.plugin:
            return replace(original, plugin=in_force)
        is_tried = not isinstance(original.plugin, PrometheusInstant) or not any(
            sign in original.plugin.expr for sign in _REGEX_OPERATORS
        )
        return original if is_tried else replace(original, plugin=_UntriedCheck())

    def transition(original: StateTransition) -> StateTransition:
        check = replace(original.check, members=tuple(map(member, original.check.members)))
        return replace(original, check=check, trigger=tuple(map(member, original.trigger)))

    def state(config: StateConfig) -> StateConfig:
        notify = tuple(cast("NotificationMember", member(notification)) for notification in config.notify)
        return StateConfig(tuple(map(member, config.enter)), notify, tuple(map(transition, config.transitions)))

    return replace(profile, states={name: state(config) for name, config in profile.states.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class _UntriedCheck(Check):
    """Has no result: a regular expression of an untrusted edit may take forever."""

    type = "prometheusInstant"

    def evaluate(self, context: PluginContext) -> CheckResult:
        del context
        return unknown("regular expressions are not evaluated in the preview")
