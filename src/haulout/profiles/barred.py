"""Configurations of which the operator may not do all: what it may not do is barred, and says why; the rest works.

    usable = barred(configuration, refused, namespace="haulout")

A barred check cannot be told: its chain does not pass unless it passes anyway, and `haulout why` shows the reason. A
barred trigger fails before its chain does anything: no node is cordoned for a drain that could not follow. So nothing
begins that could not be brought to its end. Notifications are not barred: one that fails is told, and stops nothing.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from types import MappingProxyType

from haulout.errors import HauloutError
from haulout.kube.access import Permission, Refusal
from haulout.profiles import permissions
from haulout.profiles.model import Configuration, Member, Profile, StateConfig, Transition, needs_of
from haulout.profiles.plugin import Check, Effect, Plugin, Scene, Trigger, Verdict, unknown

EVENT = "PermissionsMissing"  # about the operator's namespace: what it lacks


class Lacking(HauloutError):
    """The operator lacks a permission."""


@dataclass(frozen=True, slots=True)
class BarredCheck(Check):
    """Stands for a check that the operator may not make."""

    type: str  # type: ignore[misc]  # of the one that it stands for
    why: str

    def look(self, scene: Scene) -> Verdict:
        """Return that it cannot be told."""
        del scene
        return unknown(self.why)


@dataclass(frozen=True, slots=True)
class BarredTrigger(Trigger):
    """Stands for a trigger that the operator may not pull."""

    type: str  # type: ignore[misc]  # of the one that it stands for
    why: str

    def effects(self, scene: Scene) -> tuple[Effect, ...]:
        """Fail."""
        del scene
        raise Lacking(self.why)


def barred(configuration: Configuration, refused: Collection[Refusal], *, namespace: str) -> Configuration:
    """Return a configuration without what needs a permission that was refused."""
    if not refused:
        return configuration
    maker = _Barring(refused, namespace)
    profiles = {name: maker.profile(it) for name, it in configuration.profiles.items()}
    found = replace(configuration, profiles=MappingProxyType(profiles))
    return replace(found, needs=needs_of(found.profiles.values()))


def in_words(refused: Collection[Refusal]) -> str:
    """Return what is missing, for people: `list, watch leases.coordination.k8s.io in kube-system (to see leases)`."""
    verbs: dict[tuple[str, str], list[str]] = {}
    for permission, verb, _ in refused:
        names = f" {', '.join(permission.names)}" if permission.names else ""
        verbs.setdefault((f"{permission}{names}", permission.why), []).append(verb)
    return "; ".join(f"{', '.join(each)} {what} (to {why})" for (what, why), each in verbs.items())


class _Barring:
    """Puts what is barred into the place of what it stands for."""

    def __init__(self, refused: Collection[Refusal], namespace: str) -> None:
        self._refused: dict[Permission, list[Refusal]] = {}
        for each in refused:
            self._refused.setdefault(each.permission, []).append(each)
        self._namespace = namespace

    def profile(self, profile: Profile) -> Profile:
        states = {name: self._state(state) for name, state in profile.states.items()}
        return replace(profile, states=MappingProxyType(states))

    def _state(self, state: StateConfig) -> StateConfig:
        ways = tuple(map(self._transition, state.transitions))
        return replace(state, enter=tuple(map(self._trigger, state.enter)), transitions=ways)

    def _transition(self, way: Transition) -> Transition:
        check = replace(way.check, members=tuple(map(self._check, way.check.members)))
        return replace(way, check=check, trigger=tuple(map(self._trigger, way.trigger)))

    def _check(self, member: Member[Check]) -> Member[Check]:
        why = self._why(member.plugin)
        return replace(member, plugin=BarredCheck(member.plugin.type, why)) if why else member

    def _trigger(self, member: Member[Trigger]) -> Member[Trigger]:
        why = "" if member.plugin.only_waits else self._why(member.plugin)
        return replace(member, plugin=BarredTrigger(member.plugin.type, why)) if why else member

    def _why(self, plugin: Plugin) -> str:
        needed = permissions.of(plugin, namespace=self._namespace)
        missing = [refusal for each in needed for refusal in self._refused.get(each, ())]
        return f"the operator may not {in_words(missing)}" if missing else ""
