"""What is to be applied to a cluster before the operator runs in it: definitions, permissions and the operator itself.

The permissions are those that the controllers, and the plugins of a configuration, say they need
(`haulout.app.required_permissions`), and no more.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import yaml

from haulout.api import machinemaintenance, maintenancenotice, maintenancerecord, nodemaintenance
from haulout.api.maintenancenotice import MAINTENANCE_NOTICES
from haulout.api.maintenancerecord import MAINTENANCE_RECORDS
from haulout.api.nodemaintenance import NODE_MAINTENANCES
from haulout.api.objects import RawObject
from haulout.app import required_permissions
from haulout.app.manifests import agent_manifests, workload
from haulout.app.manifests.workload import NAME
from haulout.controllers.kubernikus.settings import KubernikusSettings
from haulout.controllers.nodemaintenance import node_lease
from haulout.controllers.profiles.config.model import Configuration
from haulout.dashboard.api.types import AuthMode
from haulout.dashboard.auth import permissions as people
from haulout.dashboard.auth.permissions import Impersonation, user_roles
from haulout.dashboard.auth.settings import SERVICE_ACCOUNT
from haulout.httpserver import secure_metrics
from haulout.kube import rbac
from haulout.kube.namespaces import PodSecurity, namespace
from haulout.webhook import registration

_RBAC = "rbac.authorization.k8s.io/v1"
_READ_VERBS = ["get", "list", "watch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """What can differ from one installation to the next."""

    image: str
    namespace: str = NAME
    lease_namespace: str = node_lease.NAMESPACE
    replicas: int = workload.REPLICAS
    configuration: Configuration | None = None  # of profiles; None: it is not known yet
    machines: bool = False  # of OpenShift: these are replaced
    kubernikus: KubernikusSettings | None = None  # how its nodes are seen to; None: they are not of Kubernikus
    esx: bool = False  # hosts: nodes on these are seen to
    aws_secret: str = ""  # NAMESPACE/NAME of a Secret with the keys of AWS, if there is one
    dashboard_auth: AuthMode = AuthMode.TOKEN  # how it knows who asks
    impersonation: Impersonation | None = None  # how people whom a proxy names act from it, if they do
    agent: bool = False  # one on each node, for clouds that tell only the machine itself
    pod_deletion: bool = False  # whether policies that `configuration` does not tell of may delete pods
    allowed_namespaces: tuple[str, ...] = ()  # whose pods may reach the dashboard and /metrics on port 8080
    handler_namespace: str = ""  # where the OCI Node Maintenance Handler has CronJobs that are taken over, if any


def definitions(*, with_machines: bool = False) -> list[RawObject]:
    """Return the CustomResourceDefinitions."""
    machine_definitions = [machinemaintenance.definition()] if with_machines else []
    return [
        nodemaintenance.custom_resource_definition(),
        maintenancerecord.custom_resource_definition(),
        maintenancenotice.definition(),
        *machine_definitions,
    ]


def role_objects(installation: Installation) -> list[RawObject]:
    """Return the roles of the operator, and of people."""
    subject = {"kind": "ServiceAccount", "namespace": installation.namespace, "name": NAME}
    required = required_permissions.operator_permissions(
        namespace=installation.namespace,
        lease_namespace=installation.lease_namespace,
        configuration=installation.configuration,
        with_machines=installation.machines,
        kubernikus_settings=installation.kubernikus,
        with_esx=installation.esx,
        aws_secret=installation.aws_secret,
        handler_namespace=installation.handler_namespace,
        pod_deletion=installation.pod_deletion,
        impersonates=installation.impersonation is not None,
    )
    return [*rbac.roles(NAME, required, subject), *_impersonation(installation), *user_cluster_roles()]


def _impersonation(installation: Installation) -> list[RawObject]:
    """Return the role of the account that acts in the names of people, if there is one."""
    if installation.impersonation is None:
        return []
    subject = {"kind": "ServiceAccount", "namespace": installation.namespace, "name": SERVICE_ACCOUNT}
    return rbac.roles(SERVICE_ACCOUNT, people.permissions(installation.impersonation), subject)


def all_objects(installation: Installation) -> list[RawObject]:
    """Return all of it, in the order in which it is to be applied."""
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
    """Return those that the operator needs.

    One that is not named as usual may hold pods of others, as kube-system does. That of MachineMaintenances may hold
    the Machine Maintenance Operator, to which one may want to go back.
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
    """Return the operator itself, and how it is reached."""
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
    deployment = deployment if installation.kubernikus is None else workload.with_kubernikus(deployment)
    if installation.esx:
        deployment = workload.with_esx(deployment)
    return [
        deployment,
        workload.disruption_budget(namespace),
        workload.network_policy(namespace, allowed_namespaces=installation.allowed_namespaces),
        *services,
        *registration.manifests(namespace=namespace),
    ]


def as_yaml(objects: Iterable[RawObject]) -> str:
    """Return objects as YAML, without anchors, which not every tool reads."""
    return yaml.dump_all(objects, Dumper=_PlainDumper, sort_keys=False, explicit_start=True, width=120)


class _PlainDumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        del data
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Write what has several lines as it is."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_PlainDumper.add_representer(str, _represent_text)


def user_cluster_roles() -> list[RawObject]:
    """Return the roles that the Node Maintenance Operator ships for its users, and such for what is ours."""
    rules = {
        f"{kind}-{role}-role": [
            {"apiGroups": [kind_resource.group], "resources": [kind_resource.plural], "verbs": verbs},
            {"apiGroups": [kind_resource.group], "resources": [f"{kind_resource.plural}/status"], "verbs": ["get"]},
        ]
        for kind, kind_resource in (("nodemaintenance", NODE_MAINTENANCES), ("maintenancenotice", MAINTENANCE_NOTICES))
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
