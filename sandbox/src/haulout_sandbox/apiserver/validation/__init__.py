"""Validation of objects of built-in kinds.

    causes = validation.validate_create(POD, pod)
    causes = validation.validate_update(NODE, node, old_node, subresource="status")

Both return the causes of an Invalid error, none if the object is valid. They require objects with decoded types
(`serializer.decoder`), defaults (`registry.defaults`) and the fields set at creation (`registry.strategy`). They check
what would break a controller and what users get wrong most in the kinds that controllers work with; the real server
checks more. Of other kinds only the metadata is checked; custom resources have a schema.
"""

from collections.abc import Callable

from haulout_sandbox.apiserver import status
from haulout_sandbox.apiserver.kinds.kind import JsonObject, Kind
from haulout_sandbox.apiserver.object_names import (
    dns1123_label_problems,
    dns1123_subdomain_problems,
    segment_problems,
)
from haulout_sandbox.apiserver.validation import metadata, other_kinds, pods, workloads
from haulout_sandbox.apiserver.validation.common import Causes

__all__ = [
    "Causes",
    "invalid_object",
    "validate_create",
    "validate_metadata_update",
    "validate_name",
    "validate_update",
]


def validate_create(kind: Kind, obj: JsonObject) -> Causes:
    name_rule = dns1123_subdomain_problems if kind.is_custom else _NAME_RULES.get(kind.kind, dns1123_subdomain_problems)
    causes = metadata.validate_create(obj["metadata"], namespaced=kind.namespaced, name_rule=name_rule)
    return (
        causes
        if kind.is_custom
        else causes + metadata.unqualified_finalizers(obj["metadata"]) + _validate_content(kind, obj)
    )


def validate_update(kind: Kind, new: JsonObject, old: JsonObject, *, subresource: str = "") -> Causes:
    """Return what is invalid in an object, and which changes are forbidden."""
    causes = metadata.validate_update(new["metadata"], old["metadata"])
    if kind.is_custom:
        return causes
    causes += metadata.unqualified_finalizers(new["metadata"])
    if subresource == "status" and kind.kind == "PodDisruptionBudget":
        return causes + workloads.validate_pod_disruption_budget_status(new["status"])
    if subresource or _has_same_content(new, old):
        return causes  # an unchanged object is valid
    return causes + _validate_content(kind, new, old)


def invalid_object(kind: Kind, name: str, causes: Causes) -> status.StatusError:
    return status.invalid(kind.group, kind.kind, name, causes)


def validate_name(kind: Kind, obj: JsonObject) -> Causes:
    """Return what is wrong with a name; a server without defaulting checks nothing else."""
    meta = {name: obj["metadata"][name] for name in ("name", "namespace") if name in obj["metadata"]}
    return metadata.validate_create(meta, namespaced=kind.namespaced, name_rule=segment_problems)


def validate_metadata_update(new: JsonObject, old: JsonObject) -> Causes:
    return metadata.validate_update(new["metadata"], old["metadata"])


def _validate_content(kind: Kind, new: JsonObject, old: JsonObject | None = None) -> Causes:
    validate = _VALIDATORS.get((kind.group, kind.kind))
    return validate(new, old) if validate else []


def _has_same_content(new: JsonObject, old: JsonObject) -> bool:
    return all(new.get(name) == old.get(name) for name in new.keys() | old.keys() if name not in ("metadata", "status"))


_NAME_RULES = {
    "Namespace": dns1123_label_problems,
    "StatefulSet": dns1123_label_problems,
    **dict.fromkeys(("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"), segment_problems),
}
_VALIDATORS: dict[tuple[str, str], Callable[[JsonObject, JsonObject | None], Causes]] = {
    ("", "Pod"): pods.validate_pod,
    ("", "Node"): other_kinds.validate_node,
    ("apps", "Deployment"): workloads.validate_deployment,
    ("apps", "ReplicaSet"): workloads.validate_replica_set,
    ("apps", "StatefulSet"): workloads.validate_stateful_set,
    ("apps", "DaemonSet"): workloads.validate_daemon_set,
    ("batch", "Job"): workloads.validate_job,
    ("policy", "PodDisruptionBudget"): workloads.validate_pod_disruption_budget,
    ("coordination.k8s.io", "Lease"): other_kinds.validate_lease,
}
