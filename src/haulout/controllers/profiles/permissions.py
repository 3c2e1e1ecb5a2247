"""Permissions that profiles need. Code that sends a new kind of request must add its permission here or to its plugin.

    permissions(configuration, namespace="haulout")  # exactly what a configuration needs
    default_permissions(namespace="haulout")         # what most configurations need, if none is known yet

`needs` of a plugin are the resources that it watches, and `permissions` returns everything else. So a lease is granted
in its namespace, a Secret by its name, and permissions that no configured plugin needs are not granted at all.
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
EVENTS = (Permission(("create", "patch"), "events.k8s.io", "events", None, "record events of pods"),)
CONDITIONS = (Permission(("patch",), "", "nodes/status", None, "set node conditions"),)
_WATCHED_RESOURCES: Mapping[Need, tuple[Resource[Any], ...]] = {
    Need.PODS: (PODS,),
    Need.FREE_CAPACITY: (PODS,),
    Need.DAEMON_SETS: (DAEMON_SETS,),
    Need.WORKLOADS: (PODS, *WORKLOAD_KINDS.values()),
    Need.HYPERVISORS: (HYPERVISORS,),
    Need.NOTICES: (MAINTENANCE_NOTICES,),
}


def permissions(configuration: Configuration, *, namespace: str) -> tuple[Permission, ...]:
    """Return what a configuration needs; `namespace` is the operator's."""
    needed = plugin_permissions(configuration, namespace=namespace)
    return (
        *base_permissions(),
        *needed,
        *_metrics_permissions(namespace),
        *(cordon_copies.permissions(namespace) if _cordons(configuration) else ()),
        *((*EVENTS, *CONDITIONS) if any(map(_drains, needed)) else ()),
    )


def base_permissions() -> tuple[Permission, ...]:
    return (
        Permission(("get", "list", "watch"), "", "nodes", None, "watch nodes"),
        Permission(("patch",), "", "nodes", None, "cordon, taint and label nodes"),
    )


def default_permissions(*, namespace: str) -> tuple[Permission, ...]:
    """Return what to grant if no configuration is known: to drain, to count, to wait for workloads to recover.

    It does not contain what must be named: leases in other namespaces, Secrets, hypervisors.
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
        *leases.permissions(namespace=namespace, why="take and renew leases"),
    )


def _metrics_permissions(namespace: str) -> tuple[Permission, ...]:
    """Return what metrics of nodes in maintenance need. Without it no plugin is forbidden; there are fewer metrics."""
    owners: tuple[Resource[Any], ...] = (DAEMON_SETS, *WORKLOAD_KINDS.values())
    return (
        Permission(("list",), "", "pods", None, "count moved pods"),
        *(Permission(("get",), owner.group, owner.plural, None, "find owners of moved pods") for owner in owners),
        Permission(("get",), "", "pods", namespace, "find the leader's pod"),
    )


def _cordons(configuration: Configuration) -> bool:
    """Return whether a plugin may cordon. If copies cannot be kept, no plugin is forbidden: annotations alone count."""
    return any(isinstance(plugin, Trigger) and plugin.may_cordon for _, plugin in configuration.members())


def _drains(permission: Permission) -> bool:
    """Return whether this permission is for evicting or deleting pods."""
    return permission.resource == "pods/eviction" or (permission.resource == "pods" and "delete" in permission.verbs)


def plugin_permissions(configuration: Configuration, *, namespace: str) -> Mapping[Permission, tuple[str, ...]]:
    """Return what a configuration needs beside `base_permissions`, and for what: instances, `profile os`, `budget`."""
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
    for need in Need:
        if need in plugin.needs:
            yield from _watch_permissions(need)
    if Need.LEASES in plugin.needs:
        yield from map(_lease_watch_permission, plugin.lease_namespaces())
    yield from plugin.permissions(namespace)


def _watch_permissions(need: Need) -> Iterator[Permission]:
    for resource in _WATCHED_RESOURCES.get(need, ()):
        yield Permission(_WATCH_VERBS, resource.group, resource.plural, None, f"watch {resource.plural}")


def _lease_watch_permission(namespace: str) -> Permission:
    return Permission(_WATCH_VERBS, LEASES.group, LEASES.plural, namespace, "watch leases")
