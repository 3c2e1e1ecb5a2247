"""What is to be applied to a cluster before the operator runs in it: definitions, permissions and the operator itself.

The permissions are those that the controllers, and the plugins of a configuration, say they need (`haulout.app.needs`),
and no more.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import yaml

from haulout.app import daemon, needs, workload
from haulout.app.workload import NAME
from haulout.history import record
from haulout.history.record import MAINTENANCE_RECORDS
from haulout.kinds import machinemaintenance, notice
from haulout.kinds.notice import MAINTENANCE_NOTICES
from haulout.kube import access
from haulout.kube.namespaces import PodSecurity, namespace
from haulout.kube.objects import RawObject
from haulout.kubernikus.settings import Settings as KubernikusSettings
from haulout.maintenance import lease, resource
from haulout.maintenance.resource import NODE_MAINTENANCES
from haulout.profiles.model import Configuration
from haulout.web import guarded, registration
from haulout.web.api.shapes import AuthMode
from haulout.web.auth import permissions as people
from haulout.web.auth.permissions import Impersonation, roles_for_people
from haulout.web.auth.settings import ACCOUNT

_RBAC = "rbac.authorization.k8s.io/v1"
_READ = ["get", "list", "watch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """What can differ from one installation to the next."""

    image: str
    namespace: str = NAME
    lease_namespace: str = lease.NAMESPACE
    replicas: int = workload.REPLICAS
    configuration: Configuration | None = None  # of profiles; None: it is not known yet
    machines: bool = False  # of OpenShift: these are replaced
    kubernikus: KubernikusSettings | None = None  # how its nodes are seen to; None: they are not of Kubernikus
    esx: bool = False  # hosts: nodes on these are seen to
    aws_secret: str = ""  # NAMESPACE/NAME of a Secret with the keys of AWS, if there is one
    dashboard: AuthMode = AuthMode.TOKEN  # how it knows who asks
    acts: Impersonation | None = None  # how people whom a proxy names act from it, if they do
    agent: bool = False  # one on each node, for clouds that tell only the machine itself
    pod_deletion: bool = False  # whether policies that `configuration` does not tell of may delete pods
    allowed_namespaces: tuple[str, ...] = ()  # whose pods may reach the dashboard and /metrics on port 8080
    handler_namespace: str = ""  # where the OCI Node Maintenance Handler has CronJobs that are taken over, if any


def definitions(*, with_machines: bool = False) -> list[RawObject]:
    """Return the CustomResourceDefinitions."""
    of_machines = [machinemaintenance.definition()] if with_machines else []
    return [resource.definition(), record.definition(), notice.definition(), *of_machines]


def permissions(wanted: Installation) -> list[RawObject]:
    """Return the roles of the operator, and of people."""
    subject = {"kind": "ServiceAccount", "namespace": wanted.namespace, "name": NAME}
    needed = needs.permissions(
        namespace=wanted.namespace,
        lease_namespace=wanted.lease_namespace,
        configuration=wanted.configuration,
        with_machines=wanted.machines,
        kubernikus_settings=wanted.kubernikus,
        with_esx=wanted.esx,
        aws_secret=wanted.aws_secret,
        handler_namespace=wanted.handler_namespace,
        pod_deletion=wanted.pod_deletion,
        acts=wanted.acts is not None,
    )
    return [*access.roles(NAME, needed, subject), *_impersonation(wanted), *for_people()]


def _impersonation(wanted: Installation) -> list[RawObject]:
    """Return the role of the account that acts in the names of people, if there is one."""
    if wanted.acts is None:
        return []
    subject = {"kind": "ServiceAccount", "namespace": wanted.namespace, "name": ACCOUNT}
    return access.roles(ACCOUNT, people.permissions(wanted.acts), subject)


def everything(wanted: Installation) -> list[RawObject]:
    """Return all of it, in the order in which it is to be applied."""
    accounts = [_account(name, wanted.namespace) for name in (NAME, *((ACCOUNT,) if wanted.acts else ()))]
    crds = definitions(with_machines=wanted.machines)
    agents = daemon.everything(wanted.image, wanted.namespace) if wanted.agent else []
    return [*crds, *namespaces(wanted), *accounts, *permissions(wanted), *operator(wanted), *agents]


def _account(name: str, namespace: str) -> RawObject:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}


def namespaces(wanted: Installation) -> list[RawObject]:
    """Return those that the operator needs.

    One that is not named as usual may hold pods of others, as kube-system does. That of MachineMaintenances may hold
    the Machine Maintenance Operator, to which one may want to go back.
    """
    home = PodSecurity.PRIVILEGED if wanted.agent else PodSecurity.RESTRICTED
    levels = {
        wanted.lease_namespace: PodSecurity.RESTRICTED if wanted.lease_namespace == lease.NAMESPACE else None,
        **({machinemaintenance.NAMESPACE: PodSecurity.BASELINE} if wanted.machines else {}),
        wanted.namespace: home if wanted.namespace == NAME else None,
    }
    own = (wanted.namespace, wanted.lease_namespace, *levels)
    return [namespace(name, levels[name]) for name in dict.fromkeys(own)]


def operator(wanted: Installation) -> list[RawObject]:
    """Return the operator itself, and how it is reached."""
    where = wanted.namespace
    deployment = workload.deployment(
        image=wanted.image,
        namespace=where,
        replicas=wanted.replicas,
        lease_namespace=wanted.lease_namespace,
        variables={"HAULOUT_AWS_SECRET": wanted.aws_secret, "WD_NAMESPACE": wanted.handler_namespace},
    )
    services = [workload.dashboard_service(where), workload.metrics_service(where)]
    deployment = workload.with_dashboard(deployment, wanted.dashboard)
    deployment = deployment if wanted.kubernikus is None else workload.with_kubernikus(deployment)
    if wanted.esx:
        deployment = workload.with_esx(deployment)
    return [
        deployment,
        workload.disruption_budget(where),
        workload.network_policy(where, allowed_namespaces=wanted.allowed_namespaces),
        *services,
        *registration.manifests(namespace=where),
    ]


def as_yaml(objects: Iterable[RawObject]) -> str:
    """Return objects as YAML, without anchors, which not every tool reads."""
    return yaml.dump_all(objects, Dumper=_Plain, sort_keys=False, explicit_start=True, width=120)


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        del data
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Write what has several lines as it is."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Plain.add_representer(str, _text)


def for_people() -> list[RawObject]:
    """Return the roles that the Node Maintenance Operator ships for its users, and such for what is ours."""
    rules = {
        f"{kind}-{role}-role": [
            {"apiGroups": [of.group], "resources": [of.plural], "verbs": verbs},
            {"apiGroups": [of.group], "resources": [f"{of.plural}/status"], "verbs": ["get"]},
        ]
        for kind, of in (("nodemaintenance", NODE_MAINTENANCES), ("maintenancenotice", MAINTENANCE_NOTICES))
        for role, verbs in (("editor", [*_READ, "create", "delete", "patch", "update"]), ("viewer", _READ))
    }
    rules["maintenancerecord-viewer-role"] = [
        {"apiGroups": [MAINTENANCE_RECORDS.group], "resources": [MAINTENANCE_RECORDS.plural], "verbs": _READ}
    ]
    rules |= roles_for_people()
    rules[guarded.READER_ROLE] = [{"nonResourceURLs": [guarded.PATH], "verbs": ["get"]}]
    return [
        {"apiVersion": _RBAC, "kind": "ClusterRole", "metadata": {"name": name}, "rules": allowed}
        for name, allowed in rules.items()
    ]
