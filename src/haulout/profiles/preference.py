"""Pods that would rather run on operational nodes: the sign by which workloads take part in the `affinity` check."""

from typing import Any

from haulout.kube.objects import RawObject
from haulout.profiles.plugin import STATE_LABEL, State

_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def prefers_operational(pod: RawObject) -> bool:
    """Tell whether a pod prefers nodes by their state label, whatever else it prefers and however much."""
    affinity = _in(_in(_in(pod, "spec"), "affinity"), "nodeAffinity")
    return any(
        _is_sign(expression)
        for term in _listed(affinity.get(_PREFERRED))
        for expression in _listed(_in(term, "preference").get("matchExpressions"))
    )


def _is_sign(expression: RawObject) -> bool:
    found = expression.get("key"), expression.get("operator"), expression.get("values")
    return found == (STATE_LABEL, "In", [State.OPERATIONAL])


def _in(of: RawObject, key: str) -> RawObject:
    found = of.get(key)
    return found if isinstance(found, dict) else {}


def _listed(value: Any) -> list[RawObject]:
    return [it for it in value if isinstance(it, dict)] if isinstance(value, list) else []
