"""Nodes: taints, networks, and what may not change once it is set.

Follows `ValidateNode` and `ValidateNodeUpdate` in `pkg/apis/core/validation` of Kubernetes 1.36.
"""

from haulout_sandbox.apiserver.fields import duplicate, forbidden, invalid
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.validation import metadata, placement, resources, rules
from haulout_sandbox.apiserver.validation.common import Causes, enumerated
from haulout_sandbox.apiserver.validation.internal import shown

_NO_CHANGE = 'node updates may not change {} except from "" to valid'


def of_new(node: JsonObject) -> Causes:
    """Return what is wrong with a node."""
    spec = node["spec"]
    causes = metadata.of_new(node["metadata"], namespaced=False, name_rule=rules.subdomain)
    causes += placement.taints(spec.get("taints") or [], "metadata.taints")  # the real server's own slip
    causes += _amounts(node["status"])
    return causes + _networks(spec.get("podCIDRs") or [])


def of_update(new: JsonObject, old: JsonObject) -> Causes:
    """Return what is wrong with a node that is there, or may not be changed in it."""
    return of_new(new) + of_status(new, old)


def of_status(new: JsonObject, old: JsonObject) -> Causes:
    """Return what is wrong with a change of a node, or of its status."""
    spec, before = new["spec"], old["spec"]
    causes = metadata.of_update(new["metadata"], old["metadata"])
    causes += _amounts(new["status"])
    causes += _addresses(new["status"].get("addresses") or [])
    causes += _kept_networks(spec.get("podCIDRs") or [], before.get("podCIDRs") or [])
    if before.get("providerID") and before["providerID"] != spec.get("providerID"):
        causes.append(forbidden("spec.providerID", _NO_CHANGE.format("providerID")))
    causes += placement.taints(spec.get("taints") or [], "metadata.taints")
    if spec.get("externalID", "") != before.get("externalID", ""):
        causes.append(forbidden("spec.externalID", "may not be updated"))
    return causes


def _amounts(status: JsonObject) -> Causes:
    return [
        cause
        for part in ("capacity", "allocatable")
        for name, value in (status.get(part) or {}).items()
        for cause in resources.quantity(name, value, f"status.{part}.{name}")
    ]


def _addresses(found: list[JsonObject]) -> Causes:
    causes: Causes = []
    seen: set[tuple[str, str]] = set()
    for where, each in enumerated(found, "status.addresses"):
        this = (each.get("type", ""), each.get("address", ""))
        if this in seen:
            causes.append(duplicate(where, shown(each, "core.NodeAddress")))
        seen.add(this)
    return causes


def _networks(found: list[str]) -> Causes:
    path = "spec.podCIDRs"
    parsed = [rules.network(text) for text in found]
    detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
    causes = [invalid(f"{path}[{at}]", found[at], detail) for at, it in enumerate(parsed) if it is None]
    known = [it.version for it in parsed if it]
    if len(found) > 1 and len(known) == len(found) and not rules.is_dual(known):
        causes.append(invalid(path, found, "may specify no more than one CIDR for each IP family"))
    return causes


def _kept_networks(new: list[str], old: list[str]) -> Causes:
    if not old:
        return []
    changed = 1 if len(new) != len(old) else sum(was != now for was, now in zip(old, new, strict=True))
    return [forbidden("spec.podCIDRs", _NO_CHANGE.format("podCIDR"))] * changed
