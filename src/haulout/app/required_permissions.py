"""What the operator needs in a cluster: the permissions without which it cannot work, and what is optional.

Each controller says what it needs, and each plugin of a configuration. This sum of it is what `haulout cluster-info`
checks and `haulout manifests` grants; without a configuration, what most of them need
(`haulout.controllers.profiles.permissions`).
"""

from dataclasses import dataclass
from typing import Any

from haulout.api.machinemaintenance import MACHINE_MAINTENANCES
from haulout.api.maintenancenotice import MAINTENANCE_NOTICES
from haulout.api.maintenancerecord import MAINTENANCE_RECORDS
from haulout.api.nodemaintenance import NODE_MAINTENANCES
from haulout.api.openshift import MACHINES
from haulout.api.resources import Resource
from haulout.app.lease_names import LEADER_LEASE, PROFILES_LEASE
from haulout.controllers.esx import permissions as esx
from haulout.controllers.kubernikus import permissions as kubernikus
from haulout.controllers.kubernikus.settings import KubernikusSettings
from haulout.controllers.machines import permissions as machines
from haulout.controllers.nodemaintenance import node_lease
from haulout.controllers.nodemaintenance import permissions as maintenance
from haulout.controllers.notices import permissions as notices
from haulout.controllers.profiles import default_profile
from haulout.controllers.profiles import permissions as profiles
from haulout.controllers.profiles.config.model import Configuration
from haulout.dashboard.auth import permissions as people
from haulout.dashboard.auth import replicas
from haulout.drain import permissions as drain
from haulout.history import permissions as history
from haulout.httpserver import delegated_auth
from haulout.kube import leases, rbac
from haulout.kube.discovery import Discovery
from haulout.kube.rbac import Permission
from haulout.providers.aws import credentials as aws
from haulout.providers.oci import cronjob_adoption
from haulout.webhook import registration


def operator_permissions(  # noqa: PLR0913 - what installations may differ in
    *,
    namespace: str,
    lease_namespace: str = node_lease.NAMESPACE,
    configuration: Configuration | None = None,
    with_machines: bool = False,
    kubernikus_settings: KubernikusSettings | None = None,
    with_esx: bool = False,
    aws_secret: str = "",
    handler_namespace: str = "",
    own_certificate: bool = True,
    pod_deletion: bool = False,
    impersonates: bool = False,
) -> tuple[Permission, ...]:
    """Return what an operator that lives in `namespace` must be allowed to do; each thing once.

    `with_machines`: it is on a cluster of OpenShift, and replaces Machines.
    `kubernikus_settings`: its nodes are of Kubernikus, and seen to by these.
    `with_esx`: it sees to nodes on ESX hosts.
    `aws_secret`, a namespace and a name, is where it has the keys of AWS from, if from a Secret.
    `handler_namespace` is where the OCI Node Maintenance Handler has CronJobs that are taken over, if any.
    `own_certificate`: it makes that of its webhook, and has it trusted.
    `pod_deletion`: it may delete pods where a policy says so that `configuration` does not tell of: that of a
    NodeMaintenance, or of a file that is not known here.
    `impersonates`: people whom a proxy names act from the dashboard, by an account of its own.
    """
    return rbac.without_redundant(
        (
            *maintenance.permissions(lease_namespace=lease_namespace),
            *((drain.POD_DELETION,) if pod_deletion else ()),
            *history.permissions(),
            *notices.permissions(),
            *(aws.permissions(aws_secret) if aws_secret else ()),
            *(cronjob_adoption.permissions(namespace=handler_namespace) if handler_namespace else ()),
            *(registration.permissions(namespace=namespace) if own_certificate else ()),
            *registration.caller_permissions(),
            *delegated_auth.permissions(),
            *(people.operator_permissions(namespace) if impersonates else ()),
            *leases.permissions(namespace=namespace, why="lead", names=(LEADER_LEASE,), watched=True),
            # Events about cluster-scoped objects are in the namespace `default`.
            Permission(("create", "patch"), "events.k8s.io", "events", "default", "tell people by events"),
            Permission(("get",), "", "namespaces", None, "tell of itself by events", names=(namespace,)),
            *profile_permissions(configuration, namespace=namespace),
            *replicas.permissions(namespace),
            *(machines.permissions() if with_machines else ()),
            *(kubernikus.permissions(kubernikus_settings, namespace=namespace) if kubernikus_settings else ()),
            *(esx.permissions(namespace=namespace) if with_esx else ()),
        )
    )


def profile_permissions(configuration: Configuration | None, *, namespace: str) -> tuple[Permission, ...]:
    """Return what profiles need."""
    lease_permissions = leases.permissions(
        namespace=namespace, why="lead profiles", names=(PROFILES_LEASE,), watched=True
    )
    if configuration is None:
        return *lease_permissions, *profiles.default_permissions(namespace=namespace)
    return *lease_permissions, *profiles.permissions(
        default_profile.effective_configuration(configuration), namespace=namespace
    )


def replaces_machines(discovery: Discovery | None) -> bool:
    """Tell whether Machines are replaced in a cluster that serves this."""
    required = (MACHINE_MAINTENANCES, MACHINES)
    return discovery is not None and all(discovery.serves(resource) for resource in required)


@dataclass(frozen=True, slots=True)
class OptionalFeature:
    """Something that is on where its custom resource is installed, and off without it."""

    resource: Resource[Any]
    description: str
    is_shipped: bool = False  # its definition is in what `haulout manifests` prints
    option: str = ""  # of that command, with which it is


FEATURES = (
    OptionalFeature(
        NODE_MAINTENANCES,
        "maintenance on a person's order",
        is_shipped=True,
    ),
    OptionalFeature(
        MAINTENANCE_NOTICES,
        "maintenance that clouds and people announce",
        is_shipped=True,
    ),
    OptionalFeature(
        MAINTENANCE_RECORDS,
        "the history of nodes",
        is_shipped=True,
    ),
    OptionalFeature(
        MACHINE_MAINTENANCES,
        "replacing OpenShift machines",
        is_shipped=True,
        option="--machines",
    ),
)
