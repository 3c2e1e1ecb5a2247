"""What the operator needs in a cluster: the permissions without which it cannot work, and what is optional.

This table is the one source of it: `haulout cluster-info` checks it. Each line is there because some code sends that
request; whoever adds a request adds its line.
"""

from dataclasses import dataclass
from typing import Any

from haulout.kube.access import Permission
from haulout.kube.objects import RawObject
from haulout.kube.resources import Resource

_READ = ("get", "list", "watch")


def permissions(*, namespace: str) -> tuple[Permission, ...]:
    """Return what an operator that lives in `namespace` must be allowed to do."""
    return (
        Permission(_READ, "", "nodes", None, "see nodes"),
        Permission(("patch",), "", "nodes", None, "cordon, taint and label nodes"),
        Permission(("patch",), "", "nodes/status", None, "set conditions of nodes"),
        Permission(_READ, "", "pods", None, "see pods"),
        Permission(("create",), "", "pods/eviction", None, "evict pods"),
        Permission(_READ, "policy", "poddisruptionbudgets", None, "see disruption budgets"),
        Permission(
            (*_READ, "create", "patch", "delete"), "coordination.k8s.io", "leases", namespace, "lead, and lock nodes"
        ),
        # Events about nodes go to the namespace `default`, those about pods to the pod's.
        Permission(("create", "patch"), "events.k8s.io", "events", None, "tell people by events"),
    )


@dataclass(frozen=True, slots=True)
class Feature:
    """Something that is on where its custom resource is installed, and off without it."""

    resource: Resource[Any]
    what: str


FEATURES = (
    Feature(
        Resource("nodemaintenance.medik8s.io", "v1beta1", "nodemaintenances", "NodeMaintenance", False, RawObject),
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
