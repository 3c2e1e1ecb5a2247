"""Containers of a pod: names, ports, variables, mounts, restarts; how they are asked and told is in `probes`.

Follows `validateContainers`, `validateInitContainers` and what they call in `pkg/apis/core/validation` of Kubernetes
1.36.
"""

from collections.abc import Collection
from typing import NamedTuple

from haulout_sandbox.apiserver.fields import duplicate, forbidden, invalid, not_found, required, too_many
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.validation import probes, resources, rules, security
from haulout_sandbox.apiserver.validation.common import (
    Causes,
    by_rule,
    enumerated,
    one_of,
    required_by_rule,
)
from haulout_sandbox.apiserver.validation.volumes import (
    Volumes,
    descending_path,
    field_reference,
    no_backsteps,
    resource_reference,
)

_PROTOCOLS = ("SCTP", "TCP", "UDP")
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")
_RESTARTS = ("Always", "Never", "OnFailure")
_RESTART_ACTIONS = ("Restart", "RestartAllContainers")
_RESIZED = ("cpu", "memory")
_RESIZES = ("NotRequired", "RestartContainer")
_PROPAGATIONS = ("Bidirectional", "HostToContainer", "None")
_READ_ONLY = ("Disabled", "Enabled", "IfPossible")
_VARIABLE_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
_NO_SIDECAR = "may not be set for init containers without restartPolicy=Always"
_NOT_EPHEMERAL = "cannot be set for an Ephemeral Container"
_MOST_RULES, _MOST_EXIT_CODES = 20, 255


class Pod(NamedTuple):
    """What containers must know about the pod that they are in."""

    spec: JsonObject
    volumes: Volumes
    claims: Collection[str]
    host_users: bool


def regular(pod: Pod, path: str) -> Causes:
    """Return what is wrong with the containers."""
    found = pod.spec.get("containers") or ()
    if not found:
        return [required(path)]
    causes: Causes = []
    seen: set[str] = set()
    for where, each in enumerated(found, path):
        causes += _common(each, pod, where)
        name = each.get("name", "")
        if name in seen:
            causes.append(duplicate(f"{where}.name", name))
        seen.add(name)
        causes += probes.of_container(each, pod.spec, where)
        causes += _restarts(each, where)
    return causes + _host_ports(found, path)


def initial(pod: Pod, path: str) -> Causes:
    """Return what is wrong with the init containers."""
    causes: Causes = []
    seen = {it.get("name", "") for it in pod.spec.get("containers") or ()}
    for where, each in enumerated(pod.spec.get("initContainers"), path):
        causes += _common(each, pod, where)
        causes += _restarts(each, where)
        sidecar, name = each.get("restartPolicy") == "Always", each.get("name", "")
        if name in seen:
            causes.append(duplicate(f"{where}.name", name))
        elif name:
            seen.add(name)
        causes += _host_ports([each], path)
        if sidecar:
            causes += probes.of_container(each, pod.spec, where)
        else:
            causes += [forbidden(f"{where}.{it}", _NO_SIDECAR) for it in ("lifecycle", *probes.PROBES) if it in each]
            causes += _no_restart_on_resize(each, where)
    return causes


def ephemeral(pod: Pod, path: str) -> Causes:
    """Return what is wrong with the ephemeral containers."""
    causes: Causes = []
    others = {it.get("name", "") for kind in ("containers", "initContainers") for it in pod.spec.get(kind) or ()}
    seen = set(others)
    for where, each in enumerated(pod.spec.get("ephemeralContainers"), path):
        causes += _common(each, pod, where) + only_for_pod(each, where)
        name, target = each.get("name", ""), each.get("targetContainerName", "")
        if name in seen:
            causes.append(duplicate(f"{where}.name", name))
        seen.add(name)
        if target and target not in others:
            causes.append(not_found(f"{where}.targetContainerName", target))
        unfit = ("ports", "resources", *probes.PROBES, "lifecycle")
        causes += [forbidden(f"{where}.{it}", _NOT_EPHEMERAL) for it in unfit if each.get(it)]
        for at, mount in enumerated(each.get("volumeMounts"), f"{where}.volumeMounts"):
            causes += [forbidden(f"{at}.{it}", _NOT_EPHEMERAL) for it in ("subPath", "subPathExpr") if mount.get(it)]
    return causes


def only_for_pod(each: JsonObject, path: str) -> Causes:
    """Return what is wrong in a pod, but not in a template of one."""
    image = each.get("image", "")
    if image == image.strip():
        return []
    return [invalid(f"{path}.image", image, "must not have leading or trailing whitespace")]


def _common(each: JsonObject, pod: Pod, path: str) -> Causes:
    causes = required_by_rule(f"{path}.name", each.get("name", ""), rules.dns_label)
    if not each.get("image"):
        causes.append(required(f"{path}.image"))
    if each.get("terminationMessagePolicy") not in _MESSAGE_POLICIES:
        given = each.get("terminationMessagePolicy")
        causes += one_of(f"{path}.terminationMessagePolicy", given, _MESSAGE_POLICIES, needed=True)
    for name, check in _LISTS.items():
        if name in each:
            causes += check(each[name], f"{path}.{name}")
    if "volumeMounts" in each or "volumeDevices" in each:
        causes += _mounts(each, pod.volumes, f"{path}.volumeMounts")
        causes += _devices(each, pod.volumes, f"{path}.volumeDevices")
    if each.get("imagePullPolicy") not in _PULL_POLICIES:
        causes += one_of(f"{path}.imagePullPolicy", each.get("imagePullPolicy"), _PULL_POLICIES, needed=True)
    if each.get("resources"):
        causes += resources.of_container(each["resources"], f"{path}.resources", pod.claims)
    if "resizePolicy" in each:
        causes += _resizes(each["resizePolicy"], pod.spec.get("restartPolicy"), f"{path}.resizePolicy")
    if "securityContext" in each:
        context = each["securityContext"]
        causes += security.of_container(context, f"{path}.securityContext", host_users=pod.host_users)
    return causes


def _ports(found: list[JsonObject], path: str) -> Causes:
    causes: Causes = []
    seen: set[str] = set()
    for where, port in enumerated(found, path):
        name, number, host = port.get("name", ""), port.get("containerPort", 0), port.get("hostPort", 0)
        if name and (problems := rules.port_name(name)):
            causes += [invalid(f"{where}.name", name, problem) for problem in problems]
        elif name in seen:
            causes.append(duplicate(f"{where}.name", name))
        elif name:
            seen.add(name)
        causes += _port_number(f"{where}.containerPort", number) if number else [required(f"{where}.containerPort")]
        causes += _port_number(f"{where}.hostPort", host) if host else []
        causes += one_of(f"{where}.protocol", port.get("protocol"), _PROTOCOLS, needed=True)
    return causes


def _port_number(path: str, number: int) -> Causes:
    return [invalid(path, number, problem) for problem in rules.port_number(number)]


def _host_ports(found: list[JsonObject], path: str) -> Causes:
    causes: Causes = []
    seen: set[str] = set()
    for at, each in enumerate(found):
        for number, port in enumerate(each.get("ports") or ()):
            if not port.get("hostPort"):
                continue
            taken = f"{port.get('protocol', '')}/{port.get('hostIP', '')}/{port['hostPort']}"
            if taken in seen:
                causes.append(duplicate(f"{path}[{at}].ports[{number}].hostPort", taken))
            seen.add(taken)
    return causes


def _variables(found: list[JsonObject], path: str) -> Causes:
    causes: Causes = []
    for where, each in enumerated(found, path):
        causes += required_by_rule(f"{where}.name", each.get("name", ""), rules.variable_name)
        if "valueFrom" in each:
            causes += _value_from(each["valueFrom"], each.get("value", ""), f"{where}.valueFrom")
    return causes


def _value_from(source: JsonObject, value: str, path: str) -> Causes:
    causes: Causes = []
    if "fieldRef" in source:
        causes += field_reference(source["fieldRef"], f"{path}.fieldRef", _VARIABLE_FIELDS)
    if "resourceFieldRef" in source:
        causes += resource_reference(source["resourceFieldRef"], f"{path}.resourceFieldRef", of_volume=False)
    for name in ("configMapKeyRef", "secretKeyRef"):
        if name in source:
            reference = source[name]
            causes += by_rule(f"{path}.{name}.name", reference.get("name", ""), rules.subdomain)
            causes += required_by_rule(f"{path}.{name}.key", reference.get("key", ""), rules.config_key)
    if "fileKeyRef" in source:
        reference, where = source["fileKeyRef"], f"{path}.fileKeyRef"
        causes += required_by_rule(f"{where}.key", reference.get("key", ""), rules.variable_name)
        causes += required_by_rule(f"{where}.volumeName", reference.get("volumeName", ""), rules.dns_label)
        causes += no_backsteps(reference["path"], f"{where}.path") if reference.get("path") else []
        causes += [] if reference.get("path") else [required(f"{where}.path")]
    if not source:
        kinds = "`fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        causes.append(invalid(path, "", f"must specify one of: {kinds}"))
    elif value:
        causes.append(invalid(path, "", "may not be specified when `value` is not empty"))
    elif len(source) > 1:
        causes.append(invalid(path, "", "may not have more than one field specified at a time"))
    return causes


def _variables_from(found: list[JsonObject], path: str) -> Causes:
    causes: Causes = []
    for where, each in enumerated(found, path):
        causes += by_rule(f"{where}.prefix", each["prefix"], rules.variable_name) if each.get("prefix") else []
        sources = [name for name in ("configMapRef", "secretRef") if name in each]
        for name in sources:
            causes += required_by_rule(f"{where}.{name}.name", each[name].get("name", ""), _prefix_rule)
        if not sources:
            causes.append(invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"))
        elif len(sources) > 1:
            causes.append(invalid(path, "", "may not have more than one field specified at a time"))
    return causes


_LISTS = {"ports": _ports, "env": _variables, "envFrom": _variables_from}


def _prefix_rule(name: str) -> rules.Problems:
    """Return what is wrong with a name; the real server takes this one for the beginning of a name."""
    return rules.subdomain(f"{name[:-2]}a" if len(name) > 1 and name.endswith("-") else name)


def _mounts(each: JsonObject, volumes: Volumes, path: str) -> Causes:
    causes: Causes = []
    devices = {it.get("name", ""): it.get("devicePath", "") for it in each.get("volumeDevices") or ()}
    seen: set[str] = set()
    for where, mount in enumerated(each.get("volumeMounts"), path):
        name, target = mount.get("name", ""), mount.get("mountPath", "")
        causes += [] if name else [required(f"{where}.name")]
        causes += [] if name in volumes else [not_found(f"{where}.name", name)]
        causes += [] if target else [required(f"{where}.mountPath")]
        if target in seen:
            causes.append(invalid(f"{where}.mountPath", target, "must be unique"))
        seen.add(target)
        if name in devices:
            causes.append(invalid(f"{where}.name", name, "must not already exist in volumeDevices"))
        if target in devices.values():
            detail = "must not already exist as a path in volumeDevices"
            causes.append(invalid(f"{where}.mountPath", target, detail))
        causes += _below_the_volume(mount, where, path)
        causes += _propagation(mount, each, path)
    return causes


def _below_the_volume(mount: JsonObject, where: str, path: str) -> Causes:
    sub, expression = mount.get("subPath", ""), mount.get("subPathExpr", "")
    causes = descending_path(sub, f"{path}.subPath") if sub else []
    if expression:
        if sub:
            detail = "subPathExpr and subPath are mutually exclusive"
            causes.append(invalid(f"{where}.subPathExpr", expression, detail))
        causes += descending_path(expression, f"{path}.subPathExpr")
    return causes


def _propagation(mount: JsonObject, each: JsonObject, path: str) -> Causes:
    causes: Causes = []
    propagation, recursive = mount.get("mountPropagation"), mount.get("recursiveReadOnly")
    if propagation is not None:
        causes += one_of(f"{path}.mountPropagation", propagation, _PROPAGATIONS)
        if propagation == "Bidirectional" and not (each.get("securityContext") or {}).get("privileged"):
            detail = "Bidirectional mount propagation is available only to privileged containers"
            causes.append(forbidden(f"{path}.mountPropagation", detail))
    if recursive in ("Enabled", "IfPossible"):
        if not mount.get("readOnly"):
            causes.append(forbidden(f"{path}.recursiveReadOnly", "may only be specified when readOnly is true"))
        if propagation not in (None, "None"):
            detail = "may only be specified when mountPropagation is None or not specified"
            causes.append(forbidden(f"{path}.recursiveReadOnly", detail))
    elif recursive is not None:
        causes += one_of(f"{path}.recursiveReadOnly", recursive, _READ_ONLY)
    return causes


def _devices(each: JsonObject, volumes: Volumes, path: str) -> Causes:
    causes: Causes = []
    mounts = {it.get("name", ""): it.get("mountPath", "") for it in each.get("volumeMounts") or ()}
    names: set[str] = set()
    paths: set[str] = set()
    for where, device in enumerated(each.get("volumeDevices"), path):
        name, target = device.get("name", ""), device.get("devicePath", "")
        causes += [] if name else [required(f"{where}.name")]
        if name in names:
            causes.append(invalid(f"{where}.name", name, "must be unique"))
        volume = volumes.get(name)
        if volume is None:
            causes.append(not_found(f"{where}.name", name))
        elif not {"persistentVolumeClaim", "ephemeral"} & volume.keys():
            detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            causes.append(invalid(f"{where}.name", name, detail))
        causes += [] if target else [required(f"{where}.devicePath")]
        if target in paths:
            causes.append(invalid(f"{where}.devicePath", target, "must be unique"))
        if ".." in target.split("/"):
            causes.append(invalid(f"{where}.devicePath", target, "can not contain backsteps ('..')"))
        paths.add(target)
        if name in mounts:
            causes.append(invalid(f"{where}.name", name, "must not already exist in volumeMounts"))
        if target in mounts.values():
            detail = "must not already exist as a path in volumeMounts"
            causes.append(invalid(f"{where}.devicePath", target, detail))
        names.add(name)
    return causes


def _resizes(found: list[JsonObject], restarts: str | None, path: str) -> Causes:
    causes: Causes = []
    seen: set[str] = set()
    for where, each in enumerated(found, path):
        name, policy = each.get("resourceName", ""), each.get("restartPolicy", "")
        if name in seen:
            causes.append(duplicate(where, name))
        seen.add(name)
        causes += one_of(path, name, _RESIZED, needed=True) + one_of(path, policy, _RESIZES, needed=True)
        if restarts == "Never" and policy != "NotRequired":
            detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'"
            causes.append(invalid(path, policy, detail))
    return causes


def _no_restart_on_resize(each: JsonObject, path: str) -> Causes:
    detail = "must not be set to 'RestartContainer' for non-sidecar initContainers"
    return [
        invalid(f"{where}.restartPolicy", it["restartPolicy"], detail)
        for where, it in enumerated(each.get("resizePolicy"), f"{path}.resizePolicy")
        if it.get("restartPolicy") == "RestartContainer"
    ]


def _restarts(each: JsonObject, path: str) -> Causes:
    policy, found = each.get("restartPolicy"), each.get("restartPolicyRules") or ()
    if policy is None and not found:
        return []
    if policy is None:
        causes = [required(f"{path}.restartPolicy", "must specify restartPolicy when restart rules are used")]
    else:
        causes = one_of(f"{path}.restartPolicy", policy, _RESTARTS)
    if len(found) > _MOST_RULES:
        causes.append(too_many(f"{path}.restartPolicyRules", len(found), _MOST_RULES))
    for where, rule in enumerated(found, f"{path}.restartPolicyRules"):
        causes += one_of(f"{where}.action", rule.get("action", ""), _RESTART_ACTIONS)
        codes = rule.get("exitCodes")
        if codes is None:
            causes.append(required(f"{where}.exitCodes", "must be specified"))
            continue
        causes += one_of(f"{where}.exitCodes.operator", codes.get("operator", ""), ("In", "NotIn"))
        if len(codes.get("values") or ()) > _MOST_EXIT_CODES:
            causes.append(too_many(f"{where}.exitCodes.values", len(codes["values"]), _MOST_EXIT_CODES))
    return causes
