"""The manifests of the webhook: its Service, its ValidatingWebhookConfiguration, and its permissions.

    manifests(namespace="haulout")

Names, path, rules and timeouts are those of the Node Maintenance Operator. `clientConfig` refers to a Service or, for a
webhook outside of the cluster, to a URL. It contains no CA bundle: the provider of the certificate injects it, and
without a provider the webhook itself does (`haulout.webhook.ca_bundle_injection`).

`permissions` is what the webhook needs beyond the permissions of the controller (get nodes, list pods and
PodDisruptionBudgets, list NodeMaintenances).
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
MANAGED_SECRET = "haulout-webhook-certificate"  # noqa: S105 - the name of a Secret, not its content

# Where every API server publishes the CAs for extension API servers
# (pkg/controlplane/controller/clusterauthenticationtrust/cluster_authentication_trust_controller.go).
AUTHENTICATION_NAMESPACE = "kube-system"
AUTHENTICATION_CONFIG_MAP = "extension-apiserver-authentication"

# Users and the must-gather of the Node Maintenance Operator select the pods by these labels.
POD_LABELS = {"control-plane": "controller-manager", "node-maintenance-operator": ""}

_HTTPS = 443


def service(name: str = SERVICE, *, namespace: str = NAMESPACE, port: int = PORT) -> RawObject:
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
    """Return the ValidatingWebhookConfiguration; `url`, without a path, replaces the Service."""
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
        # As in the Node Maintenance Operator: a NodeMaintenance that nobody checked could take the quorum of etcd.
        "failurePolicy": "Fail",
        # The API server refuses a dry run if a webhook may have side effects
        # (staging/src/k8s.io/apiserver/pkg/admission/plugin/webhook/validating/dispatcher.go).
        "sideEffects": "None",
        # From 1 to 30; after that time, failurePolicy applies
        # (staging/src/k8s.io/api/admissionregistration/v1/types.go).
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
    return service(namespace=namespace), configuration(namespace=namespace)


def service_hosts(name: str = SERVICE, *, namespace: str = NAMESPACE) -> tuple[str, ...]:
    """Return the DNS names of a Service; API servers use the first."""
    # API servers verify this name for a webhook with a Service (serverName in
    # staging/src/k8s.io/apiserver/pkg/util/webhook/client.go).
    cluster_host = f"{name}.{namespace}.svc"
    return cluster_host, f"{name}.{namespace}", name, f"{cluster_host}.cluster.local"


def permissions(*, namespace: str, secret: str = MANAGED_SECRET) -> tuple[Permission, ...]:
    """Return the permissions of the webhook beyond those of the controller."""
    verbs = ("get", "list", "watch", "patch")
    return (
        # RBAC cannot restrict create by resourceNames: the object has no name yet at authorization.
        Permission(("create",), "", "secrets", namespace, "create the webhook Secret"),
        Permission(verbs, "", "secrets", namespace, "renew the webhook certificate", names=(secret,)),
        Permission(
            verbs,
            CONFIGURATIONS.group,
            CONFIGURATIONS.plural,
            None,
            "inject the webhook CA bundle",
            names=(CONFIGURATION,),
        ),
    )


def caller_permissions() -> tuple[Permission, ...]:
    """Return the permissions to verify callers, those of the Role `extension-apiserver-authentication-reader`."""
    verbs, names = ("get", "list", "watch"), (AUTHENTICATION_CONFIG_MAP,)
    why = "authenticate the API server"
    return (Permission(verbs, "", "configmaps", AUTHENTICATION_NAMESPACE, why, names=names),)
