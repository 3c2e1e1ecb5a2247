"""Replaces plugins that need a missing permission by ones that report it, so that the rest of the configuration works.

    usable = without_forbidden_plugins(configuration, refused, namespace="haulout")

A forbidden check is unknown: its chain passes only if the check does not matter, and `haulout why` shows the reason. A
forbidden trigger fails before its chain has any effect: no node is cordoned for a drain that could not follow. So
nothing starts that cannot be completed. Notifications are not replaced: one that fails is reported and blocks nothing.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from types import MappingProxyType

from haulout.api.reasons import OperatorEventReason
from haulout.controllers.profiles import permissions
from haulout.controllers.profiles.config.model import (
    Configuration,
    Member,
    Profile,
    StateConfig,
    StateTransition,
    needs_of,
)
from haulout.controllers.profiles.plugin import Action, Check, CheckResult, Plugin, PluginContext, Trigger, unknown
from haulout.errors import HauloutError
from haulout.kube.rbac import DeniedPermission, Permission

PERMISSIONS_MISSING = (
    OperatorEventReason.PERMISSIONS_MISSING
)  # event on the operator's namespace: lists the missing permissions


class PermissionMissing(HauloutError):
    """Raised if the operator lacks a permission."""


@dataclass(frozen=True, slots=True)
class ForbiddenCheck(Check):
    """Replaces a check that the operator may not evaluate."""

    type: str  # type: ignore[misc]  # of the replaced check
    reason: str

    def evaluate(self, context: PluginContext) -> CheckResult:
        del context
        return unknown(self.reason)


@dataclass(frozen=True, slots=True)
class ForbiddenTrigger(Trigger):
    """Replaces a trigger that the operator may not run."""

    type: str  # type: ignore[misc]  # of the replaced trigger
    reason: str

    def actions(self, context: PluginContext) -> tuple[Action, ...]:
        del context
        raise PermissionMissing(self.reason)


def without_forbidden_plugins(
    configuration: Configuration, refused: Collection[DeniedPermission], *, namespace: str
) -> Configuration:
    """Return the configuration with all plugins replaced that need a denied permission."""
    if not refused:
        return configuration
    replacer = _Replacer(refused, namespace)
    profiles = {name: replacer.profile(profile) for name, profile in configuration.profiles.items()}
    restricted = replace(configuration, profiles=MappingProxyType(profiles))
    return replace(restricted, needs=needs_of(restricted.profiles.values()))


def format_refusals(refused: Collection[DeniedPermission]) -> str:
    """Return the missing permissions: `list, watch leases.coordination.k8s.io in kube-system (to see leases)`."""
    verbs: dict[tuple[str, str], list[str]] = {}
    for permission, verb, _ in refused:
        names = f" {', '.join(permission.names)}" if permission.names else ""
        verbs.setdefault((f"{permission}{names}", permission.why), []).append(verb)
    return "; ".join(f"{', '.join(verb_list)} {target} (to {reason})" for (target, reason), verb_list in verbs.items())


class _Replacer:
    """Replaces the forbidden plugins of profiles. A plugin is forbidden if any permission that it needs is denied."""

    def __init__(self, refused: Collection[DeniedPermission], namespace: str) -> None:
        self._refused: dict[Permission, list[DeniedPermission]] = {}
        for each in refused:
            self._refused.setdefault(each.permission, []).append(each)
        self._namespace = namespace

    def profile(self, profile: Profile) -> Profile:
        states = {name: self._state(state) for name, state in profile.states.items()}
        return replace(profile, states=MappingProxyType(states))

    def _state(self, state: StateConfig) -> StateConfig:
        transitions = tuple(map(self._transition, state.transitions))
        return replace(state, enter=tuple(map(self._trigger, state.enter)), transitions=transitions)

    def _transition(self, transition: StateTransition) -> StateTransition:
        check = replace(transition.check, members=tuple(map(self._check, transition.check.members)))
        return replace(transition, check=check, trigger=tuple(map(self._trigger, transition.trigger)))

    def _check(self, member: Member[Check]) -> Member[Check]:
        reason = self._forbidden_reason(member.plugin)
        return replace(member, plugin=ForbiddenCheck(member.plugin.type, reason)) if reason else member

    def _trigger(self, member: Member[Trigger]) -> Member[Trigger]:
        # A trigger that only waits ends after its timeout whatever it can see. If it failed instead, the node would
        # stay out of service.
        reason = "" if member.plugin.only_waits else self._forbidden_reason(member.plugin)
        return replace(member, plugin=ForbiddenTrigger(member.plugin.type, reason)) if reason else member

    def _forbidden_reason(self, plugin: Plugin) -> str:
        needed = permissions.permissions_of(plugin, namespace=self._namespace)
        missing = [refusal for each in needed for refusal in self._refused.get(each, ())]
        return f"the operator is not allowed to {format_refusals(missing)}" if missing else ""
