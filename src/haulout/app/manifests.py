"""What is to be applied to a cluster before the operator runs in it: definitions, permissions and the operator itself.

The permissions are those that the controllers, and the plugins of a configuration, say they need (`haulout.app.needs`),
and no more.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import yaml

from haulout.app import needs
from haulout.history import record
from haulout.history.record import MAINTENANCE_RECORDS
from haulout.kube import access
from haulout.kube.objects import RawObject
from haulout.maintenance import lease, resource
from haulout.maintenance.resource import NODE_MAINTENANCES
from haulout.profiles.model import Configuration
from haulout.web import health, info, registration

NAME = "haulout"
CONFIGURATION = "haulout-profiles"  # a ConfigMap that there may be, with maintenance.yaml in it
_LABELS = {"app.kubernetes.io/name": NAME, **registration.PODS}
_SELECTOR = {"app.kubernetes.io/name": NAME}
# Memory that many connections needed for a moment goes back to the machine; without, a fifth of it is kept.
FRUGAL = {"MALLOC_ARENA_MAX": "1", "MALLOC_TRIM_THRESHOLD_": "131072"}
_RBAC = "rbac.authorization.k8s.io/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """What can differ from one installation to the next."""

    image: str
    namespace: str = NAME
    lease_namespace: str = lease.NAMESPACE
    replicas: int = 2
    configuration: Configuration | None = None  # of profiles; None: it is not known yet


def definitions() -> list[RawObject]:
    """Return the CustomResourceDefinitions."""
    return [yaml.safe_load(resource.definition()), record.definition()]


def permissions(wanted: Installation) -> list[RawObject]:
    """Return the roles of the operator, and of people."""
    subject = {"kind": "ServiceAccount", "namespace": wanted.namespace, "name": NAME}
    needed = needs.permissions(
        namespace=wanted.namespace, lease_namespace=wanted.lease_namespace, configuration=wanted.configuration
    )
    return [*access.roles(NAME, needed, subject), *_for_people()]


def everything(wanted: Installation) -> list[RawObject]:
    """Return all of it, in the order in which it is to be applied."""
    namespaces = [_namespace(name) for name in dict.fromkeys((wanted.namespace, wanted.lease_namespace))]
    metadata = {"name": NAME, "namespace": wanted.namespace}
    account: RawObject = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    webhook = registration.manifests(namespace=wanted.namespace)
    return [*definitions(), *namespaces, account, *permissions(wanted), _deployment(wanted, metadata), *webhook]


def as_yaml(objects: Iterable[RawObject]) -> str:
    """Return objects as YAML, without anchors, which not every tool reads."""
    return yaml.dump_all(objects, Dumper=_Plain, sort_keys=False, explicit_start=True, width=120)


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        del data
        return True


def _namespace(name: str) -> RawObject:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def _for_people() -> list[RawObject]:
    """Return the roles that the Node Maintenance Operator ships for its users, and one to read the history."""
    group, plural = NODE_MAINTENANCES.group, NODE_MAINTENANCES.plural
    read = ["get", "list", "watch"]
    allowed = {
        "nodemaintenance-editor-role": [*read, "create", "delete", "patch", "update"],
        "nodemaintenance-viewer-role": read,
    }
    about_maintenances = {
        name: [
            {"apiGroups": [group], "resources": [plural], "verbs": verbs},
            {"apiGroups": [group], "resources": [f"{plural}/status"], "verbs": ["get"]},
        ]
        for name, verbs in allowed.items()
    }
    history = {"apiGroups": [MAINTENANCE_RECORDS.group], "resources": [MAINTENANCE_RECORDS.plural], "verbs": read}
    return [
        {"apiVersion": _RBAC, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}
        for name, rules in {**about_maintenances, "maintenancerecord-viewer-role": [history]}.items()
    ]


def _deployment(wanted: Installation, metadata: RawObject) -> RawObject:
    pod: RawObject = {
        "serviceAccountName": NAME,
        "priorityClassName": "system-cluster-critical",
        "terminationGracePeriodSeconds": 30,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "affinity": _apart_from_each_other(),
        "tolerations": [
            {"key": f"node-role.kubernetes.io/{role}", "operator": "Exists", "effect": effect}
            for role, effect in (
                ("master", "NoSchedule"),
                ("control-plane", "NoSchedule"),
                ("infra", "NoSchedule"),
                ("infra", "NoExecute"),
            )
        ],
        "containers": [_container(wanted)],
        "volumes": [
            {"name": "tmp", "emptyDir": {}},
            {"name": "config", "configMap": {"name": CONFIGURATION, "optional": True}},
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata | {"labels": _LABELS},
        "spec": {
            "replicas": wanted.replicas,
            "selector": {"matchLabels": _SELECTOR},
            "template": {"metadata": {"labels": _LABELS}, "spec": pod},
        },
    }


def _container(wanted: Installation) -> RawObject:
    return {
        "name": NAME,
        "image": wanted.image,
        "args": ["run"],
        "env": [
            {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "LEASE_NAMESPACE", "value": wanted.lease_namespace},
            *({"name": name, "value": value} for name, value in FRUGAL.items()),
        ],
        "ports": [
            {"name": "webhook", "containerPort": registration.PORT},
            {"name": "health", "containerPort": health.PORT},
            {"name": "metrics", "containerPort": info.PORT},
        ],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "health"}, "initialDelaySeconds": 15},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "health"}, "initialDelaySeconds": 2},
        "workingDir": "/",  # from where config/maintenance.yaml is found
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - in the container, and its own
            {"name": "config", "mountPath": "/config", "readOnly": True},
        ],
        "resources": {"requests": {"cpu": "20m", "memory": "80Mi"}, "limits": {"memory": "200Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _apart_from_each_other() -> RawObject:
    term = {"labelSelector": {"matchLabels": _SELECTOR}, "topologyKey": "kubernetes.io/hostname"}
    preferred = [{"weight": 100, "podAffinityTerm": term}]
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
