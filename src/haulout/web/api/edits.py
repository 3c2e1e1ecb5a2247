"""An edit of the configuration, read where it must do no harm: whoever sends it may be anybody. Pure.

    read = read_edit(text, file, registries)
    read.findings, read.after

It runs in a thread. Aliases, depth and size are bounded by those who read YAML. What an edit may learn is bounded here:

- No file is opened that it names.
- Of the environment it sees the variables that the file in force uses, and of these only what is no secret there. All
  others have a value that fits, as `haulout check --ignore-env` has it.
- Whatever is said about it has the names of variables instead of their values, and no secrets.

To compare, the file in force is read once more in the same way. A check that both have alike is then the one that is in
force, secrets and all, so that what is known of it counts.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import yaml

from haulout.core import marked
from haulout.errors import ConfigError
from haulout.profiles import trial
from haulout.profiles.config import Registries
from haulout.profiles.inwords import masked
from haulout.profiles.model import Configuration, Member, NotificationMember, Profile, StateConfig, Transition
from haulout.profiles.plugin import Check, Plugin, Scene, Verdict, unknown
from haulout.profiles.plugins.checks.prometheus_instant import PrometheusInstant
from haulout.profiles.struck import Struck, strike
from haulout.profiles.trial import Trial
from haulout.web.api.configuration import File, findings_of, in_words
from haulout.web.api.shapes import Finding, Level, ProfileText

LARGEST = 1 << 20
_FITTED = 128 << 10  # bytes: to find values that fit, a file is read many times
_MOST_NAMES = 10  # that are fitted
_MOST_VALUES = 20_000
_MOST_CHECKS = 2_000  # in all chains: what is asked of each node
_REGULAR = ("=~", "!~")


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What an edit says, beside what is in force."""

    findings: tuple[Finding, ...]
    profiles: tuple[ProfileText, ...] = ()
    after: Configuration | None = None  # None: it makes no sense
    is_too_much: bool = False  # to be asked of nodes
    hide: Struck = field(default_factory=lambda: Struck("", ()))
    values: Mapping[str, str] = field(default_factory=dict, repr=False)


def read_edit(text: str, file: File, registries: Registries, *, in_force: Configuration) -> Read:
    """Return what an edit says; `in_force` is what the file in force says, with all it is made of."""
    data = text.encode("utf-8", "replace")
    if len(data) > LARGEST:
        return Read(findings=(Finding(message=f"expected at most {LARGEST >> 20} MiB, found more"),))
    if _has_too_many_values(text):
        return Read(findings=(Finding(message=f"expected at most {_MOST_VALUES} values in a file, found more"),))
    struck = strike(text, registries, also=secrets_of(in_force))
    known = _known(file, registries, in_force)
    found = _read(data, registries, known, path=file.path)
    values = {**known, **{name: f"value-of-{name}" for name in found.unset}}
    findings = findings_of(found.errors, found.warnings, struck, values)
    if found.loaded is None:
        return Read(findings=findings)
    findings += tuple(_not_looked_at(found, struck, values))
    edited = found.loaded.configuration
    before = _read(file.good or b"", registries, known, path=file.path)
    ours = {} if before.loaded is None else _pairs(before.loaded.configuration, in_force)
    return Read(
        findings=findings,
        profiles=in_words(edited, values, struck),
        after=replace(edited, profiles={name: _known_parts(it, ours) for name, it in edited.profiles.items()}),
        is_too_much=sum(1 for _ in edited.members()) > _MOST_CHECKS,
        hide=struck,
        values=values,
    )


def _has_too_many_values(text: str) -> bool:
    """Tell whether to read a file would take so long that others notice; that it is no YAML is found out later."""
    try:
        for number, _ in enumerate(marked.first_events(text, file="")):
            if number > _MOST_VALUES:
                return True
    except (ConfigError, yaml.YAMLError, UnicodeEncodeError):
        return False
    return False


def _read(data: bytes, registries: Registries, known: Mapping[str, str], *, path: str) -> Trial:
    first = trial.load(data, registries, known, file=path, opens_files=False)
    if not first.errors or not first.missed or len(first.missed) > _MOST_NAMES or len(data) > _FITTED:
        return first
    return trial.attempt(data, registries, known, file=path, opens_files=False, assume=True)


def _not_looked_at(found: Trial, struck: Struck, values: Mapping[str, str]) -> Iterator[Finding]:
    for name in found.unset:
        text = f"${{{masked(name, values)}}} is not looked at here, as it may be a secret: some value is taken for it"
        yield Finding(message=struck.hide(text), level=Level.INFO)


# What may be known


def _known(file: File, registries: Registries, in_force: Configuration) -> Mapping[str, str]:
    """Return the variables that the file in force uses for what is no secret."""
    if file.good is None:
        return {}
    used = trial.load(file.good, registries, file.environ, file=file.path, opens_files=False).values
    secrets = tuple(secrets_of(in_force))
    return {name: value for name, value in used.items() if not any(value.strip() in it for it in secrets)}


def secrets_of(configuration: Configuration) -> Iterator[str]:
    """Yield the values of all options that are secrets."""
    for plugin in configuration.plugins():
        for it in dataclasses.fields(plugin):  # type: ignore[arg-type]  # all plugins are
            value = getattr(plugin, it.name)
            if not it.repr and isinstance(value, str) and value:
                yield value


# What both have


def _pairs(alike: Configuration, in_force: Configuration) -> dict[tuple[str, str], tuple[Plugin, Plugin]]:
    """Return by type and name what an instance reads as without secrets, and the instance in force."""
    ours = {(plugin.type, name): plugin for name, plugin in in_force.members()}
    theirs = {(plugin.type, name): plugin for name, plugin in alike.members()}
    return {key: (theirs[key], ours[key]) for key in theirs.keys() & ours.keys()}


def _known_parts(profile: Profile, ours: Mapping[tuple[str, str], tuple[Plugin, Plugin]]) -> Profile:
    def member(it: Member[Any]) -> Member[Any]:
        like, in_force = ours.get((it.plugin.type, it.name), (None, None))
        if like is not None and like == it.plugin:
            return replace(it, plugin=in_force)
        is_tried = not isinstance(it.plugin, PrometheusInstant) or not any(sign in it.plugin.expr for sign in _REGULAR)
        return it if is_tried else replace(it, plugin=_NotTried())

    def way(it: Transition) -> Transition:
        check = replace(it.check, members=tuple(map(member, it.check.members)))
        return replace(it, check=check, trigger=tuple(map(member, it.trigger)))

    def state(it: StateConfig) -> StateConfig:
        notify = tuple(cast("NotificationMember", member(each)) for each in it.notify)
        return StateConfig(tuple(map(member, it.enter)), notify, tuple(map(way, it.transitions)))

    return replace(profile, states={name: state(it) for name, it in profile.states.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class _NotTried(Check):
    """Says nothing: a regular expression of anybody may take for ever."""

    type = "prometheusInstant"

    def look(self, scene: Scene) -> Verdict:
        """Return that nobody knows."""
        del scene
        return unknown("regular expressions are not tried here")
