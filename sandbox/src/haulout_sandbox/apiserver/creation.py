"""What the server decides once, when an object is created, and keeps when it is updated.

Follows the strategies (`PrepareForCreate`, `PrepareForUpdate` in `pkg/registry`) and those admission plugins of
Kubernetes 1.36 that are on by default and that people see: Priority, DefaultTolerationSeconds, TaintNodesByCondition,
PodTopologyLabels. Of ServiceAccount there is only the name of the account: no pod is refused for want of it, and none
gets a token. Left out is what needs a controller that the sandbox does not have: protection of volumes and claims in
use (a finalizer), node ports.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from ipaddress import IPv4Network

from haulout.core.quantity import Quantity, parse
from haulout_sandbox.apiserver import status
from haulout_sandbox.apiserver.kinds import JsonObject, Kind
from haulout_sandbox.apiserver.pod_defaults import each, inside, section

Others = Callable[[str], Iterable[JsonObject]]
"""Returns the objects of the kind with that plural."""

_MIRROR = "kubernetes.io/config.mirror"  # on a pod that stands for a static one
_NOT_READY = "node.kubernetes.io/not-ready"
_UNREACHABLE = "node.kubernetes.io/unreachable"
_PATIENCE_SECONDS = 300
_SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_SERVICE_NETWORK = IPv4Network("10.96.0.0/16")
_TOPOLOGY = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")
_QOS_RESOURCES = ("cpu", "memory")


def prepare(kind: Kind, obj: JsonObject, others: Others) -> None:
    """Write into a new object, which has its name, uid and defaults, what is decided once."""
    match kind.group, kind.kind:
        case "", "Pod":
            _pod(kind, obj, others)
        case "", "Node":
            _taint(section(obj, "spec"))
        case "", "Namespace":
            spec = section(obj, "spec")
            spec["finalizers"] = [*(it for it in spec.get("finalizers") or () if it != "kubernetes"), "kubernetes"]
        case "", "Service":
            _service(section(obj, "spec"), others)
        case "batch", "Job":
            _job(obj)


def plug_in(kind: Kind, obj: JsonObject, others: Others) -> None:
    """Write into a new object what the built-in admission plugins do: all that a mutating webhook already sees."""
    match kind.group, kind.kind:
        case "", "Pod":
            spec = section(obj, "spec")
            _prioritise(kind, obj, spec, others)
            _tolerate(spec)
        case "", "Node":
            _taint(section(obj, "spec"))


def carry_over(kind: Kind, new: JsonObject, old: JsonObject) -> None:
    """Put back into an updated object what was decided before and what the update leaves out."""
    spec, before = inside(new, "spec"), inside(old, "spec")
    match kind.group, kind.kind:
        case "", "Pod":
            _keep_absent(spec, before, "priority", "preemptionPolicy")
            _tolerate(spec)
        case "", "Namespace":
            section(new, "spec")["finalizers"] = before.get("finalizers")
        case "", "Service" if spec.get("type") != "ExternalName":
            _keep(spec, before, "clusterIP", "clusterIPs", "ipFamilies")
            _keep_absent(spec, before, "ipFamilyPolicy")
            if spec.get("clusterIP") != before.get("clusterIP") and spec.get("clusterIPs") == before.get("clusterIPs"):
                spec["clusterIPs"] = [spec["clusterIP"], *(spec.get("clusterIPs") or [])[1:]]


def _keep(new: JsonObject, old: JsonObject, *names: str) -> None:
    for name in names:
        if not new.get(name) and name in old:
            new[name] = old[name]


def _keep_absent(new: JsonObject, old: JsonObject, *names: str) -> None:
    _keep(new, old, *(name for name in names if new.get(name) is None))


def _pod(kind: Kind, pod: JsonObject, others: Others) -> None:
    spec = section(pod, "spec")
    _prioritise(kind, pod, spec, others)
    if _MIRROR not in inside(pod["metadata"], "annotations") and not spec.get("serviceAccountName"):
        spec["serviceAccountName"] = spec["serviceAccount"] = "default"
    _tolerate(spec)
    if node := spec.get("nodeName"):
        found = next((it for it in others("nodes") if it["metadata"]["name"] == node), None)
        section(pod["metadata"], "labels").update(topology(found))
    pod["status"] = section(pod, "status") | {"qosClass": quality(spec)}
    if spec.get("schedulingGates"):
        blocked = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastTransitionTime": pod["metadata"]["creationTimestamp"],
        }
        pod["status"]["conditions"] = [blocked]


def topology(node: JsonObject | None) -> JsonObject:
    """Return where a node is, as its pods are labelled."""
    labels = node["metadata"].get("labels", {}) if node else {}
    return {name: labels[name] for name in _TOPOLOGY if name in labels}


def _prioritise(kind: Kind, pod: JsonObject, spec: JsonObject, others: Others) -> None:
    wanted, found = spec.get("priorityClassName"), None
    if wanted:
        known: dict[str, JsonObject] = {name: {"value": value} for name, value in _SYSTEM_PRIORITIES.items()}
        known |= {it["metadata"]["name"]: it for it in others("priorityclasses")}
        found = known.get(wanted)
        if found is None:
            raise _forbidden(kind, pod, f"no PriorityClass with name {wanted} was found")
    else:
        usual = [it for it in others("priorityclasses") if it.get("globalDefault")]
        if usual:
            found = min(usual, key=lambda it: int(it.get("value", 0)))
            spec["priorityClassName"] = found["metadata"]["name"]
    found = found or {}
    for field, word, value in (
        ("priority", "integer value of priority", found.get("value", 0)),
        ("preemptionPolicy", "string value of PreemptionPolicy", found.get("preemptionPolicy", "PreemptLowerPriority")),
    ):
        if spec.get(field) not in (None, "", value):
            why = (
                f"the {word} ({spec[field]}) must not be provided in pod spec; "
                f"priority admission controller computed {value} from the given PriorityClass name"
            )
            raise _forbidden(kind, pod, why)
        spec[field] = value


def _forbidden(kind: Kind, obj: JsonObject, why: str) -> status.Refused:
    meta = obj["metadata"]
    name = meta.get("name") or meta.get("generateName") or "Unknown"
    details = {"name": name, "group": kind.group, "kind": kind.plural}
    said = f'{kind.resource} "{name}" is forbidden: {why}'
    return status.Refused(status.failure(403, "Forbidden", said, details))


def _tolerate(spec: JsonObject) -> None:
    """Let the pod stay for a while on a node that fails, unless it says something about that itself."""
    said = list(each(spec, "tolerations"))
    for key in (_NOT_READY, _UNREACHABLE):
        if not any(it.get("key") in (None, "", key) and it.get("effect") in (None, "", "NoExecute") for it in said):
            patient = {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _PATIENCE_SECONDS}
            spec["tolerations"] = [*(spec.get("tolerations") or ()), patient]


def quality(spec: JsonObject) -> str:
    """Return a pod's class of service: what it is guaranteed decides who goes first when a node runs short."""
    parts = [spec] if inside(spec, "resources") else [*each(spec, "containers"), *each(spec, "initContainers")]
    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}
    guaranteed = True
    for part in parts:
        limited = _positive(inside(part, "resources", "limits"))
        _add(limits, limited)
        _add(requests, _positive(inside(part, "resources", "requests")))
        guaranteed = guaranteed and set(limited) == set(_QOS_RESOURCES)
    if not (requests or limits):
        return "BestEffort"
    return "Guaranteed" if guaranteed and requests == limits else "Burstable"


def _positive(amounts: JsonObject) -> dict[str, Quantity]:
    found = {name: _amount(amounts[name]) for name in _QOS_RESOURCES if name in amounts}
    return {name: amount for name, amount in found.items() if Quantity.of(0) < amount}


@lru_cache(4096)
def _amount(value: str | float) -> Quantity:
    try:
        return parse(str(value))
    except ValueError:
        return Quantity.of(0)


def _add(total: dict[str, Quantity], amounts: dict[str, Quantity]) -> None:
    for name, amount in amounts.items():
        total[name] = total[name] + amount if name in total else amount


def _taint(spec: JsonObject) -> None:
    """Keep pods away from a node until somebody has seen it ready."""
    if not any((it.get("key"), it.get("effect")) == (_NOT_READY, "NoSchedule") for it in each(spec, "taints")):
        spec["taints"] = [*(spec.get("taints") or ()), {"key": _NOT_READY, "effect": "NoSchedule"}]


def _service(spec: JsonObject, others: Others) -> None:
    if spec.get("type") == "ExternalName":
        return
    if not spec.get("clusterIP"):
        spec["clusterIP"] = _free_address(others)
    for name, value in (
        ("clusterIPs", [spec["clusterIP"]]),
        ("ipFamilies", ["IPv4"]),
        ("ipFamilyPolicy", "SingleStack"),
    ):
        spec[name] = spec.get(name) or value


def _free_address(others: Others) -> str:
    taken = {inside(it, "spec").get("clusterIP") for it in others("services")}
    return next(str(it) for it in _SERVICE_NETWORK.hosts() if str(it) not in taken)


def _job(job: JsonObject) -> None:
    """Let the job find its pods by its own uid, unless its author wants to see to that."""
    meta, spec = job["metadata"], section(job, "spec")
    if spec.get("manualSelector"):
        return
    labels = section(section(section(spec, "template"), "metadata"), "labels")
    for prefix in ("", "batch.kubernetes.io/"):
        labels.setdefault(f"{prefix}job-name", meta.get("name") or "")
        labels.setdefault(f"{prefix}controller-uid", meta["uid"])
    if not meta.get("labels"):
        meta["labels"] = dict(labels)
    chosen = section(section(spec, "selector"), "matchLabels")
    chosen.setdefault("batch.kubernetes.io/controller-uid", meta["uid"])
