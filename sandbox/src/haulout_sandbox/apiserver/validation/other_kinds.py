"""Validation of kinds other than pods and workloads: nodes, services, configuration, storage, roles, leases, events."""

import re

from haulout_sandbox.apiserver.field_errors import forbidden, invalid, too_long
from haulout_sandbox.apiserver.kinds.kind import JsonObject
from haulout_sandbox.apiserver.object_names import qualified_name_problems
from haulout_sandbox.apiserver.validation.common import (
    Causes,
    enumerate_items,
    immutable_fields,
    mutable_fields,
    non_negative,
    non_negative_quantities,
    one_of,
    required_fields,
    required_name,
    validate_labels,
)
from haulout_sandbox.apiserver.validation.pods import validate_port, validate_taints
from haulout_sandbox.apiserver.validation.workloads import validate_claim_spec

_MAX_BYTES = 1024 * 1024
_CONFIG_KEY = re.compile("[-._a-zA-Z0-9]{1,253}")
_SERVICE_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_SUBJECT_KINDS = ("User", "Group", "ServiceAccount")
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


def validate_service(new: JsonObject, old: JsonObject | None) -> Causes:
    spec, kind = new["spec"], new["spec"].get("type", "")
    causes = one_of(spec, "spec", "type", _SERVICE_TYPES) + validate_labels(spec.get("selector"), "spec.selector")
    ports = list(enumerate_items(spec, "spec", "ports"))
    if kind == "ExternalName":
        causes += required_fields(spec, "spec", "externalName")
    elif spec.get("clusterIP") != "None":
        causes += required_fields(spec, "spec", "ports")
    for port_path, port in ports:
        causes += validate_port(port, port_path, "port")
        causes += required_fields(port, port_path, "name") if len(ports) > 1 else []
    if old is not None and old["spec"].get("clusterIP") and "ExternalName" not in (kind, old["spec"].get("type")):
        causes += immutable_fields(spec, old["spec"], "spec", "clusterIP")
    return causes


def validate_config_map(new: JsonObject, old: JsonObject | None) -> Causes:
    causes: Causes = []
    size = 0
    for name in ("data", "binaryData"):
        for key, value in (new.get(name) or {}).items():
            size += len(value)
            if not _CONFIG_KEY.fullmatch(key):
                causes.append(invalid(f"{name}[{key}]", key, "must be letters, digits, '-', '_' or '.'"))
    if size > _MAX_BYTES:
        causes.append(too_long("data", _MAX_BYTES))
    immutable = ("immutable", "data", "binaryData") if old is not None and old.get("immutable") else ()
    return causes if old is None else causes + immutable_fields(new, old, "", "type", *immutable)


def validate_persistent_volume_claim(new: JsonObject, old: JsonObject | None) -> Causes:
    if old is None:
        return validate_claim_spec(new["spec"], "spec")
    bound = () if old["spec"].get("volumeName") else ("volumeName",)
    mutable = ("resources", "volumeAttributesClassName", *bound)
    return validate_claim_spec(new["spec"], "spec") + mutable_fields(new["spec"], old["spec"], "spec", *mutable)


def validate_priority_class(new: JsonObject, old: JsonObject | None) -> Causes:
    return [] if old is None else immutable_fields(new, old, "", "value", "preemptionPolicy")


def validate_lease(new: JsonObject, old: JsonObject | None) -> Causes:  # noqa: ARG001 - nothing in it is immutable
    spec = new.get("spec") or {}
    causes = non_negative(spec, "spec", "leaseTransitions")
    if spec.get("leaseDurationSeconds", 1) <= 0:
        causes.append(invalid("spec.leaseDurationSeconds", spec["leaseDurationSeconds"], "must be greater than 0"))
    return causes


def validate_role(new: JsonObject, old: JsonObject | None) -> Causes:  # noqa: ARG001 - nothing in it is immutable
    causes: Causes = []
    for rule_path, rule in enumerate_items(new, "", "rules"):
        causes += required_fields(rule, rule_path, "verbs")
        causes += [] if rule.get("nonResourceURLs") else required_fields(rule, rule_path, "apiGroups", "resources")
    return causes


def validate_binding(new: JsonObject, old: JsonObject | None) -> Causes:
    reference = new.get("roleRef") or {}
    kinds = ("Role", "ClusterRole") if new["kind"] == "RoleBinding" else ("ClusterRole",)
    causes = one_of(reference, "roleRef", "kind", kinds) + required_fields(reference, "roleRef", "name")
    for subject_path, subject in enumerate_items(new, "", "subjects"):
        causes += one_of(subject, subject_path, "kind", _SUBJECT_KINDS) + required_fields(subject, subject_path, "name")
        if subject.get("kind") == "ServiceAccount" and new["kind"] == "ClusterRoleBinding":
            causes += required_fields(subject, subject_path, "namespace")
    return causes if old is None else causes + immutable_fields(new, old, "", "roleRef")


def validate_event(new: JsonObject, old: JsonObject | None) -> Causes:  # noqa: ARG001 - nothing in it is immutable
    """Return what is wrong with a core Event: it must be in the namespace of its involved object."""
    return _validate_namespace(new, new.get("involvedObject") or {}, "involvedObject")


def validate_events_v1_event(new: JsonObject, old: JsonObject | None) -> Causes:
    if old is not None:
        return immutable_fields(new, old, "", *_IMMUTABLE_IN_EVENTS)
    causes = _validate_namespace(new, new.get("regarding") or {}, "regarding")
    causes += required_fields(new, "", "eventTime", "reportingInstance", "action", "reason")
    causes += required_name("reportingController", new.get("reportingController", ""), qualified_name_problems)
    causes += one_of(new, "", "type", ("Normal", "Warning"))
    max_lengths = {"action": 128, "reason": 128, "reportingInstance": 128, "note": 1024}
    return causes + [
        too_long(name, max_length) for name, max_length in max_lengths.items() if len(new.get(name, "")) > max_length
    ]


def _validate_namespace(new: JsonObject, reference: JsonObject, path: str) -> Causes:
    namespace, expected = new["metadata"].get("namespace", ""), reference.get("namespace") or "default"
    if namespace == expected or (not reference.get("namespace") and namespace == "kube-system"):
        return []
    return [invalid(f"{path}.namespace", reference.get("namespace", ""), f"does not match the namespace {namespace}")]
