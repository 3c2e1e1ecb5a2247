"""The permissions of the operator.

Each component declares its permissions, and so does each plugin of a configuration. `operator_permissions` is the
union, required and optional: `haulout cluster-info` checks it, and `haulout manifests` grants it. Without a
configuration, it covers most plugins (`haulout.controllers.profiles.permissions`).
"""

from typing import Any

from haulout.api.leases import LEADER_LEASE
from haulout.api.machinemaintenance import MACHINE_MAINTENANCES
from haulout.api.openshift import MACHINES
from haulout.app.components import ComponentSettings, ComponentType, core_types
from haulout.controllers.nodemaintenance import node_lease
from haulout.controllers.nodemaintenance.component import NodeMaintenancesComponent
from haulout.controllers.nodemaintenance.settings import NodeMaintenanceSettings
from haulout.controllers.profiles.component import ProfilesComponent
from haulout.controllers.profiles.config.model import Configuration
from haulout.dashboard.auth import permissions as people
from haulout.dashboard.auth import replicas
from haulout.drain import permissions as drain
from haulout.httpserver import delegated_auth
from haulout.kube import leases, rbac
from haulout.kube.discovery import Discovery
from haulout.kube.rbac import Permission
from haulout.webhook import registration


def operator_permissions(
    *,
    namespace: str,
    lease_namespace: str = node_lease.NAMESPACE,
    configuration: Configuration | None = None,
    components: ComponentSettings | None = None,
    own_certificate: bool = True,
    pod_deletion: bool = False,
    impersonates: bool = False,
) -> tuple[Permission, ...]:
    """Return the permissions of an operator in `namespace`, without duplicates.

    - `components`: what it runs beside the components of every operator.
    - `own_certificate`: it issues the webhook's certificate and injects the CA bundle.
    - `pod_deletion`: policies outside of `configuration` may delete pods: of a NodeMaintenance, or of an unknown file.
    - `impersonates`: users that a proxy authenticates act through the dashboard, with a service account of its own.
    """
    settings: dict[ComponentType, Any] = {
        **dict.fromkeys(core_types()),
        NodeMaintenancesComponent: NodeMaintenanceSettings(lease_namespace=lease_namespace),
        ProfilesComponent: configuration,
        **(components or {}),
    }
    return rbac.without_redundant(
        (
            *leases.permissions(namespace=namespace, why="elect the leader", names=(LEADER_LEASE,), watched=True),
            # Events about cluster-scoped objects are stored in the namespace `default`.
            Permission(("create", "patch"), "events.k8s.io", "events", "default", "record events"),
            Permission(("get",), "", "namespaces", None, "record Events about the operator", names=(namespace,)),
            *(item for kind, used in settings.items() for item in kind.permissions(used, namespace=namespace)),
            *((drain.POD_DELETION,) if pod_deletion else ()),
            *(registration.permissions(namespace=namespace) if own_certificate else ()),
            *registration.caller_permissions(),
            *delegated_auth.permissions(),
            *(people.operator_permissions(namespace) if impersonates else ()),
            *replicas.permissions(namespace),
        )
    )


def replaces_machines(discovery: Discovery | None) -> bool:
    """Return whether a cluster with these resources can replace Machines."""
    required = (MACHINE_MAINTENANCES, MACHINES)
    return discovery is not None and all(discovery.serves(resource) for resource in required)
