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
from haulout_sandbox.apiserver.kinds import JsonObject, Kind
from haulout_sandbox.apiserver.names import dns_label_problems, label_problems, segment_problems, subdomain_problems
from haulout_sandbox.apiserver.validation import metadata, others, pods, workloads
from haulout_sandbox.apiserver.validation.common import Causes

__all__ = ["Causes", "of_metadata_update", "of_name", "of_new", "of_update", "refused"]

_RBAC = "rbac.authorization.k8s.io"


def of_new(kind: Kind, obj: JsonObject) -> Causes:
    """Return what is wrong with a new object."""
    rule = subdomain_problems if kind.custom else _NAME_RULES.get(kind.kind, subdomain_problems)
    causes = metadata.of_new(obj["metadata"], namespaced=kind.namespaced, name_rule=rule)
    return causes if kind.custom else causes + metadata.unqualified_finalizers(obj["metadata"]) + _content(kind, obj)


def of_update(kind: Kind, new: JsonObject, old: JsonObject, *, subresource: str = "") -> Causes:
    """Return what is wrong with an object, or may not be changed in it."""
    causes = metadata.of_update(new["metadata"], old["metadata"])
    if kind.custom:
        return causes
    causes += metadata.unqualified_finalizers(new["metadata"])
    if subresource == "status" and kind.kind == "PodDisruptionBudget":
        return causes + workloads.disruption_budget_status(new["status"])
    if subresource or _same_content(new, old):
        return causes  # what was right is right, and nothing is changed that may not be
    return causes + _content(kind, new, old)


def refused(kind: Kind, name: str, causes: Causes) -> status.Refused:
    """Say no to an object."""
    return status.invalid(kind.group, kind.kind, name, causes)


def of_name(kind: Kind, obj: JsonObject) -> Causes:
    """Return what is wrong with a name: all that a server without defaults looks at."""
    meta = {name: obj["metadata"][name] for name in ("name", "namespace") if name in obj["metadata"]}
    return metadata.of_new(meta, namespaced=kind.namespaced, name_rule=segment_problems)


def of_metadata_update(new: JsonObject, old: JsonObject) -> Causes:
    """Return which changes of the metadata no server allows."""
    return metadata.of_update(new["metadata"], old["metadata"])


def _content(kind: Kind, new: JsonObject, old: JsonObject | None = None) -> Causes:
    check = _CONTENT.get((kind.group, kind.kind))
    return check(new, old) if check else []


def _same_content(new: JsonObject, old: JsonObject) -> bool:
    return all(new.get(name) == old.get(name) for name in new.keys() | old.keys() if name not in ("metadata", "status"))


_NAME_RULES = {
    "Namespace": dns_label_problems,
    "StatefulSet": dns_label_problems,
    "Service": label_problems,
    **dict.fromkeys(("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"), segment_problems),
}
_CONTENT: dict[tuple[str, str], Callable[[JsonObject, JsonObject | None], Causes]] = {
    ("", "Pod"): pods.pod,
    ("", "Node"): others.node,
    ("", "ConfigMap"): others.config_map,
    ("", "Secret"): others.config_map,
    ("", "Service"): others.service,
    ("", "Event"): others.event,
    ("", "PersistentVolumeClaim"): others.claim,
    ("apps", "Deployment"): workloads.deployment,
    ("apps", "ReplicaSet"): workloads.replica_set,
    ("apps", "StatefulSet"): workloads.stateful_set,
    ("apps", "DaemonSet"): workloads.daemon_set,
    ("batch", "Job"): workloads.job,
    ("batch", "CronJob"): workloads.cron_job,
    ("policy", "PodDisruptionBudget"): workloads.disruption_budget,
    ("coordination.k8s.io", "Lease"): others.lease,
    ("events.k8s.io", "Event"): others.new_event,
    ("scheduling.k8s.io", "PriorityClass"): others.priority_class,
    (_RBAC, "Role"): others.role,
    (_RBAC, "ClusterRole"): others.role,
    (_RBAC, "RoleBinding"): others.binding,
    (_RBAC, "ClusterRoleBinding"): others.binding,
}
