"""Probes and hooks of containers.

Follows `validateProbe`, `validateHandler` and `validateLifecycle` in `pkg/apis/core/validation` of Kubernetes 1.36.
"""

from haulout_sandbox.apiserver.fields import forbidden, invalid, not_supported, required
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.validation import rules
from haulout_sandbox.apiserver.validation.common import Causes, by_rule, not_negative, port_or_name

PROBES = ("livenessProbe", "readinessProbe", "startupProbe")

_SCHEMES = ("HTTP", "HTTPS")
_NUMBERS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")


def of_container(each: JsonObject, spec: JsonObject, path: str) -> Causes:
    """Return what is wrong with how a container of a pod is watched, and told to stop."""
    causes: Causes = []
    if "lifecycle" in each:
        causes += _lifecycle(each["lifecycle"], spec, f"{path}.lifecycle")
    for name in PROBES:
        if name in each:
            causes += _probe(each[name], name, spec, f"{path}.{name}")
    return causes


def _lifecycle(lifecycle: JsonObject, spec: JsonObject, path: str) -> Causes:
    causes: Causes = []
    for hook in ("postStart", "preStop"):
        if hook in lifecycle:
            causes += _handler(lifecycle[hook], spec, f"{path}.{hook}")
    if "stopSignal" in lifecycle and not spec.get("os"):
        causes.append(forbidden(f"{path}.stopSignal", "may not be set for containers with empty `spec.os.name`"))
    return causes


def _probe(probe: JsonObject, name: str, spec: JsonObject, path: str) -> Causes:
    causes = _handler(probe, spec, path) + not_negative(probe, path, *_NUMBERS)
    grace, successes = probe.get("terminationGracePeriodSeconds"), probe.get("successThreshold", 0)
    if grace is not None and grace <= 0:
        causes.append(invalid(f"{path}.terminationGracePeriodSeconds", grace, "must be greater than 0"))
    if name == "readinessProbe":
        if grace is not None:
            detail = "must not be set for readinessProbes"
            causes.append(invalid(f"{path}.terminationGracePeriodSeconds", grace, detail))
    elif successes != 1:
        causes.append(invalid(f"{path}.successThreshold", successes, "must be 1"))
    return causes


def _handler(handler: JsonObject, spec: JsonObject, path: str) -> Causes:
    given = [name for name in _HANDLERS if name in handler]
    if not given:
        return [required(path, "must specify a handler type")]
    causes = _action(given[0], handler[given[0]], spec, f"{path}.{given[0]}")
    return causes + [forbidden(f"{path}.{name}", "may not specify more than 1 handler type") for name in given[1:]]


def _action(name: str, action: JsonObject, spec: JsonObject, path: str) -> Causes:
    if name == "exec":
        return [] if action.get("command") else [required(f"{path}.command")]
    if name == "sleep":
        return _sleep(action.get("seconds", 0), spec.get("terminationGracePeriodSeconds"), path)
    port = port_or_name(f"{path}.port", action.get("port", 0))
    if name != "httpGet":
        return port
    causes = [] if action.get("path") else [required(f"{path}.path")]
    causes += port
    if action.get("scheme") not in _SCHEMES:
        causes.append(not_supported(f"{path}.scheme", action.get("scheme", ""), _SCHEMES))
    for header in action.get("httpHeaders") or ():
        causes += by_rule(f"{path}.httpHeaders", header.get("name", ""), rules.header_name)
    return causes


def _sleep(seconds: int, grace_seconds: int | None, path: str) -> Causes:
    if grace_seconds is None or 0 <= seconds <= grace_seconds:
        return []
    detail = f"must be non-negative and less than terminationGracePeriodSeconds ({grace_seconds})"
    return [invalid(path, seconds, detail)]
