"""ConfigMaps, Secrets, accounts, namespaces, limits, leases and priorities.

Follows `pkg/apis/{core,coordination,scheduling}/validation` of Kubernetes 1.36.
"""

import base64
import binascii

import msgspec

from haulout_sandbox.apiserver.fields import duplicate, forbidden, invalid, not_supported, required, too_long
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.validation import metadata, resources, rules
from haulout_sandbox.apiserver.validation.common import (
    Causes,
    by_rule,
    enumerated,
    number_of,
    required_by_rule,
    unchanged,
)

_MOST_BYTES = 1024 * 1024
_FIXED = "field is immutable when `immutable` is set"
_REDACTED = "<secret contents redacted>"
_NEEDED_KEYS = {
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
}
_ACCOUNT = "kubernetes.io/service-account.name"
_HIGHEST_PRIORITY = 1_000_000_000
_SYSTEM_PRIORITIES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
_LIMIT_PARTS = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")
_LIMIT_ORDER = (  # what may not be greater: part, its name, than what: part, its name; who is blamed, what is shown
    ("min", "min", "max", "max", "min", "min"),
    ("min", "min", "defaultRequest", "default request", "defaultRequest", "defaultRequest"),
    ("defaultRequest", "default request", "max", "max", "defaultRequest", "defaultRequest"),
    ("defaultRequest", "default request", "default", "default limit", "defaultRequest", "defaultRequest"),
    ("min", "min", "default", "default", "default", "min"),
    ("default", "default", "max", "max", "default", "max"),
)
_LIMIT_TYPES = ("Container", "PersistentVolumeClaim", "Pod")


def config_map(new: JsonObject, old: JsonObject | None = None) -> Causes:
    """Return what is wrong with a ConfigMap."""
    causes = metadata.of_update(new["metadata"], old["metadata"]) if old else []
    if old and old.get("immutable"):
        causes += [] if new.get("immutable") else [forbidden("immutable", _FIXED)]
        causes += [forbidden(it, _FIXED) for it in ("data", "binaryData") if (new.get(it) or {}) != (old.get(it) or {})]
    causes += metadata.of_new(new["metadata"], namespaced=True, name_rule=rules.subdomain)
    data, binary = new.get("data") or {}, new.get("binaryData") or {}
    for key in data:
        causes += by_rule(f"data[{key}]", key, rules.config_key)
        if key in binary:
            causes.append(invalid(f"data[{key}]", key, "duplicate of key present in binaryData"))
    for key in binary:
        causes += by_rule(f"binaryData[{key}]", key, rules.config_key)
    if sum(len(it.encode()) for it in data.values()) + sum(map(_decoded_size, binary.values())) > _MOST_BYTES:
        causes.append(too_long("[]", _MOST_BYTES) | {"field": ""})  # the real server names no field
    return causes


def secret(new: JsonObject, old: JsonObject | None = None) -> Causes:
    """Return what is wrong with a Secret."""
    kind, data = new.get("type", ""), new.get("data") or {}
    causes: Causes = []
    if old:
        causes += metadata.of_update(new["metadata"], old["metadata"])
        causes += unchanged("type", kind, old.get("type", ""))
        if old.get("immutable"):
            causes += [] if new.get("immutable") else [forbidden("immutable", _FIXED)]
            causes += [] if data == (old.get("data") or {}) else [forbidden("data", _FIXED)]
    causes += metadata.of_new(new["metadata"], namespaced=True, name_rule=rules.subdomain)
    for key in data:
        causes += by_rule(f"data[{key}]", key, rules.config_key)
    if sum(map(_decoded_size, data.values())) > _MOST_BYTES:
        causes.append(too_long("data", _MOST_BYTES))
    return causes + _secret_type(kind, data, new["metadata"].get("annotations") or {})


def _secret_type(kind: str, data: JsonObject, annotations: JsonObject) -> Causes:
    if kind == "kubernetes.io/service-account-token" and not annotations.get(_ACCOUNT):
        return [required(f"metadata.annotations[{_ACCOUNT}]")]
    if kind == "kubernetes.io/basic-auth" and not {"username", "password"} & data.keys():
        return [required("data[username]"), required("data[password]")]
    causes: Causes = []
    for key in _NEEDED_KEYS.get(kind, ()):
        if key not in data or (kind == "kubernetes.io/ssh-auth" and not data[key]):
            causes.append(required(f"data[{key}]"))
        elif key.startswith(".docker") and (problem := _no_json(data[key])):
            causes.append(invalid(f"data[{key}]", _REDACTED, problem))
    return causes


def _no_json(encoded: str) -> str:
    try:
        msgspec.json.decode(base64.b64decode(encoded) or b"", type=dict)
    except (msgspec.DecodeError, binascii.Error, ValueError):
        text = base64.b64decode(encoded).decode(errors="replace").lstrip()
        if not text:
            return "unexpected end of JSON input"
        return f"invalid character '{text[0]}' looking for beginning of value"
    return ""


def _decoded_size(encoded: str) -> int:
    return len(encoded) // 4 * 3 - encoded[-2:].count("=")


def service_account(new: JsonObject, old: JsonObject | None = None) -> Causes:
    """Return what is wrong with a ServiceAccount."""
    return only_metadata(new, old, name_rule=rules.subdomain, namespaced=True)


def only_metadata(new: JsonObject, old: JsonObject | None, *, name_rule: rules.Rule, namespaced: bool) -> Causes:
    """Return what is wrong with the metadata of kinds that have no other rules here."""
    causes = metadata.of_update(new["metadata"], old["metadata"]) if old else []
    return causes + metadata.of_new(new["metadata"], namespaced=namespaced, name_rule=name_rule)


def namespace(new: JsonObject, old: JsonObject | None = None) -> Causes:
    """Return what is wrong with a Namespace."""
    causes = metadata.of_new(new["metadata"], namespaced=False, name_rule=rules.dns_label)
    for name in new["spec"].get("finalizers") or ():
        causes += metadata.finalizer_name(name, "spec.finalizers")
        causes += metadata.bare_finalizer(name, "spec.finalizers")
    return causes + (metadata.of_update(new["metadata"], old["metadata"]) if old else [])


def namespace_status(new: JsonObject, old: JsonObject) -> Causes:
    """Return what is wrong with the status of a Namespace."""
    causes = metadata.of_update(new["metadata"], old["metadata"])
    ending, phase = "deletionTimestamp" in new["metadata"], new["status"].get("phase", "")
    wanted = "Terminating" if ending else "Active"
    if phase != wanted:
        detail = f"may only be '{wanted}' if `deletionTimestamp` is {'not empty' if ending else 'empty'}"
        causes.append(invalid("status.Phase", phase, detail))
    return causes


def limit_range(new: JsonObject, old: JsonObject | None = None) -> Causes:  # noqa: ARG001 - nothing in it is immutable
    """Return what is wrong with a LimitRange."""
    causes = metadata.of_new(new["metadata"], namespaced=True, name_rule=rules.subdomain)
    seen: set[str] = set()
    for where, limit in enumerated(new["spec"].get("limits"), "spec.limits"):
        kind = limit.get("type", "")
        found = by_rule(f"{where}.type", kind, rules.qualified_name)
        if not found and "/" not in kind and kind not in _LIMIT_TYPES:
            detail = "must be a standard limit type or fully qualified"
            found.append(invalid(f"{where}.type", kind, detail))
        if kind in seen:
            found.append(duplicate(f"{where}.type", kind))
        seen.add(kind)
        causes += found + _limits(limit, where)
    return causes


def _limits(limit: JsonObject, path: str) -> Causes:
    causes: Causes = []
    rule = resources.container_name if limit.get("type") in ("Pod", "Container") else resources.resource_name
    for part in _LIMIT_PARTS:
        found = limit.get(part) or {}
        if found and limit.get("type") == "Pod" and part.startswith("default"):
            causes.append(forbidden(f"{path}.{part}", "may not be specified when `type` is 'Pod'"))
            continue
        for name in found:
            causes += rule(name, f"{path}.{part}[{name}]")
    names = dict.fromkeys(name for part in _LIMIT_PARTS for name in limit.get(part) or ())
    return causes + [cause for name in names for cause in _limit_order(limit, name, path)]


def _limit_order(limit: JsonObject, name: str, path: str) -> Causes:
    """Return which of the limits of one resource contradict each other."""
    causes: Causes = []
    for lower, low, upper, high, blamed, shown in _LIMIT_ORDER:
        least, most = ((limit.get(part) or {}).get(name) for part in (lower, upper))
        if least is None or most is None or not number_of(most) < number_of(least):
            continue
        detail = f"{low} value {number_of(least)} is greater than {high} value {number_of(most)}"
        value = str(number_of((limit.get(shown) or {})[name]))
        causes.append(invalid(f"{path}.{blamed}[{name}]", value, detail))
    ratio = (limit.get("maxLimitRequestRatio") or {}).get(name)
    if ratio is not None and number_of(ratio) < number_of(1):
        shown = str(number_of(ratio))
        causes.append(invalid(f"{path}.maxLimitRequestRatio[{name}]", shown, f"ratio {shown} is less than 1"))
    return causes


def quota(new: JsonObject, old: JsonObject | None = None) -> Causes:
    """Return what is wrong with a ResourceQuota."""
    if old is None:
        causes = metadata.of_new(new["metadata"], namespaced=True, name_rule=rules.subdomain)
    else:
        causes = metadata.of_update(new["metadata"], old["metadata"])
    for name, value in (new["spec"].get("hard") or {}).items():
        path = f"spec.hard[{name}]"
        causes += resources.quota_name(name, path) + resources.quantity(name, value, path)
    scopes = new["spec"].get("scopes") or []
    if old is not None and set(scopes) != set(old["spec"].get("scopes") or ()):
        causes.append(invalid("spec.scopes", scopes or None, "field is immutable"))
    return causes


def lease(new: JsonObject, old: JsonObject | None = None) -> Causes:
    """Return what is wrong with a Lease."""
    if old is None:
        causes = metadata.of_any(new["metadata"], namespaced=True, name_rule=rules.subdomain)
    else:
        causes = metadata.of_any_update(new["metadata"], old["metadata"])
    spec = new["spec"]
    if spec.get("leaseDurationSeconds", 1) <= 0:
        causes.append(invalid("spec.leaseDurationSeconds", spec["leaseDurationSeconds"], "must be greater than 0"))
    if spec.get("leaseTransitions", 0) < 0:
        detail = "must be greater than or equal to 0"
        causes.append(invalid("spec.leaseTransitions", spec["leaseTransitions"], detail))
    return causes


def priority_class(new: JsonObject, old: JsonObject | None = None) -> Causes:
    """Return what is wrong with a PriorityClass."""
    value, name = new.get("value", 0), new["metadata"].get("name", "")
    policy = new.get("preemptionPolicy")
    if old is not None:
        causes = metadata.of_update(new["metadata"], old["metadata"])
        if value != old.get("value", 0):
            causes.append(forbidden("value", "may not be changed in an update."))
        return causes + unchanged("preemptionPolicy", policy, old.get("preemptionPolicy"))
    causes = metadata.of_new(new["metadata"], namespaced=False, name_rule=rules.subdomain)
    if name.startswith("system-"):
        causes += _system_priority(name, value, is_default=bool(new.get("globalDefault")))
    elif value > _HIGHEST_PRIORITY:
        detail = f"maximum allowed value of a user defined priority is {_HIGHEST_PRIORITY}"
        causes.append(forbidden("value", detail))
    if policy not in (None, "PreemptLowerPriority", "Never"):
        causes.append(not_supported("preemptionPolicy", policy, ("PreemptLowerPriority", "Never")))
    return causes


def runtime_class(new: JsonObject, old: JsonObject | None = None) -> Causes:
    """Return what is wrong with a RuntimeClass."""
    handler = new.get("handler", "")
    if old is not None:
        causes = metadata.of_update(new["metadata"], old["metadata"])
        return causes + unchanged("handler", handler, old.get("handler", ""))
    causes = metadata.of_new(new["metadata"], namespaced=False, name_rule=rules.subdomain)
    return causes + required_by_rule("handler", handler, rules.dns_label)


def _system_priority(name: str, value: int, *, is_default: bool) -> Causes:
    wanted = _SYSTEM_PRIORITIES.get(name)
    if wanted is None:
        problem = f"{name} is not a known system priority class"
    elif value != wanted:
        problem = f"value of {name} PriorityClass must be {wanted}"
    elif is_default:
        problem = f"globalDefault of {name} PriorityClass must be false"
    else:
        return []
    detail = f"priority class names with 'system-' prefix are reserved for system use only. error: {problem}"
    return [forbidden("metadata.name", detail)]
