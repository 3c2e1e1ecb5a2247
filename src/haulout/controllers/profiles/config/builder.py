"""Builds a configuration from a file: first the instances, then the profiles whose chains name them.

Building continues after an error, so that one run reports all errors. An instance that cannot be built still counts as
defined, so that chains that name it produce no further errors.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import Any, TypeVar

from haulout.api.notification_events import EventName
from haulout.budget.limits import Budget, BudgetLimit
from haulout.compat import booleans
from haulout.compat.booleans import BooleanError
from haulout.compat.ucfg.goyaml import Mapping as MappingValue
from haulout.compat.ucfg.goyaml import Scalar, Value, path
from haulout.controllers.profiles.config import lint
from haulout.controllers.profiles.config.layout import (
    BudgetLayout,
    FileLayout,
    InstanceLayout,
    LimitLayout,
    NotificationLayout,
    NotificationRuleLayout,
    ProfileLayout,
    StateLayout,
    TransitionLayout,
)
from haulout.controllers.profiles.config.loader import Loaded, Registries
from haulout.controllers.profiles.config.model import (
    CheckChain,
    Configuration,
    Member,
    NotificationMember,
    NotificationRule,
    Profile,
    StateConfig,
    StateTransition,
    needs_of,
)
from haulout.controllers.profiles.config.reader import ConfigReader, open_reader
from haulout.controllers.profiles.plugin import DEFAULT_PROFILE, State
from haulout.core import yaml_decoder
from haulout.errors import ConfigError, ConfigErrors

T = TypeVar("T")
Layout = TypeVar("Layout", InstanceLayout, NotificationLayout)

_BROKEN: Any = object()  # a defined instance with errors
_OF_PROFILES = {"intervals", "instances", "profiles"}
_LENIENT_SUFFIX = re.compile(", (so it is ignored|which counts as an empty (list|mapping))")
_UNUSED_REQUEUE = timedelta(minutes=1)  # never used without profiles: no external queries


def build(
    data: bytes,
    registries: Registries,
    environ: Mapping[str, str],
    *,
    file: str,
    sections: Mapping[str, type],
    opens_files: bool = True,
) -> Loaded:
    """Return the configuration in a file. Raise `ConfigErrors`."""
    root, reading = open_reader(data, file=file, environ=environ, opens_files=opens_files)
    found = {
        name: reading.read(cls, root.get(name) if isinstance(root, MappingValue) else None, key=name)
        for name, cls in sections.items()
    }
    builder = _Builder(reading, registries)
    if _lacks_profiles(root):
        layout_without = reading.read_partially(BudgetLayout, root, key="", also=sections)
        configuration = builder.without_profiles(layout_without, found)
    else:
        layout = reading.read_partially(FileLayout, root, key="", also=sections)
        configuration = builder.configuration(layout, found)
    # Only Haulout reads these sections, so no file of the SAP maintenance-controller relies on a lenient reader here.
    _promote_warnings(reading, "budget")
    _promote_warnings(reading, "notifications")
    if reading.errors:
        raise ConfigErrors(_deduplicated(reading.errors), warnings=_deduplicated(reading.warnings))
    lint.lint(configuration, builder.definitions, reading)
    used = reading.resolver.used  # a key that only a `${…}` refers to is in use
    warnings = [each for each in _deduplicated(reading.warnings) if each.key not in used]
    return Loaded(configuration, tuple(sorted(warnings, key=lambda each: each.line or 0)))


def _promote_warnings(reading: ConfigReader, section: str) -> None:
    """Turn warnings about a section into errors: a limit that cannot be parsed must not become a looser limit."""
    section_warnings = [warning for warning in reading.warnings if re.match(rf"{section}\b", warning.key or "")]
    for warning in section_warnings:
        reading.warnings.remove(warning)
        reading.add_error(warning.key or section, _LENIENT_SUFFIX.sub("", warning.problem))


def _lacks_profiles(root: Value | None) -> bool:
    """Return whether a file configures a budget, or notifications of NodeMaintenances and notices, but no profiles."""
    if not isinstance(root, MappingValue):
        return False
    found = set(root.entries)
    of_profiles = _OF_PROFILES - {"instances"} if "notifications" in found else _OF_PROFILES
    return bool(found & {"budget", "notifications"}) and not of_profiles & found


def _deduplicated(problems: list[ConfigError]) -> list[ConfigError]:
    # A value behind several aliases is read once for each of them.
    return list({str(each): each for each in problems}.values())


class _Builder:
    """Builds the parts of one configuration.

    All errors go to the reader; what cannot be built is replaced by `_BROKEN`.
    """

    def __init__(self, reading: ConfigReader, registries: Registries) -> None:
        self.definitions = lint.Definitions()
        self._reading = reading
        self._registries = registries

    def configuration(self, layout: FileLayout, sections: Mapping[str, Any]) -> Configuration:
        """Return the configuration, as far as it can be built."""
        instances = layout.instances
        checks = self._instances(instances.check, "check", self._registries.checks, self._plugin)
        notifications, rules = self._notifications(instances.notify, layout.notifications)
        triggers = self._instances(instances.trigger, "trigger", self._registries.triggers, self._plugin)
        chains = _Chains(self._reading, checks, notifications, triggers)
        # If all profiles are notice profiles, nodes without one are left unmanaged: there is no default profile.
        is_notice_driven = bool(layout.profiles) and all(profile.on_notice for profile in layout.profiles)
        profiles = {} if is_notice_driven else {DEFAULT_PROFILE: Profile(DEFAULT_PROFILE)}
        for at, each in enumerate(layout.profiles):
            key = f"profiles[{at}]"
            self.definitions.add("profile", each.name, key, self._reading)
            profiles[each.name] = _profile(each, key, chains)
        return Configuration(
            requeue=layout.intervals.requeue,
            label_filter=layout.dashboard.label_filter,
            profiles=MappingProxyType(profiles),
            needs=needs_of(profiles.values()),
            budget=_budget(layout.budget),
            notifications=rules,
            sections=MappingProxyType(dict(sections)),
        )

    def without_profiles(self, layout: BudgetLayout, sections: Mapping[str, Any]) -> Configuration:
        _, rules = self._notifications(layout.instances.notify, layout.notifications)
        return Configuration(
            requeue=_UNUSED_REQUEUE,
            profiles=MappingProxyType({}),
            budget=_budget(layout.budget),
            notifications=rules,
            sections=MappingProxyType(dict(sections)),
        )

    def _notifications(
        self, instances: Iterable[NotificationLayout], rules: Iterable[NotificationRuleLayout]
    ) -> tuple[Mapping[str, tuple[Any, Any]], tuple[NotificationRule, ...]]:
        """Return the notifications that chains may name, and the rules for objects, which need no schedule."""
        built = self._instances(instances, "notify", self._registries.notifications, self._notification)
        chains = _Chains(self._reading, {}, built, {})
        found = tuple(chains.rule(each, f"notifications[{at}]") for at, each in enumerate(rules))
        named = {member.name for rule in found for member in rule.members}
        for at, each in enumerate(instances):
            if each.schedule is None and each.name not in named:
                self._reading.add_error(f"instances.notify[{at}].schedule.type", "expected a text, found nothing")
                built[each.name] = built[each.name][0], _BROKEN
        return built, found

    def _instances(
        self,
        layouts: Iterable[Layout],
        family: str,
        classes: Mapping[str, type],
        build_one: Callable[[Layout, str, Mapping[str, type]], T],
    ) -> dict[str, T]:
        built: dict[str, T] = {}
        for at, each in enumerate(layouts):
            key = f"instances.{family}[{at}]"
            if not each.name:
                self._reading.add_warning(
                    path(key, "name"), "expected a name, found none, so no chain can use this instance"
                )
            self.definitions.add(family, each.name, key, self._reading)
            built[each.name] = build_one(each, key, classes)
        return built

    def _plugin(self, layout: Any, key: str, classes: Mapping[str, type]) -> Any:
        if layout.type is None:
            return _BROKEN
        plugin = classes.get(layout.type)
        if plugin is None:
            hint = yaml_decoder.did_you_mean(layout.type, classes) or f"; known types: {', '.join(sorted(classes))}"
            self._reading.add_error(path(key, "type"), f"expected a plugin, found {layout.type!r}{hint}")
            return _BROKEN
        built = self._reading.read(plugin, layout.config, key=path(key, "config"))
        return _BROKEN if built is None else built

    def _notification(self, layout: NotificationLayout, key: str, classes: Mapping[str, type]) -> tuple[Any, Any]:
        plugin = self._plugin(layout, key, classes)
        schedule_key = path(key, "schedule")
        # The SAP maintenance-controller compares types of schedules, and only these, without case.
        by_type = {name.lower(): each for name, each in self._registries.schedules.items()}
        schedule: Any = _BROKEN
        if layout.schedule is None:
            return plugin, None
        if layout.schedule.type is not None:
            # The SAP maintenance-controller refuses a file without `schedule.config`, too.
            if _is_nothing(layout.schedule.config):
                self._reading.add_error(path(schedule_key, "config"), "expected a mapping, found nothing; {} is enough")
            else:
                lowered = _TypedLayout(layout.schedule.type.lower(), layout.schedule.config)
                schedule = self._plugin(lowered, schedule_key, by_type)
        return plugin, schedule


@dataclass(frozen=True, slots=True)
class _TypedLayout:
    type: str
    config: Value | None


def _is_nothing(value: Value | None) -> bool:
    return value is None or (isinstance(value, Scalar) and value.value is None)


class _Chains:
    """Parses chains, and reports names without an instance."""

    def __init__(
        self,
        reading: ConfigReader,
        checks: Mapping[str, Any],
        notifications: Mapping[str, tuple[Any, Any]],
        triggers: Mapping[str, Any],
    ) -> None:
        self._reading = reading
        self._checks = checks
        self._notifications = notifications
        self._triggers = triggers

    def checks(self, text: str | None, key: str) -> CheckChain:
        expression = self._read(booleans.parse, text, key)
        if expression is None:
            # The error is reported, and the configuration is discarded. This chain only allows to go on and find other
            # errors.
            return CheckChain(text or "", (), lambda _: False)
        members = self._members(expression.names, self._checks, "check", key)
        return CheckChain(expression.text, tuple(members), expression.evaluate)

    def notifications(self, text: str, key: str) -> tuple[NotificationMember, ...]:
        names = self._read(booleans.parse_names, text, key) or ()
        members = tuple(self._members(names, self._notifications, "notification", key))
        for name in (member.name for member in members if member.plugin[1] is None):
            self._reading.add_error(key, f"expected notification instances with a schedule, {name!r} has none")
        return tuple(NotificationMember(member.name, *member.plugin) for member in members)

    def rule(self, layout: NotificationRuleLayout, key: str) -> NotificationRule:
        names = dict.fromkeys(layout.notify or ())
        members = self._members(names, self._notifications, "notification", path(key, "notify"))
        return NotificationRule(
            members=tuple(Member(member.name, member.plugin[0]) for member in members),
            events=frozenset(layout.events or EventName),
            after=layout.after,
        )

    def triggers(self, text: str, key: str) -> tuple[Member[Any], ...]:
        names = self._read(booleans.parse_names, text, key) or ()
        return tuple(self._members(names, self._triggers, "trigger", key))

    def _read(self, parse: Callable[[str], T], text: str | None, key: str) -> T | None:
        try:
            return None if text is None else parse(text)
        except BooleanError as error:
            self._reading.add_error(key, f"{error} of {text!r}")
            return None

    def _members(self, names: Iterable[str], known: Mapping[str, Any], family: str, key: str) -> Iterator[Member[Any]]:
        for name in names:
            if name in known:
                yield Member(name, known[name])
                continue
            hint = yaml_decoder.did_you_mean(name, known) or "; define it under instances"
            self._reading.add_error(key, f"expected the name of a {family} instance, found {name!r}{hint}")


def _budget(layouts: Iterable[LimitLayout]) -> Budget:
    return Budget(
        tuple(
            BudgetLimit(max_unavailable=limit.max, group_by=limit.group_by, selector=limit.selector)
            for limit in layouts
        )
    )


def _profile(layout: ProfileLayout, key: str, chains: _Chains) -> Profile:
    states = {state: _state(layout.state(state), path(key, state.value), chains) for state in State}
    return Profile(layout.name, MappingProxyType(states), layout.selector, on_notice=layout.on_notice)


def _state(layout: StateLayout, key: str, chains: _Chains) -> StateConfig:
    return StateConfig(
        enter=chains.triggers(layout.enter, path(key, "enter")),
        notify=chains.notifications(layout.notify, path(key, "notify")),
        transitions=tuple(
            _transition(each, f"{key}.transitions[{at}]", chains) for at, each in enumerate(layout.transitions)
        ),
    )


def _transition(layout: TransitionLayout, key: str, chains: _Chains) -> StateTransition:
    return StateTransition(
        check=chains.checks(layout.check, path(key, "check")),
        next=layout.next,
        trigger=chains.triggers(layout.trigger, path(key, "trigger")),
    )
