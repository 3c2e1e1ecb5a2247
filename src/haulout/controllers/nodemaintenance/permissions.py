"""The permissions of the NodeMaintenance controller. Add a line here for every new kind of request."""

from haulout.api.nodemaintenance import NODE_MAINTENANCES
from haulout.api.workloads import WORKLOAD_KINDS
from haulout.controllers.nodemaintenance.node_lease import NAMESPACE
from haulout.drain import permissions as drain
from haulout.kube.rbac import Permission

_READ = ("get", "list", "watch")


def permissions(*, lease_namespace: str = NAMESPACE) -> tuple[Permission, ...]:
    """Return the controller's permissions. The leases of nodes are in `lease_namespace`."""
    group, plural = NODE_MAINTENANCES.group, NODE_MAINTENANCES.plural
    return (
        Permission((*_READ, "patch"), group, plural, None, "watch and update NodeMaintenances"),
        Permission(("patch",), group, f"{plural}/status", None, "write their status"),
        Permission(_READ, "", "nodes", None, "watch nodes"),
        Permission(("patch",), "", "nodes", None, "cordon, taint and label nodes"),
        Permission(("patch",), "", "nodes/status", None, "set node conditions"),
        *drain.permissions(),
        *(
            Permission(("list", "watch"), resource.group, resource.plural, None, "watch workloads recover")
            for resource in WORKLOAD_KINDS.values()
        ),
        Permission(("list",), "policy", "poddisruptionbudgets", None, "protect the quorum of etcd"),
        Permission(
            (*_READ, "create", "patch", "delete"),
            "coordination.k8s.io",
            "leases",
            lease_namespace,
            "hold leases of nodes",
        ),
    )
