"""Manifests of the operator: CustomResourceDefinitions, permissions and the Deployment.

The permissions are exactly those that the controllers and the plugins of a configuration declare
(`haulout.app.permissions`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import yaml

from haulout.api import machinemaintenance
from haulout.api.maintenancefreeze import MAINTENANCE_FREEZES
from haulout.api.maintenancenotice import MAINTENANCE_NOTICES
from haulout.api.maintenancerecord import MAINTENANCE_RECORDS
from haulout.api.nodemaintenance import NODE_MAINTENANCES
from haulout.api.objects import RawObject
from haulout.app import permissions
from haulout.app.components import ComponentSettings, custom_resources
from haulout.app.manifests import agent_manifests, workload
from haulout.app.manifests.workload import NAME
from haulout.controllers.machines.component import MachinesComponent
from haulout.controllers.nodemaintenance import node_lease
from haulout.controllers.profiles.config.model import Configuration
from haulout.dashboard.api.types import AuthMode
from haulout.dashboard.auth import permissions as people
from haulout.dashboard.auth.permissions import Impersonation, user_roles
from haulout.dashboard.auth.settings import SERVICE_ACCOUNT
from haulout.httpserver import secure_metrics
from haulout.kube import rbac
from haulout.kube.namespaces import PodSecurity, namespace
from haulout.providers.aws.component import AwsEvents
from haulout.providers.aws.settings import AwsSettings
from haulout.providers.oci.component import OciEvents
from haulout.providers.oci.settings import OciSettings
from haulout.webhook import registration

_RBAC = "rbac.authorization.k8s.io/v1"
_READ_VERBS = ["get", "list", "watch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """The parameters of an installation, from the flags of `haulout manifests` or the packages."""

    image: str
    namespace: str = NAME
    lease_namespace: str = node_lease.NAMESPACE
    replicas: int = workload.REPLICAS
    configuration: Configuration | None = None  # of profiles; None: not known yet
    machines: bool = False  # of OpenShift: replace them
    components: ComponentSettings = field(default_factory=dict)  # that it runs, with their settings
    aws_secret: str = ""  # NAMESPACE/NAME of a Secret with AWS keys, if any
    dashboard_auth: AuthMode = AuthMode.TOKEN  # how the dashboard authenticates users
    impersonation: Impersonation | None = None  # impersonation of users that a proxy authenticates, if any
    agent: bool = False  # with the node agent, for clouds that announce maintenance only to the machine itself
    pod_deletion: bool = False  # allow policies outside of `configuration` to delete pods
    allowed_namespaces: tuple[str, ...] = ()  # whose pods may reach the dashboard and /metrics on port 8080
    handler_namespace: str = ""  # of the OCI Node Maintenance Handler, whose CronJobs are adopted; empty: none

    @property
    def all_components(self) -> ComponentSettings:
        """What it runs beside the components of every operator."""
        clouds: ComponentSettings = {
            AwsEvents: AwsSettings(secret=self.aws_secret),
            OciEvents: OciSettings(handler_namespace=self.handler_namespace),
        }
        return {**self.components, **clouds, **({MachinesComponent: None} if self.machines else {})}


def definitions(*, with_machines: bool = False) -> list[RawObject]:
    return [item.definition() for item in custom_resources() if not item.option or with_machines]


def role_objects(installation: Installation) -> list[RawObject]:
    """Return the roles of the operator, and those for users."""
    subject = {"kind": "ServiceAccount", "namespace": installation.namespace, "name": NAME}
    required = permissions.operator_permissions(
        namespace=installation.namespace,
        lease_namespace=installation.lease_namespace,
        configuration=installation.configuration,
        components=installation.all_components,
        pod_deletion=installation.pod_deletion,
        impersonates=installation.impersonation is not None,
    )
    return [*rbac.roles(NAME, required, subject), *_impersonation(installation), *user_cluster_roles()]


def _impersonation(installation: Installation) -> list[RawObject]:
    """Return the role of the impersonating service account, if there is one."""
    if installation.impersonation is None:
        return []
    subject = {"kind": "ServiceAccount", "namespace": installation.namespace, "name": SERVICE_ACCOUNT}
    return rbac.roles(SERVICE_ACCOUNT, people.permissions(installation.impersonation), subject)


def all_objects(installation: Installation) -> list[RawObject]:
    """Return all manifests, in the order in which to apply them."""
    accounts = [
        _service_account(name, installation.namespace)
        for name in (NAME, *((SERVICE_ACCOUNT,) if installation.impersonation else ()))
    ]
    crds = definitions(with_machines=installation.machines)
    agents = agent_manifests.agent_objects(installation.image, installation.namespace) if installation.agent else []
    return [
        *crds,
        *namespaces(installation),
        *accounts,
        *role_objects(installation),
        *operator_objects(installation),
        *agents,
    ]


def _service_account(name: str, namespace: str) -> RawObject:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}


def namespaces(installation: Installation) -> list[RawObject]:
    """Return the namespaces that the operator needs.

    A namespace without the default name may contain pods of others, as kube-system does, and gets no PodSecurity level.
    The one of MachineMaintenances is `baseline`: it may contain the Machine Maintenance Operator, for a rollback.
    """
    operator_level = PodSecurity.PRIVILEGED if installation.agent else PodSecurity.RESTRICTED
    levels = {
        installation.lease_namespace: PodSecurity.RESTRICTED
        if installation.lease_namespace == node_lease.NAMESPACE
        else None,
        **({machinemaintenance.NAMESPACE: PodSecurity.BASELINE} if installation.machines else {}),
        installation.namespace: operator_level if installation.namespace == NAME else None,
    }
    names = (installation.namespace, installation.lease_namespace, *levels)
    return [namespace(name, levels[name]) for name in dict.fromkeys(names)]


def operator_objects(installation: Installation) -> list[RawObject]:
    """Return the Deployment, its Services and policies, and the webhook's registration."""
    namespace = installation.namespace
    deployment = workload.deployment(
        image=installation.image,
        namespace=namespace,
        replicas=installation.replicas,
        lease_namespace=installation.lease_namespace,
        variables={"HAULOUT_AWS_SECRET": installation.aws_secret, "WD_NAMESPACE": installation.handler_namespace},
    )
    services = [workload.dashboard_service(namespace), workload.metrics_service(namespace)]
    deployment = workload.with_dashboard_auth(deployment, installation.dashboard_auth)
    for component in installation.components:
        deployment = workload.with_component(deployment, component)
    return [
        deployment,
        workload.disruption_budget(namespace),
        workload.network_policy(namespace, allowed_namespaces=installation.allowed_namespaces),
        *services,
        *registration.manifests(namespace=namespace),
    ]


def as_yaml(objects: Iterable[RawObject]) -> str:
    """Return objects as YAML, without anchors, which some tools cannot read."""
    return yaml.dump_all(objects, Dumper=_PlainDumper, sort_keys=False, explicit_start=True, width=120)


class _PlainDumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        del data
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Write multi-line text as a literal block."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_PlainDumper.add_representer(str, _represent_text)


def user_cluster_roles() -> list[RawObject]:
    """Return the roles that the Node Maintenance Operator ships for users, and ours for the other kinds."""
    rules = {
        f"{kind}-{role}-role": [
            {"apiGroups": [kind_resource.group], "resources": [kind_resource.plural], "verbs": verbs},
            {"apiGroups": [kind_resource.group], "resources": [f"{kind_resource.plural}/status"], "verbs": ["get"]},
        ]
        for kind, kind_resource in (
            ("nodemaintenance", NODE_MAINTENANCES),
            ("maintenancenotice", MAINTENANCE_NOTICES),
            ("maintenancefreeze", MAINTENANCE_FREEZES),
        )
        for role, verbs in (("editor", [*_READ_VERBS, "create", "delete", "patch", "update"]), ("viewer", _READ_VERBS))
    }
    rules["maintenancerecord-viewer-role"] = [
        {"apiGroups": [MAINTENANCE_RECORDS.group], "resources": [MAINTENANCE_RECORDS.plural], "verbs": _READ_VERBS}
    ]
    rules |= user_roles()
    rules[secure_metrics.READER_ROLE] = [{"nonResourceURLs": [secure_metrics.PATH], "verbs": ["get"]}]
    return [
        {"apiVersion": _RBAC, "kind": "ClusterRole", "metadata": {"name": name}, "rules": allowed}
        for name, allowed in rules.items()
    ]
