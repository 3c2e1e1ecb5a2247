"""What profiles must be allowed to do. Whoever adds a request there adds its line here, or to its plugin.

    permissions(configuration, namespace="haulout")       # exactly what a configuration needs
    usual(namespace="haulout")                            # what most configurations need, where none is known yet

What a plugin follows is in its `needs`; what else it must be allowed, its `permissions` say. So a lease is granted in
the namespace where it is, a Secret by its name, and what nobody configures is not granted at all.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from haulout.budget import cordon_copies, slots
from haulout.drain import permissions as drain
from haulout.drain.answers import DAEMON_SETS
from haulout.drain.workloads import KINDS
from haulout.kinds.notice import MAINTENANCE_NOTICES
from haulout.kube import leases
from haulout.kube.access import Permission
from haulout.kube.resources import LEASES, PODS, Resource
from haulout.profiles.model import Configuration
from haulout.profiles.performing import HYPERVISORS
from haulout.profiles.plugin import Need, Plugin, Trigger

_BUDGET = "budget"
_FOLLOW = ("list", "watch")
EVENTS = (Permission(("create", "patch"), "events.k8s.io", "events", None, "tell of evicted pods"),)
CONDITIONS = (Permission(("patch",), "", "nodes/status", None, "set conditions of nodes"),)
_FOLLOWED: Mapping[Need, tuple[Resource[Any], ...]] = {
    Need.PODS: (PODS,),
    Need.ROOM: (PODS,),
    Need.DAEMON_SETS: (DAEMON_SETS,),
    Need.WORKLOADS: (PODS, *KINDS.values()),
    Need.HYPERVISORS: (HYPERVISORS,),
    Need.NOTICES: (MAINTENANCE_NOTICES,),
}


def permissions(configuration: Configuration, *, namespace: str) -> tuple[Permission, ...]:
    """Return what a configuration needs; the operator lives in `namespace`."""
    needed = wanted(configuration, namespace=namespace)
    return (
        *always(),
        *needed,
        *_counting(namespace),
        *(cordon_copies.permissions(namespace) if _cordons(configuration) else ()),
        *((*EVENTS, *CONDITIONS) if any(map(_drains, needed)) else ()),
    )


def always() -> tuple[Permission, ...]:
    """Return what every configuration needs."""
    return (
        Permission(("get", "list", "watch"), "", "nodes", None, "see nodes"),
        Permission(("patch",), "", "nodes", None, "cordon, taint and label nodes"),
    )


def usual(*, namespace: str) -> tuple[Permission, ...]:
    """Return what is granted where no configuration is known: to drain, to count, to see workloads recover.

    Not in it is what has to be named: leases in other namespaces, Secrets, hypervisors.
    """
    seen = (need for need in Need if need not in (Need.HYPERVISORS, Need.LEASES))
    return (
        *always(),
        *drain.permissions(),
        *EVENTS,
        *CONDITIONS,
        *_counting(namespace),
        *slots.permissions(namespace),
        *cordon_copies.permissions(namespace),
        *(each for need in seen for each in _following(need)),
        _following_leases(namespace),
        *leases.permissions(namespace=namespace, why="lead, stagger, keep threads"),
    )


def _counting(namespace: str) -> tuple[Permission, ...]:
    """Return what is needed to tell of nodes in maintenance. Where it is missing no plugin is barred: less is told."""
    owners: tuple[Resource[Any], ...] = (DAEMON_SETS, *KINDS.values())
    return (
        Permission(("list",), "", "pods", None, "count pods that move"),
        *(Permission(("get",), it.group, it.plural, None, "tell whose pods move") for it in owners),
        Permission(("get",), "", "pods", namespace, "ask the leader"),
    )


def _cordons(configuration: Configuration) -> bool:
    """Tell whether a plugin may cordon. If the copies cannot be kept no plugin is barred: annotations alone count."""
    return any(isinstance(plugin, Trigger) and plugin.cordons for _, plugin in configuration.members())


def _drains(permission: Permission) -> bool:
    """Tell whether pods are made to leave by this."""
    return permission.resource == "pods/eviction" or (permission.resource == "pods" and "delete" in permission.verbs)


def wanted(configuration: Configuration, *, namespace: str) -> Mapping[Permission, tuple[str, ...]]:
    """Return what a configuration needs beside what all do, and what needs it: instances, `profile os`, `budget`."""
    found: dict[Permission, dict[str, None]] = {}
    for name, plugin in configuration.members():
        for each in of(plugin, namespace=namespace):
            found.setdefault(each, {})[name] = None
    for profile in configuration.profiles.values():
        for each in _following(Need.NOTICES) if profile.on_notice else ():
            found.setdefault(each, {})[f"profile {profile.name}"] = None
    for each in slots.permissions(namespace) if configuration.budget else ():
        found.setdefault(each, {})[_BUDGET] = None
    return {each: tuple(names) for each, names in found.items()}


def of(plugin: Plugin, *, namespace: str) -> Iterator[Permission]:
    """Yield what a plugin needs."""
    for need in Need:
        if need in plugin.needs:
            yield from _following(need)
    if Need.LEASES in plugin.needs:
        yield from map(_following_leases, plugin.lease_namespaces())
    yield from plugin.permissions(namespace)


def _following(need: Need) -> Iterator[Permission]:
    for it in _FOLLOWED.get(need, ()):
        yield Permission(_FOLLOW, it.group, it.plural, None, f"follow {it.plural}")


def _following_leases(namespace: str) -> Permission:
    return Permission(_FOLLOW, LEASES.group, LEASES.plural, namespace, "follow leases")
