"""Defaults that the server sets on every write.

    with_defaults(DEPLOYMENT, {"spec": {…}})["spec"]["replicas"]        # 1

Follows `pkg/apis/*/*/defaults.go` of Kubernetes 1.36, and the few visible conversions (a Secret's stringData becomes
data). Kinds that no controller of the sandbox works with have none. Values that are set once at creation are in
`strategy`. Nothing here reads other objects.
"""

import base64
import copy
from collections.abc import Callable

from haulout_sandbox.apiserver.apiextensions import crds
from haulout_sandbox.apiserver.kinds.kind import JsonObject, Kind
from haulout_sandbox.apiserver.registry.pod_defaults import (
    canonicalize_quantities,
    ensure_section,
    fill,
    fill_absent,
    objects_in,
    section_at,
    set_claim_spec_defaults,
    set_pod_defaults,
    set_template_defaults,
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
_MAX_BACKOFF_LIMIT = 2**31 - 1


def with_defaults(kind: Kind, obj: JsonObject) -> JsonObject:
    result = copy.deepcopy(obj)
    set_defaults(kind, result)
    return result


def has_defaults(kind: Kind, *, subresource: str = "") -> bool:
    """Return whether defaults apply to such a write.

    A write to the status subresource changes only the status, and the status of most kinds has no defaults.
    """
    if kind.is_custom:
        return True
    return (kind.group, kind.kind) in (_DEFAULTS if subresource != "status" else _STATUS_DEFAULTS)


def set_defaults(kind: Kind, obj: JsonObject, *, subresource: str = "") -> None:
    """Set the defaults in place; `obj` must not be shared."""
    if not has_defaults(kind, subresource=subresource):
        return
    if set_kind_defaults := _DEFAULTS.get((kind.group, kind.kind)):
        set_kind_defaults(obj)


def _namespace(obj: JsonObject) -> None:
    meta = section_at(obj, "metadata")
    if meta.get("name"):
        ensure_section(meta, "labels")["kubernetes.io/metadata.name"] = meta["name"]
    fill(ensure_section(obj, "status"), phase="Active")


def _node(obj: JsonObject) -> None:
    spec, status = section_at(obj, "spec"), ensure_section(obj, "status")
    pod_cidr, pod_cidrs = spec.get("podCIDR"), spec.get("podCIDRs") or []
    if pod_cidr and pod_cidr not in pod_cidrs[:1]:
        spec["podCIDRs"] = [pod_cidr]  # podCIDR wins where podCIDRs is missing or disagrees
    elif pod_cidrs:
        spec["podCIDR"] = pod_cidrs[0]
    if status.get("allocatable") is None and isinstance(status.get("capacity"), dict):
        status["allocatable"] = dict(status["capacity"])
    canonicalize_quantities(section_at(status, "capacity"))
    canonicalize_quantities(section_at(status, "allocatable"))
    ensure_section(ensure_section(status, "daemonEndpoints"), "kubeletEndpoint").setdefault("Port", 0)
    info = ensure_section(status, "nodeInfo")
    for name in _NODE_INFO:
        info.setdefault(name, "")


def _deployment(obj: JsonObject) -> None:
    spec = ensure_section(obj, "spec")
    fill(spec, replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600)
    strategy = ensure_section(spec, "strategy")
    fill(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        fill_absent(ensure_section(strategy, "rollingUpdate"), maxUnavailable="25%", maxSurge="25%")
    set_template_defaults(spec)


def _replica_set(obj: JsonObject) -> None:
    spec = ensure_section(obj, "spec")
    fill(spec, replicas=1)
    set_template_defaults(spec)


def _stateful_set(obj: JsonObject) -> None:
    spec = ensure_section(obj, "spec")
    fill(spec, replicas=1, revisionHistoryLimit=10, podManagementPolicy="OrderedReady")
    fill_absent(spec, serviceName="")
    strategy = ensure_section(spec, "updateStrategy")
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
        ensure_section(strategy, "rollingUpdate")
    if strategy["type"] == "RollingUpdate" and isinstance(rolling := strategy.get("rollingUpdate"), dict):
        fill(rolling, partition=0)
    fill(ensure_section(spec, "persistentVolumeClaimRetentionPolicy"), whenDeleted="Retain", whenScaled="Retain")
    set_template_defaults(spec)
    for claim in objects_in(spec, "volumeClaimTemplates"):
        fill(claim, apiVersion="v1", kind="PersistentVolumeClaim")
        ensure_section(claim, "metadata")
        _claim(claim)


def _daemon_set(obj: JsonObject) -> None:
    spec = ensure_section(obj, "spec")
    fill(spec, revisionHistoryLimit=10)
    strategy = ensure_section(spec, "updateStrategy")
    fill(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        fill_absent(ensure_section(strategy, "rollingUpdate"), maxUnavailable=1, maxSurge=0)
    set_template_defaults(spec)


def _job(obj: JsonObject) -> None:
    spec = ensure_section(obj, "spec")
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    by_index = spec.get("backoffLimitPerIndex") is not None
    fill_absent(
        spec,
        parallelism=1,
        backoffLimit=_MAX_BACKOFF_LIMIT if by_index else 6,
        completionMode="NonIndexed",
        suspend=False,
        manualSelector=False,
        podReplacementPolicy="Failed" if spec.get("podFailurePolicy") is not None else "TerminatingOrFailed",
    )
    set_template_defaults(spec)
    for rule in objects_in(section_at(spec, "podFailurePolicy"), "rules"):
        for pattern in objects_in(rule, "onPodConditions"):
            fill(pattern, status="True")
    labels, meta = section_at(spec, "template", "metadata", "labels"), section_at(obj, "metadata")
    if labels and not meta.get("labels"):
        # the same dict, not a copy: labels that `strategy` adds to the template then show on the Job, too
        meta["labels"] = labels


def _secret(obj: JsonObject) -> None:
    fill(obj, type="Opaque")
    if string_data := section_at(obj, "stringData"):
        data = ensure_section(obj, "data")
        data |= {name: base64.b64encode(str(value).encode()).decode() for name, value in string_data.items()}
    obj.pop("stringData", None)


def _claim(obj: JsonObject) -> None:
    set_claim_spec_defaults(ensure_section(obj, "spec"))
    fill(ensure_section(obj, "status"), phase="Pending")


def _volume(obj: JsonObject) -> None:
    spec = ensure_section(obj, "spec")
    fill(spec, persistentVolumeReclaimPolicy="Retain")
    fill_absent(spec, volumeMode="Filesystem")
    canonicalize_quantities(section_at(spec, "capacity"))
    if isinstance(path := spec.get("hostPath"), dict):
        fill(path, type="")
    fill(ensure_section(obj, "status"), phase="Pending")


def _binding(obj: JsonObject) -> None:
    fill(ensure_section(obj, "roleRef"), apiGroup=_RBAC)
    for subject in objects_in(obj, "subjects"):
        if subject.get("kind") in ("User", "Group"):
            fill(subject, apiGroup=_RBAC)


def _priority_class(obj: JsonObject) -> None:
    fill_absent(obj, preemptionPolicy="PreemptLowerPriority")
    obj.setdefault("value", 0)


def _webhooks(obj: JsonObject) -> None:
    for webhook in objects_in(obj, "webhooks"):
        fill(webhook, failurePolicy="Fail", timeoutSeconds=10)
        fill(webhook, matchPolicy="Equivalent")
        ensure_section(webhook, "namespaceSelector")
        ensure_section(webhook, "objectSelector")
        for rule in objects_in(webhook, "rules"):
            fill(rule, scope="*")
        if service := section_at(webhook, "clientConfig", "service"):
            fill(service, port=443)


def _definition(obj: JsonObject) -> None:
    if section_at(obj, "spec"):
        obj |= crds.with_defaults(obj)


_DEFAULTS: dict[tuple[str, str], Callable[[JsonObject], None]] = {
    ("", "Pod"): set_pod_defaults,
    ("", "Node"): _node,
    ("", "Namespace"): _namespace,
    ("", "Secret"): _secret,
    ("", "PersistentVolume"): _volume,
    ("", "PersistentVolumeClaim"): _claim,
    ("apps", "Deployment"): _deployment,
    ("apps", "ReplicaSet"): _replica_set,
    ("apps", "StatefulSet"): _stateful_set,
    ("apps", "DaemonSet"): _daemon_set,
    ("batch", "Job"): _job,
    (_RBAC, "RoleBinding"): _binding,
    (_RBAC, "ClusterRoleBinding"): _binding,
    ("scheduling.k8s.io", "PriorityClass"): _priority_class,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _definition,
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): _webhooks,
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): _webhooks,
}
_STATUS_DEFAULTS = _DEFAULTS.keys() - {
    ("", "Pod"),
    ("apps", "Deployment"),
    ("apps", "ReplicaSet"),
    ("apps", "StatefulSet"),
    ("apps", "DaemonSet"),
}
