"""Fields that the server sets once at creation, and keeps on updates.

Follows the strategies (`PrepareForCreate`, `PrepareForUpdate` in `pkg/registry`) and those default admission plugins of
Kubernetes 1.36 whose effects users see: Priority, DefaultTolerationSeconds, TaintNodesByCondition, PodTopologyLabels.
Of ServiceAccount only the account's name is set: no pod is refused because the account is missing, and none gets a
token. Left out is what needs controllers that the sandbox does not have: the in-use protection finalizers of volumes
and claims, and the addresses of Services.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache

from haulout.core.quantity import Quantity, parse
from haulout_sandbox.apiserver import status
from haulout_sandbox.apiserver.kinds.kind import JsonObject, Kind
from haulout_sandbox.apiserver.registry.pod_defaults import ensure_section, objects_in, section_at

ListObjects = Callable[[str], Iterable[JsonObject]]
"""Returns the objects of the kind with that plural."""

_MIRROR_POD = "kubernetes.io/config.mirror"  # the annotation of a static pod's mirror pod
_NOT_READY = "node.kubernetes.io/not-ready"
_UNREACHABLE = "node.kubernetes.io/unreachable"
_TOLERATION_SECONDS = 300
_SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_TOPOLOGY = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")
_QOS_RESOURCES = ("cpu", "memory")


def prepare_for_create(kind: Kind, obj: JsonObject, list_objects: ListObjects) -> None:
    """Set the creation-time fields of a new object that has its name, uid and defaults."""
    apply_admission_plugins(kind, obj, list_objects)
    match kind.group, kind.kind:
        case "", "Pod":
            _prepare_pod(obj, list_objects)
        case "", "Namespace":
            spec = ensure_section(obj, "spec")
            spec["finalizers"] = [
                *(finalizer for finalizer in spec.get("finalizers") or () if finalizer != "kubernetes"),
                "kubernetes",
            ]
        case "batch", "Job":
            _prepare_job(obj)


def apply_admission_plugins(kind: Kind, obj: JsonObject, list_objects: ListObjects) -> None:
    """Apply the built-in admission plugins to a new object, before validating webhooks see it."""
    match kind.group, kind.kind:
        case "", "Pod":
            spec = ensure_section(obj, "spec")
            _set_priority(kind, obj, spec, list_objects)
            _add_default_tolerations(spec)
        case "", "Node":
            _add_not_ready_taint(ensure_section(obj, "spec"))


def prepare_for_update(kind: Kind, new: JsonObject, old: JsonObject) -> None:
    """Restore fields that an update must not change or leave out."""
    spec, old_spec = section_at(new, "spec"), section_at(old, "spec")
    match kind.group, kind.kind:
        case "", "Pod":
            _keep_if_absent(spec, old_spec, "priority", "preemptionPolicy")
            _add_default_tolerations(spec)
        case "", "Namespace":
            ensure_section(new, "spec")["finalizers"] = old_spec.get("finalizers")


def _keep_if_empty(new: JsonObject, old: JsonObject, *names: str) -> None:
    for name in names:
        if not new.get(name) and name in old:
            new[name] = old[name]


def _keep_if_absent(new: JsonObject, old: JsonObject, *names: str) -> None:
    _keep_if_empty(new, old, *(name for name in names if new.get(name) is None))


def _prepare_pod(pod: JsonObject, list_objects: ListObjects) -> None:
    spec = ensure_section(pod, "spec")
    if _MIRROR_POD not in section_at(pod["metadata"], "annotations") and not spec.get("serviceAccountName"):
        spec["serviceAccountName"] = spec["serviceAccount"] = "default"
    if node := spec.get("nodeName"):
        node_object = next(
            (candidate for candidate in list_objects("nodes") if candidate["metadata"]["name"] == node), None
        )
        ensure_section(pod["metadata"], "labels").update(topology_labels(node_object))
    pod["status"] = ensure_section(pod, "status") | {"qosClass": qos_class(spec)}
    if spec.get("schedulingGates"):
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastTransitionTime": pod["metadata"]["creationTimestamp"],
        }
        pod["status"]["conditions"] = [condition]


def topology_labels(node: JsonObject | None) -> JsonObject:
    """Return the topology labels of a node, which its pods get."""
    labels = node["metadata"].get("labels", {}) if node else {}
    return {name: labels[name] for name in _TOPOLOGY if name in labels}


def _set_priority(kind: Kind, pod: JsonObject, spec: JsonObject, list_objects: ListObjects) -> None:
    class_name, priority_class = spec.get("priorityClassName"), None
    if class_name:
        priority_classes: dict[str, JsonObject] = {name: {"value": value} for name, value in _SYSTEM_PRIORITIES.items()}
        priority_classes |= {candidate["metadata"]["name"]: candidate for candidate in list_objects("priorityclasses")}
        priority_class = priority_classes.get(class_name)
        if priority_class is None:
            raise _forbidden(kind, pod, f"no PriorityClass with name {class_name} was found")
    else:
        global_defaults = [candidate for candidate in list_objects("priorityclasses") if candidate.get("globalDefault")]
        if global_defaults:
            priority_class = min(global_defaults, key=lambda candidate: int(candidate.get("value", 0)))
            spec["priorityClassName"] = priority_class["metadata"]["name"]
    priority_class = priority_class or {}
    for field, description, value in (
        ("priority", "integer value of priority", priority_class.get("value", 0)),
        (
            "preemptionPolicy",
            "string value of PreemptionPolicy",
            priority_class.get("preemptionPolicy", "PreemptLowerPriority"),
        ),
    ):
        if spec.get(field) not in (None, "", value):
            detail = (
                f"the {description} ({spec[field]}) must not be provided in pod spec; "
                f"priority admission controller computed {value} from the given PriorityClass name"
            )
            raise _forbidden(kind, pod, detail)
        spec[field] = value


def _forbidden(kind: Kind, obj: JsonObject, detail: str) -> status.StatusError:
    meta = obj["metadata"]
    name = meta.get("name") or meta.get("generateName") or "Unknown"
    details = {"name": name, "group": kind.group, "kind": kind.plural}
    message = f'{kind.resource} "{name}" is forbidden: {detail}'
    return status.StatusError(status.failure_status(403, "Forbidden", message, details))


def _add_default_tolerations(spec: JsonObject) -> None:
    """Add the default tolerations for not-ready and unreachable nodes, unless the pod has its own."""
    tolerations = list(objects_in(spec, "tolerations"))
    for key in (_NOT_READY, _UNREACHABLE):
        if not any(
            toleration.get("key") in (None, "", key) and toleration.get("effect") in (None, "", "NoExecute")
            for toleration in tolerations
        ):
            default = {
                "key": key,
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": _TOLERATION_SECONDS,
            }
            spec["tolerations"] = [*(spec.get("tolerations") or ()), default]


def qos_class(spec: JsonObject) -> str:
    """Return the QoS class of a pod."""
    containers = (
        [spec]
        if section_at(spec, "resources")
        else [*objects_in(spec, "containers"), *objects_in(spec, "initContainers")]
    )
    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}
    is_guaranteed = True
    for container in containers:
        container_limits = _positive_quantities(section_at(container, "resources", "limits"))
        _add_quantities(limits, container_limits)
        _add_quantities(requests, _positive_quantities(section_at(container, "resources", "requests")))
        is_guaranteed = is_guaranteed and set(container_limits) == set(_QOS_RESOURCES)
    if not (requests or limits):
        return "BestEffort"
    return "Guaranteed" if is_guaranteed and requests == limits else "Burstable"


def _positive_quantities(amounts: JsonObject) -> dict[str, Quantity]:
    quantities = {name: _parse_quantity(amounts[name]) for name in _QOS_RESOURCES if name in amounts}
    return {name: amount for name, amount in quantities.items() if Quantity.of(0) < amount}


@lru_cache(4096)
def _parse_quantity(value: str | float) -> Quantity:
    try:
        return parse(str(value))
    except ValueError:
        return Quantity.of(0)


def _add_quantities(total: dict[str, Quantity], amounts: dict[str, Quantity]) -> None:
    for name, amount in amounts.items():
        total[name] = total[name] + amount if name in total else amount


def _add_not_ready_taint(spec: JsonObject) -> None:
    """Taint a new node as not ready, until the node lifecycle controller sees it ready."""
    if not any(
        (taint.get("key"), taint.get("effect")) == (_NOT_READY, "NoSchedule") for taint in objects_in(spec, "taints")
    ):
        spec["taints"] = [*(spec.get("taints") or ()), {"key": _NOT_READY, "effect": "NoSchedule"}]


def _prepare_job(job: JsonObject) -> None:
    """Generate the job's selector and labels from its uid, unless `manualSelector` is set."""
    meta, spec = job["metadata"], ensure_section(job, "spec")
    if spec.get("manualSelector"):
        return
    labels = ensure_section(ensure_section(ensure_section(spec, "template"), "metadata"), "labels")
    for prefix in ("", "batch.kubernetes.io/"):
        labels.setdefault(f"{prefix}job-name", meta.get("name") or "")
        labels.setdefault(f"{prefix}controller-uid", meta["uid"])
    if not meta.get("labels"):
        meta["labels"] = dict(labels)
    match_labels = ensure_section(ensure_section(spec, "selector"), "matchLabels")
    match_labels.setdefault("batch.kubernetes.io/controller-uid", meta["uid"])
