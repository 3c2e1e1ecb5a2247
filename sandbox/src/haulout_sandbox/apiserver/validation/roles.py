"""Roles and bindings. Follows `pkg/apis/rbac/validation` of Kubernetes 1.36."""

from haulout_sandbox.apiserver.fields import invalid, required
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.validation import metadata, rules
from haulout_sandbox.apiserver.validation.common import (
    Causes,
    by_rule,
    enumerated,
    label_selector,
    one_of,
    required_by_rule,
)
from haulout_sandbox.apiserver.validation.internal import shown

_GROUP = "rbac.authorization.k8s.io"


def role(new: JsonObject, old: JsonObject | None = None) -> Causes:
    """Return what is wrong with a Role, or a ClusterRole."""
    namespaced = new["kind"] == "Role"
    causes = metadata.of_new(new["metadata"], namespaced=namespaced)
    for where, rule in enumerated(new.get("rules"), "rules"):
        causes += [] if rule.get("verbs") else [required(f"{where}.verbs", "verbs must contain at least one value")]
        causes += _rule(rule, where, namespaced=namespaced)
    aggregation = new.get("aggregationRule")
    if aggregation is not None:
        chosen, path = aggregation.get("clusterRoleSelectors"), "aggregationRule.clusterRoleSelectors"
        if not chosen:
            detail = "at least one clusterRoleSelector required if aggregationRule is non-nil"
            causes.append(required(path, detail))
        for where, selector in enumerated(chosen, path):
            causes += label_selector(selector, where)
    return causes + (metadata.of_update(new["metadata"], old["metadata"]) if old else [])


def binding(new: JsonObject, old: JsonObject | None = None) -> Causes:
    """Return what is wrong with a RoleBinding, or a ClusterRoleBinding."""
    namespaced = new["kind"] == "RoleBinding"
    reference = new.get("roleRef") or {}
    causes = metadata.of_new(new["metadata"], namespaced=namespaced)
    causes += one_of("roleRef.apiGroup", reference.get("apiGroup", ""), (_GROUP,))
    kinds = ("Role", "ClusterRole") if namespaced else ("ClusterRole",)
    causes += one_of("roleRef.kind", reference.get("kind", ""), kinds)
    causes += required_by_rule("roleRef.name", reference.get("name", ""), rules.path_segment)
    for where, subject in enumerated(new.get("subjects"), "subjects"):
        causes += [] if subject.get("name") else [required(f"{where}.name")]
        causes += _subject(subject, where, namespaced=namespaced)
    if old is not None:
        causes += metadata.of_update(new["metadata"], old["metadata"])
        if (old.get("roleRef") or {}) != reference:
            causes.append(invalid("roleRef", shown(reference, "rbac.RoleRef"), "cannot change roleRef"))
    return causes


def _rule(rule: JsonObject, path: str, *, namespaced: bool) -> Causes:
    urls = rule.get("nonResourceURLs")
    if urls:
        causes = []
        if namespaced:
            detail = "namespaced rules cannot apply to non-resource URLs"
            causes.append(invalid(f"{path}.nonResourceURLs", urls, detail))
        if any(rule.get(name) for name in ("apiGroups", "resources", "resourceNames")):
            detail = "rules cannot apply to both regular resources and non-resource URLs"
            causes.append(invalid(f"{path}.nonResourceURLs", urls, detail))
        return causes
    return [
        required(f"{path}.{name}", f"resource rules must supply at least one {what}")
        for name, what in (("apiGroups", "api group"), ("resources", "resource"))
        if not rule.get(name)
    ]


def _subject(subject: JsonObject, path: str, *, namespaced: bool) -> Causes:
    kind, group, name = subject.get("kind", ""), subject.get("apiGroup", ""), subject.get("name", "")
    if kind in ("User", "Group"):
        return one_of(f"{path}.apiGroup", group, (_GROUP,))
    if kind != "ServiceAccount":
        return one_of(f"{path}.kind", kind, ("ServiceAccount", "User", "Group"))
    causes = by_rule(f"{path}.name", name, rules.subdomain) if name else []
    causes += one_of(f"{path}.apiGroup", group, ("",))
    if not namespaced and not subject.get("namespace"):
        causes.append(required(f"{path}.namespace"))
    return causes
