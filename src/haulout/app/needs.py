"""What the operator needs in a cluster: the permissions without which it cannot work, and what is optional.

Each controller says what it needs, and each plugin of a configuration. This sum of it is what `haulout cluster-info`
checks and `haulout manifests` grants; without a configuration, what most of them need (`haulout.profiles.permissions`).
"""

from dataclasses import dataclass
from typing import Any

from haulout.app.names import LEADER_LEASE, PROFILES_LEASE
from haulout.drain import permissions as drain
from haulout.esx import permissions as esx
from haulout.history import permissions as history
from haulout.history.record import MAINTENANCE_RECORDS
from haulout.kinds.machinemaintenance import MACHINE_MAINTENANCES
from haulout.kinds.notice import MAINTENANCE_NOTICES
from haulout.kinds.openshift import MACHINES
from haulout.kube import access, leases
from haulout.kube.access import Permission
from haulout.kube.discovery import Discovery
from haulout.kube.resources import Resource
from haulout.kubernikus import permissions as kubernikus
from haulout.kubernikus.settings import Settings as KubernikusSettings
from haulout.machines import permissions as machines
from haulout.maintenance import lease
from haulout.maintenance import permissions as maintenance
from haulout.maintenance.resource import NODE_MAINTENANCES
from haulout.notices import adoption
from haulout.notices import permissions as notices
from haulout.notices.sources.aws import access as aws
from haulout.profiles import default
from haulout.profiles import permissions as profiles
from haulout.profiles.model import Configuration
from haulout.web import callers, registration
from haulout.web.auth import permissions as people
from haulout.web.auth import replicas


def permissions(  # noqa: PLR0913 - what installations may differ in
    *,
    namespace: str,
    lease_namespace: str = lease.NAMESPACE,
    configuration: Configuration | None = None,
    with_machines: bool = False,
    kubernikus_settings: KubernikusSettings | None = None,
    with_esx: bool = False,
    aws_secret: str = "",
    handler_namespace: str = "",
    own_certificate: bool = True,
    pod_deletion: bool = False,
    acts: bool = False,
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
    `acts`: people whom a proxy names act from the dashboard, by an account of its own.
    """
    return access.lean(
        (
            *maintenance.permissions(lease_namespace=lease_namespace),
            *((drain.DELETION,) if pod_deletion else ()),
            *history.permissions(),
            *notices.permissions(),
            *(aws.permissions(aws_secret) if aws_secret else ()),
            *(adoption.permissions(namespace=handler_namespace) if handler_namespace else ()),
            *(registration.permissions(namespace=namespace) if own_certificate else ()),
            *registration.caller_permissions(),
            *callers.permissions(),
            *(people.operator_permissions(namespace) if acts else ()),
            *leases.permissions(namespace=namespace, why="lead", names=(LEADER_LEASE,), watched=True),
            # Events about cluster-scoped objects are in the namespace `default`.
            Permission(("create", "patch"), "events.k8s.io", "events", "default", "tell people by events"),
            Permission(("get",), "", "namespaces", None, "tell of itself by events", names=(namespace,)),
            *of_profiles(configuration, namespace=namespace),
            *replicas.permissions(namespace),
            *(machines.permissions() if with_machines else ()),
            *(kubernikus.permissions(kubernikus_settings, namespace=namespace) if kubernikus_settings else ()),
            *(esx.permissions(namespace=namespace) if with_esx else ()),
        )
    )


def of_profiles(configuration: Configuration | None, *, namespace: str) -> tuple[Permission, ...]:
    """Return what profiles need."""
    leading = leases.permissions(namespace=namespace, why="lead profiles", names=(PROFILES_LEASE,), watched=True)
    if configuration is None:
        return *leading, *profiles.usual(namespace=namespace)
    return *leading, *profiles.permissions(default.in_force(configuration), namespace=namespace)


def has_machines(discovery: Discovery | None) -> bool:
    """Tell whether Machines are replaced in a cluster that serves this."""
    wanted = (MACHINE_MAINTENANCES, MACHINES)
    return discovery is not None and all(discovery.serves(it) for it in wanted)


@dataclass(frozen=True, slots=True)
class Feature:
    """Something that is on where its custom resource is installed, and off without it."""

    resource: Resource[Any]
    what: str
    is_shipped: bool = False  # its definition is in what `haulout manifests` prints
    option: str = ""  # of that command, with which it is


FEATURES = (
    Feature(
        NODE_MAINTENANCES,
        "maintenance on a person's order",
        is_shipped=True,
    ),
    Feature(
        MAINTENANCE_NOTICES,
        "maintenance that clouds and people announce",
        is_shipped=True,
    ),
    Feature(
        MAINTENANCE_RECORDS,
        "the history of nodes",
        is_shipped=True,
    ),
    Feature(
        MACHINE_MAINTENANCES,
        "replacing OpenShift machines",
        is_shipped=True,
        option="--machines",
    ),
)
