"""Objects that are wrong, each in one way, beside a few at the edge that are right: what people get wrong, by kind.

`changed(SAMPLE, {"spec.containers.0.image": ""})` is the sample with another value at that place; `GONE` takes it away.
"""

import copy
from typing import Any, NamedTuple

from haulout_sandbox.apiserver.kinds import JsonObject
from support import samples

GONE = object()
LONG = "a" * 300


class Wrong(NamedTuple):
    """A right object, and what is changed in it."""

    right: JsonObject
    changes: dict[str, Any]

    @property
    def title(self) -> str:
        """Tell which case it is."""
        said = ", ".join(f"{path}={'GONE' if it is GONE else repr(it)[:60]}" for path, it in self.changes.items())
        return f"{self.right['kind']} {self.right['metadata']['name']}: {said}"

    @property
    def obj(self) -> JsonObject:
        """Return the wrong object."""
        return changed(self.right, self.changes)


def changed(obj: JsonObject, changes: dict[str, Any]) -> JsonObject:
    """Return `obj` with other values at the places; what is on the way to them is made."""
    result = copy.deepcopy(obj)
    for path, value in changes.items():
        *way, last = (int(part) if part.isdecimal() else part for part in path.split("."))
        holder: Any = result
        for part in way:
            holder = holder.setdefault(part, {}) if isinstance(holder, dict) else holder[part]
        if value is GONE:
            del holder[last]
        elif isinstance(holder, list) and last == len(holder):
            holder.append(value)
        else:
            holder[last] = value
    return result


def each(right: JsonObject, path: str, *values: Any) -> list[Wrong]:
    """Return a case for each value at one place."""
    return [Wrong(right, {path: value}) for value in values]


def both(right: JsonObject, **changes: Any) -> Wrong:
    """Return one case with several changes; `__` stands for the dot."""
    return Wrong(right, {path.replace("__", "."): value for path, value in changes.items()})


# The control plane runs without the plugin that names the account of a pod that names none.
POD = samples.sample("v1", "Pod", "p", spec=samples.pod_spec(serviceAccountName="default"))
NODE = samples.sample("v1", "Node", "n", spec={"taints": [{"key": "a", "effect": "NoSchedule"}]})
DEPLOYMENT = samples.sample(
    "apps/v1", "Deployment", "d", spec={"selector": samples.APP, "template": samples.template()}
)
REPLICA_SET = DEPLOYMENT | {"kind": "ReplicaSet"}
DAEMON_SET = DEPLOYMENT | {"kind": "DaemonSet"}
STATEFUL_SET = changed(DEPLOYMENT | {"kind": "StatefulSet"}, {"spec.serviceName": "s"})
JOB = samples.sample("batch/v1", "Job", "j", spec={"template": samples.template(restartPolicy="Never")})
CRON_JOB = samples.sample(
    "batch/v1", "CronJob", "c", spec={"schedule": "* * * * *", "jobTemplate": {"spec": JOB["spec"]}}
)
BUDGET = samples.sample("policy/v1", "PodDisruptionBudget", "b", spec={"minAvailable": 1, "selector": samples.APP})
LEASE = samples.sample(
    "coordination.k8s.io/v1", "Lease", "l", spec={"holderIdentity": "me", "leaseDurationSeconds": 15}
)
PRIORITY = samples.sample("scheduling.k8s.io/v1", "PriorityClass", "wrong-priority", value=5)
SERVICE = samples.sample("v1", "Service", "s", spec={"selector": {"app": "a"}, "ports": [{"port": 80}]})
CONFIG_MAP = samples.sample("v1", "ConfigMap", "m", data={"a": "1"})
SECRET = samples.sample("v1", "Secret", "s", data={"a": "YQ=="})
ROLE = samples.sample(
    "rbac.authorization.k8s.io/v1", "Role", "r", rules=[{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
)
BINDING = samples.sample(
    "rbac.authorization.k8s.io/v1",
    "RoleBinding",
    "r",
    roleRef={"kind": "Role", "name": "r"},
    subjects=[{"kind": "User", "name": "u"}],
)
CLAIM = samples.sample(
    "v1",
    "PersistentVolumeClaim",
    "c",
    spec={"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
)
VOLUME = samples.sample(
    "v1",
    "PersistentVolume",
    "wrong-volume",
    spec={"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/data"}},
)
STORAGE_CLASS = samples.sample("storage.k8s.io/v1", "StorageClass", "wrong-class", provisioner="example.com/p")
NAMESPACE = samples.sample("v1", "Namespace", "wrong-namespace")
QUOTA = samples.sample("v1", "ResourceQuota", "q", spec={"hard": {"pods": 10}})
LIMITS = samples.sample("v1", "LimitRange", "l", spec={"limits": [{"type": "Container", "max": {"cpu": "2"}}]})
ENDPOINTS = samples.sample(
    "v1", "Endpoints", "e", subsets=[{"addresses": [{"ip": "10.1.1.1"}], "ports": [{"port": 80}]}]
)
EVENT = samples.sample("v1", "Event", "e", involvedObject={"kind": "Pod", "name": "p"}, reason="Tested", type="Normal")
NEW_EVENT = samples.sample(
    "events.k8s.io/v1",
    "Event",
    "e",
    eventTime="2026-01-01T00:00:00.000000Z",
    regarding={"kind": "Pod", "name": "n", "namespace": "x"},
    reason="Tested",
    action="Testing",
    type="Normal",
    reportingController="example.com/tester",
    reportingInstance="tester-1",
)
_TOLERATION = {"key": "a", "operator": "Exists", "effect": "NoExecute"}
_TERM = {"topologyKey": "zone", "labelSelector": samples.APP}
_SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": samples.APP}
_NODES = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
_OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"}

METADATA = [
    *each(CONFIG_MAP, "metadata.name", "", GONE, "Upper", "a_b", "-a", "a.", LONG, "a/b", "ä", "1", "a.b-c"),
    *each(POD, "metadata.name", "Upper", LONG),
    *each(NAMESPACE, "metadata.name", "a.b", "Upper", "a" * 64),
    *each(STATEFUL_SET, "metadata.name", "a.b", "a" * 64),
    *each(SERVICE, "metadata.name", "1a", "a.b", "Upper"),
    *each(ROLE, "metadata.name", "system:Upper", "a/b", "a%b", ".", ".."),
    *each(BUDGET, "metadata.name", "Upper", "a/b", ""),
    *each(EVENT, "metadata.name", "Upper", "a/b"),
    *each(CRON_JOB, "metadata.name", "a" * 53, "a" * 52),
    both(CONFIG_MAP, metadata={"generateName": "fine-", "name": "given"}),
    *each(
        CONFIG_MAP, "metadata.labels", {"a b": "x"}, {"a": "x y"}, {"": "x"}, {"a/b/c": "x"}, {"/a": "x"}, {"a/": "x"}
    ),
    *each(CONFIG_MAP, "metadata.labels", {"a": "b" * 64}, {"a" * 64: ""}, {"A.b/c": ""}, {"a.b/c": ""}, {"a": "-"}),
    *each(CONFIG_MAP, "metadata.annotations", {"a b": "x"}, {"A/b": "x"}, {"a": "x" * 262144}, {"a": "x" * 262143}),
    *each(CONFIG_MAP, "metadata.finalizers", ["a b"], ["plain"], ["example.com/a"], ["orphan", "foregroundDeletion"]),
    *each(
        CONFIG_MAP,
        "metadata.ownerReferences",
        [{}],
        [_OWNER | {"apiVersion": ""}],
        [_OWNER | {"name": ""}],
        [_OWNER | {"kind": "Event"}],
        [_OWNER | {"controller": True}, _OWNER | {"controller": True, "name": "p"}],
        [_OWNER | {"controller": True}, _OWNER | {"controller": False}],
    ),
    *each(NODE, "metadata.labels", {"a b": "x"}),
    *each(CONFIG_MAP, "metadata.generation", -1, 7),
]
PODS = [
    *each(POD, "spec.containers", [], GONE, [{}], [{"name": "a"}], [{"image": "a"}]),
    *each(POD, "spec.containers.1", {"name": "main", "image": "b"}, {"name": "b", "image": "b"}),
    *each(POD, "spec.containers.0.name", "Upper", "a.b", "a" * 64),
    *each(POD, "spec.containers.0.image", "", " a", "a ", "UPPER CASE", "a:b:c"),
    *each(POD, "spec.containers.0.imagePullPolicy", "Sometimes", ""),
    *each(POD, "spec.containers.0.terminationMessagePolicy", "Loud"),
    *each(
        POD,
        "spec.containers.0.resources",
        {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}},
        {"limits": {"cpu": "-1"}},
        {"requests": {"memory": "-1Gi"}},
        {"limits": {"pods": "1"}},
        {"limits": {"unheard-of": "1"}},
        {"limits": {"example.com/gpu": "1"}},
        {"limits": {"example.com/gpu": "500m"}},
        {"requests": {"example.com/gpu": "1"}},
        {"limits": {"example.com/gpu": "2"}, "requests": {"example.com/gpu": "1"}},
        {"limits": {"hugepages-2Mi": "4Mi"}},
        {"limits": {"hugepages-2Mi": "3Mi", "cpu": "1"}},
        {"claims": [{"name": "absent"}]},
    ),
    *each(
        POD,
        "spec.containers.0.ports",
        [{}],
        [{"containerPort": 0}],
        [{"containerPort": 70000}],
        [{"containerPort": 80, "protocol": "HTTP"}],
        [{"containerPort": 80, "name": "UPPER"}],
        [{"containerPort": 80, "name": "a" * 16}],
        [{"containerPort": 80, "name": "1"}],
        [{"containerPort": 80, "name": "a--b"}],
        [{"containerPort": 80, "name": "a"}, {"containerPort": 81, "name": "a"}],
        [{"containerPort": 80, "hostPort": 70000}],
        [{"containerPort": 80, "hostPort": 80}, {"containerPort": 81, "hostPort": 80}],
    ),
    both(
        POD,
        spec__hostNetwork=True,
        spec__containers=[samples.pod_spec()["containers"][0] | {"ports": [{"containerPort": 80, "hostPort": 81}]}],
    ),
    *each(POD, "spec.containers.0.env", [{}], [{"name": "a=b"}], [{"name": "ä"}], [{"name": "1 a"}]),
    *each(
        POD,
        "spec.containers.0.env",
        [{"name": "a", "valueFrom": {}}],
        [{"name": "a", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        [
            {
                "name": "a",
                "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}, "secretKeyRef": {"name": "a", "key": "b"}},
            }
        ],
        [{"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "spec.unheardOf"}}}],
        [{"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels"}}}],
        [{"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a b']"}}}],
        [{"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}}],
        [{"name": "a", "valueFrom": {"resourceFieldRef": {"resource": "limits.pods"}}}],
        [{"name": "a", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "3"}}}],
        [{"name": "a", "valueFrom": {"configMapKeyRef": {"name": "", "key": ""}}}],
        [{"name": "a", "valueFrom": {"secretKeyRef": {"name": "Upper", "key": "a b"}}}],
    ),
    *each(POD, "spec.containers.0.envFrom", [{}], [{"configMapRef": {}}], [{"secretRef": {"name": "Upper"}}]),
    *each(
        POD, "spec.volumes", [{"name": "Upper"}], [{}], [{"name": "a"}, {"name": "a"}], [{"name": "a", "secret": {}}]
    ),
    *each(
        POD,
        "spec.volumes",
        [{"name": "a", "emptyDir": {}, "hostPath": {"path": "/"}}],
        [{"name": "a", "hostPath": {"path": ""}}],
        [{"name": "a", "hostPath": {"path": "/a/../b"}}],
        [{"name": "a", "hostPath": {"path": "/a", "type": "Wrong"}}],
        [{"name": "a", "configMap": {"name": "c", "defaultMode": 1000}}],
        [{"name": "a", "configMap": {"name": "c", "items": [{"key": "k", "path": "/abs"}]}}],
        [{"name": "a", "secret": {"secretName": "s", "items": [{"key": "", "path": "../up"}]}}],
        [{"name": "a", "persistentVolumeClaim": {}}],
        [{"name": "a", "nfs": {"server": "s", "path": "relative"}}],
        [{"name": "a", "csi": {"driver": "Upper Case"}}],
        [{"name": "a", "emptyDir": {"sizeLimit": "-1Gi"}}],
        [{"name": "a", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}],
        [{"name": "a", "downwardAPI": {"items": [{"path": "a"}]}}],
        [{"name": "a", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}],
    ),
    *each(POD, "spec.containers.0.volumeMounts", [{"name": "absent", "mountPath": "/a"}], [{}]),
    both(
        POD,
        spec__volumes=[{"name": "a"}],
        spec__containers=[
            samples.pod_spec()["containers"][0]
            | {"volumeMounts": [{"name": "a", "mountPath": "/a"}, {"name": "a", "mountPath": "/a", "subPath": "/abs"}]}
        ],
    ),
    *each(
        POD,
        "spec.containers.0.livenessProbe",
        {},
        {"exec": {}},
        {"httpGet": {"port": 0}},
        {"httpGet": {"port": "UPPER"}},
        {"httpGet": {"port": 80, "scheme": "FTP"}},
        {"httpGet": {"port": 80, "httpHeaders": [{"name": "a b", "value": ""}]}},
        {"tcpSocket": {"port": 70000}},
        {"tcpSocket": {"port": 80}, "exec": {"command": ["a"]}},
        {"tcpSocket": {"port": 80}, "successThreshold": 2},
        {"tcpSocket": {"port": 80}, "periodSeconds": -1},
        {"tcpSocket": {"port": 80}, "terminationGracePeriodSeconds": 0},
    ),
    *each(POD, "spec.containers.0.readinessProbe", {"tcpSocket": {"port": 80}, "terminationGracePeriodSeconds": 5}),
    *each(POD, "spec.containers.0.lifecycle", {"preStop": {}}, {"preStop": {"sleep": {"seconds": 99}}}),
    *each(POD, "spec.containers.0.restartPolicy", "Always", "Sometimes"),
    *each(POD, "spec.containers.0.securityContext", {"runAsUser": -1}, {"seccompProfile": {"type": "Wrong"}}),
    *each(POD, "spec.containers.0.securityContext", {"allowPrivilegeEscalation": False, "privileged": True}),
    *each(POD, "spec.initContainers", [{"name": "main", "image": "a"}], [{"name": "i", "image": "a", "lifecycle": {}}]),
    *each(POD, "spec.ephemeralContainers", [{"name": "e", "image": "a"}]),
    *each(POD, "spec.restartPolicy", "Sometimes", ""),
    *each(POD, "spec.dnsPolicy", "Wrong", "None"),
    *each(POD, "spec.dnsConfig", {"nameservers": ["x"]}, {"searches": ["a b"]}, {"options": [{}]}),
    *each(POD, "spec.terminationGracePeriodSeconds", -5, 0),
    *each(POD, "spec.activeDeadlineSeconds", 0, -1, 2**31, 1),
    *each(POD, "spec.nodeSelector", {"a b": "c"}, {"a": "b c"}),
    *each(POD, "spec.nodeName", "Upper", "a/b"),
    *each(POD, "spec.serviceAccountName", "Upper"),
    *each(POD, "spec.hostname", "a.b"),
    *each(POD, "spec.subdomain", "Upper"),
    *each(POD, "spec.hostAliases", [{"ip": "x", "hostnames": ["Upper"]}]),
    *each(
        POD, "spec.securityContext", {"runAsUser": -1}, {"fsGroup": 2**31}, {"sysctls": [{"name": "a b", "value": ""}]}
    ),
    *each(POD, "spec.securityContext", {"fsGroupChangePolicy": "Wrong"}, {"seccompProfile": {"type": "Localhost"}}),
    *each(POD, "spec.priorityClassName", "absent"),
    *each(POD, "spec.priority", 5),
    *each(POD, "spec.preemptionPolicy", "Wrong"),
    *each(POD, "spec.schedulingGates", [{"name": "a b"}], [{"name": "a"}, {"name": "a"}], [{}]),
    both(POD, spec__nodeName="n", spec__schedulingGates=[{"name": "a"}]),
    *each(POD, "spec.readinessGates", [{"conditionType": "a b"}]),
    *each(POD, "spec.os", {"name": "plan9"}, {}),
    *each(POD, "spec.overhead", {"cpu": "-1"}),
    *each(
        POD,
        "spec.tolerations",
        [{}],
        [{"key": "a b"}],
        [{"key": "a", "operator": "Wrong"}],
        [{"key": "a", "operator": "Gt", "value": "1"}],
        [{"key": "a", "operator": "Exists", "value": "b"}],
        [{"key": "a", "value": "b c"}],
        [{"key": "a", "effect": "Wrong"}],
        [{"key": "a", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5}],
    ),
    *each(
        POD,
        _NODES,
        {},
        {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In"}]}]},
        {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]}]},
        {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a b", "operator": "Wrong"}]}]},
        {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1", "2"]}]}]},
        {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.uid", "operator": "In", "values": ["a"]}]}]},
    ),
    *each(
        POD,
        "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution",
        [{}],
        [_TERM | {"topologyKey": "a b"}],
        [_TERM | {"namespaces": ["Upper"]}],
        [_TERM | {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}],
        [_TERM | {"matchLabelKeys": ["a b"]}],
    ),
    *each(
        POD,
        "spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution",
        [{"weight": 0, "podAffinityTerm": _TERM}],
        [{"weight": 101, "podAffinityTerm": _TERM}],
    ),
    *each(
        POD,
        "spec.topologySpreadConstraints",
        [{}],
        [_SPREAD | {"maxSkew": 0}],
        [_SPREAD | {"whenUnsatisfiable": "Wrong"}],
        [_SPREAD, _SPREAD],
        [_SPREAD | {"minDomains": 0}],
        [_SPREAD | {"minDomains": 1, "whenUnsatisfiable": "ScheduleAnyway"}],
        [_SPREAD | {"nodeTaintsPolicy": "Wrong"}],
    ),
    *each(POD, "metadata.annotations", {"controller.kubernetes.io/pod-deletion-cost": "much"}),
    *each(POD, "metadata.annotations", {"kubernetes.io/config.mirror": "x"}),
]
NODES = [
    *each(
        NODE,
        "spec.taints",
        [{}],
        [{"key": "a"}],
        [{"key": "a", "effect": "Wrong"}],
        [{"key": "a b", "effect": "NoSchedule"}],
    ),
    *each(NODE, "spec.taints", [{"key": "a", "value": "b c", "effect": "NoSchedule"}]),
    *each(
        NODE, "spec.taints.1", {"key": "a", "effect": "NoSchedule", "value": "x"}, {"key": "a", "effect": "NoExecute"}
    ),
    *each(NODE, "spec.podCIDRs", ["x"], ["10.0.0.0/24", "10.1.0.0/24"], ["10.0.0.0/24", "fd00::/64"]),
    *each(NODE, "status.capacity", {"cpu": "-1"}, {"pods": "1500m"}),
    *each(NODE, "metadata.name", "Upper"),
]
WORKLOADS = [
    *(
        wrong
        for right in (DEPLOYMENT, REPLICA_SET, DAEMON_SET, STATEFUL_SET)
        for wrong in (
            *each(right, "spec.selector", GONE, {}, {"matchLabels": {"app": "other"}}, {"matchLabels": {"a b": "c"}}),
            *each(right, "spec.selector", {"matchExpressions": [{"key": "app", "operator": "Wrong"}]}),
            *each(right, "spec.template", {}, GONE),
            *each(right, "spec.template.metadata.labels", {"app": "a b"}, {"other": "x"}),
            *each(right, "spec.template.spec.restartPolicy", "Never", "Wrong"),
            *each(right, "spec.template.spec.activeDeadlineSeconds", 5),
            *each(right, "spec.template.spec.containers.0.image", "", " a"),
            *each(right, "spec.minReadySeconds", -1),
            *each(right, "spec.revisionHistoryLimit", -1),
        )
        if not (right in (REPLICA_SET, STATEFUL_SET) and "spec.revisionHistoryLimit" in wrong.changes)
    ),
    *(wrong for right in (DEPLOYMENT, REPLICA_SET, STATEFUL_SET) for wrong in each(right, "spec.replicas", -1, 0)),
    *each(
        DEPLOYMENT,
        "spec.strategy",
        {"type": "Wrong"},
        {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}},
        {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}},
        {"rollingUpdate": {"maxSurge": "half"}},
        {"rollingUpdate": {"maxSurge": "10"}},
        {"rollingUpdate": {"maxUnavailable": "101%"}},
        {"rollingUpdate": {"maxUnavailable": -1}},
        {"rollingUpdate": {"maxSurge": "0%", "maxUnavailable": "0%"}},
    ),
    *each(DEPLOYMENT, "spec.progressDeadlineSeconds", 0, -1),
    both(DEPLOYMENT, spec__progressDeadlineSeconds=5, spec__minReadySeconds=5),
    *each(
        DAEMON_SET,
        "spec.updateStrategy",
        {"type": "Wrong"},
        {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}},
        {"rollingUpdate": {"maxUnavailable": 0}},
    ),
    *each(
        STATEFUL_SET, "spec.updateStrategy", {"type": "Wrong"}, {"type": "OnDelete", "rollingUpdate": {"partition": 1}}
    ),
    *each(STATEFUL_SET, "spec.updateStrategy", {"type": "RollingUpdate", "rollingUpdate": {"partition": -1}}),
    *each(STATEFUL_SET, "spec.podManagementPolicy", "Wrong"),
    *each(STATEFUL_SET, "spec.serviceName", "a.b"),
    *each(STATEFUL_SET, "spec.volumeClaimTemplates", [{"metadata": {"name": "d"}}]),
    *each(STATEFUL_SET, "spec.persistentVolumeClaimRetentionPolicy", {"whenDeleted": "Wrong"}),
    *each(JOB, "spec.template.spec.restartPolicy", "Always", GONE, "Wrong"),
    *each(JOB, "spec.completions", -1),
    *each(JOB, "spec.parallelism", -1),
    *each(JOB, "spec.backoffLimit", -1),
    *each(JOB, "spec.activeDeadlineSeconds", -1),
    *each(JOB, "spec.ttlSecondsAfterFinished", -1),
    *each(JOB, "spec.completionMode", "Wrong", "Indexed"),
    *each(JOB, "spec.backoffLimitPerIndex", 1),
    *each(JOB, "spec.podFailurePolicy", {"rules": [{"action": "Ignore"}]}, {"rules": [{}]}),
    *each(JOB, "spec.podReplacementPolicy", "Wrong"),
    both(JOB, spec__completionMode="Indexed", spec__completions=2, metadata={"name": "a" * 63}),
    *each(CRON_JOB, "spec.schedule", "", GONE, "* * *", "60 * * * *", "* * * * MON", "@daily", "@never", "a * * * *"),
    *each(CRON_JOB, "spec.concurrencyPolicy", "Wrong"),
    *each(CRON_JOB, "spec.timeZone", "Nowhere/At", "Europe/Berlin", "Local", ""),
    *each(CRON_JOB, "spec.startingDeadlineSeconds", -1),
    *each(CRON_JOB, "spec.successfulJobsHistoryLimit", -1),
    *each(CRON_JOB, "spec.jobTemplate.spec.template.spec.restartPolicy", "Always"),
    *each(CRON_JOB, "spec.jobTemplate.spec.selector", {"matchLabels": {"app": "a"}}),
]
BUDGETS = [
    *each(BUDGET, "spec.maxUnavailable", 1),
    *each(BUDGET, "spec.minAvailable", -1, "-1%", "50", "50%", "101%", "100%", "x%", "", 0),
    *each(BUDGET, "spec.selector", {"matchLabels": {"a b": ""}}, {}, GONE),
    *each(BUDGET, "spec.selector", {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b c"]}]}),
    *each(BUDGET, "spec.unhealthyPodEvictionPolicy", "Wrong", "AlwaysAllow", ""),
]
OTHERS = [
    *each(LEASE, "spec.leaseDurationSeconds", 0, -1),
    *each(LEASE, "spec.leaseTransitions", -1),
    *each(LEASE, "spec.holderIdentity", ""),
    *each(PRIORITY, "value", 1_000_000_001, 1_000_000_000, -5),
    *each(PRIORITY, "metadata.name", "system-mine", "system-node-critical"),
    *each(PRIORITY, "preemptionPolicy", "Wrong"),
    *each(CONFIG_MAP, "data", {"a b": "x"}, {"..": "x"}, {".": "x"}, {"..a": "x"}, {LONG: "x"}),
    *each(CONFIG_MAP, "data.a", "x" * 1048577, "x" * 1048576),
    *each(CONFIG_MAP, "binaryData", {"a": "YQ=="}, {"b c": "YQ=="}),
    *each(SECRET, "data", {"a b": "YQ=="}),
    *each(SECRET, "type", "kubernetes.io/tls", "kubernetes.io/basic-auth", "kubernetes.io/ssh-auth"),
    *each(SECRET, "type", "kubernetes.io/dockerconfigjson", "kubernetes.io/service-account-token", "example.com/own"),
    both(SECRET, type="kubernetes.io/dockerconfigjson", data={".dockerconfigjson": "YQ=="}),
    *each(
        SERVICE,
        "spec.ports",
        [],
        [{}],
        [{"port": 70000}],
        [{"port": 80, "protocol": "HTTP"}],
        [{"port": 80}, {"port": 81}],
    ),
    *each(
        SERVICE,
        "spec.ports",
        [{"port": 80, "name": "a"}, {"port": 80, "name": "b"}],
        [{"port": 80, "name": "a"}, {"port": 81, "name": "a"}],
        [{"port": 80, "name": "Upper"}],
        [{"port": 80, "targetPort": "UPPER"}],
        [{"port": 80, "nodePort": 30000}],
    ),
    *each(SERVICE, "spec.type", "Wrong", "ExternalName"),
    *each(SERVICE, "spec.clusterIP", "x"),
    *each(SERVICE, "spec.sessionAffinity", "Wrong"),
    *each(SERVICE, "spec.selector", {"a b": "c"}),
    *each(SERVICE, "spec.externalTrafficPolicy", "Local"),
    *each(SERVICE, "spec.externalIPs", ["127.0.0.1"], ["x"]),
    *each(ROLE, "rules", [{}], [{"verbs": ["get"], "nonResourceURLs": ["/a"]}], []),
    *each(BINDING, "roleRef", {}, {"kind": "Wrong", "name": "r"}, {"kind": "Role", "name": "a/b"}),
    *each(BINDING, "subjects", [{}], [{"kind": "User", "name": "u", "apiGroup": "x"}], []),
    *each(BINDING, "subjects", [{"kind": "ServiceAccount", "name": "Upper"}]),
    *each(CLAIM, "spec.accessModes", [], ["Wrong"], ["ReadWriteOncePod", "ReadWriteOnce"]),
    *each(CLAIM, "spec.resources", {}, {"requests": {"storage": "0"}}, {"requests": {"storage": "-1Gi"}}),
    *each(CLAIM, "spec.storageClassName", "Upper", ""),
    *each(CLAIM, "spec.volumeMode", "Wrong"),
    *each(VOLUME, "spec.capacity", {}, {"cpu": "1"}, {"storage": "0"}, {"storage": "-1"}),
    *each(VOLUME, "spec.hostPath", GONE, {"path": ""}),
    *each(VOLUME, "spec.accessModes", [], ["Wrong"]),
    *each(VOLUME, "spec.persistentVolumeReclaimPolicy", "Wrong"),
    *each(VOLUME, "spec.local", {"path": "/a"}),
    *each(STORAGE_CLASS, "provisioner", "", "a b"),
    *each(STORAGE_CLASS, "reclaimPolicy", "Recycle"),
    *each(STORAGE_CLASS, "volumeBindingMode", "Wrong"),
    *each(QUOTA, "spec.hard", {"pods": "-1"}, {"pods": "1500m"}, {"unheard-of": "1"}, {"count/pods": "1"}),
    *each(LIMITS, "spec.limits.0.min", {"cpu": "3"}),
    *each(LIMITS, "spec.limits.0.type", "Wrong"),
    *each(ENDPOINTS, "subsets", [{}], [{"addresses": [{"ip": "127.0.0.1"}]}], [{"addresses": [{"ip": "x"}]}]),
    *each(EVENT, "involvedObject.namespace", "elsewhere"),
    *each(EVENT, "eventTime", "2026-01-01T00:00:00.000000Z"),
    *each(NEW_EVENT, "eventTime", None),
    *each(NEW_EVENT, "type", "Loud"),
    *each(NEW_EVENT, "action", "", "a" * 129),
    *each(NEW_EVENT, "note", "a" * 1025),
    *each(NEW_EVENT, "reportingController", "", "a b"),
    *each(NEW_EVENT, "series", {"count": 1, "lastObservedTime": "2026-01-01T00:00:00.000000Z"}),
    *each(NEW_EVENT, "deprecatedCount", 3),
]
NEW = {"metadata": METADATA, "pods": PODS, "nodes": NODES, "workloads": WORKLOADS, "budgets": BUDGETS, "others": OTHERS}

_GATED = changed(
    POD, {"metadata.name": "gated", "spec.schedulingGates": [{"name": "a"}], "spec.nodeSelector": {"a": "b"}}
)
_TOLERANT = changed(
    POD, {"metadata.name": "tolerant", "spec.tolerations": [_TOLERATION], "spec.activeDeadlineSeconds": 50}
)
_FINAL_MAP = changed(CONFIG_MAP, {"metadata.name": "final", "immutable": True})
_FINAL_SECRET = changed(SECRET, {"metadata.name": "final", "immutable": True})
_PROVIDED = changed(
    NODE, {"metadata.name": "wrong-node", "spec.providerID": "cloud://1", "spec.podCIDRs": ["10.0.0.0/24"]}
)
_SUSPENDED = changed(JOB, {"metadata.name": "suspended", "spec.suspend": True})
UPDATES = [
    *each(CONFIG_MAP, "metadata.labels", {"a b": "x"}),
    *each(CONFIG_MAP, "metadata.annotations", {"a b": "x"}),
    *each(CONFIG_MAP, "metadata.finalizers", ["a b"]),
    *each(CONFIG_MAP, "metadata.ownerReferences", [{}]),
    *each(CONFIG_MAP, "metadata.namespace", "other"),
    *each(CONFIG_MAP, "metadata.name", "other"),
    *each(CONFIG_MAP, "data", {"a b": "x"}),
    *each(POD, "spec.containers", [], [{"name": "other", "image": "a"}]),
    *each(POD, "spec.containers.0.image", "other:2", "", " a"),
    *each(POD, "spec.containers.0.name", "other"),
    *each(POD, "spec.containers.0.env", [{"name": "A", "value": "<b>"}]),
    *each(POD, "spec.containers.0.resources", {"limits": {"cpu": "1"}}),
    *each(POD, "spec.containers.1", {"name": "more", "image": "a"}),
    *each(POD, "spec.initContainers", [{"name": "more", "image": "a"}]),
    *each(POD, "spec.nodeName", "n"),
    *each(POD, "spec.nodeSelector", {"a": "b"}, {}),
    *each(POD, "spec.hostNetwork", True),
    *each(POD, "spec.terminationGracePeriodSeconds", 5),
    *each(POD, "spec.activeDeadlineSeconds", 5, -1),
    *each(POD, "spec.tolerations", [], [_TOLERATION]),
    *each(POD, "spec.schedulingGates", [{"name": "new"}]),
    *each(POD, "spec.restartPolicy", "Never"),
    *each(POD, "spec.priority", 7),
    *each(POD, "metadata.annotations", {"kubernetes.io/config.mirror": "x"}),
    *each(_TOLERANT, "spec.activeDeadlineSeconds", 40, 60, None),
    *each(_TOLERANT, "spec.tolerations.0.key", "other"),
    *each(_TOLERANT, "spec.tolerations.0.tolerationSeconds", 5),
    *each(_GATED, "spec.schedulingGates", [], [{"name": "a"}, {"name": "b"}]),
    *each(_GATED, "spec.nodeSelector", {"a": "b", "c": "d"}, {"a": "c"}, {}),
    *each(
        _GATED,
        "spec.affinity",
        {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]
                }
            }
        },
    ),
    *each(_PROVIDED, "spec.providerID", "cloud://2", ""),
    *each(_PROVIDED, "spec.podCIDRs", ["10.1.0.0/24"], []),
    both(_PROVIDED, spec__podCIDR="10.1.0.0/24", spec__podCIDRs=["10.1.0.0/24"]),
    *each(_PROVIDED, "spec.taints", [{"key": "a"}], [{"key": "a", "effect": "NoExecute"}]),
    *each(_PROVIDED, "spec.unschedulable", True),
    *each(_PROVIDED, "metadata.labels", {"a b": ""}),
    *each(DEPLOYMENT, "spec.selector", {"matchLabels": {"app": "other"}}, GONE),
    *each(DEPLOYMENT, "spec.replicas", -1, 3),
    *each(DEPLOYMENT, "spec.template.spec.containers.0.image", "other:2", ""),
    *each(REPLICA_SET, "spec.selector", {"matchLabels": {"app": "a", "b": "c"}}),
    *each(DAEMON_SET, "spec.selector", {"matchLabels": {"app": "other"}}),
    *each(STATEFUL_SET, "spec.serviceName", "other"),
    *each(STATEFUL_SET, "spec.podManagementPolicy", "Parallel"),
    *each(STATEFUL_SET, "spec.selector", {"matchLabels": {"app": "other"}}),
    *each(STATEFUL_SET, "spec.volumeClaimTemplates", [{"metadata": {"name": "d"}, "spec": CLAIM["spec"]}]),
    *each(STATEFUL_SET, "spec.replicas", 5),
    *each(STATEFUL_SET, "spec.ordinals", {"start": 3}),
    *each(JOB, "spec.completions", 5),
    *each(JOB, "spec.parallelism", 5),
    *each(JOB, "spec.completionMode", "Indexed"),
    *each(JOB, "spec.template.spec.containers.0.image", "other:2"),
    *each(JOB, "spec.template.spec.nodeSelector", {"a": "b"}),
    *each(JOB, "spec.podReplacementPolicy", "Failed"),
    *each(_SUSPENDED, "spec.template.spec.nodeSelector", {"a": "b"}),
    *each(_SUSPENDED, "spec.template.spec.hostNetwork", True),
    *each(CRON_JOB, "spec.schedule", "wrong"),
    *each(BUDGET, "spec.maxUnavailable", 1),
    *each(BUDGET, "spec.selector", {"matchLabels": {"app": "other"}}),
    *each(LEASE, "spec.leaseDurationSeconds", 0),
    *each(PRIORITY, "value", 6),
    *each(PRIORITY, "preemptionPolicy", "Never"),
    *each(PRIORITY, "description", "fine"),
    *each(_FINAL_MAP, "data.a", "2"),
    *each(_FINAL_MAP, "immutable", False),
    *each(_FINAL_MAP, "metadata.labels", {"a": "b"}),
    *each(_FINAL_SECRET, "data.a", "Yg=="),
    *each(SECRET, "type", "example.com/other"),
    *each(BINDING, "roleRef.name", "other"),
    *each(ROLE, "rules", [{}]),
    *each(SERVICE, "spec.ports", []),
    *each(SERVICE, "spec.clusterIP", "x"),
    *each(CLAIM, "spec.accessModes", ["ReadWriteMany"]),
    *each(CLAIM, "spec.resources.requests.storage", "2Gi"),
    *each(CLAIM, "spec.volumeMode", "Block"),
    *each(VOLUME, "spec.hostPath.path", "/other"),
    *each(VOLUME, "spec.volumeMode", "Block"),
    *each(STORAGE_CLASS, "provisioner", "example.com/other"),
    *each(STORAGE_CLASS, "parameters", {"a": "b"}),
    *each(NEW_EVENT, "note", "other"),
    *each(NEW_EVENT, "regarding.name", "other"),
    *each(QUOTA, "spec.scopes", ["BestEffort"]),
]
STATUSES = [
    *each(POD, "status.conditions", [{"type": "a b", "status": "True"}], [{"type": "Ready", "status": "True"}]),
    *each(POD, "status.qosClass", "Guaranteed"),
    *each(POD, "status.podIPs", [{"ip": "x"}], [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}]),
    *each(POD, "status.hostIPs", [{"ip": "10.0.0.1"}]),
    *each(POD, "status.nominatedNodeName", "Upper"),
    *each(POD, "status.observedGeneration", -1),
    *each(_PROVIDED, "status.capacity", {"cpu": "-1"}),
    *each(_PROVIDED, "status.addresses", [{"type": "Hostname", "address": "a"}] * 2),
    *each(DEPLOYMENT, "status.replicas", -1),
    *each(DEPLOYMENT, "status", {"replicas": 1, "readyReplicas": 2, "availableReplicas": 3}),
    *each(REPLICA_SET, "status", {"replicas": 1, "fullyLabeledReplicas": 2}),
    *each(STATEFUL_SET, "status", {"replicas": 1, "currentReplicas": 2, "availableReplicas": 1}),
    *each(DAEMON_SET, "status.numberReady", -1),
    *each(JOB, "status.active", -1),
    *each(BUDGET, "status.disruptionsAllowed", -1),
    *each(
        BUDGET,
        "status.conditions",
        [{"type": "a"}],
        [{"type": "a", "status": "Wrong", "reason": "a b", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    ),
    *each(NAMESPACE, "status.phase", "Terminating"),
]
