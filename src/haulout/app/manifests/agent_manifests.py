"""Manifests of the node agent: a DaemonSet with minimal permissions.

An agent may read and write MaintenanceNotices, and nothing else. RBAC cannot restrict it to the notices of its own
node, so a ValidatingAdmissionPolicy does, by the node name that the API server adds to the token of the pod. An
attacker who controls a node can forge notices of that node, and of no other. The policy also bounds the size of a
notice, and forbids fields that block its deletion; the operator bounds the number of notices
(`haulout.controllers.notices.notice_quota`).

Both need Kubernetes 1.32: node names in tokens and ValidatingAdmissionPolicy exist since 1.30, but selecting notices by
node (selectable fields) is certain since 1.32 only.
"""

from haulout.api.maintenancenotice import MAINTENANCE_NOTICES
from haulout.api.objects import RawObject
from haulout.app.manifests import workload
from haulout.app.manifests.workload import CLOUDS_CONFIG_MAP, CONTAINER_SECURITY, LOW_MEMORY_ENVIRONMENT, POD_SECURITY
from haulout.controllers.notices.orphans import AGENT_SOURCES as SOURCES
from haulout.kube.rbac import Permission
from haulout.providers.agent import health
from haulout.providers.aws.instance_events import LIFECYCLE_GROUP, LIFECYCLE_HOOK, EventType

NAME = f"{workload.NAME}-agent"
SELECTOR = {"app.kubernetes.io/name": NAME}
LABELS = {**SELECTOR, "app.kubernetes.io/part-of": workload.NAME}
PRIORITY = "system-node-critical"
# An agent uses about 32 MB; two thirds of it are Python and its event loop.
RESOURCES = {"requests": {"cpu": "5m", "memory": "40Mi"}, "limits": {"memory": "80Mi"}}
TOLERATIONS = [{"operator": "Exists"}]  # maintenance is announced for nodes with any taint
NODE_SELECTOR = {"kubernetes.io/os": "linux"}
NODE_OF_CALLER = "authentication.kubernetes.io/node-name"
_META = "object.metadata"
_OLD = "oldObject.metadata"
_MAX_ENTRIES = 16
_MAX_VALUE = 4096
_MAX_MANAGERS = 20
_RBAC = "rbac.authorization.k8s.io"
_ADMISSION = "admissionregistration.k8s.io/v1"


def permissions() -> tuple[Permission, ...]:
    group, plural = MAINTENANCE_NOTICES.group, MAINTENANCE_NOTICES.plural
    verbs = ("get", "list", "watch", "create", "patch")
    return (Permission(verbs, group, plural, None, "see and write the notices of its node"),)


def agent_objects(image: str, namespace: str) -> list[RawObject]:
    """Return all manifests, in the order in which to apply them."""
    return [
        service_account(namespace),
        cluster_role(),
        cluster_role_binding(namespace),
        admission_policy(namespace),
        admission_policy_binding(),
        daemon_set(image=image, namespace=namespace),
    ]


def service_account(namespace: str) -> RawObject:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata(namespace)}


def cluster_role() -> RawObject:
    rules = [
        {"apiGroups": [permission.group], "resources": [permission.resource], "verbs": list(permission.verbs)}
        for permission in permissions()
    ]
    return {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": _metadata(), "rules": rules}


def cluster_role_binding(namespace: str) -> RawObject:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": _metadata(),
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": NAME},
        "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": NAME}],
    }


def admission_policy(namespace: str) -> RawObject:
    """Return the policy that restricts an agent to the notices of its own node."""
    has_node = f"has(request.userInfo.extra) && '{NODE_OF_CALLER}' in request.userInfo.extra"
    node = f"{has_node} ? request.userInfo.extra['{NODE_OF_CALLER}'][0] : ''"
    sources = ", ".join(f"'{item}'" for item in SOURCES)
    return {
        "apiVersion": _ADMISSION,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": _metadata(),
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [MAINTENANCE_NOTICES.group],
                        "apiVersions": ["*"],
                        "operations": ["CREATE", "UPDATE", "DELETE"],
                        "resources": [MAINTENANCE_NOTICES.plural, f"{MAINTENANCE_NOTICES.plural}/*"],
                    }
                ]
            },
            "matchConditions": [
                {
                    "name": "by-an-agent",
                    "expression": f"request.userInfo.username == 'system:serviceaccount:{namespace}:{NAME}'",
                }
            ],
            "variables": [{"name": "node", "expression": node}],
            "validations": [
                {
                    "expression": "variables.node != ''",
                    "message": "this token does not say on which node its pod runs",
                },
                {
                    "expression": "object != null && has(object.spec.nodeName) &&"
                    " object.spec.nodeName == variables.node",
                    "messageExpression": "'an agent writes notices of its own node, which is ' + variables.node",
                },
                {
                    "expression": "oldObject == null || (has(oldObject.spec.nodeName) &&"
                    " oldObject.spec.nodeName == variables.node)",
                    "messageExpression": "'this notice is not about ' + variables.node + ', the node of this agent'",
                },
                {
                    "expression": f"object != null && has(object.spec.source) && object.spec.source in [{sources}] &&"
                    " object.metadata.name.startsWith(object.spec.source + '-')",
                    "message": f"an agent writes notices of the sources {', '.join(SOURCES)} only",
                },
                *(_unchanged_field_rule(item) for item in ("finalizers", "ownerReferences")),
                _unchanged_annotations_rule(LIFECYCLE_GROUP, LIFECYCLE_HOOK, EventType.LIFECYCLE),
                *(_size_limit_rule(item) for item in ("annotations", "labels")),
                {
                    "expression": f"object == null || !has({_META}.managedFields) ||"
                    f" {_META}.managedFields.size() <= {_MAX_MANAGERS}",
                    "message": f"a notice that an agent writes has at most {_MAX_MANAGERS} field managers",
                },
            ],
        },
    }


def _unchanged_field_rule(field: str) -> RawObject:
    """Return a rule that keeps an agent from changing a metadata field that could block the deletion of a notice."""
    return {
        "expression": f"object == null || !has({_META}.{field}) || {_is_unchanged(field)}",
        "message": f"an agent sets no {field}",
    }


def _unchanged_annotations_rule(*keys: str) -> RawObject:
    """Return a rule that keeps an agent from changing annotations that make the operator call AWS."""
    old = f"{_OLD}.annotations"
    same = " && ".join(
        f"(has({_META}.annotations) && '{key}' in {_META}.annotations ? {_META}.annotations['{key}'] : '') =="
        f" (oldObject != null && has({old}) && '{key}' in {old} ? {old}['{key}'] : '')"
        for key in keys
    )
    return {
        "expression": f"object == null || ({same})",
        "message": "an agent does not say which lifecycle hook is completed",
    }


def _size_limit_rule(field: str) -> RawObject:
    """Return a rule that bounds what an agent writes into a metadata map; values of other writers may stay."""
    is_small = (
        f"{_META}.{field}.size() <= {_MAX_ENTRIES} && {_META}.{field}.all(k, {_META}.{field}[k].size() <= {_MAX_VALUE})"
    )
    return {
        "expression": f"object == null || !has({_META}.{field}) || {_is_unchanged(field)} || ({is_small})",
        "message": f"a notice that an agent writes has at most {_MAX_ENTRIES} {field} of {_MAX_VALUE} characters",
    }


def _is_unchanged(field: str) -> str:
    old = f"{_OLD}.{field}"
    return f"(oldObject != null && has({old}) && {_META}.{field} == {old})"


def admission_policy_binding() -> RawObject:
    """Return the binding that enforces the policy."""
    return {
        "apiVersion": _ADMISSION,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": _metadata(),
        "spec": {"policyName": NAME, "validationActions": ["Deny"]},
    }


def daemon_set(*, image: str, namespace: str, cloud: str = "auto") -> RawObject:
    pod: RawObject = {
        "serviceAccountName": NAME,
        "priorityClassName": PRIORITY,
        # Clouds and their network policies block pods from the metadata service, but not the host network.
        "hostNetwork": True,
        # With the host network, the default policy would use the node's DNS, which does not know Services.
        "dnsPolicy": "ClusterFirstWithHostNet",
        "terminationGracePeriodSeconds": 5,
        "securityContext": POD_SECURITY,
        "nodeSelector": NODE_SELECTOR,
        "tolerations": TOLERATIONS,
        "containers": [_container(image, cloud)],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": _metadata(namespace),
        "spec": {
            "selector": {"matchLabels": SELECTOR},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}},
            "template": {"metadata": {"labels": LABELS}, "spec": pod},
        },
    }


def _container(image: str, cloud: str) -> RawObject:
    def probe(path: str, **more: int) -> RawObject:
        return {"httpGet": {"host": health.HOST, "port": health.PORT, "path": path}, **more}

    return {
        "name": "agent",
        "image": image,
        "args": ["agent", f"--cloud={cloud}", f"--health-port={health.PORT}"],
        "env": [
            {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            *({"name": name, "value": value} for name, value in LOW_MEMORY_ENVIRONMENT.items()),
        ],
        "envFrom": [{"configMapRef": {"name": CLOUDS_CONFIG_MAP, "optional": True}}],
        "livenessProbe": probe("/healthz", initialDelaySeconds=15, periodSeconds=30),
        "readinessProbe": probe("/readyz", initialDelaySeconds=2, periodSeconds=30),
        "resources": RESOURCES,
        "securityContext": CONTAINER_SECURITY,
    }


def _metadata(namespace: str = "") -> RawObject:
    return {"name": NAME, **({"namespace": namespace} if namespace else {}), "labels": LABELS}
