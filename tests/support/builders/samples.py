"""Minimal valid objects of every built-in kind, as users write them."""

from typing import Any

from haulout_sandbox.apiserver.kinds.kind import JsonObject

_RBAC = "rbac.authorization.k8s.io/v1"
APP = {"matchLabels": {"app": "a"}}


def sample(api_version: str, kind: str, name: str, **content: Any) -> JsonObject:
    """Return an object of that kind and name."""
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **content}


def pod_spec(**more: Any) -> JsonObject:
    """Return what a pod needs least."""
    return {"containers": [{"name": "main", "image": "registry.example/main:1"}], **more}


def template(**more: Any) -> JsonObject:
    """Return the template of a pod of the app."""
    return {"metadata": {"labels": {"app": "a"}}, "spec": pod_spec(**more)}


def _images(*images: str) -> JsonObject:
    return {"containers": [{"name": f"c{number}", "image": image} for number, image in enumerate(images)]}


_PORTS = [{"containerPort": 80}, {"containerPort": 53, "protocol": "UDP", "name": "dns"}]
_FULL_CONTAINER: JsonObject = {
    "name": "main",
    "image": "main",
    "ports": _PORTS,
    "env": [{"name": "MODE", "value": "fast"}],
    "livenessProbe": {"httpGet": {"port": 80}},
    "readinessProbe": {"tcpSocket": {"port": 80}, "periodSeconds": 5},
    "startupProbe": {"httpGet": {"port": 80}},
    "lifecycle": {"preStop": {"httpGet": {"port": 80}}},
}
_VOLUMES: list[JsonObject] = [
    {"name": "nothing"},
    {"name": "empty", "emptyDir": {"sizeLimit": "1Gi"}},
    {"name": "secret", "secret": {"secretName": "s"}},
    {"name": "config", "configMap": {"name": "c", "defaultMode": 256}},
    {"name": "host", "hostPath": {"path": "/"}},
    {"name": "claim", "persistentVolumeClaim": {"claimName": "c"}},
]


def _resources(**resources: Any) -> JsonObject:
    return pod_spec() | {"containers": [{"name": "main", "image": "main", "resources": resources}]}


PODS = (
    sample("v1", "Pod", "bare", spec=pod_spec()),
    sample("v1", "Pod", "images", spec=_images("a", "a:latest", "r:5000/a", "r:5000/a:1", f"a@sha256:{'0' * 64}")),
    sample(
        "v1", "Pod", "full", spec={"containers": [_FULL_CONTAINER], "volumes": _VOLUMES, "serviceAccountName": "robot"}
    ),
    sample("v1", "Pod", "init", spec=pod_spec(initContainers=[{"name": "init", "image": "i"}], restartPolicy="Never")),
    sample("v1", "Pod", "limits", spec=_resources(limits={"cpu": 1, "memory": "1024Mi"}, requests={"cpu": "0.5"})),
    sample("v1", "Pod", "guaranteed", spec=_resources(limits={"cpu": "1000m", "memory": "1Gi"})),
    sample(
        "v1", "Pod", "network", spec={"containers": [{"name": "a", "image": "a", "ports": _PORTS}], "hostNetwork": True}
    ),
    sample("v1", "Pod", "account", spec=pod_spec(serviceAccountName="robot")),
    sample("v1", "Pod", "critical", spec=pod_spec(priorityClassName="system-cluster-critical")),
    sample("v1", "Pod", "gated", spec=pod_spec(schedulingGates=[{"name": "example.com/wait"}])),
    sample("v1", "Pod", "anywhere", spec=pod_spec(tolerations=[{"operator": "Exists"}])),
    sample(
        "v1",
        "Pod",
        "patient",
        spec=pod_spec(
            tolerations=[{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}]
        ),
    ),
    sample("v1", "Pod", "hurried", spec=pod_spec(terminationGracePeriodSeconds=0, securityContext={"runAsUser": 1})),
)
WORKLOADS = (
    sample("apps/v1", "Deployment", "plain", spec={"selector": APP, "template": template()}),
    sample(
        "apps/v1",
        "Deployment",
        "recreated",
        spec={"selector": APP, "template": template(), "replicas": 0, "strategy": {"type": "Recreate"}},
    ),
    sample(
        "apps/v1",
        "Deployment",
        "surging",
        spec={"selector": APP, "template": template(), "strategy": {"rollingUpdate": {"maxSurge": 1}}},
    ),
    sample("apps/v1", "ReplicaSet", "plain", spec={"selector": APP, "template": template()}),
    sample("apps/v1", "StatefulSet", "plain", spec={"selector": APP, "template": template(), "serviceName": "s"}),
    sample(
        "apps/v1",
        "StatefulSet",
        "claiming",
        spec={
            "selector": APP,
            "template": template(),
            "updateStrategy": {"type": "OnDelete"},
            "volumeClaimTemplates": [
                {
                    "metadata": {"name": "data"},
                    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}},
                }
            ],
        },
    ),
    sample("apps/v1", "DaemonSet", "plain", spec={"selector": APP, "template": template()}),
    sample("apps/v1", "ControllerRevision", "plain", revision=1, data={"a": 1}),
    sample("batch/v1", "Job", "plain", spec={"template": template(restartPolicy="Never")}),
    sample(
        "batch/v1",
        "Job",
        "indexed",
        spec={
            "template": {"spec": pod_spec(restartPolicy="Never")},
            "completions": 3,
            "completionMode": "Indexed",
            "backoffLimitPerIndex": 1,
            "podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]},
        },
    ),
    sample(
        "batch/v1",
        "CronJob",
        "plain",
        spec={"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template(restartPolicy="Never")}}},
    ),
    sample("policy/v1", "PodDisruptionBudget", "plain", spec={"minAvailable": 1, "selector": APP}),
)
CONFIGURATION = (
    sample("v1", "ConfigMap", "plain", data={"a": "1"}),
    sample("v1", "Secret", "plain", stringData={"password": "s3cret"}, data={"a": "YQ=="}),
    sample("v1", "Secret", "typed", type="example.com/own"),
    sample("v1", "ServiceAccount", "robot"),
    sample("coordination.k8s.io/v1", "Lease", "plain", spec={"holderIdentity": "me", "leaseDurationSeconds": 15}),
    sample(_RBAC, "Role", "plain", rules=[{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]),
    sample(
        _RBAC,
        "RoleBinding",
        "plain",
        roleRef={"kind": "Role", "name": "plain"},
        subjects=[
            {"kind": "User", "name": "u"},
            {"kind": "Group", "name": "g"},
            {"kind": "ServiceAccount", "name": "robot", "namespace": "x"},
        ],
    ),
)
NETWORK = (
    sample("v1", "Service", "plain", spec={"selector": {"app": "a"}, "ports": [{"port": 80}]}),
    sample(
        "v1",
        "Service",
        "sticky",
        spec={"selector": {"app": "a"}, "ports": [{"port": 80, "targetPort": "http"}], "sessionAffinity": "ClientIP"},
    ),
    sample("v1", "Service", "headless", spec={"clusterIP": "None", "selector": {"app": "a"}}),
    sample("v1", "Service", "elsewhere", spec={"type": "ExternalName", "externalName": "example.com"}),
    sample("networking.k8s.io/v1", "NetworkPolicy", "plain", spec={"egress": [{"ports": [{"port": 53}]}]}),
    sample(
        "networking.k8s.io/v1",
        "Ingress",
        "plain",
        spec={"defaultBackend": {"service": {"name": "plain", "port": {"number": 80}}}},
    ),
    sample(
        "v1",
        "PersistentVolumeClaim",
        "plain",
        spec={"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}},
    ),
)
_HOOK: JsonObject = {
    "name": "hook.example.com",
    "clientConfig": {"service": {"namespace": "x", "name": "hook"}, "caBundle": "Q0E="},
    "rules": [{"apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["things"], "operations": ["CREATE"]}],
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
}
CLUSTER = (
    sample("v1", "Namespace", "sample"),
    sample("v1", "Node", "sample", status={"capacity": {"cpu": "2000m", "memory": "1024Mi"}}),
    sample(
        "v1",
        "PersistentVolume",
        "sample",
        spec={"capacity": {"storage": "1024Mi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/data"}},
    ),
    sample(_RBAC, "ClusterRole", "sample", rules=[{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]),
    sample(
        _RBAC,
        "ClusterRoleBinding",
        "sample",
        roleRef={"kind": "ClusterRole", "name": "sample"},
        subjects=[{"kind": "User", "name": "u"}],
    ),
    sample("scheduling.k8s.io/v1", "PriorityClass", "sample", value=1000),
    sample("storage.k8s.io/v1", "StorageClass", "sample", provisioner="example.com/p"),
    sample(
        "storage.k8s.io/v1",
        "VolumeAttachment",
        "sample",
        spec={"attacher": "example.com", "nodeName": "n", "source": {"persistentVolumeName": "v"}},
    ),
    sample("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "sample", webhooks=[_HOOK]),
    sample("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration", "sample", webhooks=[_HOOK]),
    sample(
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicy",
        "sample",
        spec={
            "failurePolicy": "Fail",
            "matchConstraints": {
                "matchPolicy": "Equivalent",
                "namespaceSelector": {},
                "objectSelector": {},
                "resourceRules": [it | {"scope": "*"} for it in _HOOK["rules"]],
            },
            "validations": [{"expression": "true"}],
        },
    ),
    sample(
        "admissionregistration.k8s.io/v1",
        "ValidatingAdmissionPolicyBinding",
        "sample",
        spec={"policyName": "absent", "validationActions": ["Deny"]},
    ),
)
ALL = (*PODS, *WORKLOADS, *CONFIGURATION, *NETWORK, *CLUSTER)
