"""What is to be applied to a management cluster for a hub to run in it: permissions, and the hub itself.

Its name is not the operator's: both may live in one namespace, if a management cluster maintains its own nodes, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from haulout.app import workload
from haulout.hub import permissions as hub
from haulout.kube import access
from haulout.kube.access import Permission
from haulout.kube.namespaces import PodSecurity, namespace
from haulout.kube.objects import RawObject
from haulout.web import callers, health, info
from haulout.web.auth import replicas

NAME = "haulout-hub"
METAL3_FLAG = "--enable-metal3-maintenance"
_SELECTOR = {"app.kubernetes.io/name": NAME}
_LABELS = {**_SELECTOR, "app.kubernetes.io/component": "hub"}
# 55 MB without any cluster, 120 MB with 200 of 50 nodes each.
_RESOURCES = {"requests": {"cpu": "20m", "memory": "100Mi"}, "limits": {"memory": "400Mi"}}


@dataclass(frozen=True, slots=True, kw_only=True)
class HubInstallation:
    """What can differ from one installation to the next."""

    image: str
    namespace: str = workload.NAME
    replicas: int = workload.REPLICAS
    allowed_namespaces: tuple[str, ...] = ()  # whose pods may reach the dashboard and /metrics on port 8080
    flags: tuple[str, ...] = ()  # of `haulout run --mode management`, such as `--approval-timeout=4h`


def needed(namespace: str, *, with_metal3: bool = False) -> tuple[Permission, ...]:
    """Return what a hub that lives in `namespace` must be allowed to do; each thing once."""
    of_hub = hub.permissions(namespace=namespace, with_metal3=with_metal3)
    return access.lean((*of_hub, *callers.permissions(), *replicas.permissions(namespace)))


def everything(wanted: HubInstallation) -> list[RawObject]:
    """Return all of it, in the order in which it is to be applied."""
    subject = {"kind": "ServiceAccount", "namespace": wanted.namespace, "name": NAME}
    whose = {"name": NAME, "namespace": wanted.namespace}
    account: RawObject = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": whose}
    with_metal3 = METAL3_FLAG in wanted.flags
    roles = access.roles(NAME, needed(wanted.namespace, with_metal3=with_metal3), subject)
    return [
        namespace(wanted.namespace, PodSecurity.RESTRICTED if wanted.namespace == workload.NAME else None),
        account,
        *roles,
        _deployment(wanted),
        _disruption_budget(wanted),
        _network_policy(wanted),
        _service(wanted),
    ]


def _metadata(wanted: HubInstallation) -> RawObject:
    return {"name": NAME, "namespace": wanted.namespace, "labels": _LABELS}


def _deployment(wanted: HubInstallation) -> RawObject:
    pod: RawObject = {
        "serviceAccountName": NAME,
        "priorityClassName": workload.PRIORITY,
        "terminationGracePeriodSeconds": workload.GRACE_SECONDS,
        "securityContext": workload.POD_SECURITY,
        "affinity": _apart_from_each_other(),
        "tolerations": workload.TOLERATIONS,
        "containers": [_container(wanted.image, wanted.flags)],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(wanted),
        "spec": {
            "replicas": wanted.replicas,
            "selector": {"matchLabels": _SELECTOR},
            "template": {"metadata": {"labels": _LABELS}, "spec": pod},
        },
    }


def _container(image: str, flags: Sequence[str]) -> RawObject:
    return {
        "name": NAME,
        "image": image,
        "args": ["run", "--mode=management", *flags],
        "env": [{"name": name, "value": value} for name, value in workload.FRUGAL.items()],
        "ports": [
            {"name": "health", "containerPort": health.PORT},
            {"name": "metrics", "containerPort": info.PORT},
        ],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "health"}, "initialDelaySeconds": 15},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "health"}, "initialDelaySeconds": 2},
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108 - in the container, and its own
        "resources": _RESOURCES,
        "securityContext": workload.CONTAINER_SECURITY,
    }


def _disruption_budget(wanted: HubInstallation) -> RawObject:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(wanted),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": _SELECTOR}},
    }


def _network_policy(wanted: HubInstallation) -> RawObject:
    return workload.ingress_policy(
        _metadata(wanted), selector=_SELECTOR, open_ports=(), allowed_namespaces=wanted.allowed_namespaces
    )


def _service(wanted: HubInstallation) -> RawObject:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(wanted),
        "spec": {"selector": _SELECTOR, "ports": [{"name": "http", "port": info.PORT, "targetPort": "metrics"}]},
    }


def _apart_from_each_other() -> RawObject:
    term: RawObject = {"labelSelector": {"matchLabels": _SELECTOR}, "topologyKey": "kubernetes.io/hostname"}
    preferred = [{"weight": 100, "podAffinityTerm": term}]
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
