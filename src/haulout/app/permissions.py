"""The permissions of the operator: those that it needs, and those that a configuration of profiles lacks.

Each controller declares its permissions, and so does each plugin of a configuration. `operator_permissions` is the
union, required and optional: `haulout cluster-info` checks it, and `haulout manifests` grants it. Without a
configuration, it covers most plugins (`haulout.controllers.profiles.permissions`).

`MissingPermissions` finds the permissions that a configuration of profiles needs and the operator lacks, and reports
them. Each new configuration is checked by access reviews. While a permission is missing, the check repeats, so that
granting it is enough, without a restart. A missing permission disables only the plugins that need it
(`haulout.controllers.profiles.config.forbidden_plugins`).
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from haulout.api.machinemaintenance import MACHINE_MAINTENANCES
from haulout.api.maintenancenotice import MAINTENANCE_NOTICES
from haulout.api.maintenancerecord import MAINTENANCE_RECORDS
from haulout.api.nodemaintenance import NODE_MAINTENANCES
from haulout.api.openshift import MACHINES
from haulout.api.resources import Resource
from haulout.app.components import ComponentSettings, component_types
from haulout.app.leases import LEADER_LEASE, PROFILES_LEASE
from haulout.app.operator_events import OperatorEvents
from haulout.controllers.machines import permissions as machines
from haulout.controllers.nodemaintenance import node_lease
from haulout.controllers.nodemaintenance import permissions as maintenance
from haulout.controllers.notices import permissions as notices
from haulout.controllers.profiles import default_profile
from haulout.controllers.profiles import permissions as profiles
from haulout.controllers.profiles.config.forbidden_plugins import (
    PERMISSIONS_MISSING,
    format_refusals,
    without_forbidden_plugins,
)
from haulout.controllers.profiles.config.model import Configuration
from haulout.dashboard.auth import permissions as people
from haulout.dashboard.auth import replicas
from haulout.drain import permissions as drain
from haulout.errors import KubeError
from haulout.history import permissions as history
from haulout.httpserver import delegated_auth
from haulout.kube import leases, rbac
from haulout.kube.client import Client
from haulout.kube.discovery import Discovery
from haulout.kube.rbac import DeniedPermission, Permission
from haulout.providers.aws import credentials as aws
from haulout.providers.oci import handler_cronjobs
from haulout.webhook import registration

log = logging.getLogger(__name__)

RECHECK_INTERVAL = timedelta(seconds=30)  # while a permission is missing
_EVENT_EVERY = 20  # checks between two events: the API server deletes events after an hour


def operator_permissions(  # noqa: PLR0913 - the parameters of an installation
    *,
    namespace: str,
    lease_namespace: str = node_lease.NAMESPACE,
    configuration: Configuration | None = None,
    with_machines: bool = False,
    components: ComponentSettings | None = None,
    aws_secret: str = "",
    handler_namespace: str = "",
    own_certificate: bool = True,
    pod_deletion: bool = False,
    impersonates: bool = False,
) -> tuple[Permission, ...]:
    """Return the permissions of an operator in `namespace`, without duplicates.

    - `with_machines`: it runs on OpenShift and replaces Machines.
    - `components`: it runs these components.
    - `aws_secret`: NAMESPACE/NAME of the Secret with AWS keys, if any.
    - `handler_namespace`: where it adopts CronJobs of the OCI Node Maintenance Handler, if any.
    - `own_certificate`: it issues the webhook's certificate and injects the CA bundle.
    - `pod_deletion`: policies outside of `configuration` may delete pods: of a NodeMaintenance, or of an unknown file.
    - `impersonates`: users that a proxy authenticates act through the dashboard, with a service account of its own.
    """
    return rbac.without_redundant(
        (
            *maintenance.permissions(lease_namespace=lease_namespace),
            *((drain.POD_DELETION,) if pod_deletion else ()),
            *history.permissions(),
            *notices.permissions(),
            *(aws.permissions(aws_secret) if aws_secret else ()),
            *(handler_cronjobs.permissions(namespace=handler_namespace) if handler_namespace else ()),
            *(registration.permissions(namespace=namespace) if own_certificate else ()),
            *registration.caller_permissions(),
            *delegated_auth.permissions(),
            *(people.operator_permissions(namespace) if impersonates else ()),
            *leases.permissions(namespace=namespace, why="elect the leader", names=(LEADER_LEASE,), watched=True),
            # Events about cluster-scoped objects are stored in the namespace `default`.
            Permission(("create", "patch"), "events.k8s.io", "events", "default", "record events"),
            Permission(("get",), "", "namespaces", None, "record Events about the operator", names=(namespace,)),
            *profile_permissions(configuration, namespace=namespace),
            *replicas.permissions(namespace),
            *(machines.permissions() if with_machines else ()),
            *(
                item
                for kind, used in (components or {}).items()
                for item in kind.permissions(used, namespace=namespace)
            ),
        )
    )


def _component_permissions(components: ComponentSettings, *, namespace: str) -> Iterator[Permission]:
    always = {kind: None for kind in component_types() if kind.settings_file is None}
    for kind, settings in {**always, **components}.items():
        yield from kind.permissions(settings, namespace=namespace)


def profile_permissions(configuration: Configuration | None, *, namespace: str) -> tuple[Permission, ...]:
    lease_permissions = leases.permissions(
        namespace=namespace, why="elect the leader for profiles", names=(PROFILES_LEASE,), watched=True
    )
    if configuration is None:
        return *lease_permissions, *profiles.default_permissions(namespace=namespace)
    return *lease_permissions, *profiles.permissions(
        default_profile.effective_configuration(configuration), namespace=namespace
    )


def replaces_machines(discovery: Discovery | None) -> bool:
    """Return whether a cluster with these resources can replace Machines."""
    required = (MACHINE_MAINTENANCES, MACHINES)
    return discovery is not None and all(discovery.serves(resource) for resource in required)


@dataclass(frozen=True, slots=True)
class OptionalFeature:
    """A feature that is active where its custom resource is installed."""

    resource: Resource[Any]
    description: str
    is_shipped: bool = False  # `haulout manifests` prints its CRD
    option: str = ""  # the option of `haulout manifests` that includes it


FEATURES = (
    OptionalFeature(
        NODE_MAINTENANCES,
        "maintenance that a user requests",
        is_shipped=True,
    ),
    OptionalFeature(
        MAINTENANCE_NOTICES,
        "maintenance that clouds and users announce",
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


class MissingPermissions:
    """The missing permissions of the current configuration; `namespace` is the operator's."""

    def __init__(self, client: Client, operator_events: OperatorEvents, *, namespace: str) -> None:
        self.missing: tuple[DeniedPermission, ...] = ()
        self._client = client
        self._operator_events = operator_events
        self._namespace = namespace
        self._checks = 0

    async def refresh(self, configuration: Configuration) -> bool:
        """Check the permissions of a configuration, and report missing ones; return whether the result changed."""
        required = profile_permissions(configuration, namespace=self._namespace)
        try:
            missing = tuple(await rbac.denied_permissions(self._client, required))
        except KubeError as error:
            log.warning("cannot check the permissions of the operator: %s", error)
            return False
        before, self.missing = self.missing, missing
        has_changed = before != missing
        self._checks = 0 if has_changed else self._checks + 1
        if missing and self._checks % _EVENT_EVERY == 0:
            await self._report(format_refusals(missing))
        elif before and not missing:
            log.info("all permissions that profiles need are granted")
        return has_changed

    def without_forbidden_plugins(self, configuration: Configuration) -> Configuration:
        """Return the configuration without the plugins that need a missing permission."""
        return without_forbidden_plugins(configuration, self.missing, namespace=self._namespace)

    async def _report(self, missing: str) -> None:
        log.warning("profiles need permissions that the operator does not have: %s", missing)
        advice = "`haulout manifests --config FILE` prints what to grant"
        note = f"the operator lacks permissions that profiles need: {missing}; everything else continues; {advice}"
        await self._operator_events.warn(note, reason=PERMISSIONS_MISSING, action="CheckPermissions")
