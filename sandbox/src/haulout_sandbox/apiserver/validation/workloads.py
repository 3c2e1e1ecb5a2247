"""Workloads, which make pods from a template, and PodDisruptionBudgets."""

from haulout_sandbox.apiserver.fields import forbidden, invalid, required
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.validation.common import (
    Causes,
    enumerated,
    int_or_percent,
    is_zero,
    label_selector,
    needed,
    not_negative,
    one_of,
    only_changed,
    quantities,
    template_selector,
    unchanged,
)
from haulout_sandbox.apiserver.validation.pods import template

_SURGE = ("maxUnavailable", "maxSurge")
_CHANGEABLE_IN_STATEFUL_SETS = (
    "replicas",
    "template",
    "updateStrategy",
    "minReadySeconds",
    "ordinals",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
)
_JOB_COUNTS = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")


def deployment(new: JsonObject, old: JsonObject | None) -> Causes:
    """Return what is wrong with a Deployment, or may not be changed in it."""
    spec = new["spec"]
    causes = replica_set(new, old) + not_negative(spec, "spec", "revisionHistoryLimit", "progressDeadlineSeconds")
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None and deadline <= spec.get("minReadySeconds", 0):
        causes.append(invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds"))
    return causes + _strategy(spec, "strategy", "Recreate")


def replica_set(new: JsonObject, old: JsonObject | None) -> Causes:
    """Return what is wrong with a ReplicaSet, or may not be changed in it."""
    spec = new["spec"]
    causes = not_negative(spec, "spec", "replicas", "minReadySeconds")
    causes += template_selector(spec, "spec") + template(spec, "spec")
    return causes if old is None else causes + unchanged(spec, old["spec"], "spec", "selector")


def stateful_set(new: JsonObject, old: JsonObject | None) -> Causes:
    """Return what is wrong with a StatefulSet, or may not be changed in it."""
    spec = new["spec"]
    causes = not_negative(spec, "spec", "replicas", "minReadySeconds")
    claims = [{"name": (it.get("metadata") or {}).get("name", "")} for it in spec.get("volumeClaimTemplates") or ()]
    causes += template_selector(spec, "spec") + template(_with_volumes(spec, claims), "spec")
    causes += one_of(spec, "spec", "podManagementPolicy", ("OrderedReady", "Parallel"))
    causes += _strategy(spec, "updateStrategy", "OnDelete", both_may_be_zero=True)
    for where, claim in enumerated(spec, "spec", "volumeClaimTemplates"):
        causes += claim_spec(claim.get("spec") or {}, f"{where}.spec")
    return causes if old is None else causes + only_changed(spec, old["spec"], "spec", *_CHANGEABLE_IN_STATEFUL_SETS)


def daemon_set(new: JsonObject, old: JsonObject | None) -> Causes:
    """Return what is wrong with a DaemonSet, or may not be changed in it."""
    spec = new["spec"]
    rolling = (spec.get("updateStrategy") or {}).get("rollingUpdate") or {}
    causes = replica_set(new, old) + _strategy(spec, "updateStrategy", "OnDelete")
    if not is_zero(rolling.get("maxUnavailable")) and not is_zero(rolling.get("maxSurge")):
        path = "spec.updateStrategy.rollingUpdate.maxSurge"
        causes.append(invalid(path, rolling["maxSurge"], "may not be set when maxUnavailable is non-zero"))
    return causes


def job(new: JsonObject, old: JsonObject | None) -> Causes:
    """Return what is wrong with a Job, or may not be changed in it."""
    spec = new["spec"]
    causes = template_selector(spec, "spec") + _job_spec(spec, "spec")
    if old is None:
        return causes
    fixed = ["selector", "completionMode", "podFailurePolicy", "managedBy", "successPolicy"]
    fixed += [] if old["spec"].get("suspend") else ["template"]
    fixed += [] if spec.get("completionMode") == "Indexed" else ["completions"]
    return causes + unchanged(spec, old["spec"], "spec", *fixed)


def cron_job(new: JsonObject, old: JsonObject | None) -> Causes:  # noqa: ARG001 - nothing in it is immutable
    """Return what is wrong with a CronJob. No controller reads its schedule."""
    spec = new["spec"]
    causes = needed(spec, "spec", "schedule")
    causes += one_of(spec, "spec", "concurrencyPolicy", ("Allow", "Forbid", "Replace"))
    return causes + _job_spec((spec.get("jobTemplate") or {}).get("spec") or {}, "spec.jobTemplate.spec")


def disruption_budget(new: JsonObject, old: JsonObject | None) -> Causes:  # noqa: ARG001 - nothing in it is immutable
    """Return what is wrong with a PodDisruptionBudget."""
    spec = new["spec"]
    causes = int_or_percent(spec, "spec", "minAvailable") + int_or_percent(spec, "spec", "maxUnavailable")
    if "minAvailable" in spec and "maxUnavailable" in spec:
        causes.append(invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set"))
    if "unhealthyPodEvictionPolicy" in spec:
        causes += one_of(spec, "spec", "unhealthyPodEvictionPolicy", ("AlwaysAllow", "IfHealthyBudget"))
    return causes + label_selector(spec.get("selector"), "spec.selector")


def disruption_budget_status(status: JsonObject) -> Causes:
    """Return what is wrong with the status of a PodDisruptionBudget."""
    counts = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
    return not_negative(status, "status", *counts)


def claim_spec(spec: JsonObject, path: str) -> Causes:
    """Return what is wrong with what a claim asks for."""
    requests = (spec.get("resources") or {}).get("requests") or {}
    causes = needed(spec, path, "accessModes") + quantities(requests, f"{path}.resources.requests")
    if "storage" not in requests:
        return [*causes, required(f"{path}.resources.requests[storage]")]
    if str(requests["storage"]) == "0":
        causes.append(invalid(f"{path}.resources.requests[storage]", requests["storage"], "must be greater than zero"))
    return causes


def _job_spec(spec: JsonObject, path: str) -> Causes:
    causes = not_negative(spec, path, *_JOB_COUNTS)
    if spec.get("completionMode") == "Indexed":
        causes += [] if spec.get("completions") is not None else [required(f"{path}.completions")]
    return causes + template(spec, path, restart_policies=("OnFailure", "Never"))


def _with_volumes(spec: JsonObject, volumes: list[JsonObject]) -> JsonObject:
    """Return a spec whose pods have these volumes, too."""
    found = spec.get("template") or {}
    inner = found.get("spec") or {}
    names = {it["name"] for it in volumes}
    own = [it for it in inner.get("volumes") or () if it.get("name") not in names]
    return spec | {"template": found | {"spec": inner | {"volumes": [*own, *volumes]}}}


def _strategy(spec: JsonObject, name: str, other: str, *, both_may_be_zero: bool = False) -> Causes:
    strategy, path = spec.get(name) or {}, f"spec.{name}"
    rolling = strategy.get("rollingUpdate")
    if strategy.get("type") == other:
        return [] if rolling is None else [forbidden(f"{path}.rollingUpdate", f"may not be set with type {other}")]
    causes = one_of(strategy, path, "type", ("RollingUpdate", other))
    rolling, path = rolling or {}, f"{path}.rollingUpdate"
    for each in _SURGE:
        causes += int_or_percent(rolling, path, each)
    if not both_may_be_zero and all(is_zero(rolling.get(each)) for each in _SURGE):
        causes.append(invalid(f"{path}.maxUnavailable", rolling.get("maxUnavailable"), "may not be 0 with maxSurge 0"))
    return causes
