"""What a hub must be allowed to do. Whoever adds a request there adds its line here.

Secrets are read one by one, and only those of clusters with Machines that are enabled. One that cannot be used is
watched, by its name, until it can. Their names end in `-kubeconfig`
and are not known before, so no role can name them; who wants less grants it by namespace.
"""

from haulout.api.clusterapi import EXTENSION_LEASE, GROUP
from haulout.controllers.clusterapi import cluster_budget
from haulout.controllers.clusterapi.drainrules import annotation
from haulout.controllers.clusterapi.metal3 import controller
from haulout.kube import leases
from haulout.kube.rbac import Permission

_WATCH = ("list", "watch")
_READ = ("get", *_WATCH)
_EVENTS_PURPOSE = "tell people by events"


def permissions(*, namespace: str, with_metal3: bool = False) -> tuple[Permission, ...]:
    """Return what is needed in the management cluster, by a hub whose lease is in `namespace`."""
    return (
        Permission(
            ("get", *_WATCH, "patch"), GROUP, "machines", None, "hold deletions of Machines, and approve maintenance"
        ),
        Permission(_WATCH, GROUP, "clusters", None, "see which clusters are being deleted, or are paused"),
        *annotation.permissions(),
        *(controller.permissions() if with_metal3 else ()),
        Permission(("get", "watch"), "", "secrets", None, "reach workload clusters, by their kubeconfigs"),
        Permission(("create", "patch"), "events.k8s.io", "events", None, _EVENTS_PURPOSE),
        *cluster_budget.permissions(namespace),
        *leases.permissions(namespace=namespace, why="lead", names=(EXTENSION_LEASE,), watched=True),
    )


def workload_cluster_permissions() -> tuple[Permission, ...]:
    """Return what is needed in each workload cluster, by who is named in its kubeconfig."""
    return (
        Permission((*_READ, "patch"), "", "nodes", None, "ask that nodes be prepared, and hear that they are"),
        Permission(("create", "patch"), "events.k8s.io", "events", "default", _EVENTS_PURPOSE),
    )
