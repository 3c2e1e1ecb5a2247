"""What the operator needs in a cluster: the permissions without which it cannot work, and what is optional.

Each controller says what it needs. This sum of it is what `haulout cluster-info` checks and `haulout manifests` grants.
"""

from dataclasses import dataclass
from typing import Any

from haulout.kube.access import Permission
from haulout.kube.objects import RawObject
from haulout.kube.resources import Resource
from haulout.maintenance import lease
from haulout.maintenance import permissions as maintenance
from haulout.maintenance.resource import NODE_MAINTENANCES
from haulout.profiles import permissions as profiles
from haulout.web import registration


def permissions(*, namespace: str, lease_namespace: str = lease.NAMESPACE) -> tuple[Permission, ...]:
    """Return what an operator that lives in `namespace` must be allowed to do."""
    wanted = (
        *maintenance.permissions(lease_namespace=lease_namespace),
        *profiles.permissions(namespace=namespace),
        *registration.permissions(namespace=namespace),
        Permission(("get", "create", "patch"), "coordination.k8s.io", "leases", namespace, "lead"),
        # Events about cluster-scoped objects are in the namespace `default`.
        Permission(("create", "patch"), "events.k8s.io", "events", "default", "tell people by events"),
    )
    return tuple(dict.fromkeys(wanted))  # what several need is named once


@dataclass(frozen=True, slots=True)
class Feature:
    """Something that is on where its custom resource is installed, and off without it."""

    resource: Resource[Any]
    what: str


FEATURES = (
    Feature(
        NODE_MAINTENANCES,
        "maintenance on a person's order",
    ),
    Feature(
        Resource("haulout.dev", "v1alpha1", "maintenancenotices", "MaintenanceNotice", False, RawObject),
        "notices from clouds",
    ),
    Feature(
        Resource("haulout.dev", "v1alpha1", "maintenancerecords", "MaintenanceRecord", False, RawObject),
        "the history of nodes",
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
