"""What the operator needs in a cluster: the permissions without which it cannot work, and what is optional.

Each controller says what it needs, and each plugin of a configuration. This sum of it is what `haulout cluster-info`
checks and `haulout manifests` grants; without a configuration, what most of them need (`haulout.profiles.permissions`).
"""

from dataclasses import dataclass
from typing import Any

from haulout.app.names import LEADER_LEASE, PROFILES_LEASE
from haulout.history import permissions as history
from haulout.history.record import MAINTENANCE_RECORDS
from haulout.kinds.notice import MAINTENANCE_NOTICES
from haulout.kube import access, leases
from haulout.kube.access import Permission
from haulout.kube.objects import RawObject
from haulout.kube.resources import Resource
from haulout.maintenance import lease
from haulout.maintenance import permissions as maintenance
from haulout.maintenance.resource import NODE_MAINTENANCES
from haulout.profiles import permissions as profiles
from haulout.profiles.model import Configuration
from haulout.web import registration


def permissions(
    *, namespace: str, lease_namespace: str = lease.NAMESPACE, configuration: Configuration | None = None
) -> tuple[Permission, ...]:
    """Return what an operator that lives in `namespace` must be allowed to do; each thing once."""
    return access.lean(
        (
            *maintenance.permissions(lease_namespace=lease_namespace),
            *history.permissions(),
            *registration.permissions(namespace=namespace),
            *leases.permissions(namespace=namespace, why="lead", names=(LEADER_LEASE,)),
            # Events about cluster-scoped objects are in the namespace `default`.
            Permission(("create", "patch"), "events.k8s.io", "events", "default", "tell people by events"),
            Permission(("get",), "", "namespaces", None, "tell of itself by events", names=(namespace,)),
            *of_profiles(configuration, namespace=namespace),
        )
    )


def of_profiles(configuration: Configuration | None, *, namespace: str) -> tuple[Permission, ...]:
    """Return what profiles need."""
    leading = leases.permissions(namespace=namespace, why="lead profiles", names=(PROFILES_LEASE,))
    if configuration is None:
        return *leading, *profiles.usual(namespace=namespace)
    return *leading, *profiles.permissions(configuration, namespace=namespace)


@dataclass(frozen=True, slots=True)
class Feature:
    """Something that is on where its custom resource is installed, and off without it."""

    resource: Resource[Any]
    what: str
    is_shipped: bool = False  # its definition is in what `haulout manifests` prints


FEATURES = (
    Feature(
        NODE_MAINTENANCES,
        "maintenance on a person's order",
        is_shipped=True,
    ),
    Feature(
        MAINTENANCE_NOTICES,
        "notices from clouds",
    ),
    Feature(
        MAINTENANCE_RECORDS,
        "the history of nodes",
        is_shipped=True,
    ),
    Feature(
        Resource(
            "machinemaintenance.managed.openshift.io",
            "v1alpha1",
            "machinemaintenances",
            "MachineMaintenance",
            True,
            RawObject,
        ),
        "replacing OpenShift machines",
    ),
)
