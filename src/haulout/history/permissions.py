"""The permissions of the history. Add a line here for every new kind of request."""

from haulout.api.maintenancerecord import MAINTENANCE_RECORDS
from haulout.kube.rbac import Permission


def permissions() -> tuple[Permission, ...]:
    group, plural = MAINTENANCE_RECORDS.group, MAINTENANCE_RECORDS.plural
    return (
        Permission(("get", "list", "create", "patch", "delete"), group, plural, None, "write the history of nodes"),
        Permission(("get",), "", "nodes", None, "check whether a node was deleted"),
    )
