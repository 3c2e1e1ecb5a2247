"""What the NodeMaintenance controller must be allowed to do. Whoever adds a request there adds its line here."""

from haulout.drain import permissions as drain
from haulout.drain.workloads import KINDS
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
        *drain.permissions(),
        *(Permission(("list", "watch"), it.group, it.plural, None, "see workloads recover") for it in KINDS.values()),
        Permission(("list",), "policy", "poddisruptionbudgets", None, "keep the quorum of etcd"),
        Permission(
            (*_READ, "create", "patch", "delete"), "coordination.k8s.io", "leases", lease_namespace, "lock nodes"
        ),
    )
