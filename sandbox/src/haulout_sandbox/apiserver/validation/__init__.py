"""What the API server refuses: objects of built-in kinds that are understood, and wrong.

    causes = validation.of_new(POD, pod)
    causes = validation.of_update(NODE, node, as_it_was, subresource="status")

Both return the causes of an Invalid; none if all is well. They are called with objects that have their types
(`decoding`), their defaults (`defaults`) and what is decided once (`creation`). What is checked is what a controller
would stumble over and what people get wrong most; the real server refuses more. Kinds without a row have their metadata
checked; custom resources have a schema.
"""

from collections.abc import Callable

from haulout_sandbox.apiserver import status
from haulout_sandbox.apiserver.kinds.kind import JsonObject, Kind
from haulout_sandbox.apiserver.object_names import (
    dns1035_label_problems,
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

_RBAC = "rbac.authorization.k8s.io"


def validate_create(kind: Kind, obj: JsonObject) -> Causes:
    """Return what is wrong with a new object."""
    name_rule = dns1123_subdomain_problems if kind.is_custom else _NAME_RULES.get(kind.kind, dns1123_subdomain_problems)
    causes = metadata.validate_create(obj["metadata"], namespaced=kind.namespaced, name_rule=name_rule)
    return (
        causes
        if kind.is_custom
        else causes + metadata.unqualified_finalizers(obj["metadata"]) + _validate_content(kind, obj)
    )


def validate_update(kind: Kind, new: JsonObject, old: JsonObject, *, subresource: str = "") -> Causes:
    """Return what is wrong with an object, or may not be changed in it."""
    causes = metadata.validate_update(new["metadata"], old["metadata"])
    if kind.is_custom:
        return causes
    causes += metadata.unqualified_finalizers(new["metadata"])
    if subresource == "status" and kind.kind == "PodDisruptionBudget":
        return causes + workloads.validate_pod_disruption_budget_status(new["status"])
    if subresource or _has_same_content(new, old):
        return causes  # what was right is right, and nothing is changed that may not be
    return causes + _validate_content(kind, new, old)


def invalid_object(kind: Kind, name: str, causes: Causes) -> status.StatusError:
    """Say no to an object."""
    return status.invalid(kind.group, kind.kind, name, causes)


def validate_name(kind: Kind, obj: JsonObject) -> Causes:
    """Return what is wrong with a name: all that a server without defaults looks at."""
    meta = {name: obj["metadata"][name] for name in ("name", "namespace") if name in obj["metadata"]}
    return metadata.validate_create(meta, namespaced=kind.namespaced, name_rule=segment_problems)


def validate_metadata_update(new: JsonObject, old: JsonObject) -> Causes:
    """Return which changes of the metadata no server allows."""
    return metadata.validate_update(new["metadata"], old["metadata"])


def _validate_content(kind: Kind, new: JsonObject, old: JsonObject | None = None) -> Causes:
    validate = _VALIDATORS.get((kind.group, kind.kind))
    return validate(new, old) if validate else []


def _has_same_content(new: JsonObject, old: JsonObject) -> bool:
    return all(new.get(name) == old.get(name) for name in new.keys() | old.keys() if name not in ("metadata", "status"))


_NAME_RULES = {
    "Namespace": dns1123_label_problems,
    "StatefulSet": dns1123_label_problems,
    "Service": dns1035_label_problems,
    **dict.fromkeys(("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"), segment_problems),
}
_VALIDATORS: dict[tuple[str, str], Callable[[JsonObject, JsonObject | None], Causes]] = {
    ("", "Pod"): pods.validate_pod,
    ("", "Node"): other_kinds.validate_node,
    ("", "ConfigMap"): other_kinds.validate_config_map,
    ("", "Secret"): other_kinds.validate_config_map,
    ("", "Service"): other_kinds.validate_service,
    ("", "Event"): other_kinds.validate_event,
    ("", "PersistentVolumeClaim"): other_kinds.validate_persistent_volume_claim,
    ("apps", "Deployment"): workloads.validate_deployment,
    ("apps", "ReplicaSet"): workloads.validate_replica_set,
    ("apps", "StatefulSet"): workloads.validate_stateful_set,
    ("apps", "DaemonSet"): workloads.validate_daemon_set,
    ("batch", "Job"): workloads.validate_job,
    ("batch", "CronJob"): workloads.validate_cron_job,
    ("policy", "PodDisruptionBudget"): workloads.validate_pod_disruption_budget,
    ("coordination.k8s.io", "Lease"): other_kinds.validate_lease,
    ("events.k8s.io", "Event"): other_kinds.validate_events_v1_event,
    ("scheduling.k8s.io", "PriorityClass"): other_kinds.validate_priority_class,
    (_RBAC, "Role"): other_kinds.validate_role,
    (_RBAC, "ClusterRole"): other_kinds.validate_role,
    (_RBAC, "RoleBinding"): other_kinds.validate_binding,
    (_RBAC, "ClusterRoleBinding"): other_kinds.validate_binding,
}
