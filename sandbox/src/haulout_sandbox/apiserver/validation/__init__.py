"""What the API server refuses: objects of built-in kinds that are understood, and wrong.

    causes = validation.of_new(POD, pod)
    causes = validation.of_update(NODE, node, as_it_was, subresource="status")

Both return the causes of an Invalid, all at once, in the order and the words of Kubernetes 1.36; none if all is well.
They are called with objects that have their types (`decoding`), their defaults (`defaults`) and what is decided once
(`creation`). Each module here names the source that it follows; each function of a kind takes the new object and, for
an update, the old one. Kinds without a row have their metadata checked; those of custom resources `schema` checks.
"""

from collections.abc import Callable

from haulout_sandbox.apiserver import status
from haulout_sandbox.apiserver.kinds import JsonObject, Kind
from haulout_sandbox.apiserver.validation import (
    budgets,
    configuration,
    events,
    jobs,
    metadata,
    nodes,
    pods,
    roles,
    rules,
    services,
    storage,
    workloads,
)
from haulout_sandbox.apiserver.validation.common import Causes

__all__ = ["Causes", "of_metadata_update", "of_name", "of_new", "of_update", "refused"]

_RBAC = "rbac.authorization.k8s.io"


def of_new(kind: Kind, obj: JsonObject) -> Causes:
    """Return what is wrong with a new object."""
    if kind.custom:
        return of_name(kind, obj)
    causes = _object(kind, obj, None)
    # What a kind's own rules do not say of the metadata is said afterwards.
    return causes or (_common(kind, obj) if (kind.group, kind.kind) in _NO_METADATA else [])


def of_update(kind: Kind, new: JsonObject, old: JsonObject, *, subresource: str = "") -> Causes:
    """Return what is wrong with an object, or may not be changed in it."""
    causes: Causes = []
    if new["metadata"] != old["metadata"]:
        causes = _common(kind, new) + metadata.of_any_update(new["metadata"], old["metadata"])
    if not subresource and not causes and _same_content(new, old):
        return causes  # what was right is right, and nothing is changed that may not be
    if kind.custom:
        return causes + metadata.of_any_update(new["metadata"], old["metadata"])
    if subresource == "status":
        check = _STATUS.get((kind.group, kind.kind), _status_metadata)
        return causes + check(new, old)
    return causes + _object(kind, new, old)


def _same_content(new: JsonObject, old: JsonObject) -> bool:
    if new["metadata"].get("annotations") != old["metadata"].get("annotations"):
        return False  # some kinds read theirs
    return all(new.get(name) == old.get(name) for name in new.keys() | old.keys() if name not in ("metadata", "status"))


def refused(kind: Kind, name: str, causes: Causes) -> status.Refused:
    """Say no to an object; an event is of the core group, wherever it was sent."""
    return status.invalid("" if kind.kind == "Event" else kind.group, kind.kind, name, causes)


def of_name(kind: Kind, obj: JsonObject) -> Causes:
    """Return what is wrong with a name: all that a server without defaults looks at."""
    meta = {name: obj["metadata"][name] for name in ("name", "namespace") if name in obj["metadata"]}
    return metadata.of_any(meta, namespaced=kind.namespaced, name_rule=rules.subdomain)


def of_metadata_update(new: JsonObject, old: JsonObject) -> Causes:
    """Return which changes of the metadata no server allows."""
    return metadata.of_any_update(new["metadata"], old["metadata"]) * 2


def _common(kind: Kind, obj: JsonObject) -> Causes:
    return metadata.of_any(obj["metadata"], namespaced=kind.namespaced)


def _object(kind: Kind, new: JsonObject, old: JsonObject | None) -> Causes:
    check = _OBJECTS.get((kind.group, kind.kind))
    if check is not None:
        return check(new, old)
    return configuration.only_metadata(new, old, name_rule=rules.subdomain, namespaced=kind.namespaced)


def _pod(new: JsonObject, old: JsonObject | None) -> Causes:
    return pods.of_new(new) if old is None else pods.of_update(new, old)


def _node(new: JsonObject, old: JsonObject | None) -> Causes:
    return nodes.of_new(new) if old is None else nodes.of_update(new, old)


def _status_metadata(new: JsonObject, old: JsonObject) -> Causes:
    return metadata.of_update(new["metadata"], old["metadata"])


_OBJECTS: dict[tuple[str, str], Callable[[JsonObject, JsonObject | None], Causes]] = {
    ("", "Pod"): _pod,
    ("", "Node"): _node,
    ("", "Namespace"): configuration.namespace,
    ("", "ConfigMap"): configuration.config_map,
    ("", "Secret"): configuration.secret,
    ("", "ServiceAccount"): configuration.service_account,
    ("", "LimitRange"): configuration.limit_range,
    ("", "ResourceQuota"): configuration.quota,
    ("", "Service"): services.service,
    ("", "Endpoints"): services.endpoints,
    ("", "Event"): events.event,
    ("", "PersistentVolume"): storage.volume,
    ("", "PersistentVolumeClaim"): storage.claim,
    ("", "PodTemplate"): workloads.pod_template,
    ("", "ReplicationController"): workloads.replication_controller,
    ("apps", "Deployment"): workloads.deployment,
    ("apps", "ReplicaSet"): workloads.replica_set,
    ("apps", "StatefulSet"): workloads.stateful_set,
    ("apps", "DaemonSet"): workloads.daemon_set,
    ("apps", "ControllerRevision"): workloads.revision,
    ("batch", "Job"): jobs.job,
    ("batch", "CronJob"): jobs.cron_job,
    ("policy", "PodDisruptionBudget"): budgets.budget,
    ("coordination.k8s.io", "Lease"): configuration.lease,
    ("events.k8s.io", "Event"): events.new_event,
    ("node.k8s.io", "RuntimeClass"): configuration.runtime_class,
    ("scheduling.k8s.io", "PriorityClass"): configuration.priority_class,
    ("storage.k8s.io", "StorageClass"): storage.storage_class,
    (_RBAC, "Role"): roles.role,
    (_RBAC, "ClusterRole"): roles.role,
    (_RBAC, "RoleBinding"): roles.binding,
    (_RBAC, "ClusterRoleBinding"): roles.binding,
}
_STATUS: dict[tuple[str, str], Callable[[JsonObject, JsonObject], Causes]] = {
    ("", "Pod"): pods.of_status,
    ("", "Node"): nodes.of_status,
    ("", "Namespace"): configuration.namespace_status,
    ("", "ReplicationController"): workloads.replica_set_status,
    ("", "PersistentVolumeClaim"): storage.claim_status,
    ("apps", "Deployment"): workloads.deployment_status,
    ("apps", "ReplicaSet"): workloads.replica_set_status,
    ("apps", "StatefulSet"): workloads.stateful_set_status,
    ("apps", "DaemonSet"): workloads.daemon_set_status,
    ("batch", "Job"): jobs.job_status,
    ("policy", "PodDisruptionBudget"): budgets.budget_status,
}
_NO_METADATA = {("", "Event"), ("policy", "PodDisruptionBudget")}
