"""What the NodeMaintenance controller must be allowed to do. Whoever adds a request there adds its line here."""

from haulout.api.nodemaintenance import NODE_MAINTENANCES
from haulout.api.workloads import WORKLOAD_KINDS
from haulout.controllers.nodemaintenance.node_lease import NAMESPACE
from haulout.drain import permissions as drain
from haulout.kube.rbac import Permission

_READ = ("get", "list", "watch")


def permissions(*, lease_namespace: str = NAMESPACE) -> tuple[Permission, ...]:
    """Return what the controller needs; the leases of nodes are in `lease_namespace`."""
    group, plural = NODE_MAINTENANCES.group, NODE_MAINTENANCES.plural
    return (
        Permission((*_READ, "patch"), group, plural, None, "see and hold maintenances"),
        Permission(("patch",), group, f"{plural}/status", None, "tell how they stand"),
        Permission(_READ, "", "nodes", None, "see nodes"),
        Permission(("patch",), "", "nodes", None, "cordon, taint and label nodes"),
        Permission(("patch",), "", "nodes/status", None, "set conditions of nodes"),
        *drain.permissions(),
        *(
            Permission(("list", "watch"), resource.group, resource.plural, None, "see workloads recover")
            for resource in WORKLOAD_KINDS.values()
        ),
        Permission(("list",), "policy", "poddisruptionbudgets", None, "keep the quorum of etcd"),
        Permission(
            (*_READ, "create", "patch", "delete"), "coordination.k8s.io", "leases", lease_namespace, "lock nodes"
        ),
    )
