"""Jobs and CronJobs.

Follows `pkg/apis/batch/validation` of Kubernetes 1.36. Of a job's status only the counters are checked; what its
conditions may say when is left to the one controller that writes them.
"""

import re
from zoneinfo import available_timezones

from haulout_sandbox.apiserver.fields import OMIT, duplicate, invalid, not_supported, required, too_long, too_many
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.validation import metadata, podspecs, rules
from haulout_sandbox.apiserver.validation.common import (
    Causes,
    by_rule,
    enumerated,
    is_selector,
    label_selector,
    not_negative,
    one_of,
    selects,
    unchanged,
)
from haulout_sandbox.apiserver.validation.internal import shown
from haulout_sandbox.apiserver.validation.schedules import problem

_SELECTOR = "meta.v1.LabelSelector"
_MODES = ("NonIndexed", "Indexed")
_REPLACEMENTS = ("Failed", "TerminatingOrFailed")
_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_STATUSES = ("False", "True", "Unknown")
_CONCURRENCY = ("Allow", "Forbid", "Replace")
_MOST_INDEXES, _MOST_RULES, _MOST_CODES, _LONGEST_MANAGER, _LONGEST_CRON_NAME = 100_000, 20, 255, 63, 52
_COUNTS = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)
_UIDS, _NAMES = (
    ("controller-uid", "batch.kubernetes.io/controller-uid"),
    ("job-name", "batch.kubernetes.io/job-name"),
)


def job(new: JsonObject, old: JsonObject | None = None) -> Causes:
    """Return what is wrong with a Job."""
    spec = new["spec"]
    causes = metadata.of_new(new["metadata"], namespaced=True, name_rule=rules.subdomain)
    causes += _generated_selector(new)
    causes += _whole_spec(spec)
    if spec.get("completionMode") == "Indexed" and spec.get("completions", 0) > 0:
        name = new["metadata"].get("name", "")
        last = f"{name}-{spec['completions'] - 1}"
        if rules.dns_label(last):
            detail = f"will not able to create pod with invalid DNS label: {last}"
            causes.append(invalid("metadata.name", name, detail))
    return causes if old is None else causes + _update(new, old)


def job_status(new: JsonObject, old: JsonObject) -> Causes:
    """Return what is wrong with the status of a Job."""
    causes = metadata.of_update(new["metadata"], old["metadata"])
    return causes + not_negative(new["status"], "status", "active", "succeeded", "failed", "ready", "terminating")


def cron_job(new: JsonObject, old: JsonObject | None = None) -> Causes:
    """Return what is wrong with a CronJob."""
    spec, meta = new["spec"], new["metadata"]
    if old is None:
        causes = metadata.of_new(meta, namespaced=True, name_rule=rules.subdomain)
    else:
        causes = metadata.of_update(meta, old["metadata"])
    schedule = spec.get("schedule", "")
    causes += _schedule(schedule) if schedule else [required("spec.schedule")]
    causes += not_negative(spec, "spec", "startingDeadlineSeconds")
    if old is None or old["spec"].get("timeZone") != spec.get("timeZone"):
        causes += _time_zone(spec.get("timeZone"))
    causes += one_of("spec.concurrencyPolicy", spec.get("concurrencyPolicy", ""), _CONCURRENCY, needed=True)
    causes += _job_template((spec.get("jobTemplate") or {}).get("spec") or {}, "spec.jobTemplate.spec")
    causes += not_negative(spec, "spec", "successfulJobsHistoryLimit", "failedJobsHistoryLimit")
    if old is None and len(meta.get("name", "")) > _LONGEST_CRON_NAME:
        causes.append(invalid("metadata.name", meta["name"], f"must be no more than {_LONGEST_CRON_NAME} characters"))
    return causes


def _generated_selector(new: JsonObject) -> Causes:
    spec, meta = new["spec"], new["metadata"]
    selector = spec.get("selector")
    if spec.get("manualSelector") or selector is None:
        return []
    own = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    expected = dict.fromkeys(_UIDS, meta["uid"]) | dict.fromkeys(_NAMES, meta.get("name", ""))
    causes: Causes = []
    for pair in zip(_UIDS, _NAMES, strict=True):
        for key in pair:
            causes += _has_label(own, key, expected[key], "spec.template.metadata.labels")
    if is_selector(selector) and not selects(selector, expected):
        causes.append(invalid("spec.selector", shown(selector, _SELECTOR), "`selector` not auto-generated"))
    return causes


def _has_label(own: JsonObject, key: str, wanted: str, path: str) -> Causes:
    if key not in own:
        return [required(f"{path}[{key}]", f"must be '{wanted}'")]
    return [] if own[key] == wanted else [invalid(f"{path}[{key}]", own, f"must be '{wanted}'")]


def _whole_spec(spec: JsonObject) -> Causes:
    causes = _spec(spec, "spec")
    selector = spec.get("selector")
    causes += label_selector(selector, "spec.selector") if selector is not None else [required("spec.selector")]
    own = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if is_selector(selector) and not selects(selector, own):
        detail = "`selector` does not match template `labels`"
        causes.append(invalid("spec.template.metadata.labels", own, detail))
    return causes


def _spec(spec: JsonObject, path: str) -> Causes:
    causes = not_negative(spec, path, *_COUNTS)
    if "maxFailedIndexes" in spec and "backoffLimitPerIndex" not in spec:
        causes.append(required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    if "managedBy" in spec:
        causes += _managed_by(spec["managedBy"], f"{path}.managedBy")
    mode = spec.get("completionMode")
    causes += one_of(f"{path}.completionMode", mode, _MODES) if mode is not None else []
    if mode == "Indexed":
        causes += _indexed(spec, path)
    elif mode in (None, "NonIndexed"):
        detail = "requires indexed completion mode"
        names = ("backoffLimitPerIndex", "maxFailedIndexes")
        causes += [invalid(f"{path}.{name}", spec[name], detail) for name in names if name in spec]
    if "podFailurePolicy" in spec:
        causes += _failure_policy(spec, f"{path}.podFailurePolicy")
    if "successPolicy" in spec:
        causes += _success_policy(spec, f"{path}.successPolicy")
    if "podReplacementPolicy" in spec:
        allowed = ("Failed",) if "podFailurePolicy" in spec else _REPLACEMENTS
        causes += one_of(f"{path}.podReplacementPolicy", spec["podReplacementPolicy"], allowed)
    template = spec.get("template") or {}
    causes += podspecs.template(template, f"{path}.template")
    return causes + _restarts(template, spec, f"{path}.template.spec.restartPolicy")


def _restarts(template: JsonObject, spec: JsonObject, path: str) -> Causes:
    policy = (template.get("spec") or {}).get("restartPolicy", "")
    if policy in ("", "Always"):
        return [required(path, 'valid values: "OnFailure", "Never"')]
    if policy not in ("OnFailure", "Never"):
        return [not_supported(path, policy, ("OnFailure", "Never"))]
    if "podFailurePolicy" in spec and policy != "Never":
        return [invalid(path, policy, 'only "Never" is supported when podFailurePolicy is specified')]
    return []


def _managed_by(text: str, path: str) -> Causes:
    if not text:
        return [required(path)]
    host, _, rest = text.partition("/")
    causes: Causes = []
    if not host or not rest:
        causes.append(invalid(path, text, 'must be a domain-prefixed path (such as "acme.io/foo")'))
    else:
        causes += by_rule(path, host, rules.subdomain) + by_rule(path, rest, rules.http_path)
    return [*causes, too_long(path, _LONGEST_MANAGER)] if len(text) > _LONGEST_MANAGER else causes


def _indexed(spec: JsonObject, path: str) -> Causes:
    causes: Causes = []
    completions, failed = spec.get("completions"), spec.get("maxFailedIndexes")
    if completions is None:
        causes.append(required(f"{path}.completions", "when completion mode is Indexed"))
    if spec.get("parallelism", 0) > _MOST_INDEXES:
        detail = f"must be less than or equal to {_MOST_INDEXES} when completion mode is Indexed"
        causes.append(invalid(f"{path}.parallelism", spec["parallelism"], detail))
    if completions is not None and failed is not None and failed > completions:
        causes.append(invalid(f"{path}.maxFailedIndexes", failed, "must be less than or equal to completions"))
    if failed is not None and failed > _MOST_INDEXES:
        causes.append(invalid(f"{path}.maxFailedIndexes", failed, f"must be less than or equal to {_MOST_INDEXES}"))
    return causes


def _failure_policy(spec: JsonObject, path: str) -> Causes:
    found = spec["podFailurePolicy"].get("rules") or []
    causes = [too_many(f"{path}.rules", len(found), _MOST_RULES)] if len(found) > _MOST_RULES else []
    inner = (spec.get("template") or {}).get("spec") or {}
    names = [it.get("name") for kind in ("containers", "initContainers") for it in inner.get(kind) or ()]
    for where, rule in enumerated(found, f"{path}.rules"):
        causes += _failure_action(rule.get("action", ""), spec, f"{where}.action")
        codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions") or []
        causes += _exit_codes(codes, names, f"{where}.onExitCodes") if codes is not None else []
        for at, pattern in enumerated(conditions, f"{where}.onPodConditions"):
            causes += by_rule(f"{at}.type", pattern.get("type", ""), rules.qualified_name)
            causes += _needed(pattern.get("status", ""), f"{at}.status", _STATUSES)
        if codes is not None and conditions:
            detail = "specifying both OnExitCodes and OnPodConditions is not supported"
            causes.append(invalid(where, OMIT, detail))
        if codes is None and not conditions:
            causes.append(invalid(where, OMIT, "specifying one of OnExitCodes and OnPodConditions is required"))
    return causes


def _needed(value: str, path: str, supported: tuple[str, ...]) -> Causes:
    if value:
        return one_of(path, value, supported)
    listed = " ".join(f'"{it}"' for it in supported)
    return [required(path, f"valid values: [{listed}]")]


def _failure_action(action: str, spec: JsonObject, path: str) -> Causes:
    if action == "FailIndex" and "backoffLimitPerIndex" not in spec:
        return [invalid(path, action, "requires the backoffLimitPerIndex to be set")]
    return _needed(action, path, _ACTIONS)


def _exit_codes(codes: JsonObject, names: list[str | None], path: str) -> Causes:
    causes = _needed(codes.get("operator", ""), f"{path}.operator", ("In", "NotIn"))
    if "containerName" in codes and codes["containerName"] not in names:
        detail = "must be one of the container or initContainer names in the pod template"
        causes.append(invalid(f"{path}.containerName", codes["containerName"], detail))
    values = codes.get("values")
    if not values:
        causes.append(invalid(f"{path}.values", values, "at least one value is required"))
    elif len(values) > _MOST_CODES:
        causes.append(too_many(f"{path}.values", len(values), _MOST_CODES))
    seen: set[int] = set()
    for at, value in enumerate(values or ()):
        if codes.get("operator") == "In" and value == 0:
            causes.append(invalid(f"{path}.values[{at}]", value, "must not be 0 for the In operator"))
        if value in seen:
            causes.append(duplicate(f"{path}.values[{at}]", value))
        seen.add(value)
    if values and list(values) != sorted(values):
        causes.append(invalid(f"{path}.values", values, "must be ordered"))
    return causes


def _success_policy(spec: JsonObject, path: str) -> Causes:
    policy = spec["successPolicy"]
    if spec.get("completionMode") != "Indexed":
        return [invalid(path, shown(policy, "batch.SuccessPolicy"), "requires indexed completion mode")]
    found = policy.get("rules") or []
    causes: Causes = []
    if not found:
        detail = "at least one rules must be specified when the successPolicy is specified"
        causes.append(required(f"{path}.rules", detail))
    if len(found) > _MOST_RULES:
        causes.append(too_many(f"{path}.rules", len(found), _MOST_RULES))
    for where, rule in enumerated(found, f"{path}.rules"):
        if "succeededCount" not in rule and "succeededIndexes" not in rule:
            detail = "at least one of succeededCount or succeededIndexes must be specified"
            causes.append(required(where, detail))
        causes += not_negative(rule, where, "succeededCount")
        count, most = rule.get("succeededCount", 0), spec.get("completions", 0)
        if count > most:
            detail = f"must be less than or equal to {most} (the number of specified completions)"
            causes.append(invalid(f"{where}.succeededCount", count, detail))
    return causes


def _update(new: JsonObject, old: JsonObject) -> Causes:
    spec, before = new["spec"], old["spec"]
    causes = metadata.of_update(new["metadata"], old["metadata"]) + _whole_spec(spec)
    causes += _completions(spec, before)
    causes += unchanged(
        "spec.selector",
        spec.get("selector"),
        before.get("selector"),
        shown=shown(spec.get("selector"), f"*{_SELECTOR}"),
    )
    causes += _kept_template(spec, before, old)
    for name, kind in (
        ("completionMode", ""),
        ("podFailurePolicy", "*batch.PodFailurePolicy"),
        ("backoffLimitPerIndex", ""),
        ("managedBy", ""),
        ("successPolicy", "*batch.SuccessPolicy"),
    ):
        value = spec.get(name)
        printed = shown(value, kind) if kind else value
        causes += unchanged(f"spec.{name}", value, before.get(name), shown=printed)
    return causes


def _completions(spec: JsonObject, before: JsonObject) -> Causes:
    new, was = spec.get("completions"), before.get("completions")
    if spec.get("completionMode") != "Indexed":
        return unchanged("spec.completions", new, was)
    if new in (was, None) or new == spec.get("parallelism"):
        return []
    return [invalid("spec.completions", new, "can only be modified in tandem with spec.parallelism")]


def _kept_template(spec: JsonObject, before: JsonObject, old: JsonObject) -> Causes:
    template, was = spec.get("template") or {}, before.get("template") or {}
    if before.get("suspend") and "startTime" not in (old.get("status") or {}):
        kept = _resized(_rescheduled(was, template), template)["spec"]
        new = template.get("spec") or {}
        return unchanged("spec.template.spec", new, kept, shown=shown(new, "core.PodSpec"))
    return unchanged("spec.template", template, was, shown=shown(template, "core.PodTemplateSpec"))


def _rescheduled(was: JsonObject, template: JsonObject) -> JsonObject:
    """Return the old template with what may be changed in a job that has not started."""
    names = ("nodeSelector", "tolerations", "schedulingGates")
    inner, new = was.get("spec") or {}, template.get("spec") or {}
    kept = {name: value for name, value in inner.items() if name not in (*names, "affinity")}
    kept |= {name: new[name] for name in names if name in new}
    affinity = {name: value for name, value in (inner.get("affinity") or {}).items() if name != "nodeAffinity"}
    if "nodeAffinity" in (new.get("affinity") or {}):
        affinity["nodeAffinity"] = new["affinity"]["nodeAffinity"]
    meta = {key: value for key, value in (was.get("metadata") or {}).items() if key not in ("labels", "annotations")}
    meta |= {key: template["metadata"][key] for key in ("labels", "annotations") if key in template["metadata"]}
    return was | {"metadata": meta, "spec": kept | ({"affinity": affinity} if affinity else {})}


def _resized(was: JsonObject, template: JsonObject) -> JsonObject:
    """Return the old template with the new resources, for containers that are the same."""
    inner, new = dict(was["spec"]), template.get("spec") or {}
    for kind in ("containers", "initContainers"):
        old_ones, new_ones = inner.get(kind) or [], new.get(kind) or []
        if len(old_ones) == len(new_ones) and old_ones:
            pairs = zip(old_ones, new_ones, strict=True)
            inner[kind] = [
                a | {"resources": b.get("resources")} if a.get("name") == b.get("name") else a for a, b in pairs
            ]
    return was | {"spec": inner}


def _schedule(text: str) -> Causes:
    causes: Causes = []
    if wrong := problem(text):
        causes.append(invalid("spec.schedule", text, wrong))
    if "TZ" in text:
        detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        causes.append(invalid("spec.schedule", text, detail))
    return causes


def _time_zone(zone: str | None) -> Causes:
    path = "spec.timeZone"
    if zone is None:
        return []
    if not zone:
        return [invalid(path, zone, "timeZone must be nil or non-empty string")]
    for part in zone.split("/"):
        if part in (".", "..") or part.startswith("-") or not re.fullmatch(r"[A-Za-z.\-_0-9+]{1,14}", part):
            return [invalid(path, zone, f"unknown time zone {zone}")]
    if zone.lower() == "local":
        detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        return [invalid(path, zone, detail)]
    return [] if zone == "UTC" or zone in available_timezones() else [invalid(path, zone, f"unknown time zone {zone}")]


def _job_template(spec: JsonObject, path: str) -> Causes:
    causes = _spec(spec, path)
    if "selector" in spec:
        printed = shown(spec["selector"], _SELECTOR)
        causes.append(invalid(f"{path}.selector", printed, "`selector` will be auto-generated"))
    if spec.get("manualSelector"):
        causes.append(not_supported(f"{path}.manualSelector", spec["manualSelector"], ("nil", "false")))
    return causes
