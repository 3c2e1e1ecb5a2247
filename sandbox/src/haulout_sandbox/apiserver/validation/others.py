"""Kinds that make no pods: nodes, services, configuration, storage, roles, leases, events."""

import re

from haulout_sandbox.apiserver.fields import forbidden, invalid, too_long
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.names import qualified_problems
from haulout_sandbox.apiserver.validation.common import (
    Causes,
    enumerated,
    labels,
    named,
    needed,
    not_negative,
    one_of,
    only_changed,
    quantities,
    unchanged,
)
from haulout_sandbox.apiserver.validation.pods import port, taints
from haulout_sandbox.apiserver.validation.workloads import claim_spec

_MOST_BYTES = 1024 * 1024
_CONFIG_KEY = re.compile("[-._a-zA-Z0-9]{1,253}")
_SERVICE_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_SUBJECTS = ("User", "Group", "ServiceAccount")
_FIXED_IN_EVENTS = ("regarding", "reason", "note", "type", "eventTime", "action", "related", "reportingController")


def node(new: JsonObject, old: JsonObject | None) -> Causes:
    """Return what is wrong with a node, or may not be changed in it."""
    causes = taints(new["spec"], "spec")
    for part in ("capacity", "allocatable"):
        causes += quantities(new["status"].get(part), f"status.{part}")
    for name in ("providerID", "podCIDRs") if old is not None else ():
        was = old["spec"].get(name) if old is not None else None
        if was and was != new["spec"].get(name):
            causes.append(forbidden(f"spec.{name}", f"node updates may not change {name} once it is set"))
    return causes


def service(new: JsonObject, old: JsonObject | None) -> Causes:
    """Return what is wrong with a Service, or may not be changed in it."""
    spec, kind = new["spec"], new["spec"].get("type", "")
    causes = one_of(spec, "spec", "type", _SERVICE_TYPES) + labels(spec.get("selector"), "spec.selector")
    ports = list(enumerated(spec, "spec", "ports"))
    if kind == "ExternalName":
        causes += needed(spec, "spec", "externalName")
    elif spec.get("clusterIP") != "None":
        causes += needed(spec, "spec", "ports")
    for where, each in ports:
        causes += port(each, where, "port")
        causes += needed(each, where, "name") if len(ports) > 1 else []
    if old is not None and old["spec"].get("clusterIP") and "ExternalName" not in (kind, old["spec"].get("type")):
        causes += unchanged(spec, old["spec"], "spec", "clusterIP")
    return causes


def config_map(new: JsonObject, old: JsonObject | None) -> Causes:
    """Return what is wrong with a ConfigMap or a Secret, or may not be changed in it."""
    causes: Causes = []
    size = 0
    for name in ("data", "binaryData"):
        for key, value in (new.get(name) or {}).items():
            size += len(value)
            if not _CONFIG_KEY.fullmatch(key):
                causes.append(invalid(f"{name}[{key}]", key, "must be letters, digits, '-', '_' or '.'"))
    if size > _MOST_BYTES:
        causes.append(too_long("data", _MOST_BYTES))
    fixed = ("immutable", "data", "binaryData") if old is not None and old.get("immutable") else ()
    return causes if old is None else causes + unchanged(new, old, "", "type", *fixed)


def claim(new: JsonObject, old: JsonObject | None) -> Causes:
    """Return what is wrong with a PersistentVolumeClaim, or may not be changed in it."""
    if old is None:
        return claim_spec(new["spec"], "spec")
    bound = () if old["spec"].get("volumeName") else ("volumeName",)
    changeable = ("resources", "volumeAttributesClassName", *bound)
    return claim_spec(new["spec"], "spec") + only_changed(new["spec"], old["spec"], "spec", *changeable)


def priority_class(new: JsonObject, old: JsonObject | None) -> Causes:
    """Return what may not be changed in a PriorityClass."""
    return [] if old is None else unchanged(new, old, "", "value", "preemptionPolicy")


def lease(new: JsonObject, old: JsonObject | None) -> Causes:  # noqa: ARG001 - nothing in it is immutable
    """Return what is wrong with a Lease."""
    spec = new.get("spec") or {}
    causes = not_negative(spec, "spec", "leaseTransitions")
    if spec.get("leaseDurationSeconds", 1) <= 0:
        causes.append(invalid("spec.leaseDurationSeconds", spec["leaseDurationSeconds"], "must be greater than 0"))
    return causes


def role(new: JsonObject, old: JsonObject | None) -> Causes:  # noqa: ARG001 - nothing in it is immutable
    """Return what is wrong with a Role or a ClusterRole."""
    causes: Causes = []
    for where, rule in enumerated(new, "", "rules"):
        causes += needed(rule, where, "verbs")
        causes += [] if rule.get("nonResourceURLs") else needed(rule, where, "apiGroups", "resources")
    return causes


def binding(new: JsonObject, old: JsonObject | None) -> Causes:
    """Return what is wrong with a RoleBinding or a ClusterRoleBinding, or may not be changed in it."""
    reference = new.get("roleRef") or {}
    kinds = ("Role", "ClusterRole") if new["kind"] == "RoleBinding" else ("ClusterRole",)
    causes = one_of(reference, "roleRef", "kind", kinds) + needed(reference, "roleRef", "name")
    for where, subject in enumerated(new, "", "subjects"):
        causes += one_of(subject, where, "kind", _SUBJECTS) + needed(subject, where, "name")
        if subject.get("kind") == "ServiceAccount" and new["kind"] == "ClusterRoleBinding":
            causes += needed(subject, where, "namespace")
    return causes if old is None else causes + unchanged(new, old, "", "roleRef")


def event(new: JsonObject, old: JsonObject | None) -> Causes:  # noqa: ARG001 - nothing in it is immutable
    """Return what is wrong with an Event of the core group: it must be where the object is that it is about."""
    return _place(new, new.get("involvedObject") or {}, "involvedObject")


def new_event(new: JsonObject, old: JsonObject | None) -> Causes:
    """Return what is wrong with an Event of events.k8s.io, or may not be changed in it."""
    if old is not None:
        return unchanged(new, old, "", *_FIXED_IN_EVENTS)
    causes = _place(new, new.get("regarding") or {}, "regarding")
    causes += needed(new, "", "eventTime", "reportingInstance", "action", "reason")
    causes += named("reportingController", new.get("reportingController", ""), qualified_problems)
    causes += one_of(new, "", "type", ("Normal", "Warning"))
    longest = {"action": 128, "reason": 128, "reportingInstance": 128, "note": 1024}
    return causes + [too_long(name, most) for name, most in longest.items() if len(new.get(name, "")) > most]


def _place(new: JsonObject, about: JsonObject, path: str) -> Causes:
    namespace, wanted = new["metadata"].get("namespace", ""), about.get("namespace") or "default"
    if namespace == wanted or (not about.get("namespace") and namespace == "kube-system"):
        return []
    return [invalid(f"{path}.namespace", about.get("namespace", ""), f"does not match the namespace {namespace}")]
