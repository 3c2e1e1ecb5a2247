"""Pods and the templates of pods: what is wrong with new ones, and what may change in one that is there."""

from typing import Any

from haulout_sandbox.apiserver.fields import duplicate, forbidden, invalid, not_found
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.names import dns_label_problems, qualified_problems, subdomain_problems
from haulout_sandbox.apiserver.validation.common import (
    Causes,
    enumerated,
    label_selector,
    labels,
    named,
    needed,
    not_negative,
    number_of,
    one_of,
    only_changed,
    quantities,
)

_CONTAINERS = ("containers", "initContainers")
_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_MOST_PORT = 65535
_CHANGEABLE = (*_CONTAINERS, "activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds")
_CHANGEABLE_WHILE_GATED = ("nodeSelector", "affinity")


def pod(new: JsonObject, old: JsonObject | None) -> Causes:
    """Return what is wrong with a pod, or may not be changed in it."""
    spec = new["spec"]
    causes = pod_spec(spec, "spec")
    if old is not None:
        return causes + _update(spec, old["spec"])
    if spec.get("nodeName") and spec.get("schedulingGates"):
        causes.append(forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
    return causes


def template(owner: JsonObject, path: str, *, restart_policies: tuple[str, ...] = ("Always",)) -> Causes:
    """Return what is wrong with the template of pods that `owner` has."""
    found, path = owner.get("template") or {}, f"{path}.template"
    spec = found.get("spec") or {}
    causes = labels((found.get("metadata") or {}).get("labels"), f"{path}.metadata.labels")
    return causes + pod_spec(spec, f"{path}.spec") + one_of(spec, f"{path}.spec", "restartPolicy", restart_policies)


def pod_spec(spec: JsonObject, path: str) -> Causes:
    """Return what is wrong with what a pod and its template have in common."""
    causes = needed(spec, path, "containers")
    causes += _volumes(spec, path)
    volumes = {volume.get("name") for volume in spec.get("volumes") or ()}
    names: set[str] = set()
    for kind in _CONTAINERS:
        for where, container in enumerated(spec, path, kind):
            causes += _container(container, where, volumes)
            causes += _second(container.get("name", ""), f"{where}.name", names)
    causes += one_of(spec, path, "restartPolicy", _RESTART_POLICIES)
    causes += not_negative(spec, path, "terminationGracePeriodSeconds")
    if spec.get("activeDeadlineSeconds", 1) < 1:
        causes.append(invalid(f"{path}.activeDeadlineSeconds", spec["activeDeadlineSeconds"], "must be positive"))
    if spec.get("nodeName"):
        causes += named(f"{path}.nodeName", spec["nodeName"], subdomain_problems)
    causes += labels(spec.get("nodeSelector"), f"{path}.nodeSelector")
    causes += tolerations(spec, path)
    causes += _affinity(spec.get("affinity") or {}, f"{path}.affinity")
    for where, spread in enumerated(spec, path, "topologySpreadConstraints"):
        causes += needed(spread, where, "maxSkew", "topologyKey")
        causes += one_of(spread, where, "whenUnsatisfiable", ("DoNotSchedule", "ScheduleAnyway"))
        causes += label_selector(spread.get("labelSelector"), f"{where}.labelSelector")
    return causes


def tolerations(spec: JsonObject, path: str) -> Causes:
    """Return what is wrong with tolerations."""
    causes: Causes = []
    for where, each in enumerated(spec, path, "tolerations"):
        key, operator = each.get("key", ""), each.get("operator") or "Equal"
        causes += one_of({"operator": operator}, where, "operator", ("Equal", "Exists"))
        causes += named(f"{where}.key", key, qualified_problems) if key else []
        if not key and operator != "Exists":
            causes.append(invalid(f"{where}.operator", operator, "must be Exists where there is no key"))
        if each.get("effect"):
            causes += one_of(each, where, "effect", _EFFECTS)
    return causes


def taints(spec: JsonObject, path: str) -> Causes:
    """Return what is wrong with taints."""
    causes: Causes = []
    seen: set[Any] = set()
    for where, each in enumerated(spec, path, "taints"):
        causes += named(f"{where}.key", each.get("key", ""), qualified_problems)
        causes += one_of(each, where, "effect", _EFFECTS)
        causes += _second((each.get("key"), each.get("effect")), where, seen)
    return causes


def port(part: JsonObject, path: str, name: str) -> Causes:
    """Say that a number is no port."""
    number = part.get(name, 0)
    return [] if 0 < number <= _MOST_PORT else [invalid(f"{path}.{name}", number, f"must be 1 to {_MOST_PORT}")]


def _second(value: Any, path: str, seen: set[Any]) -> Causes:
    if value in seen:
        return [duplicate(path, value)]
    seen.add(value)
    return []


def _volumes(spec: JsonObject, path: str) -> Causes:
    causes: Causes = []
    names: set[str] = set()
    for where, volume in enumerated(spec, path, "volumes"):
        name = volume.get("name", "")
        causes += named(f"{where}.name", name, dns_label_problems) + _second(name, f"{where}.name", names)
        if len([value for key, value in volume.items() if key != "name" and value is not None]) > 1:
            causes.append(forbidden(where, "may not specify more than 1 volume type"))
    return causes


def _container(container: JsonObject, path: str, volumes: set[str | None]) -> Causes:
    causes = named(f"{path}.name", container.get("name", ""), dns_label_problems) + needed(container, path, "image")
    for where, each in enumerated(container, path, "ports"):
        causes += port(each, where, "containerPort")
    for where, variable in enumerated(container, path, "env"):
        causes += needed(variable, where, "name")
    for where, mount in enumerated(container, path, "volumeMounts"):
        causes += needed(mount, where, "name", "mountPath")
        if mount.get("name") not in volumes:
            causes.append(not_found(f"{where}.name", mount.get("name", "")))
    resources, path = container.get("resources") or {}, f"{path}.resources"
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    causes += quantities(limits, f"{path}.limits") + quantities(requests, f"{path}.requests")
    for name in requests.keys() & limits.keys():
        if number_of(limits[name]) < number_of(requests[name]):
            detail = f"must be less than or equal to {name} limit of {limits[name]}"
            causes.append(invalid(f"{path}.requests", requests[name], detail))
    return causes


def _affinity(affinity: JsonObject, path: str) -> Causes:
    required_ones = "requiredDuringSchedulingIgnoredDuringExecution"
    causes: Causes = []
    if (wanted := (affinity.get("nodeAffinity") or {}).get(required_ones)) is not None:
        causes += needed(wanted, f"{path}.nodeAffinity.{required_ones}", "nodeSelectorTerms")
    for kind in ("podAffinity", "podAntiAffinity"):
        for where, term in enumerated(affinity.get(kind) or {}, f"{path}.{kind}", required_ones):
            causes += needed(term, where, "topologyKey")
            causes += label_selector(term.get("labelSelector"), f"{where}.labelSelector")
    return causes


def _update(spec: JsonObject, before: JsonObject) -> Causes:
    if spec == before:
        return []
    causes: Causes = []
    for kind in _CONTAINERS:
        new, old = spec.get(kind) or [], before.get(kind) or []
        if len(new) != len(old):
            causes.append(forbidden(f"spec.{kind}", "pod updates may not add or remove containers"))
            continue
        for at, (each, was) in enumerate(zip(new, old, strict=True)):
            causes += only_changed(each, was, f"spec.{kind}[{at}]", "image")
    causes += _delays(spec, before)
    tolerated = [_without_seconds(it) for it in spec.get("tolerations") or ()]
    if any(_without_seconds(it) not in tolerated for it in before.get("tolerations") or ()):
        causes.append(forbidden("spec.tolerations", "existing tolerations may not be changed"))
    known = [it.get("name") for it in before.get("schedulingGates") or ()]
    for where, gate in enumerated(spec, "spec", "schedulingGates"):
        if gate.get("name") not in known:
            causes.append(forbidden(where, "scheduling gates may only be removed"))
    gated = _CHANGEABLE_WHILE_GATED if known else ()
    return causes + only_changed(spec, before, "spec", "schedulingGates", *_CHANGEABLE, *gated)


def _delays(spec: JsonObject, before: JsonObject) -> Causes:
    causes: Causes = []
    grace, was = (it.get("terminationGracePeriodSeconds") for it in (spec, before))
    if grace != was and not (grace == 1 and (was or 0) < 0):
        causes.append(forbidden("spec.terminationGracePeriodSeconds", "field is immutable"))
    deadline, was = (it.get("activeDeadlineSeconds") for it in (spec, before))
    if was is not None and (deadline is None or deadline > was):
        causes.append(invalid("spec.activeDeadlineSeconds", deadline, "may only become shorter"))
    return causes


def _without_seconds(toleration: JsonObject) -> JsonObject:
    return {name: value for name, value in toleration.items() if value and name != "tolerationSeconds"}
