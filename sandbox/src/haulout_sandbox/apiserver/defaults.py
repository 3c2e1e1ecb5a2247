"""What the server writes into an object where its author said nothing, on every write.

    defaulted(DEPLOYMENT, {"spec": {…}})["spec"]["replicas"]        # 1

Follows `pkg/apis/*/*/defaults.go` of Kubernetes 1.36, and the few conversions that show (a Secret's stringData becomes
data). What is decided once, when an object is created, is in `creation`. Nothing here looks at other objects.
"""

import base64
import copy
from collections.abc import Callable

from haulout_sandbox.apiserver import crds
from haulout_sandbox.apiserver.kinds import JsonObject, Kind
from haulout_sandbox.apiserver.pod_defaults import (
    canonical,
    each,
    fill,
    fill_absent,
    inside,
    section,
    set_claim_spec,
    set_pod,
    set_template,
)

_NODE_INFO = (
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
)
_RBAC = "rbac.authorization.k8s.io"
_MOST_FAILURES = 2**31 - 1


def defaulted(kind: Kind, obj: JsonObject) -> JsonObject:
    """Return `obj` with its defaults."""
    result = copy.deepcopy(obj)
    set_defaults(kind, result)
    return result


def has_defaults(kind: Kind, *, subresource: str = "") -> bool:
    """Tell whether anything can be missing in what is written there.

    Of what is written to a status, the server keeps the status alone, and those of most kinds have no defaults.
    """
    if kind.custom:
        return True
    return (kind.group, kind.kind) in (_DEFAULTS if subresource != "status" else _STATUS_DEFAULTS)


def set_defaults(kind: Kind, obj: JsonObject, *, subresource: str = "") -> None:
    """Write the defaults into `obj`, which nobody else holds."""
    if not has_defaults(kind, subresource=subresource):
        return
    if set_them := _DEFAULTS.get((kind.group, kind.kind)):
        set_them(obj)


def _namespace(obj: JsonObject) -> None:
    meta = inside(obj, "metadata")
    if meta.get("name"):
        section(meta, "labels")["kubernetes.io/metadata.name"] = meta["name"]
    fill(section(obj, "status"), phase="Active")


def _node(obj: JsonObject) -> None:
    spec, status = inside(obj, "spec"), section(obj, "status")
    single, every = spec.get("podCIDR"), spec.get("podCIDRs") or []
    if single and single not in every[:1]:
        spec["podCIDRs"] = [single]  # who sends the old field only, or means something else by it, is right
    elif every:
        spec["podCIDR"] = every[0]
    if status.get("allocatable") is None and isinstance(status.get("capacity"), dict):
        status["allocatable"] = dict(status["capacity"])
    canonical(inside(status, "capacity"))
    canonical(inside(status, "allocatable"))
    section(section(status, "daemonEndpoints"), "kubeletEndpoint").setdefault("Port", 0)
    info = section(status, "nodeInfo")
    for name in _NODE_INFO:
        info.setdefault(name, "")


def _deployment(obj: JsonObject) -> None:
    spec = section(obj, "spec")
    fill(spec, replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600)
    strategy = section(spec, "strategy")
    fill(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        fill_absent(section(strategy, "rollingUpdate"), maxUnavailable="25%", maxSurge="25%")
    set_template(spec)


def _replica_set(obj: JsonObject) -> None:
    spec = section(obj, "spec")
    fill(spec, replicas=1)
    set_template(spec)


def _stateful_set(obj: JsonObject) -> None:
    spec = section(obj, "spec")
    fill(spec, replicas=1, revisionHistoryLimit=10, podManagementPolicy="OrderedReady")
    fill_absent(spec, serviceName="")
    strategy = section(spec, "updateStrategy")
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
        section(strategy, "rollingUpdate")
    if strategy["type"] == "RollingUpdate" and isinstance(rolling := strategy.get("rollingUpdate"), dict):
        fill(rolling, partition=0)
    fill(section(spec, "persistentVolumeClaimRetentionPolicy"), whenDeleted="Retain", whenScaled="Retain")
    set_template(spec)
    for claim in each(spec, "volumeClaimTemplates"):
        fill(claim, apiVersion="v1", kind="PersistentVolumeClaim")
        section(claim, "metadata")
        _claim(claim)


def _daemon_set(obj: JsonObject) -> None:
    spec = section(obj, "spec")
    fill(spec, revisionHistoryLimit=10)
    strategy = section(spec, "updateStrategy")
    fill(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        fill_absent(section(strategy, "rollingUpdate"), maxUnavailable=1, maxSurge=0)
    set_template(spec)


def _job(obj: JsonObject) -> None:
    spec = section(obj, "spec")
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    by_index = spec.get("backoffLimitPerIndex") is not None
    fill_absent(
        spec,
        parallelism=1,
        backoffLimit=_MOST_FAILURES if by_index else 6,
        completionMode="NonIndexed",
        suspend=False,
        manualSelector=False,
        podReplacementPolicy="Failed" if spec.get("podFailurePolicy") is not None else "TerminatingOrFailed",
    )
    _job_template(spec)
    labels, meta = inside(spec, "template", "metadata", "labels"), inside(obj, "metadata")
    if labels and not meta.get("labels"):
        meta["labels"] = labels  # the same, not a copy: what `creation` adds to the template's, the job shows as well


def _job_template(spec: JsonObject) -> None:
    set_template(spec)
    for rule in each(inside(spec, "podFailurePolicy"), "rules"):
        for pattern in each(rule, "onPodConditions"):
            fill(pattern, status="True")


def _cron_job(obj: JsonObject) -> None:
    spec = section(obj, "spec")
    fill(spec, concurrencyPolicy="Allow", suspend=False, successfulJobsHistoryLimit=3, failedJobsHistoryLimit=1)
    job = section(spec, "jobTemplate")
    section(job, "metadata")
    _job_template(section(job, "spec"))


def _service(obj: JsonObject) -> None:
    spec = section(obj, "spec")
    fill(spec, sessionAffinity="None", type="ClusterIP")
    if spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    if spec["sessionAffinity"] == "ClientIP":
        fill(section(section(spec, "sessionAffinityConfig"), "clientIP"), timeoutSeconds=10800)
    for port in each(spec, "ports"):
        fill(port, protocol="TCP")
        port["targetPort"] = port.get("targetPort") or port.get("port")
    balanced = spec["type"] == "LoadBalancer"
    if balanced or spec["type"] == "NodePort" or (spec["type"] == "ClusterIP" and spec.get("externalIPs")):
        fill(spec, externalTrafficPolicy="Cluster")
    if spec["type"] != "ExternalName":
        fill_absent(spec, internalTrafficPolicy="Cluster")
    if balanced:
        fill(spec, allocateLoadBalancerNodePorts=True)
        for ingress in each(inside(obj, "status", "loadBalancer"), "ingress"):
            if ingress.get("ip"):
                fill(ingress, ipMode="VIP")


def _secret(obj: JsonObject) -> None:
    fill(obj, type="Opaque")
    if plain := inside(obj, "stringData"):
        data = section(obj, "data")
        data |= {name: base64.b64encode(str(value).encode()).decode() for name, value in plain.items()}
    obj.pop("stringData", None)


def _claim(obj: JsonObject) -> None:
    set_claim_spec(section(obj, "spec"))
    fill(section(obj, "status"), phase="Pending")


def _volume(obj: JsonObject) -> None:
    spec = section(obj, "spec")
    fill(spec, persistentVolumeReclaimPolicy="Retain")
    fill_absent(spec, volumeMode="Filesystem")
    canonical(inside(spec, "capacity"))
    if isinstance(path := spec.get("hostPath"), dict):
        fill(path, type="")
    fill(section(obj, "status"), phase="Pending")


def _binding(obj: JsonObject) -> None:
    fill(section(obj, "roleRef"), apiGroup=_RBAC)
    for subject in each(obj, "subjects"):
        if subject.get("kind") in ("User", "Group"):
            fill(subject, apiGroup=_RBAC)


def _priority_class(obj: JsonObject) -> None:
    fill_absent(obj, preemptionPolicy="PreemptLowerPriority")
    obj.setdefault("value", 0)


def _storage_class(obj: JsonObject) -> None:
    fill_absent(obj, reclaimPolicy="Delete", volumeBindingMode="Immediate")


def _validating_webhooks(obj: JsonObject) -> None:
    for webhook in each(obj, "webhooks"):
        fill(webhook, failurePolicy="Fail", timeoutSeconds=10)
        fill(webhook, matchPolicy="Equivalent")
        section(webhook, "namespaceSelector")
        section(webhook, "objectSelector")
        for rule in each(webhook, "rules"):
            fill(rule, scope="*")
        if service := inside(webhook, "clientConfig", "service"):
            fill(service, port=443)


def _mutating_webhooks(obj: JsonObject) -> None:
    _validating_webhooks(obj)
    for webhook in each(obj, "webhooks"):
        fill(webhook, reinvocationPolicy="Never")


def _network_policy(obj: JsonObject) -> None:
    spec = section(obj, "spec")
    section(spec, "podSelector")
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", *(["Egress"] if spec.get("egress") else [])]
    for rule in (*each(spec, "ingress"), *each(spec, "egress")):
        for port in each(rule, "ports"):
            fill(port, protocol="TCP")


def _definition(obj: JsonObject) -> None:
    if inside(obj, "spec"):
        obj |= crds.defaulted(obj)


_DEFAULTS: dict[tuple[str, str], Callable[[JsonObject], None]] = {
    ("", "Pod"): set_pod,
    ("", "Node"): _node,
    ("", "Namespace"): _namespace,
    ("", "Service"): _service,
    ("", "Secret"): _secret,
    ("", "PersistentVolume"): _volume,
    ("", "PersistentVolumeClaim"): _claim,
    ("apps", "Deployment"): _deployment,
    ("apps", "ReplicaSet"): _replica_set,
    ("apps", "StatefulSet"): _stateful_set,
    ("apps", "DaemonSet"): _daemon_set,
    ("batch", "Job"): _job,
    ("batch", "CronJob"): _cron_job,
    (_RBAC, "RoleBinding"): _binding,
    (_RBAC, "ClusterRoleBinding"): _binding,
    ("scheduling.k8s.io", "PriorityClass"): _priority_class,
    ("storage.k8s.io", "StorageClass"): _storage_class,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _definition,
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): _validating_webhooks,
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): _mutating_webhooks,
    ("networking.k8s.io", "NetworkPolicy"): _network_policy,
}
_STATUS_DEFAULTS = _DEFAULTS.keys() - {
    ("", "Pod"),
    ("apps", "Deployment"),
    ("apps", "ReplicaSet"),
    ("apps", "StatefulSet"),
    ("apps", "DaemonSet"),
}
