"""Permissions of the notices controller. Add a line here with each new kind of request."""

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES
from haulout.api.maintenancerecord import MAINTENANCE_RECORDS
from haulout.kube.rbac import Permission


def permissions() -> tuple[Permission, ...]:
    """Return the permissions that the controller and every event source need."""
    group, plural = MAINTENANCE_NOTICES.group, MAINTENANCE_NOTICES.plural
    return (
        Permission(
            ("get", "list", "watch", "create", "patch", "delete"),
            group,
            plural,
            None,
            "read and write MaintenanceNotices",
        ),
        Permission(("patch",), group, f"{plural}/status", None, "write the status of MaintenanceNotices"),
        Permission(("list", "watch"), "", "nodes", None, "watch nodes"),
        Permission(("patch",), "", "nodes/status", None, "set node conditions"),
        Permission(("list",), "", "pods", None, "list the pods on nodes"),
        Permission(
            ("list", "watch"),
            MAINTENANCE_RECORDS.group,
            MAINTENANCE_RECORDS.plural,
            None,
            "predict drain durations",
        ),
        # Notices and nodes are cluster-scoped: their events are created in the namespace `default`.
        Permission(("create", "patch"), "events.k8s.io", "events", "default", "record events"),
    )
