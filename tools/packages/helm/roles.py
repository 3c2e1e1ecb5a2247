"""The roles of the chart as templates: one for the cluster, one per namespace, and some per plugin instance.

Each rule is written once, under all conditions that require it, and a role exists if one of its rules does.
"""

from collections.abc import Iterable

from haulout.api.objects import RawObject
from haulout.app.components import packagings
from haulout.app.manifests.workload import NAME
from haulout.dashboard.auth import permissions as people
from haulout.dashboard.auth.permissions import Impersonation
from haulout.dashboard.auth.settings import SERVICE_ACCOUNT as DASHBOARD_ACCOUNT
from haulout.kube.rbac import Permission
from tools.packages.helm import permissions
from tools.packages.helm.common import ACCOUNT, HOME, IS_BEHIND_PROXY, LABELS, metadata
from tools.packages.helm.gotemplate import Commented, Conditional, IndentedExpression, document
from tools.packages.helm.permissions import InstanceFeature

_CREATE = ".Values.rbac.create"
_RBAC = "rbac.authorization.k8s.io"

# Several of these namespaces may be the same; their roles must still have different names.
_NAMES: dict[str | None, str] = {
    None: NAME,
    HOME: NAME,
    permissions.LEASE_NAMESPACE: f"{NAME}-leases",
    permissions.AWS_NAMESPACE: f"{NAME}-aws",
    permissions.HANDLER_NAMESPACE: f"{NAME}-oci-handler",
    **{
        namespace: f"{NAME}-{end}"
        for packaging in packagings().values()
        if packaging.permissions
        for namespace, end in packaging.permissions.namespaces.items()
    },
}

_Conditions = tuple[str, ...]


def templates() -> str:
    """Return the roles of the operator with their bindings."""
    found = _by_namespace()
    cluster = [
        *_rules(found.pop(None)),
        Conditional(".Values.rbac.extraRules", [IndentedExpression("toYaml .Values.rbac.extraRules")]),
    ]
    parts = [_role(None, cluster)]
    parts += [
        _role(namespace, _rules(permissions), when=_any_condition(permissions))
        for namespace, permissions in found.items()
    ]
    parts += map(_instance_role, permissions.instance_features())
    parts.append(_dashboard_roles())
    return f"{{{{- if {_CREATE} }}}}\n{''.join(parts)}{{{{- end }}}}\n"


def _by_namespace() -> dict[str | None, dict[Permission, _Conditions]]:
    """Return all permissions by the namespace of their role, each with its conditions; none means always."""
    found: dict[Permission, _Conditions] = dict.fromkeys(permissions.base_permissions(), ())
    for feature in permissions.features():
        for each in feature.permissions:
            known = next((candidate for candidate in found if found[candidate] and _is_same(candidate, each)), each)
            found[known] = (*found.get(known, ()), feature.condition)
    namespaces: dict[str | None, dict[Permission, _Conditions]] = {None: {}}
    for permission, conditions in found.items():
        namespaces.setdefault(permission.namespace, {})[permission] = conditions
    return namespaces


def _is_same(one: Permission, other: Permission) -> bool:
    """Return whether two permissions differ only in their purpose."""
    return str(one) == str(other) and set(one.verbs) == set(other.verbs) and one.names == other.names


def _rules(permissions: dict[Permission, _Conditions]) -> list[object]:
    grouped: dict[_Conditions, list[Commented]] = {}
    for permission, conditions in permissions.items():
        grouped.setdefault(conditions, []).append(Commented(permission.why, _rule(permission)))
    return [
        rule
        for conditions, rules in grouped.items()
        for rule in (rules if not conditions else [Conditional(_or_condition(conditions), rules)])
    ]


def _rule(permission: Permission) -> RawObject:
    rule: RawObject = {
        "apiGroups": [permission.group],
        "resources": [permission.resource],
        "verbs": list(permission.verbs),
    }
    return rule | ({"resourceNames": list(permission.names)} if permission.names else {})


def _any_condition(permissions: dict[Permission, _Conditions]) -> str:
    """Return the condition under which any of the permissions is needed; empty means always."""
    all_conditions = list(permissions.values())
    if not all(all_conditions):
        return ""
    return _or_condition(dict.fromkeys(condition for each in all_conditions for condition in each))


def _or_condition(conditions: Iterable[str]) -> str:
    first, *others = conditions
    return " ".join(["or", *(f"({other})" for other in (first, *others))]) if others else first


def _dashboard_roles() -> str:
    """Return the service account that impersonates users named by a proxy, with its role."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(DASHBOARD_ACCOUNT)}
    rules: list[object] = [
        Conditional(
            f'eq .Values.dashboard.actions "{how}"',
            [Commented(permission.why, _rule(permission)) for permission in people.permissions(how)],
        )
        for how in Impersonation
    ]
    both = document(account) + _role(None, rules, name=DASHBOARD_ACCOUNT, account=DASHBOARD_ACCOUNT)
    return f"{{{{- if and ({IS_BEHIND_PROXY}) .Values.dashboard.actions }}}}\n{both}{{{{- end }}}}\n"


def _role(namespace: str | None, rules: list[object], *, when: str = "", name: str = "", account: str = ACCOUNT) -> str:
    prefix = "" if namespace else "Cluster"
    name = name or _NAMES.get(namespace, f"{NAME}-{namespace}")
    role_metadata: RawObject = {"name": name, **({"namespace": namespace} if namespace else {}), "labels": LABELS}
    role = {"apiVersion": f"{_RBAC}/v1", "kind": f"{prefix}Role", "metadata": role_metadata, "rules": rules}
    binding = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": f"{prefix}RoleBinding",
        "metadata": role_metadata,
        "roleRef": {"apiGroup": _RBAC, "kind": f"{prefix}Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "{{ $.Release.Namespace }}"}],
    }
    both = document(role) + document(binding)
    return f"{{{{- if {when} }}}}\n{both}{{{{- end }}}}\n" if when else both


def _instance_role(feature: InstanceFeature) -> str:
    """Return a role for each instance of a type that names the objects it needs."""
    (namespace,) = {permission.namespace for permission in feature.permissions}
    rules: list[object] = [
        Commented(permission.why, _rule(permission) | _resource_names(permission, feature.repeat_expression))
        for permission in feature.permissions
    ]
    role = _role(namespace, rules, name=f"{NAME}-{{{{ $instance.name | lower }}}}")
    return (
        f'{{{{- range $instance := include "haulout.instances" (list . "{feature.type}") | fromJsonArray }}}}\n'
        "{{- $config := default dict $instance.config }}\n"
        f"{{{{- if {feature.condition} }}}}\n{role}{{{{- end }}}}\n{{{{- end }}}}\n"
    )


def _resource_names(permission: Permission, repeated: str) -> RawObject:
    if not (permission.names and repeated):
        return {}
    numbered = [f"{name.removesuffix('0')}{{{{ $number }}}}" for name in permission.names]
    return {"resourceNames": [Conditional(repeated, numbered, keyword="range")]}
