"""What notices must be allowed to do. Whoever adds a request there adds its line here."""

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES
from haulout.api.maintenancerecord import MAINTENANCE_RECORDS
from haulout.kube.rbac import Permission


def permissions() -> tuple[Permission, ...]:
    """Return what the controller and any source need."""
    group, plural = MAINTENANCE_NOTICES.group, MAINTENANCE_NOTICES.plural
    return (
        Permission(("get", "list", "watch", "create", "patch", "delete"), group, plural, None, "see and keep notices"),
        Permission(("patch",), group, f"{plural}/status", None, "tell how notices stand"),
        Permission(("list", "watch"), "", "nodes", None, "see nodes"),
        Permission(("patch",), "", "nodes/status", None, "set conditions of nodes"),
        Permission(("list",), "", "pods", None, "see pods of nodes"),
        Permission(
            ("list", "watch"),
            MAINTENANCE_RECORDS.group,
            MAINTENANCE_RECORDS.plural,
            None,
            "predict drains",
        ),
        # Notices and nodes are cluster-scoped: events about them are in the namespace `default`.
        Permission(("create", "patch"), "events.k8s.io", "events", "default", "tell people by events"),
    )
