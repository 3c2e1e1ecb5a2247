"""The spec of a pod, in a pod and in a template of one.

Follows `ValidatePodSpec` and `ValidatePodTemplateSpec` in `pkg/apis/core/validation` of Kubernetes 1.36. What only
Windows and resource claims have is left out.
"""

from collections.abc import Mapping

from haulout_sandbox.apiserver.fields import forbidden, invalid, not_found, required
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.validation import containers, metadata, placement, resources, rules, security, volumes
from haulout_sandbox.apiserver.validation.common import Causes, by_rule, enumerated, labels, one_of

_RESTARTS = ("Always", "OnFailure", "Never")
_DNS = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_PREEMPTION = ("PreemptLowerPriority", "Never")
_SYSTEMS = ("linux", "windows")
_MOST_SECONDS = 2**31 - 1
_MOST_NAMESERVERS, _MOST_SEARCHES, _MOST_SEARCH_LENGTH = 3, 32, 2048
_MIRROR = "kubernetes.io/config.mirror"
_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"


def spec(found: JsonObject, path: str, *, pod_name: str = "", of_pod: bool = False) -> Causes:
    """Return what is wrong with the spec of a pod; templates have no name and fewer rules."""
    sound, causes = volumes.of_pod(found, f"{path}.volumes", pod_name) if "volumes" in found else ({}, [])
    pod = containers.Pod(
        spec=found,
        volumes=sound,
        claims={it.get("name", "") for it in found.get("resourceClaims") or ()},
        host_users=found.get("hostUsers", True),
    )
    causes += containers.regular(pod, f"{path}.containers")
    if "initContainers" in found:
        causes += containers.initial(pod, f"{path}.initContainers")
    if "ephemeralContainers" in found:
        causes += containers.ephemeral(pod, f"{path}.ephemeralContainers")
    if "resources" in found:
        causes += resources.of_pod(found, f"{path}.resources")
    causes += _host_network(found, f"{path}.containers", of_pod=of_pod) if found.get("hostNetwork") else []
    if found.get("restartPolicy") not in _RESTARTS:
        causes += one_of(f"{path}.restartPolicy", found.get("restartPolicy"), _RESTARTS, needed=True)
    if found.get("dnsPolicy") not in _DNS:
        causes += one_of(f"{path}.dnsPolicy", found.get("dnsPolicy"), _DNS, needed=True)
    causes += _where(found, path)
    causes += _names(found, path)
    causes += _files(found, path) if sound else []
    return causes


def template(found: JsonObject | None, path: str) -> Causes:
    """Return what is wrong with the template of a pod."""
    meta, inner = (found or {}).get("metadata") or {}, (found or {}).get("spec") or {}
    causes = template_metadata(meta, inner, path)
    causes += spec(inner, f"{path}.spec")
    if inner.get("ephemeralContainers"):
        detail = "ephemeral containers not allowed in pod template"
        causes.append(forbidden(f"{path}.spec.ephemeralContainers", detail))
    return causes


def template_metadata(meta: JsonObject, inner: JsonObject, path: str) -> Causes:
    """Return what is wrong with the metadata of a template."""
    causes = labels(meta.get("labels"), f"{path}.labels")
    causes += metadata.annotations(meta.get("annotations"), f"{path}.annotations")
    return causes + annotations(meta.get("annotations") or {}, inner, f"{path}.annotations")


def annotations(found: Mapping[str, str], inner: JsonObject, path: str) -> Causes:
    """Return what is wrong with annotations that mean something to pods."""
    causes: Causes = []
    if _MIRROR in found and not inner.get("nodeName"):
        detail = "must set spec.nodeName if mirror pod annotation is set"
        causes.append(invalid(f"{path}[{_MIRROR}]", found[_MIRROR], detail))
    cost = found.get(_DELETION_COST)
    if cost is not None and not _is_cost(cost):
        causes.append(invalid(f"{path}[{_DELETION_COST}]", cost, "must be a 32bit integer"))
    return causes


def _is_cost(text: str) -> bool:
    digits = text.removeprefix("-")
    plain = digits.isdecimal() and digits.isascii() and (digits == "0" or not digits.startswith("0"))
    return plain and -_MOST_SECONDS - 1 <= int(text) <= _MOST_SECONDS


def _host_network(found: JsonObject, path: str, *, of_pod: bool) -> Causes:
    causes: Causes = []
    for where, each in enumerated(found.get("containers"), path):
        for at, port in enumerated(each.get("ports"), f"{where}.ports"):
            host = port.get("hostPort", 0)
            if (of_pod or host) and host != port.get("containerPort", 0):
                detail = "must match `containerPort` when `hostNetwork` is true"
                causes.append(invalid(f"{at}.hostPort", host, detail))
    return causes


def _where(found: JsonObject, path: str) -> Causes:
    causes: Causes = []
    if "nodeSelector" in found:
        causes += labels(found["nodeSelector"], f"{path}.nodeSelector")
    causes += security.of_pod(found.get("securityContext") or {}, found, f"{path}.securityContext")
    if "affinity" in found:
        causes += placement.affinity(found["affinity"], f"{path}.affinity")
    if "dnsConfig" in found or found.get("dnsPolicy") == "None":
        causes += _dns(found.get("dnsConfig"), found.get("dnsPolicy"), f"{path}.dnsConfig")
    for where, gate in enumerated(found.get("readinessGates"), f"{path}.readinessGates"):
        causes += by_rule(f"{where}.conditionType", gate.get("conditionType", ""), rules.qualified_name)
    if "schedulingGates" in found:
        causes += placement.gates(found["schedulingGates"], f"{path}.schedulingGates")
    if "topologySpreadConstraints" in found:
        causes += placement.spread(found["topologySpreadConstraints"], f"{path}.topologySpreadConstraints")
    if found.get("hostUsers") is False:
        causes += [
            forbidden(f"{path}.{shown}", "when `hostUsers` is false")
            for name, shown in (("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC"))
            if found.get(name)
        ]
    return causes


def _names(found: JsonObject, path: str) -> Causes:
    causes: Causes = []
    for name in ("serviceAccountName", "nodeName"):
        if found.get(name):
            causes += by_rule(f"{path}.{name}", found[name], rules.subdomain)
    deadline = found.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= _MOST_SECONDS:
        causes.append(invalid(f"{path}.activeDeadlineSeconds", deadline, rules.between(1, _MOST_SECONDS)))
    for name in ("hostname", "subdomain"):
        if found.get(name):
            causes += by_rule(f"{path}.{name}", found[name], rules.dns_label)
    if "tolerations" in found:
        causes += placement.tolerations(found["tolerations"], f"{path}.tolerations")
    for where, alias in enumerated(found.get("hostAliases"), f"{path}.hostAliases"):
        causes += address(alias.get("ip", ""), f"{where}.ip")
        for at, host in enumerate(alias.get("hostnames") or ()):
            causes += by_rule(f"{where}.hostnames[{at}]", host, rules.subdomain)
    return causes + _classes(found, path)


def _classes(found: JsonObject, path: str) -> Causes:
    causes: Causes = []
    if found.get("priorityClassName"):
        causes += by_rule(f"{path}.priorityClassName", found["priorityClassName"], rules.subdomain)
    if "runtimeClassName" in found:
        causes += by_rule(f"{path}.runtimeClassName", found["runtimeClassName"], rules.subdomain)
    if found.get("preemptionPolicy", _PREEMPTION[0]) not in _PREEMPTION:
        causes += one_of(f"{path}.preemptionPolicy", found["preemptionPolicy"], _PREEMPTION, needed=True)
    if "overhead" in found:
        causes += resources.of_container({"limits": found["overhead"]}, f"{path}.overhead")
    if "os" in found:
        name = found["os"].get("name", "")
        causes += one_of(f"{path}.os", name, _SYSTEMS) if name else [required(f"{path}.os.name")]
    return causes


def _files(found: JsonObject, path: str) -> Causes:
    """Return which variables come from a file in a volume that is not there, or that keeps what is in it."""
    causes: Causes = []
    known = {it.get("name", ""): it for it in found.get("volumes") or ()}
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for where, each in enumerated(found.get(kind), f"{path}.{kind}"):
            for at, variable in enumerated(each.get("env"), f"{where}.env"):
                reference = (variable.get("valueFrom") or {}).get("fileKeyRef")
                if reference is None:
                    continue
                name, field = reference.get("volumeName", ""), f"{at}.valueFrom.fileKeyRef.volumeName"
                if name not in known:
                    causes.append(not_found(field, name))
                elif "emptyDir" not in known[name]:
                    causes.append(invalid(field, name, "referenced volume must be of type emptyDir"))
    return causes


def _dns(config: JsonObject | None, policy: str | None, path: str) -> Causes:
    servers, searches = (config or {}).get("nameservers") or [], (config or {}).get("searches") or []
    if policy == "None" and config is None:
        return [required(path, "must provide `dnsConfig` when `dnsPolicy` is None")]
    if policy == "None" and not servers:
        detail = "must provide at least one DNS nameserver when `dnsPolicy` is None"
        return [required(f"{path}.nameservers", detail)]
    causes: Causes = []
    if len(servers) > _MOST_NAMESERVERS:
        detail = f"must not have more than {_MOST_NAMESERVERS} nameservers"
        causes.append(invalid(f"{path}.nameservers", servers, detail))
    for at, server in enumerate(servers):
        causes += address(server, f"{path}.nameservers[{at}]")
    if len(searches) > _MOST_SEARCHES:
        causes.append(invalid(f"{path}.searches", searches, f"must not have more than {_MOST_SEARCHES} search paths"))
    if len(" ".join(searches)) > _MOST_SEARCH_LENGTH:
        detail = f"must not have more than {_MOST_SEARCH_LENGTH} characters (including spaces) in the search list"
        causes.append(invalid(f"{path}.searches", searches, detail))
    for at, search in enumerate(searches):
        if search != ".":
            causes += by_rule(f"{path}.searches[{at}]", search.removesuffix("."), rules.underscored_subdomain)
    for where, option in enumerated((config or {}).get("options"), f"{path}.options"):
        causes += [] if option.get("name") else [required(where, "must not be empty")]
    return causes


def address(text: str, path: str) -> Causes:
    """Return what is wrong with an IP address."""
    if rules.address(text) is None:
        return [invalid(path, text, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")]
    return []
