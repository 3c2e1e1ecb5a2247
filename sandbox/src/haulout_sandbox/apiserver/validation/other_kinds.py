"""Validation of the kinds besides pods and workloads that controllers depend on: nodes and leases."""

from haulout_sandbox.apiserver.field_errors import forbidden, invalid
from haulout_sandbox.apiserver.kinds.kind import JsonObject
from haulout_sandbox.apiserver.validation.common import (
    Causes,
    non_negative,
    non_negative_quantities,
)
from haulout_sandbox.apiserver.validation.pods import validate_taints


def validate_node(new: JsonObject, old: JsonObject | None) -> Causes:
    causes = validate_taints(new["spec"], "spec")
    for section in ("capacity", "allocatable"):
        causes += non_negative_quantities(new["status"].get(section), f"status.{section}")
    for name in ("providerID", "podCIDRs") if old is not None else ():
        old_value = old["spec"].get(name) if old is not None else None
        if old_value and old_value != new["spec"].get(name):
            causes.append(forbidden(f"spec.{name}", f"node updates may not change {name} once it is set"))
    return causes


def validate_lease(new: JsonObject, old: JsonObject | None) -> Causes:  # noqa: ARG001 - nothing in it is immutable
    spec = new.get("spec") or {}
    causes = non_negative(spec, "spec", "leaseTransitions")
    if spec.get("leaseDurationSeconds", 1) <= 0:
        causes.append(invalid("spec.leaseDurationSeconds", spec["leaseDurationSeconds"], "must be greater than 0"))
    return causes
