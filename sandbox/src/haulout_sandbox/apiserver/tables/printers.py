"""Columns of `kubectl get` for the most used built-in kinds; other kinds show name and age.

A printer has columns and returns the cells of one object; those of `-o wide` come last in both. It must handle a stored
object and the empty object of a bookmark. The columns are those of `pkg/printers/internalversion/printers.go` in
Kubernetes 1.36.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Self

import msgspec

from haulout_sandbox.apiserver.kinds.kind import JsonObject
from haulout_sandbox.apiserver.tables import jsonpath

Cells = list[Any]
PrintCells = Callable[[JsonObject, datetime], Cells]

NONE, UNKNOWN = "<none>", "<unknown>"


@dataclass(frozen=True, slots=True)
class Header:
    name: str
    type: str = "string"
    format: str = ""
    priority: int = 0
    description: str = ""


@dataclass(frozen=True, slots=True)
class PrinterColumn:
    """A printer column of a custom resource: an item of `additionalPrinterColumns` of its definition."""

    name: str
    type: str
    json_path: str
    priority: int = 0
    format: str = ""
    description: str = ""

    @classmethod
    def of(cls, definition: Mapping[str, Any]) -> Self:
        options = {name: definition[name] for name in ("priority", "format", "description") if definition.get(name)}
        return cls(definition["name"], definition["type"], definition["jsonPath"], **options)


@dataclass(frozen=True, slots=True)
class Printer:
    headers: tuple[Header, ...]
    cells: PrintCells


NAME = Header("Name", format="name")
AGE_COLUMN = PrinterColumn("Age", "date", ".metadata.creationTimestamp")  # for custom resources without columns
PRINTERS: dict[tuple[str, str], Printer] = {}
"""By group and kind."""


def printer_of(group: str, kind: str) -> Printer:
    """Return the printer of a built-in kind."""
    return PRINTERS.get((group, kind), _DEFAULT_PRINTER)


def custom_printer(columns: Sequence[PrinterColumn]) -> Printer:
    """Return the printer of a custom resource with these columns."""
    headers = (Header(item.name, item.type, item.format, item.priority, item.description) for item in columns)

    def cells(obj: JsonObject, now: datetime) -> Cells:
        found = ((column, jsonpath.find(column.json_path, obj)) for column in columns)
        return [name_of(obj), *(_cell(column.type, values[0], now) if values else None for column, values in found)]

    return Printer((NAME, *headers), cells)


def _cell(kind: str, value: Any, now: datetime) -> Any:
    """Return a value formatted for its column's type."""
    if kind == "date" and isinstance(value, str):
        try:
            return age_since(value, now)
        except (ValueError, TypeError):  # not a timestamp, or one without a zone
            return "<invalid>"
    if kind == "string" and not isinstance(value, str):
        return msgspec.json.encode(value, order="sorted").decode()
    return value


# Helpers for printers


def section_at(obj: Mapping[str, Any], *path: str) -> Any:
    """Return the value at `path`, or an empty dict."""
    for name in path:
        obj = obj.get(name) or {}
    return obj


def name_of(obj: JsonObject) -> str:
    """Return the name; the object of a bookmark has an empty one."""
    return str(section_at(obj, "metadata").get("name", ""))


def format_selector(selector: JsonObject | None) -> str:
    """Return a LabelSelector in the form of a command line."""
    selector = selector or {}
    terms = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for expression in selector.get("matchExpressions") or ():
        key, values = expression.get("key", ""), ",".join(sorted(expression.get("values") or ()))
        match expression.get("operator"):
            case "In" | "NotIn" as operator:
                terms.append(f"{key} {operator.lower()} ({values})")
            case operator:
                terms.append(f"!{key}" if operator == "DoesNotExist" else key)
    return ",".join(terms)


def age_since(timestamp: str | None, now: datetime) -> str:
    return human_duration(now - datetime.fromisoformat(timestamp)) if timestamp else UNKNOWN


_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 365 * 86400
_AGE_UNITS = (  # below this many seconds: the unit, and the smaller unit that is added if it is not zero
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
    for below, (size, unit), smaller in _AGE_UNITS:
        if seconds >= below:
            continue
        count, rest = divmod(seconds, size)
        finer = rest // smaller[0] if smaller else 0
        return f"{count}{unit}{finer}{smaller[1]}" if smaller and finer else f"{count}{unit}"
    return f"{seconds // _YEAR}y"


def _printer(group: str, kind: str, columns: str, *, wide: str = "") -> Callable[[PrintCells], PrintCells]:
    """Register the decorated function as the printer of a kind; it returns the cells without name and age.

    `columns` are separated by commas. `Age` among them is filled in, and the name always comes first.
    """
    names = columns.split(",")
    headers = (
        NAME,
        *(Header(name.strip("#"), "integer" if name.startswith("#") else "string") for name in names),
        *(Header(name, priority=1) for name in wide.split(",") if name),
    )

    def register(cells: PrintCells) -> PrintCells:
        def print_row(obj: JsonObject, now: datetime) -> Cells:
            remaining = iter(cells(obj, now))
            visible = [_age(obj, now) if name == "Age" else next(remaining) for name in names]
            return [name_of(obj), *visible, *remaining]

        PRINTERS[group, kind] = Printer(headers, print_row)
        return cells

    return register


def _age(obj: JsonObject, now: datetime) -> str:
    return age_since(section_at(obj, "metadata").get("creationTimestamp"), now)


_DEFAULT_PRINTER = Printer((NAME, Header("Age")), lambda obj, now: [name_of(obj), _age(obj, now)])


# Nodes, namespaces and cluster configuration

_ROLE_PREFIX = "node-role.kubernetes.io/"


@_printer(
    "",
    "Node",
    "Status,Roles,Age,Version",
    wide="Internal-IP,External-IP,OS-Image,Kernel-Version,Container-Runtime",
)
def _node(node: JsonObject, _: datetime) -> Cells:
    info, roles = section_at(node, "status", "nodeInfo"), section_at(node, "metadata", "labels")
    addresses = {
        address.get("type"): address.get("address") for address in section_at(node, "status").get("addresses") or ()
    }
    ready = _conditions(section_at(node, "status")).get("Ready")
    status = {None: "Unknown", "True": "Ready"}.get(ready, "NotReady")
    return [
        f"{status},SchedulingDisabled" if section_at(node, "spec").get("unschedulable") else status,
        ",".join(sorted(key.removeprefix(_ROLE_PREFIX) for key in roles if key.startswith(_ROLE_PREFIX))) or NONE,
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP", NONE),
        addresses.get("ExternalIP", NONE),
        *(info.get(name) or UNKNOWN for name in ("osImage", "kernelVersion", "containerRuntimeVersion")),
    ]


def _conditions(status: Mapping[str, Any]) -> dict[str, str]:
    return {condition.get("type", ""): condition.get("status", "") for condition in status.get("conditions") or ()}


@_printer("", "Namespace", "Status,Age")
def _namespace(namespace: JsonObject, _: datetime) -> Cells:
    return [section_at(namespace, "status").get("phase", "")]


@_printer("", "Service", "Type,Port(s),Age", wide="Selector")
def _service(service: JsonObject, _: datetime) -> Cells:
    spec = section_at(service, "spec")
    ports = [f"{item.get('port', 0)}/{item.get('protocol', 'TCP')}" for item in spec.get("ports") or ()]
    selector = format_selector({"matchLabels": spec.get("selector")})
    return [spec.get("type", "ClusterIP"), ",".join(ports) or NONE, selector or NONE]


@_printer("", "ConfigMap", "Data,Age")
def _config_map(config: JsonObject, _: datetime) -> Cells:
    return [str(len(config.get("data") or ()) + len(config.get("binaryData") or ()))]


@_printer("", "Secret", "Type,Data,Age")
def _secret(secret: JsonObject, _: datetime) -> Cells:
    return [secret.get("type", ""), str(len(secret.get("data") or ()))]


@_printer("coordination.k8s.io", "Lease", "Holder,Age")
def _lease(lease: JsonObject, _: datetime) -> Cells:
    return [section_at(lease, "spec").get("holderIdentity") or ""]


@_printer("apiextensions.k8s.io", "CustomResourceDefinition", "Created At")
def _definition(definition: JsonObject, _: datetime) -> Cells:
    return [section_at(definition, "metadata").get("creationTimestamp", "")]


# Pods and workloads


@_printer("", "Pod", "Ready,Status,Restarts,Age", wide="IP,Node,Nominated Node,Readiness Gates")
def _pod(pod: JsonObject, _: datetime) -> Cells:
    spec, status = section_at(pod, "spec"), section_at(pod, "status")
    containers = status.get("containerStatuses") or []
    conditions, gates = _conditions(status), spec.get("readinessGates") or ()
    passed_gates = sum(conditions.get(item.get("conditionType", "")) == "True" for item in gates)
    return [
        f"{sum(bool(item.get('ready')) for item in containers)}/{len(spec.get('containers') or ())}",
        _pod_status(pod),
        str(sum(item.get("restartCount", 0) for item in (*containers, *(status.get("initContainerStatuses") or ())))),
        status.get("podIP") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        f"{passed_gates}/{len(gates)}" if gates else NONE,
    ]


def _pod_status(pod: JsonObject) -> str:
    """Return the phase, or a more specific reason: of the deletion, of init containers, then of other containers."""
    status = section_at(pod, "status")
    phase = str(status.get("reason") or status.get("phase") or "")
    if section_at(pod, "metadata").get("deletionTimestamp") and status.get("phase") not in ("Succeeded", "Failed"):
        return "Unknown" if phase == "NodeLost" else "Terminating"
    init_containers = status.get("initContainerStatuses") or []
    completed = sum(
        "exitCode" in item and not item["exitCode"]
        for item in (section_at(item, "state", "terminated") for item in init_containers)
    )
    if _conditions(status).get("Initialized", "True") != "True" and completed < len(init_containers):
        return f"Init:{_reason(init_containers[completed]) or f'{completed}/{len(init_containers)}'}"
    containers = status.get("containerStatuses") or ()
    reasons = [_reason(item) for item in containers if _reason(item)]
    any_running = any(section_at(item, "state").get("running") is not None and item.get("ready") for item in containers)
    return next((item for item in reasons if item != "Completed" or not any_running), phase)


def _reason(container: Mapping[str, Any]) -> str:
    """Return why a container waits or has terminated."""
    waiting, terminated = section_at(container, "state", "waiting"), section_at(container, "state", "terminated")
    if terminated:
        return str(terminated.get("reason") or f"ExitCode:{terminated.get('exitCode', 0)}")
    return str(waiting.get("reason", "")).replace("PodInitializing", "")


@_printer("apps", "Deployment", "Ready,Up-to-date,Available,Age", wide="Containers,Images,Selector")
def _deployment(deployment: JsonObject, _: datetime) -> Cells:
    status = section_at(deployment, "status")
    counts = [str(status.get(name, 0)) for name in ("updatedReplicas", "availableReplicas")]
    return [_ready(deployment), *counts, *_template(deployment)]


@_printer("apps", "StatefulSet", "Ready,Age", wide="Containers,Images,Selector")
def _stateful_set(owner: JsonObject, _: datetime) -> Cells:
    return [_ready(owner), *_template(owner)]


@_printer("apps", "ReplicaSet", "#Desired,#Current,#Ready,Age", wide="Containers,Images,Selector")
def _replica_set(owner: JsonObject, _: datetime) -> Cells:
    status = section_at(owner, "status")
    return [_replicas(owner), status.get("replicas", 0), status.get("readyReplicas", 0), *_template(owner)]


@_printer(
    "apps",
    "DaemonSet",
    "#Desired,#Current,#Ready,#Up-to-date,#Available,Node Selector,Age",
    wide="Containers,Images,Selector",
)
def _daemon_set(owner: JsonObject, _: datetime) -> Cells:
    status, counted = section_at(owner, "status"), ("desiredNumberScheduled", "currentNumberScheduled", "numberReady")
    counts = [status.get(name, 0) for name in (*counted, "updatedNumberScheduled", "numberAvailable")]
    nodes = section_at(owner, "spec", "template", "spec").get("nodeSelector")
    return [*counts, format_selector({"matchLabels": nodes}) or NONE, *_template(owner)]


@_printer("batch", "Job", "Status,Completions,Duration,Age", wide="Containers,Images,Selector")
def _job(job: JsonObject, now: datetime) -> Cells:
    spec, status = section_at(job, "spec"), section_at(job, "status")
    conditions = _conditions(status)
    finished = (kind for kind in ("Complete", "Failed", "Suspended") if conditions.get(kind) == "True")
    started = status.get("startTime")
    until = datetime.fromisoformat(status["completionTime"]) if status.get("completionTime") else now
    return [
        "Terminating" if section_at(job, "metadata").get("deletionTimestamp") else next(finished, "Running"),
        f"{status.get('succeeded', 0)}/{spec.get('completions', 1)}",
        age_since(started, until) if started else "",
        *_template(job),
    ]


@_printer("batch", "CronJob", "Schedule,Timezone,Suspend,#Active,Last Schedule,Age", wide="Containers,Images,Selector")
def _cron_job(owner: JsonObject, now: datetime) -> Cells:
    spec, status = section_at(owner, "spec"), section_at(owner, "status")
    last = status.get("lastScheduleTime")
    return [
        spec.get("schedule", ""),
        spec.get("timeZone") or NONE,
        str(spec.get("suspend", False)),
        len(status.get("active") or ()),
        age_since(last, now) if last else NONE,
        *_template(section_at(spec, "jobTemplate")),
    ]


@_printer("autoscaling", "Scale", "#Desired,#Available,Age")
def _scale(scale: JsonObject, _: datetime) -> Cells:
    return [section_at(scale, name).get("replicas", 0) for name in ("spec", "status")]


@_printer("policy", "PodDisruptionBudget", "Min Available,Max Unavailable,#Allowed Disruptions,Age")
def _disruption_budget(budget: JsonObject, _: datetime) -> Cells:
    bounds = [str(section_at(budget, "spec").get(name, "N/A")) for name in ("minAvailable", "maxUnavailable")]
    return [*bounds, section_at(budget, "status").get("disruptionsAllowed", 0)]


def _ready(owner: JsonObject) -> str:
    return f"{section_at(owner, 'status').get('readyReplicas', 0)}/{_replicas(owner)}"


def _replicas(owner: JsonObject) -> int:
    # Objects stored without defaulting mean one; the empty object of a bookmark means none.
    spec = section_at(owner, "spec")
    return int(spec.get("replicas", 1 if spec.get("selector") else 0))


def _template(owner: JsonObject) -> Cells:
    """Return the wide columns of a workload: containers, images and selector."""
    containers = section_at(owner, "spec", "template", "spec").get("containers") or ()
    texts = [",".join(str(container.get(name, "")) for container in containers) for name in ("name", "image")]
    return [*texts, format_selector(section_at(owner, "spec").get("selector")) or NONE]


# Events


def _event(event: JsonObject, now: datetime) -> Cells:
    """Return the cells of an event of either API version; their fields have different names."""
    involved_object = section_at(event, "involvedObject") or section_at(event, "regarding")
    source = section_at(event, "source") or section_at(event, "deprecatedSource")
    first = event.get("firstTimestamp") or event.get("deprecatedFirstTimestamp") or event.get("eventTime")
    last = event.get("lastTimestamp") or event.get("deprecatedLastTimestamp") or first
    series = section_at(event, "series")
    return [
        age_since(series.get("lastObservedTime") or last, now),
        event.get("type", ""),
        event.get("reason", ""),
        "/".join(filter(None, (involved_object.get("kind", "").lower(), involved_object.get("name")))),
        (event.get("message") or event.get("note") or "").strip(),
        source.get("component") or event.get("reportingComponent") or event.get("reportingController") or "",
        age_since(first, now),
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
