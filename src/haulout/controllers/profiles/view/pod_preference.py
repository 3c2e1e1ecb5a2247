"""Pods that prefer operational nodes: with this node affinity a workload takes part in the `affinity` check."""

from typing import Any

from haulout.api.objects import RawObject
from haulout.controllers.profiles.plugin import STATE_LABEL, State

_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def prefers_operational(pod: RawObject) -> bool:
    """Return whether a pod prefers nodes by their state label, whatever the weight and other preferences."""
    affinity = _child(_child(_child(pod, "spec"), "affinity"), "nodeAffinity")
    return any(
        _is_operational_expression(expression)
        for term in _dicts_in(affinity.get(_PREFERRED))
        for expression in _dicts_in(_child(term, "preference").get("matchExpressions"))
    )


def _is_operational_expression(expression: RawObject) -> bool:
    found = expression.get("key"), expression.get("operator"), expression.get("values")
    return found == (STATE_LABEL, "In", [State.OPERATIONAL])


def _child(of: RawObject, key: str) -> RawObject:
    found = of.get(key)
    return found if isinstance(found, dict) else {}


def _dicts_in(value: Any) -> list[RawObject]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
