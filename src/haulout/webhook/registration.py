"""How the webhook is made known to a cluster, and what it must be allowed there: manifests as plain values.

    manifests(namespace="haulout")

Names, path, rules and time-outs are those of the Node Maintenance Operator. `clientConfig` names a Service or, for a
webhook that runs outside of the cluster, a URL. It comes without authorities: whoever provides the certificate writes
them, and when nobody does, the webhook itself.

`permissions` is what the webhook needs beyond what the controller may do anyway (get nodes, list pods and disruption
budgets, list NodeMaintenances).
"""

from typing import Any

from haulout.api.nodemaintenance import NODE_MAINTENANCES
from haulout.api.objects import RawObject
from haulout.kube.rbac import Permission
from haulout.webhook.ca_bundle_injection import CONFIGURATIONS
from haulout.webhook.validator import REVIEW_TIMEOUT

CONFIGURATION = "node-maintenance-operator-validating-webhook-configuration"
WEBHOOK = "vnodemaintenance.kb.io"
PATH = "/validate-nodemaintenance-medik8s-io-v1beta1-nodemaintenance"
NAMESPACE = "node-maintenance-operator-system"
SERVICE = "node-maintenance-operator-webhook-service"
PORT = 9443
MANAGED_SECRET = "haulout-webhook-certificate"  # noqa: S105 - the name of one

# Where every API server says by which authorities it is known to servers behind it.
AUTHENTICATION_NAMESPACE = "kube-system"
AUTHENTICATION_CONFIG_MAP = "extension-apiserver-authentication"

# By these labels the pods of the Node Maintenance Operator are found, by people and by its must-gather.
POD_LABELS = {"control-plane": "controller-manager", "node-maintenance-operator": ""}

_HTTPS = 443


def service(name: str = SERVICE, *, namespace: str = NAMESPACE, port: int = PORT) -> RawObject:
    """Return the Service in front of the replicas."""
    ports = [{"name": "webhook", "port": _HTTPS, "protocol": "TCP", "targetPort": port}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": dict(POD_LABELS), "ports": ports},
    }


def configuration(
    *, name: str = CONFIGURATION, service_name: str = SERVICE, namespace: str = NAMESPACE, url: str = ""
) -> RawObject:
    """Return the ValidatingWebhookConfiguration, which reaches the Service, or a `url` up to its port."""
    service_reference = {"name": service_name, "namespace": namespace, "path": PATH, "port": _HTTPS}
    client_config: dict[str, Any] = {"url": f"{url}{PATH}"} if url else {"service": service_reference}
    rule = {
        "apiGroups": [NODE_MAINTENANCES.group],
        "apiVersions": [NODE_MAINTENANCES.version],
        "resources": [NODE_MAINTENANCES.plural],
        "operations": ["CREATE", "UPDATE"],
        "scope": "*",
    }
    webhook = {
        "name": WEBHOOK,
        "admissionReviewVersions": ["v1"],
        "clientConfig": client_config,
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "timeoutSeconds": round(REVIEW_TIMEOUT.total_seconds()),
        "rules": [rule],
    }
    return {
        "apiVersion": CONFIGURATIONS.api_version,
        "kind": CONFIGURATIONS.kind,
        "metadata": {"name": name},
        "webhooks": [webhook],
    }


def manifests(*, namespace: str = NAMESPACE) -> tuple[RawObject, ...]:
    """Return all that makes the webhook known to a cluster."""
    return service(namespace=namespace), configuration(namespace=namespace)


def service_hosts(name: str = SERVICE, *, namespace: str = NAMESPACE) -> tuple[str, ...]:
    """Return the names by which a Service is reached; API servers use the first."""
    cluster_host = f"{name}.{namespace}.svc"
    return cluster_host, f"{name}.{namespace}", name, f"{cluster_host}.cluster.local"


def permissions(*, namespace: str, secret: str = MANAGED_SECRET) -> tuple[Permission, ...]:
    """Return what the webhook needs beyond what the controller may do anyway."""
    verbs = ("get", "list", "watch", "patch")
    return (
        # A name cannot restrict this, as there is no object yet to have one.
        Permission(("create",), "", "secrets", namespace, "make a certificate"),
        Permission(verbs, "", "secrets", namespace, "share and renew it", names=(secret,)),
        Permission(verbs, CONFIGURATIONS.group, CONFIGURATIONS.plural, None, "have it trusted", names=(CONFIGURATION,)),
    )


def caller_permissions() -> tuple[Permission, ...]:
    """Return what verifying callers needs: what the Role `extension-apiserver-authentication-reader` grants."""
    verbs, names = ("get", "list", "watch"), (AUTHENTICATION_CONFIG_MAP,)
    why = "authenticate the API server"
    return (Permission(verbs, "", "configmaps", AUTHENTICATION_NAMESPACE, why, names=names),)
