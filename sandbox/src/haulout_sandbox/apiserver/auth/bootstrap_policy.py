"""The default ClusterRoles and ClusterRoleBindings of every cluster, as far as users and operators need them.

They follow Kubernetes 1.36 (`plugin/pkg/auth/authorizer/rbac/bootstrappolicy`) for the kinds that are served here.
Roles of the control plane's own controllers, of kubelets and of certificate approval are left out. `edit` includes the
rules of `view`, and `admin` those of `edit`; roles are not aggregated otherwise.
"""

import uuid
from collections.abc import Iterator
from datetime import datetime

from haulout_sandbox.apiserver.auth.rbac import AUTHENTICATED, GROUP, SYSTEM_MASTERS, UNAUTHENTICATED
from haulout_sandbox.apiserver.kinds.builtin import CLUSTER_ROLE, CLUSTER_ROLE_BINDING
from haulout_sandbox.apiserver.kinds.kind import JsonObject, Kind

_API_VERSION = f"{GROUP}/v1"
_ANNOTATIONS = {"rbac.authorization.kubernetes.io/autoupdate": "true"}
_LABELS = {"kubernetes.io/bootstrapping": "rbac-defaults"}

_READ = "get list watch"
_WRITE = "create delete deletecollection patch update"
_WORKLOADS = "daemonsets deployments deployments/scale replicasets replicasets/scale statefulsets statefulsets/scale"

_VIEW = [
    (
        _READ,
        "",
        (
            "configmaps endpoints limitranges namespaces persistentvolumeclaims persistentvolumeclaims/status pods "
            "pods/log pods/status resourcequotas serviceaccounts services services/status"
        ),
    ),
    (_READ, " events.k8s.io", "events"),
    (_READ, "discovery.k8s.io", "endpointslices"),
    (
        _READ,
        "apps",
        (
            f"controllerrevisions {_WORKLOADS} daemonsets/status deployments/status replicasets/status "
            "statefulsets/status"
        ),
    ),
    (_READ, "autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status"),
    (_READ, "batch", "cronjobs cronjobs/status jobs jobs/status"),
    (_READ, "policy", "poddisruptionbudgets poddisruptionbudgets/status"),
    (_READ, "networking.k8s.io", "ingresses ingresses/status networkpolicies"),
]
_EDIT = [
    (_READ, "", "pods/attach pods/exec pods/portforward secrets"),
    ("impersonate", "", "serviceaccounts"),
    (_WRITE, "", "pods pods/attach pods/exec pods/portforward"),
    ("create", "", "pods/eviction serviceaccounts/token"),
    (_WRITE, "", "configmaps persistentvolumeclaims secrets serviceaccounts services"),
    (_WRITE, " events.k8s.io", "events"),
    (_WRITE, "apps", _WORKLOADS),
    (_WRITE, "autoscaling", "horizontalpodautoscalers"),
    (_WRITE, "batch", "cronjobs jobs"),
    (_WRITE, "policy", "poddisruptionbudgets"),
    (_WRITE, "networking.k8s.io", "ingresses networkpolicies"),
    (f"{_READ} {_WRITE}", "coordination.k8s.io", "leases"),
]
_ADMIN = [(f"{_READ} {_WRITE}", GROUP, "rolebindings roles")]
_BASIC_USER = [
    ("create", "authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews"),
    ("create", "authentication.k8s.io", "selfsubjectreviews"),
]
_AUTH_DELEGATOR = [
    ("create", "authentication.k8s.io", "tokenreviews"),
    ("create", "authorization.k8s.io", "subjectaccessreviews"),
]
_PUBLIC_INFO_PATHS = "/healthz /livez /readyz /version /version/"
_DISCOVERY_PATHS = "/api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version /version/"
_MONITORING_PATHS = "/healthz /healthz/* /livez /livez/* /metrics /metrics/slis /readyz /readyz/*"


def _rules(rows: list[tuple[str, str, str]]) -> list[JsonObject]:
    return [
        {"verbs": verbs.split(), "apiGroups": groups.split(" "), "resources": resources.split()}
        for verbs, groups, resources in rows
    ]


def _non_resource_rules(verbs: str, urls: str) -> list[JsonObject]:
    return [{"verbs": verbs.split(), "nonResourceURLs": urls.split()}]


def _role(name: str, rules: list[JsonObject]) -> JsonObject:
    meta = {"name": name, "labels": dict(_LABELS), "annotations": dict(_ANNOTATIONS)}
    return {"apiVersion": _API_VERSION, "kind": "ClusterRole", "metadata": meta, "rules": rules}


def _binding(name: str, *groups: str) -> JsonObject:
    return {
        "apiVersion": _API_VERSION,
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name, "labels": dict(_LABELS), "annotations": dict(_ANNOTATIONS)},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": GROUP, "kind": "Group", "name": group} for group in groups],
    }


def default_cluster_roles() -> list[JsonObject]:
    """Return new copies of the default cluster roles."""
    return [
        _role("admin", _rules([*_ADMIN, *_EDIT, *_VIEW])),
        _role("cluster-admin", [*_rules([("*", "*", "*")]), *_non_resource_rules("*", "*")]),
        _role("edit", _rules([*_EDIT, *_VIEW])),
        _role("system:auth-delegator", _rules(_AUTH_DELEGATOR)),
        _role("system:basic-user", _rules(_BASIC_USER)),
        _role("system:discovery", _non_resource_rules("get", _DISCOVERY_PATHS)),
        _role(
            "system:monitoring",
            [*_non_resource_rules("get", _MONITORING_PATHS), *_rules([("get", "", "nodes/metrics")])],
        ),
        _role("system:public-info-viewer", _non_resource_rules("get", _PUBLIC_INFO_PATHS)),
        _role("view", _rules(_VIEW)),
    ]


def default_cluster_role_bindings() -> list[JsonObject]:
    return [
        _binding("cluster-admin", SYSTEM_MASTERS),
        _binding("system:basic-user", AUTHENTICATED),
        _binding("system:discovery", AUTHENTICATED),
        _binding("system:monitoring", "system:monitoring"),
        _binding("system:public-info-viewer", AUTHENTICATED, UNAUTHENTICATED),
    ]


def bootstrap_objects(created: datetime) -> Iterator[tuple[Kind, JsonObject]]:
    """Yield the default roles and bindings as stored objects; a name has the same uid in every cluster."""
    for kind, objects in (
        (CLUSTER_ROLE, default_cluster_roles()),
        (CLUSTER_ROLE_BINDING, default_cluster_role_bindings()),
    ):
        for obj in objects:
            meta = obj["metadata"]
            uid = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{kind.plural}/{meta['name']}"))
            generated = {"uid": uid, "creationTimestamp": created.strftime("%Y-%m-%dT%H:%M:%SZ")}
            yield kind, obj | {"metadata": meta | generated}
