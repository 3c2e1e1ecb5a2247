"""What replacing Machines must be allowed to do. Whoever adds a request there adds its line here.

Machines can be deleted in their own namespace only, and records be written in the operator's only.
"""

from haulout.kinds.machinemaintenance import MACHINE_MAINTENANCES, NAMESPACE
from haulout.kinds.notice import MAINTENANCE_NOTICES
from haulout.kinds.openshift import (
    CONTROL_PLANE_MACHINE_SETS,
    CONTROL_PLANE_SET,
    GROUP,
    MACHINE_NAMESPACE,
    MACHINE_SETS,
    MACHINES,
)
from haulout.kube.access import Permission

_READ = ("get", "list", "watch")
_WATCH = ("list", "watch")


def permissions(
    *, namespace: str = NAMESPACE, machine_namespace: str = MACHINE_NAMESPACE, notes: bool = True
) -> tuple[Permission, ...]:
    """Return what is needed; records are in `namespace` (empty: all), and `notes`: notices become such records."""
    group, plural, where = MACHINE_MAINTENANCES.group, MACHINE_MAINTENANCES.plural, namespace or None
    return (
        Permission((*_WATCH, "patch"), group, plural, where, "see which Machines are to be replaced"),
        Permission(("patch",), group, f"{plural}/status", where, "tell how that stands"),
        Permission((*_READ, "patch", "delete"), GROUP, MACHINES.plural, machine_namespace, "replace Machines"),
        Permission((*_WATCH, "patch"), GROUP, MACHINE_SETS.plural, machine_namespace, "replace one at a time"),
        Permission(
            ("get", "patch"),
            GROUP,
            CONTROL_PLANE_MACHINE_SETS.plural,
            machine_namespace,
            "replace Machines of the control plane",
            names=(CONTROL_PLANE_SET,),
        ),
        Permission(_WATCH, "", "nodes", None, "see nodes"),
        *(
            Permission(("create", "patch"), "events.k8s.io", "events", it, "tell people by events")
            for it in (where, machine_namespace, "default")  # those about nodes are in the last
        ),
        *(_noting(where) if notes else ()),
    )


def _noting(where: str | None) -> tuple[Permission, ...]:
    group, plural = MACHINE_MAINTENANCES.group, MACHINE_MAINTENANCES.plural
    return (
        Permission(_WATCH, MAINTENANCE_NOTICES.group, MAINTENANCE_NOTICES.plural, None, "hear of maintenance"),
        Permission(("get", "create"), group, plural, where, "record which Machines are to be replaced"),
    )
