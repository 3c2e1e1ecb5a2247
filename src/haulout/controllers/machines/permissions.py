"""The permissions for replacing Machines. Add a line here for every new kind of request.

Machines can be deleted in their own namespace only, and MachineMaintenances written in the operator's only.
"""

from haulout.api.machinemaintenance import MACHINE_MAINTENANCES, NAMESPACE
from haulout.api.maintenancenotice import MAINTENANCE_NOTICES
from haulout.api.openshift import (
    CONTROL_PLANE_MACHINE_SET,
    CONTROL_PLANE_MACHINE_SETS,
    GROUP,
    MACHINE_NAMESPACE,
    MACHINE_SETS,
    MACHINES,
)
from haulout.kube.rbac import Permission

_READ = ("get", "list", "watch")
_WATCH = ("list", "watch")


def permissions(
    *, namespace: str = NAMESPACE, machine_namespace: str = MACHINE_NAMESPACE, with_notices: bool = True
) -> tuple[Permission, ...]:
    """Return the permissions.

    MachineMaintenances are in `namespace` (empty: all). `with_notices`: notices create MachineMaintenances.
    """
    group, plural, scope = MACHINE_MAINTENANCES.group, MACHINE_MAINTENANCES.plural, namespace or None
    return (
        Permission((*_READ, "patch"), group, plural, scope, "watch MachineMaintenances"),
        Permission(("patch",), group, f"{plural}/status", scope, "write the status of MachineMaintenances"),
        Permission((*_READ, "patch", "delete"), GROUP, MACHINES.plural, machine_namespace, "replace Machines"),
        Permission((*_WATCH, "patch"), GROUP, MACHINE_SETS.plural, machine_namespace, "replace one at a time"),
        Permission(
            ("get", "patch"),
            GROUP,
            CONTROL_PLANE_MACHINE_SETS.plural,
            machine_namespace,
            "replace Machines of the control plane",
            names=(CONTROL_PLANE_MACHINE_SET,),
        ),
        Permission(_WATCH, "", "nodes", None, "watch nodes"),
        *(
            Permission(("create", "patch"), "events.k8s.io", "events", event_namespace, "record events")
            for event_namespace in (scope, machine_namespace, "default")  # events about nodes are in the last
        ),
        *(_notice_permissions(scope) if with_notices else ()),
    )


def _notice_permissions(scope: str | None) -> tuple[Permission, ...]:
    group, plural = MACHINE_MAINTENANCES.group, MACHINE_MAINTENANCES.plural
    return (
        Permission(_WATCH, MAINTENANCE_NOTICES.group, MAINTENANCE_NOTICES.plural, None, "watch MaintenanceNotices"),
        Permission(("create",), group, plural, scope, "create MachineMaintenances"),
    )
