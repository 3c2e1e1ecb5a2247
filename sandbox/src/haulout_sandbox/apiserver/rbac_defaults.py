"""The roles and bindings that every cluster has from the start, as far as people and operators meet them.

They are those of Kubernetes 1.36 (`plugin/pkg/auth/authorizer/rbac/bootstrappolicy`); the roles of the control plane's
own controllers, of kubelets and of certificate approval are left out. admin, edit and view gather their rules.
"""

import uuid
from collections.abc import Iterator
from datetime import datetime

from haulout_sandbox.apiserver.builtin_kinds import CLUSTER_ROLE, CLUSTER_ROLE_BINDING
from haulout_sandbox.apiserver.kinds import JsonObject, Kind
from haulout_sandbox.apiserver.rbac import AUTHENTICATED, GROUP, MASTERS, UNAUTHENTICATED, aggregated

_API_VERSION = f"{GROUP}/v1"
_AGGREGATE = f"{GROUP}/aggregate-to-"
_ANNOTATIONS = {"rbac.authorization.kubernetes.io/autoupdate": "true"}
_LABELS = {"kubernetes.io/bootstrapping": "rbac-defaults"}

_READ = "get list watch"
_WRITE = "create delete deletecollection patch update"
_ALL = "create delete deletecollection get list patch update watch"

_VIEW = [
    (
        _READ,
        "",
        (
            "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods replicationcontrollers "
            "replicationcontrollers/scale serviceaccounts services services/status"
        ),
    ),
    (
        _READ,
        "",
        (
            "bindings limitranges namespaces/status pods/log pods/status replicationcontrollers/status resourcequotas "
            "resourcequotas/status"
        ),
    ),
    (_READ, "", "namespaces"),
    (_READ, " events.k8s.io", "events"),
    (_READ, "discovery.k8s.io", "endpointslices"),
    (
        _READ,
        "apps",
        (
            "controllerrevisions daemonsets daemonsets/status deployments deployments/scale deployments/status "
            "replicasets replicasets/scale replicasets/status statefulsets statefulsets/scale statefulsets/status"
        ),
    ),
    (_READ, "autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status"),
    (_READ, "batch", "cronjobs cronjobs/status jobs jobs/status"),
    (
        _READ,
        "extensions",
        (
            "daemonsets daemonsets/status deployments deployments/scale deployments/status ingresses ingresses/status "
            "networkpolicies replicasets replicasets/scale replicasets/status replicationcontrollers/scale"
        ),
    ),
    (_READ, "policy", "poddisruptionbudgets poddisruptionbudgets/status"),
    (_READ, "networking.k8s.io", "ingresses ingresses/status networkpolicies"),
    (_READ, "resource.k8s.io", "resourceclaims resourceclaims/status resourceclaimtemplates"),
]
_EDIT = [
    (_READ, "", "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy"),
    ("impersonate", "", "serviceaccounts"),
    (_WRITE, "", "pods pods/attach pods/exec pods/portforward pods/proxy"),
    ("create", "", "pods/eviction"),
    (
        _WRITE,
        "",
        (
            "configmaps persistentvolumeclaims replicationcontrollers replicationcontrollers/scale secrets "
            "serviceaccounts services services/proxy"
        ),
    ),
    ("create", "", "serviceaccounts/token"),
    (_WRITE, " events.k8s.io", "events"),
    (
        _WRITE,
        "apps",
        (
            "daemonsets deployments deployments/rollback deployments/scale replicasets replicasets/scale statefulsets "
            "statefulsets/scale"
        ),
    ),
    (_WRITE, "autoscaling", "horizontalpodautoscalers"),
    (_WRITE, "batch", "cronjobs jobs"),
    (
        _WRITE,
        "extensions",
        (
            "daemonsets deployments deployments/rollback deployments/scale ingresses networkpolicies replicasets "
            "replicasets/scale replicationcontrollers/scale"
        ),
    ),
    (_WRITE, "policy", "poddisruptionbudgets"),
    (_WRITE, "networking.k8s.io", "ingresses networkpolicies"),
    (_ALL, "coordination.k8s.io", "leases"),
    (_WRITE, "resource.k8s.io", "resourceclaims resourceclaimtemplates"),
]
_ADMIN = [("create", "authorization.k8s.io", "localsubjectaccessreviews"), (_ALL, GROUP, "rolebindings roles")]
_BASIC = [
    ("create", "authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews"),
    ("create", "authentication.k8s.io", "selfsubjectreviews"),
]
_DELEGATOR = [
    ("create", "authentication.k8s.io", "tokenreviews"),
    ("create", "authorization.k8s.io", "subjectaccessreviews"),
]
_PUBLIC = "/healthz /livez /readyz /version /version/"
_DISCOVERY = "/api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version /version/"
_MONITORING = "/flagz /healthz /healthz/* /livez /livez/* /metrics /metrics/slis /readyz /readyz/* /statusz"


def _rules(told: list[tuple[str, str, str]]) -> list[JsonObject]:
    return [
        {"verbs": verbs.split(), "apiGroups": groups.split(" "), "resources": resources.split()}
        for verbs, groups, resources in told
    ]


def _paths(verbs: str, urls: str) -> list[JsonObject]:
    return [{"verbs": verbs.split(), "nonResourceURLs": urls.split()}]


def _role(name: str, rules: list[JsonObject], *, part_of: str = "") -> JsonObject:
    labels = _LABELS | ({f"{_AGGREGATE}{part_of}": "true"} if part_of else {})
    meta = {"name": name, "labels": labels, "annotations": dict(_ANNOTATIONS)}
    return {"apiVersion": _API_VERSION, "kind": "ClusterRole", "metadata": meta, "rules": rules}


def _gathering(name: str, *, part_of: str = "") -> JsonObject:
    selector = {"matchLabels": {f"{_AGGREGATE}{name}": "true"}}
    return _role(name, [], part_of=part_of) | {"aggregationRule": {"clusterRoleSelectors": [selector]}}


def _binding(name: str, *groups: str) -> JsonObject:
    return {
        "apiVersion": _API_VERSION,
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name, "labels": dict(_LABELS), "annotations": dict(_ANNOTATIONS)},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": GROUP, "kind": "Group", "name": group} for group in groups],
    }


def default_cluster_roles() -> list[JsonObject]:
    """Return the cluster roles, each call new ones; `rbac.aggregated` fills in what is gathered."""
    return [
        _gathering("admin"),
        _role("cluster-admin", [*_rules([("*", "*", "*")]), *_paths("*", "*")]),
        _gathering("edit", part_of="admin"),
        _role("system:aggregate-to-admin", _rules(_ADMIN), part_of="admin"),
        _role("system:aggregate-to-edit", _rules(_EDIT), part_of="edit"),
        _role("system:aggregate-to-view", _rules(_VIEW), part_of="view"),
        _role("system:auth-delegator", _rules(_DELEGATOR)),
        _role("system:basic-user", _rules(_BASIC)),
        _role("system:discovery", _paths("get", _DISCOVERY)),
        _role("system:monitoring", [*_paths("get", _MONITORING), *_rules([("get", "", "nodes/metrics")])]),
        _role("system:public-info-viewer", _paths("get", _PUBLIC)),
        _gathering("view", part_of="edit"),
    ]


def default_cluster_role_bindings() -> list[JsonObject]:
    """Return the bindings of these roles, each call new ones."""
    return [
        _binding("cluster-admin", MASTERS),
        _binding("system:basic-user", AUTHENTICATED),
        _binding("system:discovery", AUTHENTICATED),
        _binding("system:monitoring", "system:monitoring"),
        _binding("system:public-info-viewer", AUTHENTICATED, UNAUTHENTICATED),
    ]


def bootstrap_objects(created: datetime) -> Iterator[tuple[Kind, JsonObject]]:
    """Yield all of them as a server has them in its store; a name has the same uid in every cluster."""
    for kind, objects in (
        (CLUSTER_ROLE, aggregated(default_cluster_roles())),
        (CLUSTER_ROLE_BINDING, default_cluster_role_bindings()),
    ):
        for obj in objects:
            meta = obj["metadata"]
            uid = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{kind.plural}/{meta['name']}"))
            given = {"uid": uid, "creationTimestamp": created.strftime("%Y-%m-%dT%H:%M:%SZ")}
            yield kind, obj | {"metadata": meta | given}
