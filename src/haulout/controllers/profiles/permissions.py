"""What profiles must be allowed to do. Whoever adds a request there adds its line here, or to its plugin.

    permissions(configuration, namespace="haulout")       # exactly what a configuration needs
    usual(namespace="haulout")                            # what most configurations need, where none is known yet

What a plugin follows is in its `needs`; what else it must be allowed, its `permissions` say. So a lease is granted in
the namespace where it is, a Secret by its name, and what nobody configures is not granted at all.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES
from haulout.api.resources import LEASES, PODS, Resource
from haulout.api.workloads import WORKLOAD_KINDS
from haulout.budget import cordon_copies, slots
from haulout.controllers.profiles.config.model import Configuration
from haulout.controllers.profiles.executor import HYPERVISORS
from haulout.controllers.profiles.plugin import Need, Plugin, Trigger
from haulout.drain import permissions as drain
from haulout.drain.lookups import DAEMON_SETS
from haulout.kube import leases
from haulout.kube.rbac import Permission

_BUDGET = "budget"
_WATCH_VERBS = ("list", "watch")
EVENTS = (Permission(("create", "patch"), "events.k8s.io", "events", None, "tell of evicted pods"),)
CONDITIONS = (Permission(("patch",), "", "nodes/status", None, "set conditions of nodes"),)
_WATCHED_RESOURCES: Mapping[Need, tuple[Resource[Any], ...]] = {
    Need.PODS: (PODS,),
    Need.FREE_CAPACITY: (PODS,),
    Need.DAEMON_SETS: (DAEMON_SETS,),
    Need.WORKLOADS: (PODS, *WORKLOAD_KINDS.values()),
    Need.HYPERVISORS: (HYPERVISORS,),
    Need.NOTICES: (MAINTENANCE_NOTICES,),
}


def permissions(configuration: Configuration, *, namespace: str) -> tuple[Permission, ...]:
    """Return what a configuration needs; the operator lives in `namespace`."""
    needed = plugin_permissions(configuration, namespace=namespace)
    return (
        *base_permissions(),
        *needed,
        *_metrics_permissions(namespace),
        *(cordon_copies.permissions(namespace) if _cordons(configuration) else ()),
        *((*EVENTS, *CONDITIONS) if any(map(_drains, needed)) else ()),
    )


def base_permissions() -> tuple[Permission, ...]:
    """Return what every configuration needs."""
    return (
        Permission(("get", "list", "watch"), "", "nodes", None, "see nodes"),
        Permission(("patch",), "", "nodes", None, "cordon, taint and label nodes"),
    )


def default_permissions(*, namespace: str) -> tuple[Permission, ...]:
    """Return what is granted where no configuration is known: to drain, to count, to see workloads recover.

    Not in it is what has to be named: leases in other namespaces, Secrets, hypervisors.
    """
    watched_needs = (need for need in Need if need not in (Need.HYPERVISORS, Need.LEASES))
    return (
        *base_permissions(),
        *drain.permissions(),
        *EVENTS,
        *CONDITIONS,
        *_metrics_permissions(namespace),
        *slots.permissions(namespace),
        *cordon_copies.permissions(namespace),
        *(each for need in watched_needs for each in _watch_permissions(need)),
        _lease_watch_permission(namespace),
        *leases.permissions(namespace=namespace, why="lead, stagger, keep threads"),
    )


def _metrics_permissions(namespace: str) -> tuple[Permission, ...]:
    """Return what is needed to tell of nodes in maintenance. Where it is missing no plugin is barred: less is told."""
    owners: tuple[Resource[Any], ...] = (DAEMON_SETS, *WORKLOAD_KINDS.values())
    return (
        Permission(("list",), "", "pods", None, "count pods that move"),
        *(Permission(("get",), owner.group, owner.plural, None, "tell whose pods move") for owner in owners),
        Permission(("get",), "", "pods", namespace, "ask the leader"),
    )


def _cordons(configuration: Configuration) -> bool:
    """Tell whether a plugin may cordon. If the copies cannot be kept no plugin is barred: annotations alone count."""
    return any(isinstance(plugin, Trigger) and plugin.may_cordon for _, plugin in configuration.members())


def _drains(permission: Permission) -> bool:
    """Tell whether pods are made to leave by this."""
    return permission.resource == "pods/eviction" or (permission.resource == "pods" and "delete" in permission.verbs)


def plugin_permissions(configuration: Configuration, *, namespace: str) -> Mapping[Permission, tuple[str, ...]]:
    """Return what a configuration needs beside what all do, and what needs it: instances, `profile os`, `budget`."""
    found: dict[Permission, dict[str, None]] = {}
    for name, plugin in configuration.members():
        for each in permissions_of(plugin, namespace=namespace):
            found.setdefault(each, {})[name] = None
    for profile in configuration.profiles.values():
        for each in _watch_permissions(Need.NOTICES) if profile.on_notice else ():
            found.setdefault(each, {})[f"profile {profile.name}"] = None
    for each in slots.permissions(namespace) if configuration.budget else ():
        found.setdefault(each, {})[_BUDGET] = None
    return {each: tuple(names) for each, names in found.items()}


def permissions_of(plugin: Plugin, *, namespace: str) -> Iterator[Permission]:
    """Yield what a plugin needs."""
    for need in Need:
        if need in plugin.needs:
            yield from _watch_permissions(need)
    if Need.LEASES in plugin.needs:
        yield from map(_lease_watch_permission, plugin.lease_namespaces())
    yield from plugin.permissions(namespace)


def _watch_permissions(need: Need) -> Iterator[Permission]:
    for resource in _WATCHED_RESOURCES.get(need, ()):
        yield Permission(_WATCH_VERBS, resource.group, resource.plural, None, f"follow {resource.plural}")


def _lease_watch_permission(namespace: str) -> Permission:
    return Permission(_WATCH_VERBS, LEASES.group, LEASES.plural, namespace, "follow leases")
