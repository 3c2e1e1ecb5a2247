"""Validation of the kinds besides pods and workloads that controllers depend on or write: nodes, leases, events."""

from haulout_sandbox.apiserver.field_errors import forbidden, invalid, too_long
from haulout_sandbox.apiserver.kinds.kind import JsonObject
from haulout_sandbox.apiserver.object_names import qualified_name_problems
from haulout_sandbox.apiserver.validation.common import (
    Causes,
    immutable_fields,
    non_negative,
    non_negative_quantities,
    one_of,
    required_fields,
    required_name,
)
from haulout_sandbox.apiserver.validation.pods import validate_taints

_IMMUTABLE_IN_EVENTS = ("regarding", "reason", "note", "type", "eventTime", "action", "related", "reportingController")


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


def validate_events_v1_event(new: JsonObject, old: JsonObject | None) -> Causes:
    if old is not None:
        return immutable_fields(new, old, "", *_IMMUTABLE_IN_EVENTS)
    causes = required_fields(new, "", "eventTime", "reportingInstance", "action", "reason")
    causes += required_name("reportingController", new.get("reportingController", ""), qualified_name_problems)
    causes += one_of(new, "", "type", ("Normal", "Warning"))
    max_lengths = {"action": 128, "reason": 128, "reportingInstance": 128, "note": 1024}
    return causes + [
        too_long(name, max_length) for name, max_length in max_lengths.items() if len(new.get(name, "")) > max_length
    ]
