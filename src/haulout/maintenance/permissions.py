"""What the NodeMaintenance controller must be allowed to do. Whoever adds a request there adds its line here."""

from haulout.kube.access import Permission
from haulout.maintenance.lease import NAMESPACE
from haulout.maintenance.resource import NODE_MAINTENANCES

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
        Permission(_READ, "", "pods", None, "see pods"),
        Permission(("create",), "", "pods/eviction", None, "evict pods"),
        Permission(("delete",), "", "pods", None, "delete pods by policy"),
        Permission(
            (*_READ, "create", "patch", "delete"), "lifecycle.k8s.io", "evictionrequests", None, "ask for evictions"
        ),
        Permission(_READ, "lifecycle.k8s.io", "evictions", None, "see how these go"),
        Permission(("get",), "apps", "daemonsets", None, "tell pods of DaemonSets"),
        Permission(_READ, "policy", "poddisruptionbudgets", None, "see disruption budgets"),
        Permission(("get", "create"), "", "namespaces", None, "see namespaces, make one"),
        Permission(
            (*_READ, "create", "patch", "delete"), "coordination.k8s.io", "leases", lease_namespace, "lock nodes"
        ),
    )
