"""The roles of the chart, as templates: one for the cluster, one for each namespace, and some for instances of plugins.

A rule stands once, under all conditions for which it is there, and a role is there if one of its rules is.
"""

from collections.abc import Iterable

from haulout.app.workload import NAME
from haulout.kube.access import Permission
from haulout.kube.objects import RawObject
from haulout.web.auth import permissions as people
from haulout.web.auth.permissions import Impersonation
from haulout.web.auth.settings import ACCOUNT as DASHBOARD_ACCOUNT
from tools.packages import rights
from tools.packages.common import ACCOUNT, HOME, IS_BEHIND_PROXY, LABELS, metadata
from tools.packages.gotemplate import Inset, Noted, When, document
from tools.packages.rights import OfInstance

_CREATE = ".Values.rbac.create"
_RBAC = "rbac.authorization.k8s.io"

# Several of these namespaces may be one and the same: their roles must not be.
_NAMES = {
    None: NAME,
    HOME: NAME,
    rights.LEASES: f"{NAME}-leases",
    rights.AWS: f"{NAME}-aws",
    rights.HANDLER: f"{NAME}-oci-handler",
    rights.KUBERNIKUS: f"{NAME}-kubernikus",
}

_Conditions = tuple[str, ...]


def templates() -> str:
    """Return the roles of the operator, and their bindings."""
    found = _by_namespace()
    cluster = [*_rules(found.pop(None)), When(".Values.rbac.extraRules", [Inset("toYaml .Values.rbac.extraRules")])]
    parts = [_role(None, cluster)]
    parts += [_role(namespace, _rules(its), when=_any_of(its)) for namespace, its in found.items()]
    parts += map(_of_instance, rights.of_instances())
    parts.append(_of_dashboard())
    return f"{{{{- if {_CREATE} }}}}\n{''.join(parts)}{{{{- end }}}}\n"


def _by_namespace() -> dict[str | None, dict[Permission, _Conditions]]:
    """Return all permissions by the namespace of their role, each with its conditions; those without are always."""
    found: dict[Permission, _Conditions] = dict.fromkeys(rights.always(), ())
    for feature in rights.features():
        for each in feature.permissions:
            known = next((it for it in found if found[it] and _is_same(it, each)), each)
            found[known] = (*found.get(known, ()), feature.condition)
    namespaces: dict[str | None, dict[Permission, _Conditions]] = {None: {}}
    for permission, conditions in found.items():
        namespaces.setdefault(permission.namespace, {})[permission] = conditions
    return namespaces


def _is_same(one: Permission, other: Permission) -> bool:
    """Tell whether two are the same but for what they are for."""
    return str(one) == str(other) and set(one.verbs) == set(other.verbs) and one.names == other.names


def _rules(permissions: dict[Permission, _Conditions]) -> list[object]:
    """Return rules, those under the same conditions together."""
    grouped: dict[_Conditions, list[Noted]] = {}
    for permission, conditions in permissions.items():
        grouped.setdefault(conditions, []).append(Noted(permission.why, _rule(permission)))
    return [
        it
        for conditions, rules in grouped.items()
        for it in (rules if not conditions else [When(_or(conditions), rules)])
    ]


def _rule(permission: Permission) -> RawObject:
    rule: RawObject = {
        "apiGroups": [permission.group],
        "resources": [permission.resource],
        "verbs": list(permission.verbs),
    }
    return rule | ({"resourceNames": list(permission.names)} if permission.names else {})


def _any_of(permissions: dict[Permission, _Conditions]) -> str:
    """Return the condition under which one of them is there; empty: always."""
    all_conditions = list(permissions.values())
    if not all(all_conditions):
        return ""
    return _or(dict.fromkeys(condition for each in all_conditions for condition in each))


def _or(conditions: Iterable[str]) -> str:
    first, *others = conditions
    return " ".join(["or", *(f"({it})" for it in (first, *others))]) if others else first


def _of_dashboard() -> str:
    """Return the account that acts in the names of people whom a proxy names, and its role."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(DASHBOARD_ACCOUNT)}
    rules: list[object] = [
        When(f'eq .Values.dashboard.acts "{how}"', [Noted(it.why, _rule(it)) for it in people.permissions(how)])
        for how in Impersonation
    ]
    both = document(account) + _role(None, rules, name=DASHBOARD_ACCOUNT, account=DASHBOARD_ACCOUNT)
    return f"{{{{- if and ({IS_BEHIND_PROXY}) .Values.dashboard.acts }}}}\n{both}{{{{- end }}}}\n"


def _role(namespace: str | None, rules: list[object], *, when: str = "", name: str = "", account: str = ACCOUNT) -> str:
    prefix = "" if namespace else "Cluster"
    name = name or _NAMES.get(namespace, f"{NAME}-{namespace}")
    about: RawObject = {"name": name, **({"namespace": namespace} if namespace else {}), "labels": LABELS}
    role = {"apiVersion": f"{_RBAC}/v1", "kind": f"{prefix}Role", "metadata": about, "rules": rules}
    binding = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": f"{prefix}RoleBinding",
        "metadata": about,
        "roleRef": {"apiGroup": _RBAC, "kind": f"{prefix}Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": "{{ $.Release.Namespace }}"}],
    }
    both = document(role) + document(binding)
    return f"{{{{- if {when} }}}}\n{both}{{{{- end }}}}\n" if when else both


def _of_instance(wanted: OfInstance) -> str:
    """Return a role for each instance of a type that names what it needs."""
    (namespace,) = {it.namespace for it in wanted.permissions}
    rules: list[object] = [Noted(it.why, _rule(it) | _names(it, wanted.repeated)) for it in wanted.permissions]
    role = _role(namespace, rules, name=f"{NAME}-{{{{ $instance.name | lower }}}}")
    return (
        f'{{{{- range $instance := include "haulout.instances" (list . "{wanted.type}") | fromJsonArray }}}}\n'
        "{{- $config := default dict $instance.config }}\n"
        f"{{{{- if {wanted.condition} }}}}\n{role}{{{{- end }}}}\n{{{{- end }}}}\n"
    )


def _names(permission: Permission, repeated: str) -> RawObject:
    if not (permission.names and repeated):
        return {}
    counted = [f"{name.removesuffix('0')}{{{{ $number }}}}" for name in permission.names]
    return {"resourceNames": [When(repeated, counted, word="range")]}
