"""PodDisruptionBudgets. Follows `pkg/apis/policy/validation` of Kubernetes 1.36, which does not look at their names."""

import re

from haulout_sandbox.apiserver.fields import duplicate, invalid, required, too_long
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.validation import rules
from haulout_sandbox.apiserver.validation.common import (
    Causes,
    at_most_all,
    by_rule,
    enumerated,
    int_or_percent,
    label_selector,
    not_negative,
    one_of,
)
from haulout_sandbox.apiserver.validation.internal import shown

_POLICIES = ("AlwaysAllow", "IfHealthyBudget")
_STATUSES = ("False", "True", "Unknown")
_LONGEST_REASON, _LONGEST_MESSAGE = 1024, 32768
_REASON = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
_REASON_RULE = (
    "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric "
    "characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or "
    f"'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '{_REASON}')"
)


def budget(new: JsonObject, old: JsonObject | None = None) -> Causes:  # noqa: ARG001 - nothing in it is immutable
    """Return what is wrong with a PodDisruptionBudget."""
    spec = new["spec"]
    causes: Causes = []
    if "minAvailable" in spec and "maxUnavailable" in spec:
        detail = "minAvailable and maxUnavailable cannot be both set"
        causes.append(invalid("spec", shown(spec, "policy.PodDisruptionBudgetSpec"), detail))
    for name in ("minAvailable", "maxUnavailable"):
        if name in spec:
            causes += int_or_percent(f"spec.{name}", spec[name]) + at_most_all(f"spec.{name}", spec[name])
    causes += label_selector(spec.get("selector"), "spec.selector")
    if "unhealthyPodEvictionPolicy" in spec:
        policy = spec["unhealthyPodEvictionPolicy"]
        causes += one_of("spec.unhealthyPodEvictionPolicy", policy, _POLICIES)
    return causes


def budget_status(new: JsonObject, old: JsonObject) -> Causes:  # noqa: ARG001 - as above
    """Return what is wrong with the status of a PodDisruptionBudget."""
    status = new["status"]
    causes = _conditions(status.get("conditions") or [], "status.conditions")
    counts = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
    return causes + not_negative(status, "status", *counts)


def _conditions(found: list[JsonObject], path: str) -> Causes:
    causes: Causes = []
    seen: set[str] = set()
    for where, condition in enumerated(found, path):
        kind = condition.get("type", "")
        if kind in seen:
            causes.append(duplicate(f"{where}.type", kind))
        seen.add(kind)
        causes += by_rule(f"{where}.type", kind, rules.qualified_name)
        causes += one_of(f"{where}.status", condition.get("status", ""), _STATUSES)
        if condition.get("observedGeneration", 0) < 0:
            generation = condition["observedGeneration"]
            detail = "must be greater than or equal to zero"
            causes.append(invalid(f"{where}.observedGeneration", generation, detail))
        if not condition.get("lastTransitionTime"):
            causes.append(required(f"{where}.lastTransitionTime"))
        causes += _reason(condition.get("reason", ""), f"{where}.reason")
        if len(condition.get("message", "").encode()) > _LONGEST_MESSAGE:
            causes.append(too_long(f"{where}.message", _LONGEST_MESSAGE))
    return causes


def _reason(reason: str, path: str) -> Causes:
    if not reason:
        return [required(path)]
    causes = [] if re.fullmatch(_REASON, reason) else [invalid(path, reason, _REASON_RULE)]
    return [*causes, too_long(path, _LONGEST_REASON)] if len(reason) > _LONGEST_REASON else causes
