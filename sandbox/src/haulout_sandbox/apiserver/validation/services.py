"""Services and Endpoints: names, ports and addresses.

Follows `validateService` and `ValidateEndpoints` in `pkg/apis/core/validation` of Kubernetes 1.36; what load balancers
and two IP families add is left out.
"""

from haulout_sandbox.apiserver.fields import duplicate, forbidden, invalid, not_supported, required
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.validation import metadata, rules
from haulout_sandbox.apiserver.validation.common import (
    Causes,
    by_rule,
    enumerated,
    labels,
    one_of,
    port_or_name,
    required_by_rule,
)
from haulout_sandbox.apiserver.validation.internal import shown
from haulout_sandbox.apiserver.validation.podspecs import address

_PROTOCOLS = ("SCTP", "TCP", "UDP")
_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_AFFINITIES = ("ClientIP", "None")
_FAMILIES = ("IPv4", "IPv6")
_FAMILY_POLICIES = ("PreferDualStack", "RequireDualStack", "SingleStack")
_TRAFFIC = ("Cluster", "Local")
_LONGEST_AFFINITY_SECONDS = 86400
_NONE = "None"


def service(new: JsonObject, old: JsonObject | None = None) -> Causes:
    """Return what is wrong with a Service."""
    if causes := _cluster_addresses(new["spec"], old):
        return causes  # nobody looks further at one that cannot have its address
    if old is None:
        causes = metadata.of_new(new["metadata"], namespaced=True, name_rule=rules.dns_label)
    else:
        causes = metadata.of_update(new["metadata"], old["metadata"]) + _kept_addresses(new["spec"], old["spec"])
    spec = new["spec"]
    kind, ports = spec.get("type", ""), spec.get("ports") or []
    headless = spec.get("clusterIPs") == [_NONE]
    if not ports and not headless and kind != "ExternalName":
        causes.append(required("spec.ports"))
    causes += _by_type(spec, headless=headless)
    names: set[str] = set()
    for where, port in enumerated(ports, "spec.ports"):
        causes += _port(port, where, names, name_needed=len(ports) > 1)
    causes += labels(spec.get("selector"), "spec.selector")
    causes += one_of("spec.sessionAffinity", spec.get("sessionAffinity", ""), _AFFINITIES, needed=True)
    causes += _affinity(spec)
    causes += _cluster_addresses(spec, old)
    for at, external in enumerate(spec.get("externalIPs") or ()):
        causes += address(external, f"spec.externalIPs[{at}]") or endpoint(external, f"spec.externalIPs[{at}]")
    causes += one_of("spec.type", kind, _TYPES, needed=True)
    causes += _taken_ports(kind, ports)
    return causes + _traffic(spec, kind)


def _by_type(spec: JsonObject, *, headless: bool) -> Causes:
    kind = spec.get("type", "")
    if kind in ("LoadBalancer", "NodePort") and headless:
        return [invalid("spec.clusterIPs[0]", _NONE, f"may not be set to 'None' for {kind} services")]
    if kind != "ExternalName":
        return []
    detail = "may not be set for ExternalName services"
    causes = [forbidden(f"spec.{it}", detail) for it in ("clusterIPs", "ipFamilies", "ipFamilyPolicy") if spec.get(it)]
    name = spec.get("externalName", "").removesuffix(".")
    return causes + required_by_rule("spec.externalName", name, rules.subdomain)


def _port(port: JsonObject, path: str, names: set[str], *, name_needed: bool) -> Causes:
    name = port.get("name", "")
    causes: Causes = []
    if name_needed and not name:
        causes.append(required(f"{path}.name"))
    elif name:
        causes += by_rule(f"{path}.name", name, rules.dns_label)
        if name in names:
            causes.append(duplicate(f"{path}.name", name))
        names.add(name)
    number = port.get("port", 0)
    causes += [invalid(f"{path}.port", number, problem) for problem in rules.port_number(number)]
    causes += one_of(f"{path}.protocol", port.get("protocol", ""), _PROTOCOLS, needed=True)
    causes += port_or_name(f"{path}.targetPort", port.get("targetPort", 0))
    if "appProtocol" in port:
        causes += by_rule(f"{path}.appProtocol", port["appProtocol"], rules.qualified_name)
    return causes


def _affinity(spec: JsonObject) -> Causes:
    if spec.get("sessionAffinity") != "ClientIP":
        return []
    seconds = ((spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}).get("timeoutSeconds", 0)
    if 0 < seconds <= _LONGEST_AFFINITY_SECONDS:
        return []
    detail = f"must be greater than 0 and less than {_LONGEST_AFFINITY_SECONDS}"
    return [invalid("spec.sessionAffinityConfig.clientIP.timeoutSeconds", seconds, detail)]


def _cluster_addresses(spec: JsonObject, old: JsonObject | None) -> Causes:
    if spec.get("type") == "ExternalName":
        return []
    causes: Causes = []
    first, every, path = spec.get("clusterIP", ""), spec.get("clusterIPs") or [], "spec.clusterIPs"
    if first and every and every[0] != first:
        causes.append(invalid(path, every, "first value must match `clusterIP`"))
    for at, family in enumerate(spec.get("ipFamilies") or ()):
        causes += one_of(f"spec.ipFamilies[{at}]", family, _FAMILIES)
    if "ipFamilyPolicy" in spec:
        causes += one_of("spec.ipFamilyPolicy", spec["ipFamilyPolicy"], _FAMILY_POLICIES)
    known = (old or {}).get("spec", {}).get("clusterIPs") or ()
    for at, each in enumerate(every):
        if at == 0 and each == _NONE:
            if len(every) > 1:
                causes.append(invalid(path, every, "'None' must be the first and only value"))
        elif each not in known:
            causes += address(each, f"{path}[{at}]")
    return causes


def _kept_addresses(spec: JsonObject, before: JsonObject) -> Causes:
    if "ExternalName" in (spec.get("type"), before.get("type")):
        return []
    new, old = spec.get("clusterIPs") or [], before.get("clusterIPs") or []
    if not old or (new and new[0] == old[0]):
        return []
    return [invalid("spec.clusterIPs[0]", new or None, "may not change once set")]


def _taken_ports(kind: str, ports: list[JsonObject]) -> Causes:
    causes: Causes = []
    if kind == "ClusterIP":
        detail = "may not be used when `type` is 'ClusterIP'"
        causes += [
            forbidden(f"{where}.nodePort", detail)
            for where, it in enumerated(ports, "spec.ports")
            if it.get("nodePort")
        ]
    seen: set[tuple[str, int]] = set()
    for where, port in enumerated(ports, "spec.ports"):
        taken = (port.get("protocol", ""), port.get("nodePort", 0))
        if taken[1] and taken in seen:
            causes.append(duplicate(f"{where}.nodePort", taken[1]))
        seen.add(taken)
    seen.clear()
    for where, port in enumerated(ports, "spec.ports"):
        taken = (port.get("protocol", ""), port.get("port", 0))
        if taken in seen:
            shown_port = {"protocol": taken[0], "port": taken[1]}
            causes.append(duplicate(where, shown(shown_port, "core.ServicePort")))
        seen.add(taken)
    return causes


def _traffic(spec: JsonObject, kind: str) -> Causes:
    causes: Causes = []
    if spec.get("loadBalancerSourceRanges") and kind != "LoadBalancer":
        detail = "may only be used when `type` is 'LoadBalancer'"
        causes.append(forbidden("spec.LoadBalancerSourceRanges", detail))
    if "allocateLoadBalancerNodePorts" in spec and kind != "LoadBalancer":
        detail = "may only be used when `type` is 'LoadBalancer'"
        causes.append(forbidden("spec.allocateLoadBalancerNodePorts", detail))
    if "loadBalancerClass" in spec and kind != "LoadBalancer":
        causes.append(forbidden("spec.loadBalancerClass", "may only be used when `type` is 'LoadBalancer'"))
    outside = kind in ("LoadBalancer", "NodePort") or (kind == "ClusterIP" and spec.get("externalIPs"))
    policy = spec.get("externalTrafficPolicy", "")
    if not outside and policy:
        detail = "may only be set for externally-accessible services"
        causes.append(invalid("spec.externalTrafficPolicy", policy, detail))
    elif outside:
        causes += one_of("spec.externalTrafficPolicy", policy, _TRAFFIC, needed=True)
    if "internalTrafficPolicy" in spec and spec["internalTrafficPolicy"] not in _TRAFFIC:
        causes.append(not_supported("spec.internalTrafficPolicy", spec["internalTrafficPolicy"], _TRAFFIC))
    return causes


# Endpoints


def endpoints(new: JsonObject, old: JsonObject | None = None) -> Causes:
    """Return what is wrong with Endpoints."""
    causes = metadata.of_update(new["metadata"], old["metadata"]) if old else []
    causes += metadata.of_new(new["metadata"], namespaced=True, name_rule=rules.subdomain)
    if old and new.get("subsets") == old.get("subsets"):
        return causes
    for where, subset in enumerated(new.get("subsets"), "subsets"):
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            causes.append(required(where, "must specify `addresses` or `notReadyAddresses`"))
        for name in ("addresses", "notReadyAddresses"):
            for at, each in enumerated(subset.get(name), f"{where}.{name}"):
                causes += _endpoint_address(each, at)
        ports = subset.get("ports") or []
        for at, port in enumerated(ports, f"{where}.ports"):
            causes += _endpoint_port(port, at, name_needed=len(ports) > 1)
    return causes


def _endpoint_address(each: JsonObject, path: str) -> Causes:
    text = each.get("ip", "")
    causes = address(text, f"{path}.ip")
    if each.get("hostname"):
        causes += by_rule(f"{path}.hostname", each["hostname"], rules.dns_label)
    if "nodeName" in each:
        causes += by_rule(f"{path}.nodeName", each["nodeName"], rules.subdomain)
    return causes + endpoint(text, f"{path}.ip")


def _endpoint_port(port: JsonObject, path: str, *, name_needed: bool) -> Causes:
    name, number = port.get("name", ""), port.get("port", 0)
    causes = [required(f"{path}.name")] if name_needed and not name else []
    causes += by_rule(f"{path}.name", name, rules.dns_label) if name else []
    causes += [invalid(f"{path}.port", number, problem) for problem in rules.port_number(number)]
    return causes + one_of(f"{path}.protocol", port.get("protocol", ""), _PROTOCOLS, needed=True)


def endpoint(text: str, path: str) -> Causes:
    """Return why nobody can be reached at an address."""
    found = rules.address(text)
    if found is None:
        return [invalid(path, text, "must be a valid IP address")]
    causes: Causes = []
    if found.is_unspecified:
        causes.append(invalid(path, text, f"may not be unspecified ({text})"))
    if found.is_loopback:
        causes.append(invalid(path, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)"))
    if found.is_link_local:
        causes.append(invalid(path, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"))
    return causes
