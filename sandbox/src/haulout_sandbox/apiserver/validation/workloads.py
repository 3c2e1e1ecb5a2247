"""Validation of workloads and PodDisruptionBudgets."""

from haulout_sandbox.apiserver.field_errors import forbidden, invalid, required
from haulout_sandbox.apiserver.kinds.kind import JsonObject
from haulout_sandbox.apiserver.validation.common import (
    Causes,
    immutable_fields,
    is_zero,
    mutable_fields,
    non_negative,
    one_of,
    validate_int_or_percent,
    validate_label_selector,
    validate_template_selector,
)
from haulout_sandbox.apiserver.validation.pods import validate_template

_ROLLING_UPDATE_FIELDS = ("maxUnavailable", "maxSurge")
_MUTABLE_IN_STATEFUL_SETS = (
    "replicas",
    "template",
    "updateStrategy",
    "minReadySeconds",
    "ordinals",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
)
_JOB_COUNTS = ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished")


def validate_deployment(new: JsonObject, old: JsonObject | None) -> Causes:
    spec = new["spec"]
    causes = validate_replica_set(new, old) + non_negative(
        spec, "spec", "revisionHistoryLimit", "progressDeadlineSeconds"
    )
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None and deadline <= spec.get("minReadySeconds", 0):
        causes.append(invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds"))
    return causes + _validate_strategy(spec, "strategy", "Recreate")


def validate_replica_set(new: JsonObject, old: JsonObject | None) -> Causes:
    spec = new["spec"]
    causes = non_negative(spec, "spec", "replicas", "minReadySeconds")
    causes += validate_template_selector(spec, "spec") + validate_template(spec, "spec")
    return causes if old is None else causes + immutable_fields(spec, old["spec"], "spec", "selector")


def validate_stateful_set(new: JsonObject, old: JsonObject | None) -> Causes:
    spec = new["spec"]
    causes = non_negative(spec, "spec", "replicas", "minReadySeconds")
    claims = [
        {"name": (claim_template.get("metadata") or {}).get("name", "")}
        for claim_template in spec.get("volumeClaimTemplates") or ()
    ]
    causes += validate_template_selector(spec, "spec") + validate_template(_with_volumes(spec, claims), "spec")
    causes += one_of(spec, "spec", "podManagementPolicy", ("OrderedReady", "Parallel"))
    causes += _validate_strategy(spec, "updateStrategy", "OnDelete", allows_both_zero=True)
    return causes if old is None else causes + mutable_fields(spec, old["spec"], "spec", *_MUTABLE_IN_STATEFUL_SETS)


def validate_daemon_set(new: JsonObject, old: JsonObject | None) -> Causes:
    spec = new["spec"]
    rolling = (spec.get("updateStrategy") or {}).get("rollingUpdate") or {}
    causes = validate_replica_set(new, old) + _validate_strategy(spec, "updateStrategy", "OnDelete")
    if not is_zero(rolling.get("maxUnavailable")) and not is_zero(rolling.get("maxSurge")):
        path = "spec.updateStrategy.rollingUpdate.maxSurge"
        causes.append(invalid(path, rolling["maxSurge"], "may not be set when maxUnavailable is non-zero"))
    return causes


def validate_job(new: JsonObject, old: JsonObject | None) -> Causes:
    spec = new["spec"]
    causes = validate_template_selector(spec, "spec") + non_negative(spec, "spec", *_JOB_COUNTS)
    if spec.get("completionMode") == "Indexed":
        causes += [] if spec.get("completions") is not None else [required("spec.completions")]
    causes += validate_template(spec, "spec", restart_policies=("OnFailure", "Never"))
    if old is None:
        return causes
    immutable = ["selector", "completionMode", "podFailurePolicy", "managedBy", "successPolicy"]
    immutable += [] if old["spec"].get("suspend") else ["template"]
    immutable += [] if spec.get("completionMode") == "Indexed" else ["completions"]
    return causes + immutable_fields(spec, old["spec"], "spec", *immutable)


def validate_pod_disruption_budget(new: JsonObject, old: JsonObject | None) -> Causes:  # noqa: ARG001 - nothing in it is immutable
    spec = new["spec"]
    causes = validate_int_or_percent(spec, "spec", "minAvailable") + validate_int_or_percent(
        spec, "spec", "maxUnavailable"
    )
    if "minAvailable" in spec and "maxUnavailable" in spec:
        causes.append(invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set"))
    if "unhealthyPodEvictionPolicy" in spec:
        causes += one_of(spec, "spec", "unhealthyPodEvictionPolicy", ("AlwaysAllow", "IfHealthyBudget"))
    return causes + validate_label_selector(spec.get("selector"), "spec.selector")


def validate_pod_disruption_budget_status(status: JsonObject) -> Causes:
    counts = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
    return non_negative(status, "status", *counts)


def _with_volumes(spec: JsonObject, volumes: list[JsonObject]) -> JsonObject:
    """Return a spec with these volumes added to its pod template."""
    template = spec.get("template") or {}
    inner = template.get("spec") or {}
    names = {volume["name"] for volume in volumes}
    own_volumes = [volume for volume in inner.get("volumes") or () if volume.get("name") not in names]
    return spec | {"template": template | {"spec": inner | {"volumes": [*own_volumes, *volumes]}}}


def _validate_strategy(spec: JsonObject, name: str, other: str, *, allows_both_zero: bool = False) -> Causes:
    strategy, path = spec.get(name) or {}, f"spec.{name}"
    rolling = strategy.get("rollingUpdate")
    if strategy.get("type") == other:
        return [] if rolling is None else [forbidden(f"{path}.rollingUpdate", f"may not be set with type {other}")]
    causes = one_of(strategy, path, "type", ("RollingUpdate", other))
    rolling, path = rolling or {}, f"{path}.rollingUpdate"
    for field in _ROLLING_UPDATE_FIELDS:
        causes += validate_int_or_percent(rolling, path, field)
    if not allows_both_zero and all(is_zero(rolling.get(field)) for field in _ROLLING_UPDATE_FIELDS):
        causes.append(invalid(f"{path}.maxUnavailable", rolling.get("maxUnavailable"), "may not be 0 with maxSurge 0"))
    return causes
