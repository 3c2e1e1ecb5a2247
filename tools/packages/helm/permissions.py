"""Permissions in the chart: those of every installation, and those that each enabled feature adds.

Each feature is asked for its permissions (`haulout.app.permissions`, and the plugins of profiles), and the
base permissions are subtracted. Names that only the values contain are template expressions, which pass through as
strings.

A plugin is enabled if the `maintenance.yaml` of the values has an instance of its type. Most plugins need the same
permissions whatever their options. Those whose options name a lease or a Secret get a role per instance
(`instance_features`).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, is_dataclass
from datetime import timedelta
from functools import cache
from types import MappingProxyType
from typing import Any

from haulout.app.components import ComponentSettings, packagings
from haulout.app.permissions import operator_permissions
from haulout.budget import cordon_copies, slots
from haulout.controllers.machines.component import MachinesComponent
from haulout.controllers.profiles import permissions as profiles
from haulout.controllers.profiles.config.model import Configuration, Profile
from haulout.controllers.profiles.config.options import Option, options_of
from haulout.controllers.profiles.plugin import Plugin
from haulout.controllers.profiles.plugins.checks.stagger import Stagger
from haulout.controllers.profiles.plugins.registry import registries
from haulout.controllers.profiles.plugins.triggers.alter_hypervisor import AlterHypervisor
from haulout.controllers.profiles.plugins.triggers.eviction import Eviction
from haulout.drain import permissions as drain
from haulout.kube import rbac
from haulout.kube.rbac import Permission
from haulout.providers.aws.component import AwsEvents
from haulout.providers.aws.settings import AwsSettings
from haulout.providers.oci.component import OciEvents
from haulout.providers.oci.settings import OciSettings
from tools.packages.helm.common import HOME, IS_BEHIND_PROXY

LEASE_NAMESPACE = "{{ .Values.leases.namespace }}"
AWS_NAMESPACE = "{{ dir .Values.clouds.awsSecret }}"
HANDLER_NAMESPACE = "{{ .Values.clouds.ociHandlerNamespace }}"
_KEYS = "{{ base .Values.clouds.awsSecret }}"
_EXPRESSION = "{{ %s }}"
_REPEAT_EXPRESSIONS: Mapping[type[Plugin], str] = {
    Stagger: "$number := until (int (min 1000 (int (default 1 $config.parallel))))"
}
_ANY = MappingProxyType({"any": Profile(name="any", states={})})
_EMPTY = Configuration(requeue=timedelta(minutes=1), profiles=_ANY)  # only for plugins; the defaults add no permissions


@dataclass(frozen=True, slots=True)
class Feature:
    """Permissions under a condition of the template."""

    condition: str
    permissions: tuple[Permission, ...]


@dataclass(frozen=True, slots=True)
class InstanceFeature:
    """The permissions of each instance of a type with valid options; `$config` are its options."""

    type: str
    condition: str
    permissions: tuple[Permission, ...]
    repeat_expression: str = ""  # the template expression of object names, if there are several


@cache
def base_permissions() -> tuple[Permission, ...]:
    return tuple(permission for permission in _required_permissions(_EMPTY) if permission.resource != "events")


def features() -> Iterator[Feature]:
    """Yield the permissions of each feature beyond the base permissions."""
    records_pod_events = 'include "haulout.recordsPodEvents" .'
    yield Feature(records_pod_events, profiles.EVENTS)
    yield Feature('include "haulout.deletesPods" .', (drain.POD_DELETION,))
    yield Feature(
        f"not ({records_pod_events})",
        tuple(permission for permission in _required_permissions(_EMPTY) if permission.resource == "events"),
    )
    yield _extra_permissions(
        'include "haulout.issuesCertificate" .', _required_permissions(_EMPTY, own_certificate=True)
    )
    aws, oci = AwsSettings(secret=f"{AWS_NAMESPACE}/{_KEYS}"), OciSettings(handler_namespace=HANDLER_NAMESPACE)
    packaged = {kind: packaging.permissions for kind, packaging in packagings().items() if packaging.permissions}
    for condition, kind, settings in (
        (".Values.machines.enabled", MachinesComponent, None),
        *((granted.condition, kind, granted.settings) for kind, granted in packaged.items()),
        (".Values.clouds.awsSecret", AwsEvents, aws),
        (".Values.clouds.ociHandlerNamespace", OciEvents, oci),
    ):
        yield _extra_permissions(condition, _required_permissions(_EMPTY, components={kind: settings}))
    yield _extra_permissions(
        f"and ({IS_BEHIND_PROXY}) .Values.dashboard.actions", _required_permissions(_EMPTY, acts=True)
    )
    yield _extra_permissions('include "haulout.usualProfiles" .', _required_permissions(None))
    yield _extra_permissions('include "haulout.hasBudget" .', slots.permissions(HOME))
    yield _extra_permissions('include "haulout.cordonsByProfile" .', cordon_copies.permissions(HOME))
    for plugin in _option_independent_plugins():
        yield _extra_permissions(f'include "haulout.uses" (list . "{plugin.type}")', _plugin_permissions(plugin))


def instance_features() -> tuple[InstanceFeature, ...]:
    """Return the permissions of instances whose options name objects."""
    return tuple(_instance_feature(kind) for kind in _plugin_types() if kind.object_options)


def _instance_feature(kind: type[Plugin]) -> InstanceFeature:
    """Return the permissions of a plugin whose names of objects are template expressions."""
    plugin, conditions = _without_options(kind), list[str]()
    for each in options_of(kind):
        value = each.default
        if each.field in kind.object_options:
            value, used = _option_expressions(each)
            conditions += used
        if value is not MISSING:
            object.__setattr__(plugin, each.field, value)  # it is frozen
    return InstanceFeature(
        kind.type,
        f"and {' '.join(conditions)}",
        _plugin_permissions(plugin),
        repeat_expression=_REPEAT_EXPRESSIONS.get(kind, ""),
    )


def _option_expressions(each: Option) -> tuple[Any, list[str]]:
    """Return a value of template expressions for an option, and what must not be empty for them."""
    path, kind = f"$config.{each.key}", each.type
    if not is_dataclass(each.type):
        return _EXPRESSION % path, [path]
    paths = {inner.field: f"{path}.{inner.key}" for inner in options_of(kind)}
    return kind(**{field: _EXPRESSION % inner for field, inner in paths.items()}), [path, *paths.values()]


def _option_independent_plugins() -> Iterator[Plugin]:
    """Yield one plugin of each type whose permissions do not depend on options."""
    for kind in _plugin_types():
        if kind.object_options or kind is Eviction:
            continue
        plugin = AlterHypervisor(fields={"reboot": True}) if kind is AlterHypervisor else _without_options(kind)
        if _extra_permissions("", _plugin_permissions(plugin)).permissions:
            yield plugin


def _plugin_types() -> Iterator[type[Plugin]]:
    """Yield the types of Haulout's own plugins."""
    plugin_registries = registries()
    for registry in (plugin_registries.checks, plugin_registries.triggers, plugin_registries.notifications):
        yield from (registry[name] for name in sorted(registry) if registry[name].__module__.startswith("haulout."))


def _without_options(kind: type[Plugin]) -> Plugin:
    """Return a plugin without options, which its permissions do not depend on."""
    return kind.__new__(kind)


def _plugin_permissions(plugin: Plugin) -> tuple[Permission, ...]:
    return tuple(profiles.permissions_of(plugin, namespace=HOME))


def _required_permissions(
    configuration: Configuration | None,
    *,
    own_certificate: bool = False,
    components: ComponentSettings | None = None,
    acts: bool = False,
) -> tuple[Permission, ...]:
    return operator_permissions(
        namespace=HOME,
        lease_namespace=LEASE_NAMESPACE,
        configuration=configuration,
        own_certificate=own_certificate,
        components=components,
        impersonates=acts,
    )


def _extra_permissions(condition: str, required: Iterable[Permission]) -> Feature:
    """Return the permissions that the base permissions do not contain."""
    base = base_permissions()
    more = (permission for permission in rbac.without_redundant((*base, *required)) if permission not in base)
    return Feature(condition, tuple(permission for permission in more if not _is_covered_event(permission)))


def _is_covered_event(permission: Permission) -> bool:
    """Return whether the base permissions for events cover this one."""
    return permission.resource == "events" and permission.namespace in (None, "default")
