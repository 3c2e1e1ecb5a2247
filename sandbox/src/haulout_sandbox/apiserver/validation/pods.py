"""Validation of pods and pod templates."""

from typing import Any

from haulout_sandbox.apiserver.field_errors import duplicate, forbidden, invalid, not_found
from haulout_sandbox.apiserver.kinds.kind import JsonObject
from haulout_sandbox.apiserver.object_names import (
    dns1123_label_problems,
    dns1123_subdomain_problems,
    qualified_name_problems,
)
from haulout_sandbox.apiserver.validation.common import (
    Causes,
    enumerate_items,
    mutable_fields,
    non_negative,
    non_negative_quantities,
    one_of,
    parse_quantity,
    required_fields,
    required_name,
    validate_label_selector,
    validate_labels,
)

_CONTAINERS = ("containers", "initContainers")
_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_MAX_PORT = 65535
_MUTABLE = (*_CONTAINERS, "activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates")
_MUTABLE_WHILE_GATED = ("nodeSelector", "affinity")


def validate_pod(new: JsonObject, old: JsonObject | None) -> Causes:
    spec = new["spec"]
    causes = validate_pod_spec(spec, "spec")
    if old is not None:
        return causes + _validate_update(spec, old["spec"])
    if spec.get("nodeName") and spec.get("schedulingGates"):
        causes.append(forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
    return causes


def validate_template(owner: JsonObject, path: str, *, restart_policies: tuple[str, ...] = ("Always",)) -> Causes:
    template, path = owner.get("template") or {}, f"{path}.template"
    spec = template.get("spec") or {}
    causes = validate_labels((template.get("metadata") or {}).get("labels"), f"{path}.metadata.labels")
    return (
        causes
        + validate_pod_spec(spec, f"{path}.spec")
        + one_of(spec, f"{path}.spec", "restartPolicy", restart_policies)
    )


def validate_pod_spec(spec: JsonObject, path: str) -> Causes:
    """Return what is wrong with the spec of a pod or a pod template."""
    causes = required_fields(spec, path, "containers")
    causes += _validate_volumes(spec, path)
    volumes = {volume.get("name") for volume in spec.get("volumes") or ()}
    names: set[str] = set()
    for kind in _CONTAINERS:
        for item_path, container in enumerate_items(spec, path, kind):
            causes += _validate_container(container, item_path, volumes)
            causes += _check_duplicate(container.get("name", ""), f"{item_path}.name", names)
    causes += one_of(spec, path, "restartPolicy", _RESTART_POLICIES)
    causes += non_negative(spec, path, "terminationGracePeriodSeconds")
    if spec.get("activeDeadlineSeconds", 1) < 1:
        causes.append(invalid(f"{path}.activeDeadlineSeconds", spec["activeDeadlineSeconds"], "must be positive"))
    if spec.get("nodeName"):
        causes += required_name(f"{path}.nodeName", spec["nodeName"], dns1123_subdomain_problems)
    causes += validate_labels(spec.get("nodeSelector"), f"{path}.nodeSelector")
    causes += validate_tolerations(spec, path)
    causes += _validate_affinity(spec.get("affinity") or {}, f"{path}.affinity")
    for item_path, spread in enumerate_items(spec, path, "topologySpreadConstraints"):
        causes += required_fields(spread, item_path, "maxSkew", "topologyKey")
        causes += one_of(spread, item_path, "whenUnsatisfiable", ("DoNotSchedule", "ScheduleAnyway"))
        causes += validate_label_selector(spread.get("labelSelector"), f"{item_path}.labelSelector")
    return causes


def validate_tolerations(spec: JsonObject, path: str) -> Causes:
    causes: Causes = []
    for item_path, toleration in enumerate_items(spec, path, "tolerations"):
        key, operator = toleration.get("key", ""), toleration.get("operator") or "Equal"
        causes += one_of({"operator": operator}, item_path, "operator", ("Equal", "Exists"))
        causes += required_name(f"{item_path}.key", key, qualified_name_problems) if key else []
        if not key and operator != "Exists":
            causes.append(invalid(f"{item_path}.operator", operator, "must be Exists where there is no key"))
        if toleration.get("effect"):
            causes += one_of(toleration, item_path, "effect", _EFFECTS)
    return causes


def validate_taints(spec: JsonObject, path: str) -> Causes:
    causes: Causes = []
    previous: set[Any] = set()
    for item_path, taint in enumerate_items(spec, path, "taints"):
        causes += required_name(f"{item_path}.key", taint.get("key", ""), qualified_name_problems)
        causes += one_of(taint, item_path, "effect", _EFFECTS)
        causes += _check_duplicate((taint.get("key"), taint.get("effect")), item_path, previous)
    return causes


def validate_port(part: JsonObject, path: str, name: str) -> Causes:
    number = part.get(name, 0)
    return [] if 0 < number <= _MAX_PORT else [invalid(f"{path}.{name}", number, f"must be 1 to {_MAX_PORT}")]


def _check_duplicate(value: Any, path: str, previous: set[Any]) -> Causes:
    if value in previous:
        return [duplicate(path, value)]
    previous.add(value)
    return []


def _validate_volumes(spec: JsonObject, path: str) -> Causes:
    causes: Causes = []
    names: set[str] = set()
    for item_path, volume in enumerate_items(spec, path, "volumes"):
        name = volume.get("name", "")
        causes += required_name(f"{item_path}.name", name, dns1123_label_problems) + _check_duplicate(
            name, f"{item_path}.name", names
        )
        if len([value for key, value in volume.items() if key != "name" and value is not None]) > 1:
            causes.append(forbidden(item_path, "may not specify more than 1 volume type"))
    return causes


def _validate_container(container: JsonObject, path: str, volumes: set[str | None]) -> Causes:
    causes = required_name(f"{path}.name", container.get("name", ""), dns1123_label_problems) + required_fields(
        container, path, "image"
    )
    for item_path, port in enumerate_items(container, path, "ports"):
        causes += validate_port(port, item_path, "containerPort")
    for item_path, variable in enumerate_items(container, path, "env"):
        causes += required_fields(variable, item_path, "name")
    for item_path, mount in enumerate_items(container, path, "volumeMounts"):
        causes += required_fields(mount, item_path, "name", "mountPath")
        if mount.get("name") not in volumes:
            causes.append(not_found(f"{item_path}.name", mount.get("name", "")))
    resources, path = container.get("resources") or {}, f"{path}.resources"
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    causes += non_negative_quantities(limits, f"{path}.limits") + non_negative_quantities(requests, f"{path}.requests")
    for name in requests.keys() & limits.keys():
        if parse_quantity(limits[name]) < parse_quantity(requests[name]):
            detail = f"must be less than or equal to {name} limit of {limits[name]}"
            causes.append(invalid(f"{path}.requests", requests[name], detail))
    return causes


def _validate_affinity(affinity: JsonObject, path: str) -> Causes:
    required_field = "requiredDuringSchedulingIgnoredDuringExecution"
    causes: Causes = []
    if (node_affinity := (affinity.get("nodeAffinity") or {}).get(required_field)) is not None:
        causes += required_fields(node_affinity, f"{path}.nodeAffinity.{required_field}", "nodeSelectorTerms")
    for kind in ("podAffinity", "podAntiAffinity"):
        for item_path, term in enumerate_items(affinity.get(kind) or {}, f"{path}.{kind}", required_field):
            causes += required_fields(term, item_path, "topologyKey")
            causes += validate_label_selector(term.get("labelSelector"), f"{item_path}.labelSelector")
    return causes


def _validate_update(spec: JsonObject, old_spec: JsonObject) -> Causes:
    """Return which changes are forbidden: the sandbox does not look into lists that may change at all."""
    is_gated = bool(old_spec.get("schedulingGates"))
    return mutable_fields(spec, old_spec, "spec", *_MUTABLE, *(_MUTABLE_WHILE_GATED if is_gated else ()))
