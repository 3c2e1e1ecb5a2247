"""Permissions of the Cluster API controller. Add a line here with each new kind of request.

Secrets are read one by one, and only those of clusters with enabled Machines. A Secret that cannot be used is watched
by name until it can. The names end in `-kubeconfig` and are not known in advance, so no role can list them; to grant
less, grant by namespace.
"""

from haulout.api.clusterapi import EXTENSION_LEASE, GROUP
from haulout.api.maintenancefreeze import MAINTENANCE_FREEZES
from haulout.controllers.clusterapi import cluster_budget, machine_drain_rules, metal3
from haulout.kube import leases
from haulout.kube.rbac import Permission

_WATCH = ("list", "watch")


def permissions(*, namespace: str, with_metal3: bool = False) -> tuple[Permission, ...]:
    """Return the permissions in the management cluster, for a controller whose lease is in `namespace`."""
    return (
        Permission(
            ("get", *_WATCH, "patch"), GROUP, "machines", None, "hold deletions of Machines, and approve maintenance"
        ),
        Permission(_WATCH, GROUP, "clusters", None, "watch which clusters are deleted or paused"),
        Permission(_WATCH, MAINTENANCE_FREEZES.group, MAINTENANCE_FREEZES.plural, None, "honour MaintenanceFreezes"),
        *machine_drain_rules.permissions(),
        *(metal3.permissions() if with_metal3 else ()),
        Permission(("get", "watch"), "", "secrets", None, "read the kubeconfigs of workload clusters"),
        Permission(("create", "patch"), "events.k8s.io", "events", None, "record events"),
        Permission(("get",), "", "namespaces", None, "record Events about the hub", names=(namespace,)),
        *cluster_budget.permissions(namespace),
        *leases.permissions(namespace=namespace, why="lead", names=(EXTENSION_LEASE,), watched=True),
    )
