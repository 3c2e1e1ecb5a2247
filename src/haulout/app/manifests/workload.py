"""The Deployment of the operator with its PodDisruptionBudget, NetworkPolicy, Services and ServiceMonitor.

`haulout manifests`, the Helm chart, the kustomization and the bundle for the Operator Lifecycle Manager all use this
module (`tools.packages`): each port, probe and label is defined once.
"""

import copy
from collections.abc import Iterable
from typing import Any

from haulout.api.objects import RawObject
from haulout.app.components import ComponentType
from haulout.controllers.nodemaintenance import node_lease
from haulout.dashboard import server
from haulout.dashboard.api.types import AuthMode
from haulout.httpserver import healthz, secure_metrics
from haulout.webhook import registration

NAME = "haulout"
PROFILES_CONFIG_MAP = "haulout-profiles"  # optional ConfigMap with maintenance.yaml
CLOUDS_CONFIG_MAP = "haulout-clouds"  # optional ConfigMap with environment variables of cloud providers
# A Secret with the shared secret of a proxy in front of the dashboard, under the key `secret`.
PROXY_SECRET = "haulout-dashboard-proxy"  # noqa: S105 - the name of a Secret, not its content
HANDLER_CONFIG_MAP = "wd"  # of the OCI Node Maintenance Handler, in whose namespace the operator may run
SELECTOR = {"app.kubernetes.io/name": NAME}
LABELS = {**SELECTOR, **registration.POD_LABELS}
LOW_MEMORY_ENVIRONMENT = {
    # Returns memory that many connections used for a moment to the system; otherwise a fifth of it is kept.
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_TRIM_THRESHOLD_": "131072",
    # Its C extension loads libstdc++, which costs 1 MB; aiohttp uses it for a handful of lists only.
    "FROZENLIST_NO_EXTENSIONS": "1",
}
# About 70 MB with 1,000 nodes, 100 MB with 5,000, and 40 MB more for the SDK of a cloud provider.
RESOURCES = {"requests": {"cpu": "20m", "memory": "80Mi"}, "limits": {"memory": "280Mi"}}
# Without it, the operator would be preempted, or evicted from a node under pressure, when it is needed most.
PRIORITY = "system-cluster-critical"
GRACE_SECONDS = 30
REPLICAS = 2
POD_SECURITY: RawObject = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
CONTAINER_SECURITY: RawObject = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
TOLERATIONS = [
    {"key": f"node-role.kubernetes.io/{role}", "operator": "Exists", "effect": effect}
    for role, effect in (
        ("master", "NoSchedule"),
        ("control-plane", "NoSchedule"),
        ("infra", "NoSchedule"),
        ("infra", "NoExecute"),
    )
]
PROXY_FOLDER = "/proxy"
_TMP_MOUNT = {"name": "tmp", "mountPath": "/tmp"}  # noqa: S108 - a volume of its own in the container


def deployment(
    *,
    image: str,
    namespace: str,
    replicas: int = REPLICAS,
    lease_namespace: str = node_lease.NAMESPACE,
    variables: RawObject | None = None,
) -> RawObject:
    """Return the Deployment; `variables` are added to its environment, except those without a value."""
    pod: RawObject = {
        "serviceAccountName": NAME,
        "priorityClassName": PRIORITY,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": POD_SECURITY,
        "affinity": _pod_anti_affinity(),
        "topologySpreadConstraints": [_zone_spread()],
        "tolerations": TOLERATIONS,
        "containers": [container(image, lease_namespace=lease_namespace, variables=variables or {})],
        "volumes": [
            {"name": "tmp", "emptyDir": {}},
            {"name": "config", "configMap": {"name": PROFILES_CONFIG_MAP, "optional": True}},
        ],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME, "namespace": namespace, "labels": LABELS},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": SELECTOR},
            "template": {"metadata": {"labels": LABELS}, "spec": pod},
        },
    }


def container(image: str, *, lease_namespace: str, variables: RawObject) -> RawObject:
    return {
        "name": NAME,
        "image": image,
        "args": ["run"],
        "env": [
            {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "LEASE_NAMESPACE", "value": lease_namespace},
            *({"name": name, "value": value} for name, value in LOW_MEMORY_ENVIRONMENT.items()),
            *({"name": name, "value": value} for name, value in variables.items() if value),
        ],
        # Cloud provider settings; if both define a variable, the last one wins.
        "envFrom": [
            {"configMapRef": {"name": name, "optional": True}} for name in (HANDLER_CONFIG_MAP, CLOUDS_CONFIG_MAP)
        ],
        "ports": [
            {"name": "webhook", "containerPort": registration.PORT},
            {"name": "health", "containerPort": healthz.PORT},
            {"name": "metrics", "containerPort": server.PORT},
            {"name": "https", "containerPort": secure_metrics.PORT},
        ],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "health"}, "initialDelaySeconds": 15},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "health"}, "initialDelaySeconds": 2},
        "workingDir": "/",  # config/maintenance.yaml is relative to it
        "volumeMounts": [_TMP_MOUNT, {"name": "config", "mountPath": "/config", "readOnly": True}],
        "resources": RESOURCES,
        "securityContext": CONTAINER_SECURITY,
    }


def with_dashboard_auth(deployment: RawObject, mode: AuthMode) -> RawObject:
    """Return the Deployment with an authentication mode of the dashboard; a proxy needs the Secret `PROXY_SECRET`."""
    if mode is AuthMode.TOKEN:  # the default of `haulout run`
        return deployment
    changed = _with_mount(deployment, f"--dashboard-auth={mode}", mount_path="")
    if mode is not AuthMode.PROXY:
        return changed
    argument = f"--dashboard-proxy-secret-file={PROXY_FOLDER}/secret"
    return _with_mount(changed, argument, mount_path=PROXY_FOLDER, proxy={"secret": {"secretName": PROXY_SECRET}})


def with_component(deployment: RawObject, component: ComponentType) -> RawObject:
    """Return the Deployment with a component that is configured by a file in a ConfigMap or Secret."""
    file = component.settings_file
    if file is None:
        return deployment
    argument, folder = f"--{component.name}={settings_path(component)}", settings_folder(component)
    name = file.object_name
    volume = {"secret": {"secretName": name}} if file.is_secret else {"configMap": {"name": name}}
    return _with_mount(deployment, argument, mount_path=folder, **{component.name: volume})


def settings_folder(component: ComponentType) -> str:
    """Return where the settings file of a component is mounted."""
    return f"/{component.name}"


def settings_path(component: ComponentType) -> str:
    """Return the path of the settings file of a component; empty if it has none."""
    file = component.settings_file
    return "" if file is None else f"{settings_folder(component)}/{file.name}"


def _with_mount(deployment: RawObject, argument: str, *, mount_path: str, **volume: RawObject) -> RawObject:
    """Return the Deployment with one more argument, and with a volume of this name mounted at `mount_path`."""
    changed = copy.deepcopy(deployment)
    pod = changed["spec"]["template"]["spec"]
    [container] = pod["containers"]
    container["args"].append(argument)
    for name, source in volume.items():
        container["volumeMounts"].append({"name": name, "mountPath": mount_path, "readOnly": True})
        pod["volumes"].append({"name": name, **source})
    return changed


def disruption_budget(namespace: str) -> RawObject:
    """Return the PodDisruptionBudget that keeps drains, ours included, from evicting both replicas at once."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": NAME, "namespace": namespace, "labels": LABELS},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": SELECTOR}},
    }


def dashboard_service(namespace: str) -> RawObject:
    """Return the Service of the dashboard, the API and `/metrics`; any replica answers, and forwards to the leader."""
    return _service(NAME, namespace, {"name": "http", "port": server.PORT, "targetPort": "metrics"})


def metrics_service(namespace: str) -> RawObject:
    """Return the Service under which the Node Maintenance Operator's monitoring scrapes metrics."""
    return _service(
        secure_metrics.SERVICE, namespace, {"name": "https", "port": secure_metrics.PORT, "targetPort": "https"}
    )


def network_policy(namespace: str, *, allowed_namespaces: Iterable[str] = ()) -> RawObject:
    """Return the NetworkPolicy of the operator.

    The webhook is open to all, because the addresses of API servers are unknown. So are metrics over HTTPS, which
    require a token.
    """
    metadata = {"name": NAME, "namespace": namespace, "labels": LABELS}
    return ingress_policy(
        metadata, selector=SELECTOR, open_ports=("webhook", "https"), allowed_namespaces=allowed_namespaces
    )


def ingress_policy(
    metadata: RawObject, *, selector: RawObject, open_ports: Iterable[str], allowed_namespaces: Iterable[str]
) -> RawObject:
    """Return a NetworkPolicy: all may reach `open_ports`; replicas and some namespaces may reach the dashboard's port.

    Probes need no rule: Kubernetes always lets a node reach the pods that run on it. Egress is open: the addresses of
    the API server, of clouds and of notification receivers are unknown here.
    """
    labelled = ({"matchLabels": {"kubernetes.io/metadata.name": item}} for item in allowed_namespaces)
    peers = [{"podSelector": {"matchLabels": selector}}, *({"namespaceSelector": item} for item in labelled)]
    open_rules = [{"ports": ports}] if (ports := [{"port": item} for item in open_ports]) else []
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata,
        "spec": {
            "podSelector": {"matchLabels": selector},
            "policyTypes": ["Ingress"],
            "ingress": [*open_rules, {"ports": [{"port": "metrics"}], "from": peers}],
        },
    }


def service_monitor(namespace: str) -> RawObject:
    """Return the ServiceMonitor: the Prometheus Operator scrapes metrics over HTTPS with its own token."""
    endpoint = {
        "port": "https",
        "scheme": "https",
        "path": secure_metrics.PATH,
        "bearerTokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token",
        "tlsConfig": {"insecureSkipVerify": True},  # the certificate is the webhook's, for another name
    }
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": {"name": NAME, "namespace": namespace, "labels": LABELS},
        "spec": {"selector": {"matchLabels": SELECTOR}, "endpoints": [endpoint]},
    }


def _service(name: str, namespace: str, port: RawObject) -> RawObject:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace, "labels": LABELS},
        "spec": {"selector": SELECTOR, "ports": [port]},
    }


def _pod_anti_affinity() -> RawObject:
    term: dict[str, Any] = {"labelSelector": {"matchLabels": SELECTOR}, "topologyKey": "kubernetes.io/hostname"}
    preferred = [{"weight": 100, "podAffinityTerm": term}]
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}


def _zone_spread() -> RawObject:
    return {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": SELECTOR},
    }
