"""What the history must be allowed to do. Whoever adds a request there adds its line here."""

from haulout.api.maintenancerecord import MAINTENANCE_RECORDS
from haulout.kube.rbac import Permission


def permissions() -> tuple[Permission, ...]:
    """Return what whoever writes the history needs."""
    group, plural = MAINTENANCE_RECORDS.group, MAINTENANCE_RECORDS.plural
    return (
        Permission(("get", "list", "create", "patch", "delete"), group, plural, None, "keep the history of nodes"),
        Permission(("get",), "", "nodes", None, "see whether a node was deleted"),
    )
