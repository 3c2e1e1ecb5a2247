"""What `kubectl get` shows of workloads: of what runs pods, and of what protects and orders them.

The facts are those of `pkg/printers/internalversion/printers.go` in Kubernetes 1.36; pods have a module of their own.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from haulout_sandbox.apiserver.ages import human_duration, instant, since
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.printing import (
    AGE,
    NAME,
    NONE,
    UNSET,
    Cells,
    Header,
    Printers,
    age,
    equalities,
    name_of,
    numbers,
    part,
    selector_text,
    terminating,
    texts,
    wide,
)

PRINTERS = Printers()

_CONTAINERS = wide("Containers", "Images")
(_SELECTOR,) = wide("Selector")


@PRINTERS.of(
    "apps", "Deployment", columns=(NAME, *texts("Ready", "Up-to-date", "Available"), AGE, *_CONTAINERS, _SELECTOR)
)
def _deployment(deployment: JsonObject, now: datetime) -> Cells:
    spec, status = part(deployment, "spec"), part(deployment, "status")
    return [
        name_of(deployment),
        f"{status.get('readyReplicas', 0)}/{_replicas(spec)}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        age(deployment, now),
        *_containers(part(spec, "template")),
        selector_text(spec.get("selector")),
    ]


_REPLICATED = (NAME, *numbers("Desired", "Current", "Ready"), AGE, *_CONTAINERS, _SELECTOR)


@PRINTERS.of("apps", "ReplicaSet", columns=_REPLICATED)
def _replica_set(owner: JsonObject, now: datetime) -> Cells:
    return [*_replicated(owner, now), selector_text(part(owner, "spec").get("selector")) or NONE]


@PRINTERS.of("", "ReplicationController", columns=_REPLICATED)
def _replication_controller(owner: JsonObject, now: datetime) -> Cells:
    return [*_replicated(owner, now), equalities(part(owner, "spec").get("selector"))]


@PRINTERS.of("autoscaling", "Scale", columns=(*texts("Name"), *numbers("Desired", "Available"), AGE))
def _scale(scale: JsonObject, now: datetime) -> Cells:
    wanted, found = part(scale, "spec").get("replicas", 0), part(scale, "status").get("replicas", 0)
    return [name_of(scale), wanted, found, age(scale, now)]


def _replicated(owner: JsonObject, now: datetime) -> Cells:
    spec, status = part(owner, "spec"), part(owner, "status")
    return [
        name_of(owner),
        _replicas(spec),
        status.get("replicas", 0),
        status.get("readyReplicas", 0),
        age(owner, now),
        *_containers(part(spec, "template")),
    ]


@PRINTERS.of("apps", "StatefulSet", columns=(NAME, *texts("Ready"), AGE, *_CONTAINERS))
def _stateful_set(owner: JsonObject, now: datetime) -> Cells:
    spec = part(owner, "spec")
    ready = f"{part(owner, 'status').get('readyReplicas', 0)}/{_replicas(spec)}"
    return [name_of(owner), ready, age(owner, now), *_containers(part(spec, "template"))]


@PRINTERS.of(
    "apps",
    "DaemonSet",
    columns=(
        NAME,
        *numbers("Desired", "Current", "Ready", "Up-to-date", "Available"),
        *texts("Node Selector"),
        AGE,
        *_CONTAINERS,
        _SELECTOR,
    ),
)
def _daemon_set(owner: JsonObject, now: datetime) -> Cells:
    spec, status = part(owner, "spec"), part(owner, "status")
    counts = ("desiredNumberScheduled", "currentNumberScheduled", "numberReady", "updatedNumberScheduled")
    return [
        name_of(owner),
        *(status.get(count, 0) for count in (*counts, "numberAvailable")),
        equalities(part(spec, "template", "spec").get("nodeSelector")),
        age(owner, now),
        *_containers(part(spec, "template")),
        selector_text(spec.get("selector")) or NONE,
    ]


@PRINTERS.of("apps", "ControllerRevision", columns=(NAME, *texts("Controller", "Revision"), AGE))
def _controller_revision(revision: JsonObject, now: datetime) -> Cells:
    owner = next((it for it in part(revision, "metadata").get("ownerReferences") or () if it.get("controller")), None)
    controller = NONE
    if owner:
        group, slash, _ = owner["apiVersion"].partition("/")
        controller = f"{owner['kind'].lower()}{f'.{group}' if slash else ''}/{owner['name']}"
    return [name_of(revision), controller, revision.get("revision", 0), age(revision, now)]


_JOB_STATES = (  # the first that is true; None: the job is being deleted
    ("Complete", "Complete"),
    ("Failed", "Failed"),
    (None, "Terminating"),
    ("Suspended", "Suspended"),
    ("FailureTarget", "FailureTarget"),
    ("SuccessCriteriaMet", "SuccessCriteriaMet"),
)


@PRINTERS.of("batch", "Job", columns=(NAME, *texts("Status", "Completions", "Duration"), AGE, *_CONTAINERS, _SELECTOR))
def _job(job: JsonObject, now: datetime) -> Cells:
    spec = part(job, "spec")
    return [
        name_of(job),
        _job_status(job),
        _completions(job),
        _job_duration(part(job, "status"), now),
        age(job, now),
        *_containers(part(spec, "template")),
        selector_text(spec.get("selector")) or NONE,
    ]


def _job_status(job: JsonObject) -> str:
    true: dict[str | None, bool] = {None: terminating(job)}
    for condition in part(job, "status").get("conditions") or ():
        true.setdefault(condition.get("type", ""), condition.get("status") == "True")
    return next((said for condition, said in _JOB_STATES if true.get(condition)), "Running")


def _completions(job: JsonObject) -> str:
    spec, succeeded = part(job, "spec"), part(job, "status").get("succeeded", 0)
    if spec.get("completions") is not None:
        return f"{succeeded}/{spec['completions']}"
    parallelism = spec.get("parallelism") or 0
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _job_duration(status: Mapping[str, Any], now: datetime) -> str:
    started, completed = instant(status.get("startTime")), instant(status.get("completionTime"))
    return "" if started is None else human_duration((completed or now) - started)


@PRINTERS.of(
    "batch",
    "CronJob",
    columns=(
        NAME,
        *texts("Schedule", "Timezone"),
        Header("Suspend", "boolean"),
        *numbers("Active"),
        *texts("Last Schedule"),
        AGE,
        *_CONTAINERS,
        _SELECTOR,
    ),
)
def _cron_job(job: JsonObject, now: datetime) -> Cells:
    spec, status = part(job, "spec"), part(job, "status")
    last = status.get("lastScheduleTime")
    suspend = spec.get("suspend", False if spec.get("schedule") else None)
    return [
        name_of(job),
        spec.get("schedule", ""),
        spec.get("timeZone") or NONE,
        UNSET if suspend is None else str(suspend),
        len(status.get("active") or ()),
        since(last, now) if last else NONE,
        age(job, now),
        *_containers(part(spec, "jobTemplate", "spec", "template")),
        selector_text(part(spec, "jobTemplate", "spec").get("selector")) or NONE,
    ]


@PRINTERS.of(
    "policy",
    "PodDisruptionBudget",
    columns=(NAME, *texts("Min Available", "Max Unavailable"), *numbers("Allowed Disruptions"), AGE),
)
def _disruption_budget(budget: JsonObject, now: datetime) -> Cells:
    spec, missing = part(budget, "spec"), "N/A"
    return [
        name_of(budget),
        str(spec.get("minAvailable", missing)),
        str(spec.get("maxUnavailable", missing)),
        part(budget, "status").get("disruptionsAllowed", 0),
        age(budget, now),
    ]


@PRINTERS.of(
    "scheduling.k8s.io",
    "PriorityClass",
    columns=(NAME, *numbers("Value"), Header("Global-Default", "boolean"), AGE, *texts("PreemptionPolicy")),
)
def _priority_class(priority: JsonObject, now: datetime) -> Cells:
    return [
        name_of(priority),
        priority.get("value", 0),
        priority.get("globalDefault", False),
        age(priority, now),
        priority.get("preemptionPolicy", ""),
    ]


def _containers(template: Mapping[str, Any]) -> Cells:
    containers = part(template, "spec").get("containers") or ()
    return [",".join(str(it.get(name, "")) for it in containers) for name in ("name", "image")]


def _replicas(spec: Mapping[str, Any]) -> int:
    # Whoever stores objects without defaulting them means one; a bookmark's empty object means none.
    return int(spec.get("replicas", 1 if spec.get("selector") else 0))
