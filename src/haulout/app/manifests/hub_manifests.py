"""Manifests of the hub for a management cluster: its permissions and its Deployment.

Its name differs from the operator's: both may share a namespace if the management cluster also maintains its own nodes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from haulout.api.objects import RawObject
from haulout.app.manifests import workload
from haulout.controllers.clusterapi import permissions as hub
from haulout.dashboard import server
from haulout.dashboard.auth import replicas
from haulout.httpserver import delegated_auth, healthz
from haulout.kube import rbac
from haulout.kube.namespaces import PodSecurity, namespace
from haulout.kube.rbac import Permission

NAME = "haulout-hub"
METAL3_FLAG = "--enable-metal3-maintenance"
_SELECTOR = {"app.kubernetes.io/name": NAME}
_LABELS = {**_SELECTOR, "app.kubernetes.io/component": "hub"}
# 55 MB without clusters, 120 MB with 200 clusters of 50 nodes each.
_RESOURCES = {"requests": {"cpu": "20m", "memory": "100Mi"}, "limits": {"memory": "400Mi"}}


@dataclass(frozen=True, slots=True, kw_only=True)
class HubInstallation:
    """The parameters of an installation, from the flags of `haulout manifests`."""

    image: str
    namespace: str = workload.NAME
    replicas: int = workload.REPLICAS
    allowed_namespaces: tuple[str, ...] = ()  # whose pods may reach the dashboard and /metrics on port 8080
    flags: tuple[str, ...] = ()  # of `haulout run --mode management`, such as `--approval-timeout=4h`


def hub_permissions(namespace: str, *, with_metal3: bool = False) -> tuple[Permission, ...]:
    """Return the permissions of a hub in `namespace`, without duplicates."""
    of_hub = hub.permissions(namespace=namespace, with_metal3=with_metal3)
    return rbac.without_redundant((*of_hub, *delegated_auth.permissions(), *replicas.permissions(namespace)))


def hub_objects(installation: HubInstallation) -> list[RawObject]:
    """Return all manifests, in the order in which to apply them."""
    subject = {"kind": "ServiceAccount", "namespace": installation.namespace, "name": NAME}
    metadata = {"name": NAME, "namespace": installation.namespace}
    account: RawObject = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    with_metal3 = METAL3_FLAG in installation.flags
    roles = rbac.roles(NAME, hub_permissions(installation.namespace, with_metal3=with_metal3), subject)
    return [
        namespace(installation.namespace, PodSecurity.RESTRICTED if installation.namespace == workload.NAME else None),
        account,
        *roles,
        _deployment(installation),
        _disruption_budget(installation),
        _network_policy(installation),
        _service(installation),
    ]


def _metadata(installation: HubInstallation) -> RawObject:
    return {"name": NAME, "namespace": installation.namespace, "labels": _LABELS}


def _deployment(installation: HubInstallation) -> RawObject:
    pod: RawObject = {
        "serviceAccountName": NAME,
        "priorityClassName": workload.PRIORITY,
        "terminationGracePeriodSeconds": workload.GRACE_SECONDS,
        "securityContext": workload.POD_SECURITY,
        "affinity": _pod_anti_affinity(),
        "tolerations": workload.TOLERATIONS,
        "containers": [_container(installation.image, installation.flags)],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(installation),
        "spec": {
            "replicas": installation.replicas,
            "selector": {"matchLabels": _SELECTOR},
            "template": {"metadata": {"labels": _LABELS}, "spec": pod},
        },
    }


def _container(image: str, flags: Sequence[str]) -> RawObject:
    return {
        "name": NAME,
        "image": image,
        "args": ["run", "--mode=management", *flags],
        "env": [{"name": name, "value": value} for name, value in workload.LOW_MEMORY_ENVIRONMENT.items()],
        "ports": [
            {"name": "health", "containerPort": healthz.PORT},
            {"name": "metrics", "containerPort": server.PORT},
        ],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "health"}, "initialDelaySeconds": 15},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "health"}, "initialDelaySeconds": 2},
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108 - a volume of its own in the container
        "resources": _RESOURCES,
        "securityContext": workload.CONTAINER_SECURITY,
    }


def _disruption_budget(installation: HubInstallation) -> RawObject:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(installation),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": _SELECTOR}},
    }


def _network_policy(installation: HubInstallation) -> RawObject:
    return workload.ingress_policy(
        _metadata(installation), selector=_SELECTOR, open_ports=(), allowed_namespaces=installation.allowed_namespaces
    )


def _service(installation: HubInstallation) -> RawObject:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(installation),
        "spec": {"selector": _SELECTOR, "ports": [{"name": "http", "port": server.PORT, "targetPort": "metrics"}]},
    }


def _pod_anti_affinity() -> RawObject:
    term: RawObject = {"labelSelector": {"matchLabels": _SELECTOR}, "topologyKey": "kubernetes.io/hostname"}
    preferred = [{"weight": 100, "podAffinityTerm": term}]
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
