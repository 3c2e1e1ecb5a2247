"""What `kubectl get` shows of the built-in kinds that a person meets; others get a name and an age.

A printer has columns, and makes the cells of one object: those of `-o wide` come last in both. It sees a stored object,
or the empty one of a bookmark, and must survive both. The columns are those of
`pkg/printers/internalversion/printers.go` in Kubernetes 1.36.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Self

import msgspec

from haulout_sandbox.apiserver import jsonpath
from haulout_sandbox.apiserver.kinds import JsonObject

Cells = list[Any]
Print = Callable[[JsonObject, datetime], Cells]

NONE, UNSET, UNKNOWN = "<none>", "<unset>", "<unknown>"


@dataclass(frozen=True, slots=True)
class Header:
    """One column of a table."""

    name: str
    type: str = "string"
    format: str = ""
    priority: int = 0
    description: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A printer column of a custom resource: `additionalPrinterColumns` in its definition."""

    name: str
    type: str
    json_path: str
    priority: int = 0
    format: str = ""
    description: str = ""

    @classmethod
    def of(cls, definition: Mapping[str, Any]) -> Self:
        """Return the column that an item of `additionalPrinterColumns` defines."""
        told = {name: definition[name] for name in ("priority", "format", "description") if definition.get(name)}
        return cls(definition["name"], definition["type"], definition["jsonPath"], **told)


@dataclass(frozen=True, slots=True)
class Printer:
    """How one kind is shown."""

    headers: tuple[Header, ...]
    cells: Print


NAME = Header("Name", format="name")
AGE_COLUMN = Column("Age", "date", ".metadata.creationTimestamp")  # of custom resources that name no columns
PRINTERS: dict[tuple[str, str], Printer] = {}
"""By group and kind."""


def printer_of(group: str, kind: str) -> Printer:
    """Return how a built-in kind is shown."""
    return PRINTERS.get((group, kind), _DEFAULT)


def custom_printer(columns: Sequence[Column]) -> Printer:
    """Return the printer of a custom resource that has these columns."""
    headers = (Header(it.name, it.type, it.format, it.priority, it.description) for it in columns)

    def cells(obj: JsonObject, now: datetime) -> Cells:
        found = ((column, jsonpath.find(column.json_path, obj)) for column in columns)
        return [name_of(obj), *(_cell(column.type, values[0], now) if values else None for column, values in found)]

    return Printer((NAME, *headers), cells)


def _cell(kind: str, value: Any, now: datetime) -> Any:
    """Return a value as its column's type shows it."""
    if kind == "date" and isinstance(value, str):
        try:
            return since(value, now)
        except (ValueError, TypeError):  # no time, or one without a zone
            return "<invalid>"
    if kind == "string" and not isinstance(value, str):
        return msgspec.json.encode(value, order="sorted").decode()
    return value


# What printers are made of


def part(obj: Mapping[str, Any], *path: str) -> Any:
    """Return what lies at `path`, an empty dict if nothing does."""
    for name in path:
        obj = obj.get(name) or {}
    return obj


def name_of(obj: JsonObject) -> str:
    """Return the name, as a bookmark's object has it too."""
    return str(part(obj, "metadata").get("name", ""))


def selector_text(selector: JsonObject | None) -> str:
    """Return a LabelSelector as a command line would say it."""
    selector = selector or {}
    said = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for it in selector.get("matchExpressions") or ():
        key, values = it.get("key", ""), ",".join(sorted(it.get("values") or ()))
        match it.get("operator"):
            case "In" | "NotIn" as operator:
                said.append(f"{key} {operator.lower()} ({values})")
            case operator:
                said.append(f"!{key}" if operator == "DoesNotExist" else key)
    return ",".join(said)


def since(timestamp: str | None, now: datetime) -> str:
    """Return how long ago `timestamp` was."""
    return human_duration(now - datetime.fromisoformat(timestamp)) if timestamp else UNKNOWN


_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 365 * 86400
_STEPS = (  # below this many seconds: the unit, and the smaller one that is told if it is not zero
    (2 * _MINUTE, (1, "s"), None),
    (10 * _MINUTE, (_MINUTE, "m"), (1, "s")),
    (3 * _HOUR, (_MINUTE, "m"), None),
    (8 * _HOUR, (_HOUR, "h"), (_MINUTE, "m")),
    (2 * _DAY, (_HOUR, "h"), None),
    (8 * _DAY, (_DAY, "d"), (_HOUR, "h")),
    (2 * _YEAR, (_DAY, "d"), None),
    (8 * _YEAR, (_YEAR, "y"), (_DAY, "d")),
)


def human_duration(elapsed: timedelta) -> str:
    """Return `elapsed` as kubectl shows ages: `119s`, `2m1s`, `47h`, `7d23h`, `3y45d`."""
    seconds = max(0, elapsed // timedelta(seconds=1))
    for below, (size, unit), smaller in _STEPS:
        if seconds >= below:
            continue
        count, rest = divmod(seconds, size)
        finer = rest // smaller[0] if smaller else 0
        return f"{count}{unit}{finer}{smaller[1]}" if smaller and finer else f"{count}{unit}"
    return f"{seconds // _YEAR}y"


def _prints(group: str, kind: str, columns: str, *, wide: str = "") -> Callable[[Print], Print]:
    """Make the function below the printer of a kind; it returns the cells but those of name and age.

    `columns` are separated by commas. `Age` among them is filled in, the name comes first always.
    """
    names = columns.split(",")
    headers = (
        NAME,
        *(Header(name.strip("#"), "integer" if name.startswith("#") else "string") for name in names),
        *(Header(name, priority=1) for name in wide.split(",") if name),
    )

    def register(cells: Print) -> Print:
        def whole(obj: JsonObject, now: datetime) -> Cells:
            rest = iter(cells(obj, now))
            shown = [_age(obj, now) if name == "Age" else next(rest) for name in names]
            return [name_of(obj), *shown, *rest]

        PRINTERS[group, kind] = Printer(headers, whole)
        return cells

    return register


def _age(obj: JsonObject, now: datetime) -> str:
    return since(part(obj, "metadata").get("creationTimestamp"), now)


_DEFAULT = Printer((NAME, Header("Age")), lambda obj, now: [name_of(obj), _age(obj, now)])


# Nodes, namespaces and what configures a cluster

_ROLE_PREFIX = "node-role.kubernetes.io/"


@_prints(
    "",
    "Node",
    "Status,Roles,Age,Version",
    wide="Internal-IP,External-IP,OS-Image,Kernel-Version,Container-Runtime",
)
def _node(node: JsonObject, _: datetime) -> Cells:
    info, roles = part(node, "status", "nodeInfo"), part(node, "metadata", "labels")
    addresses = {it.get("type"): it.get("address") for it in part(node, "status").get("addresses") or ()}
    ready = _conditions(part(node, "status")).get("Ready")
    status = {None: "Unknown", "True": "Ready"}.get(ready, "NotReady")
    return [
        f"{status},SchedulingDisabled" if part(node, "spec").get("unschedulable") else status,
        ",".join(sorted(key.removeprefix(_ROLE_PREFIX) for key in roles if key.startswith(_ROLE_PREFIX))) or NONE,
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP", NONE),
        addresses.get("ExternalIP", NONE),
        *(info.get(name) or UNKNOWN for name in ("osImage", "kernelVersion", "containerRuntimeVersion")),
    ]


def _conditions(status: Mapping[str, Any]) -> dict[str, str]:
    return {it.get("type", ""): it.get("status", "") for it in status.get("conditions") or ()}


@_prints("", "Namespace", "Status,Age")
def _namespace(namespace: JsonObject, _: datetime) -> Cells:
    return [part(namespace, "status").get("phase", "")]


@_prints("", "Service", "Type,Cluster-IP,External-IP,Port(s),Age", wide="Selector")
def _service(service: JsonObject, _: datetime) -> Cells:
    spec = part(service, "spec")
    balanced = [it.get("ip") or it.get("hostname") for it in part(service, "status", "loadBalancer").get("ingress", ())]
    pending = ["<pending>"] if spec.get("type") == "LoadBalancer" else []
    external = [*balanced, *spec.get("externalIPs", ())] or pending
    ports = [f"{it.get('port', 0)}/{it.get('protocol', 'TCP')}" for it in spec.get("ports") or ()]
    return [
        spec.get("type", ""),
        spec.get("clusterIP") or NONE,
        ",".join(external) or spec.get("externalName") or NONE,
        ",".join(ports) or NONE,
        selector_text({"matchLabels": spec.get("selector")}) or NONE,
    ]


@_prints("", "ConfigMap", "Data,Age")
def _config_map(config: JsonObject, _: datetime) -> Cells:
    return [str(len(config.get("data") or ()) + len(config.get("binaryData") or ()))]


@_prints("", "Secret", "Type,Data,Age")
def _secret(secret: JsonObject, _: datetime) -> Cells:
    return [secret.get("type", ""), str(len(secret.get("data") or ()))]


@_prints("coordination.k8s.io", "Lease", "Holder,Age")
def _lease(lease: JsonObject, _: datetime) -> Cells:
    return [part(lease, "spec").get("holderIdentity") or ""]


@_prints("rbac.authorization.k8s.io", "ClusterRoleBinding", "Role,Age", wide="Subjects")
@_prints("rbac.authorization.k8s.io", "RoleBinding", "Role,Age", wide="Subjects")
def _binding(binding: JsonObject, _: datetime) -> Cells:
    role = part(binding, "roleRef")
    subjects = (f"{it.get('kind', '')}/{it.get('name', '')}" for it in binding.get("subjects") or ())
    return [f"{role.get('kind', '')}/{role.get('name', '')}", ",".join(subjects)]


@_prints("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", "#Webhooks,Age")
@_prints("admissionregistration.k8s.io", "MutatingWebhookConfiguration", "#Webhooks,Age")
def _webhook_configuration(configuration: JsonObject, _: datetime) -> Cells:
    return [len(configuration.get("webhooks") or ())]


@_prints("apiextensions.k8s.io", "CustomResourceDefinition", "Created At")
def _definition(definition: JsonObject, _: datetime) -> Cells:
    return [part(definition, "metadata").get("creationTimestamp", "")]


@_prints("scheduling.k8s.io", "PriorityClass", "#Value,Global-Default,Age,PreemptionPolicy")
def _priority_class(priority: JsonObject, _: datetime) -> Cells:
    default = str(priority.get("globalDefault", False)).lower()
    return [priority.get("value", 0), default, priority.get("preemptionPolicy", "")]


# Pods and workloads


@_prints("", "Pod", "Ready,Status,Restarts,Age", wide="IP,Node,Nominated Node,Readiness Gates")
def _pod(pod: JsonObject, _: datetime) -> Cells:
    spec, status = part(pod, "spec"), part(pod, "status")
    containers = status.get("containerStatuses") or []
    conditions, gates = _conditions(status), spec.get("readinessGates") or ()
    passed = sum(conditions.get(it.get("conditionType", "")) == "True" for it in gates)
    return [
        f"{sum(bool(it.get('ready')) for it in containers)}/{len(spec.get('containers') or ())}",
        _pod_status(pod),
        str(sum(it.get("restartCount", 0) for it in (*containers, *(status.get("initContainerStatuses") or ())))),
        status.get("podIP") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        f"{passed}/{len(gates)}" if gates else NONE,
    ]


def _pod_status(pod: JsonObject) -> str:
    """Return the phase, unless something tells more: the deletion, then init containers, then other containers."""
    status = part(pod, "status")
    phase = str(status.get("reason") or status.get("phase") or "")
    if part(pod, "metadata").get("deletionTimestamp") and status.get("phase") not in ("Succeeded", "Failed"):
        return "Unknown" if phase == "NodeLost" else "Terminating"
    inits = status.get("initContainerStatuses") or []
    done = sum("exitCode" in it and not it["exitCode"] for it in (part(it, "state", "terminated") for it in inits))
    if _conditions(status).get("Initialized", "True") != "True" and done < len(inits):
        return f"Init:{_reason(inits[done]) or f'{done}/{len(inits)}'}"
    containers = status.get("containerStatuses") or ()
    reasons = [_reason(it) for it in containers if _reason(it)]
    some_run = any(part(it, "state").get("running") is not None and it.get("ready") for it in containers)
    return next((it for it in reasons if it != "Completed" or not some_run), phase)


def _reason(container: Mapping[str, Any]) -> str:
    """Return why a container waits or has ended."""
    waiting, ended = part(container, "state", "waiting"), part(container, "state", "terminated")
    if ended:
        return str(ended.get("reason") or f"ExitCode:{ended.get('exitCode', 0)}")
    return str(waiting.get("reason", "")).replace("PodInitializing", "")


@_prints("apps", "Deployment", "Ready,Up-to-date,Available,Age", wide="Containers,Images,Selector")
def _deployment(deployment: JsonObject, _: datetime) -> Cells:
    status = part(deployment, "status")
    counts = [str(status.get(name, 0)) for name in ("updatedReplicas", "availableReplicas")]
    return [_ready(deployment), *counts, *_template(deployment)]


@_prints("apps", "StatefulSet", "Ready,Age", wide="Containers,Images,Selector")
def _stateful_set(owner: JsonObject, _: datetime) -> Cells:
    return [_ready(owner), *_template(owner)]


@_prints("apps", "ReplicaSet", "#Desired,#Current,#Ready,Age", wide="Containers,Images,Selector")
def _replica_set(owner: JsonObject, _: datetime) -> Cells:
    status = part(owner, "status")
    return [_replicas(owner), status.get("replicas", 0), status.get("readyReplicas", 0), *_template(owner)]


@_prints(
    "apps",
    "DaemonSet",
    "#Desired,#Current,#Ready,#Up-to-date,#Available,Node Selector,Age",
    wide="Containers,Images,Selector",
)
def _daemon_set(owner: JsonObject, _: datetime) -> Cells:
    status, counted = part(owner, "status"), ("desiredNumberScheduled", "currentNumberScheduled", "numberReady")
    counts = [status.get(name, 0) for name in (*counted, "updatedNumberScheduled", "numberAvailable")]
    nodes = part(owner, "spec", "template", "spec").get("nodeSelector")
    return [*counts, selector_text({"matchLabels": nodes}) or NONE, *_template(owner)]


@_prints("batch", "Job", "Status,Completions,Duration,Age", wide="Containers,Images,Selector")
def _job(job: JsonObject, now: datetime) -> Cells:
    spec, status = part(job, "spec"), part(job, "status")
    conditions = _conditions(status)
    ended = (kind for kind in ("Complete", "Failed", "Suspended") if conditions.get(kind) == "True")
    started = status.get("startTime")
    until = datetime.fromisoformat(status["completionTime"]) if status.get("completionTime") else now
    return [
        "Terminating" if part(job, "metadata").get("deletionTimestamp") else next(ended, "Running"),
        f"{status.get('succeeded', 0)}/{spec.get('completions', 1)}",
        since(started, until) if started else "",
        *_template(job),
    ]


@_prints("batch", "CronJob", "Schedule,Timezone,Suspend,#Active,Last Schedule,Age", wide="Containers,Images,Selector")
def _cron_job(owner: JsonObject, now: datetime) -> Cells:
    spec, status = part(owner, "spec"), part(owner, "status")
    last = status.get("lastScheduleTime")
    return [
        spec.get("schedule", ""),
        spec.get("timeZone") or NONE,
        str(spec.get("suspend", False)),
        len(status.get("active") or ()),
        since(last, now) if last else NONE,
        *_template(part(spec, "jobTemplate")),
    ]


@_prints("autoscaling", "Scale", "#Desired,#Available,Age")
def _scale(scale: JsonObject, _: datetime) -> Cells:
    return [part(scale, name).get("replicas", 0) for name in ("spec", "status")]


@_prints("policy", "PodDisruptionBudget", "Min Available,Max Unavailable,#Allowed Disruptions,Age")
def _disruption_budget(budget: JsonObject, _: datetime) -> Cells:
    bounds = [str(part(budget, "spec").get(name, "N/A")) for name in ("minAvailable", "maxUnavailable")]
    return [*bounds, part(budget, "status").get("disruptionsAllowed", 0)]


def _ready(owner: JsonObject) -> str:
    return f"{part(owner, 'status').get('readyReplicas', 0)}/{_replicas(owner)}"


def _replicas(owner: JsonObject) -> int:
    # Whoever stores objects without defaulting them means one; a bookmark's empty object means none.
    spec = part(owner, "spec")
    return int(spec.get("replicas", 1 if spec.get("selector") else 0))


def _template(owner: JsonObject) -> Cells:
    """Return the wide columns of what has pods: containers, images and selector."""
    containers = part(owner, "spec", "template", "spec").get("containers") or ()
    named = [",".join(str(it.get(name, "")) for it in containers) for name in ("name", "image")]
    return [*named, selector_text(part(owner, "spec").get("selector")) or NONE]


# Storage

_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


@_prints("", "PersistentVolume", "Capacity,Access Modes,Reclaim Policy,Status,Claim,StorageClass,Reason,Age")
def _volume(volume: JsonObject, _: datetime) -> Cells:
    spec, claim = part(volume, "spec"), part(volume, "spec", "claimRef")
    return [
        part(spec, "capacity").get("storage", "0"),
        _access_modes(spec),
        spec.get("persistentVolumeReclaimPolicy", ""),
        _volume_status(volume),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        spec.get("storageClassName", ""),
        part(volume, "status").get("reason", ""),
    ]


@_prints("", "PersistentVolumeClaim", "Status,Volume,Capacity,Access Modes,StorageClass,Age", wide="VolumeMode")
def _volume_claim(claim: JsonObject, _: datetime) -> Cells:
    spec, status = part(claim, "spec"), part(claim, "status")
    volume = spec.get("volumeName", "")
    return [
        _volume_status(claim),
        volume,
        part(status, "capacity").get("storage", "0") if volume else "",
        _access_modes(status) if volume else "",
        spec.get("storageClassName", ""),
        spec.get("volumeMode", UNSET),
    ]


def _access_modes(holder: Mapping[str, Any]) -> str:
    modes: Iterable[str] = holder.get("accessModes") or ()
    return ",".join(_MODES.get(mode, mode) for mode in modes)


def _volume_status(obj: JsonObject) -> str:
    terminating = part(obj, "metadata").get("deletionTimestamp")
    return "Terminating" if terminating else str(part(obj, "status").get("phase", ""))


@_prints("storage.k8s.io", "StorageClass", "Provisioner,ReclaimPolicy,VolumeBindingMode,AllowVolumeExpansion,Age")
def _storage_class(storage: JsonObject, _: datetime) -> Cells:
    return [
        storage.get("provisioner", ""),
        storage.get("reclaimPolicy", "Delete"),
        storage.get("volumeBindingMode", "Immediate"),
        str(storage.get("allowVolumeExpansion", False)).lower(),
    ]


# Events


def _event(event: JsonObject, now: datetime) -> Cells:
    """Show an event of either API; they have different names for the same fields."""
    about = part(event, "involvedObject") or part(event, "regarding")
    source = part(event, "source") or part(event, "deprecatedSource")
    first = event.get("firstTimestamp") or event.get("deprecatedFirstTimestamp") or event.get("eventTime")
    last = event.get("lastTimestamp") or event.get("deprecatedLastTimestamp") or first
    series = part(event, "series")
    return [
        since(series.get("lastObservedTime") or last, now),
        event.get("type", ""),
        event.get("reason", ""),
        "/".join(filter(None, (about.get("kind", "").lower(), about.get("name")))),
        (event.get("message") or event.get("note") or "").strip(),
        source.get("component") or event.get("reportingComponent") or event.get("reportingController") or "",
        since(first, now),
        series.get("count") or event.get("count") or event.get("deprecatedCount") or 1,
        name_of(event),
    ]


_EVENT_PRINTER = Printer(
    (
        *(Header(name) for name in ("Last Seen", "Type", "Reason", "Object", "Message")),
        *(Header(name, priority=1) for name in ("Source", "First Seen", "Count")),
        Header("Name", format="name", priority=1),
    ),
    _event,
)
PRINTERS["", "Event"] = PRINTERS["events.k8s.io", "Event"] = _EVENT_PRINTER
