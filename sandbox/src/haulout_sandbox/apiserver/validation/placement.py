"""Where a pod may run: tolerations, affinity, node selectors, spreading, gates; and the taints of nodes.

Follows the functions of these names in `pkg/apis/core/validation` of Kubernetes 1.36.
"""

from haulout_sandbox.apiserver.fields import duplicate, forbidden, invalid, not_supported, required
from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.validation import rules
from haulout_sandbox.apiserver.validation.common import (
    Causes,
    by_rule,
    enumerated,
    label_selector,
    one_of,
)
from haulout_sandbox.apiserver.validation.internal import shown

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_SPREAD_ACTIONS = ("DoNotSchedule", "ScheduleAnyway")
_INCLUSION = ("Honor", "Ignore")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_MOST_WEIGHT = 100


def taints(found: list[JsonObject], path: str) -> Causes:
    """Return what is wrong with the taints of a node."""
    causes: Causes = []
    seen: set[tuple[str, str]] = set()
    for where, taint in enumerated(found, path):
        key, value, effect = (taint.get(name, "") for name in ("key", "value", "effect"))
        causes += by_rule(f"{where}.key", key, rules.qualified_name)
        if problems := rules.label_value(value):
            causes.append(invalid(f"{where}.value", value, ";".join(problems)))
        causes += one_of(f"{where}.effect", effect, _EFFECTS, needed=True)
        if (key, effect) in seen:
            cause = duplicate(where, shown(taint, "core.Taint"))
            causes.append(cause | {"message": f"{cause['message']}: taints must be unique by key and effect pair"})
        seen.add((key, effect))
    return causes


def tolerations(found: list[JsonObject], path: str) -> Causes:
    """Return what is wrong with tolerations."""
    return [cause for at, each in enumerate(found) for cause in _toleration(each, path, at)]


def _toleration(each: JsonObject, path: str, at: int) -> Causes:
    get, where = each.get, f"{path}[{at}]"
    key, operator, value, effect = get("key", ""), get("operator", ""), get("value", ""), get("effect", "")
    causes = by_rule(f"{where}.key", key, rules.qualified_name) if key else []
    if not key and operator != "Exists":
        detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        causes.append(invalid(f"{where}.operator", operator, detail))
    if "tolerationSeconds" in each and effect != "NoExecute":
        detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        causes.append(invalid(f"{where}.effect", effect, detail))
    if operator in ("", "Equal"):
        if problems := rules.label_value(value):
            causes.append(invalid(f"{where}.operator", value, ";".join(problems)))
    elif operator == "Exists":
        if value:
            causes.append(invalid(f"{where}.operator", value, "value must be empty when `operator` is 'Exists'"))
    else:
        allowed = ("Equal", "Exists", "Lt", "Gt") if operator in ("Lt", "Gt") else ("Equal", "Exists")
        causes.append(not_supported(f"{where}.operator", operator, allowed))
    return causes + (one_of(f"{where}.effect", effect, _EFFECTS) if effect else [])


def affinity(found: JsonObject | None, path: str) -> Causes:
    """Return what is wrong with the nodes and pods that a pod wants to be near to."""
    if not found:
        return []
    causes: Causes = []
    nodes = found.get("nodeAffinity") or {}
    if _REQUIRED in nodes:
        causes += node_selector(nodes[_REQUIRED], f"{path}.nodeAffinity.{_REQUIRED}")
    for where, term in enumerated(nodes.get(_PREFERRED), f"{path}.nodeAffinity.{_PREFERRED}"):
        causes += _weight(term, where)
        causes += _node_term(term.get("preference") or {}, f"{where}.preference", values=False)
    for kind in ("podAffinity", "podAntiAffinity"):
        pods = found.get(kind) or {}
        for where, term in enumerated(pods.get(_REQUIRED), f"{path}.{kind}.{_REQUIRED}"):
            causes += _pod_term(term, where)
        for where, term in enumerated(pods.get(_PREFERRED), f"{path}.{kind}.{_PREFERRED}"):
            causes += _weight(term, where)
            causes += _pod_term(term.get("podAffinityTerm") or {}, f"{where}.podAffinityTerm")
    return causes


def _weight(term: JsonObject, path: str) -> Causes:
    weight = term.get("weight", 0)
    if 0 < weight <= _MOST_WEIGHT:
        return []
    return [invalid(f"{path}.weight", weight, "must be in the range 1-100")]


def node_selector(selector: JsonObject, path: str) -> Causes:
    """Return what is wrong with the terms that choose nodes."""
    terms = selector.get("nodeSelectorTerms")
    if not terms:
        return [required(f"{path}.nodeSelectorTerms", "must have at least one node selector term")]
    return [
        cause
        for where, term in enumerated(terms, f"{path}.nodeSelectorTerms")
        for cause in _node_term(term, where, values=True)
    ]


def _node_term(term: JsonObject, path: str, *, values: bool) -> Causes:
    causes: Causes = []
    for where, each in enumerated(term.get("matchExpressions"), f"{path}.matchExpressions"):
        causes += _node_label(each, where, values=values)
    for where, each in enumerated(term.get("matchFields"), f"{path}.matchFields"):
        causes += _node_field(each, where)
    return causes


def _node_label(each: JsonObject, path: str, *, values: bool) -> Causes:
    causes: Causes = []
    operator, given = each.get("operator", ""), each.get("values") or ()
    if operator in ("In", "NotIn"):
        if not given:
            causes.append(required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
    elif operator in ("Exists", "DoesNotExist"):
        if given:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            causes.append(forbidden(f"{path}.values", detail))
    elif operator in ("Gt", "Lt"):
        if len(given) != 1:
            detail = "must be specified single value when `operator` is 'Lt' or 'Gt'"
            causes.append(required(f"{path}.values", detail))
    else:
        causes.append(invalid(f"{path}.operator", operator, "not a valid selector operator"))
    causes += by_rule(f"{path}.key", each.get("key", ""), rules.qualified_name)
    for at, value in enumerate(given if values else ()):
        causes += by_rule(f"{path}.values[{at}]", value, rules.label_value)
    return causes


def _node_field(each: JsonObject, path: str) -> Causes:
    causes: Causes = []
    operator, given, key = each.get("operator", ""), each.get("values") or (), each.get("key", "")
    if operator not in ("In", "NotIn"):
        causes.append(invalid(f"{path}.operator", operator, "not a valid selector operator"))
    elif len(given) != 1:
        detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        causes.append(required(f"{path}.values", detail))
    if key != "metadata.name":
        return [*causes, invalid(f"{path}.key", key, "not a valid field selector key")]
    for at, value in enumerate(given):
        causes += by_rule(f"{path}.values[{at}]", value, rules.subdomain)
    return causes


def _pod_term(term: JsonObject, path: str) -> Causes:
    selector = term.get("labelSelector")
    causes = label_selector(selector, f"{path}.labelSelector")
    causes += label_selector(term.get("namespaceSelector"), f"{path}.namespaceSelector")
    for name in term.get("namespaces") or ():
        causes += by_rule(f"{path}.namespace", name, rules.dns_label)
    causes += _label_keys(term, path, selector)
    key = term.get("topologyKey", "")
    if not key:
        causes.append(required(f"{path}.topologyKey", "can not be empty"))
    return causes + by_rule(f"{path}.topologyKey", key, rules.qualified_name)


def _label_keys(part: JsonObject, path: str, selector: JsonObject | None) -> Causes:
    causes: Causes = []
    wanted, unwanted = part.get("matchLabelKeys") or [], part.get("mismatchLabelKeys") or []
    for name, keys in (("matchLabelKeys", wanted), ("mismatchLabelKeys", unwanted)):
        if keys and selector is None:
            causes.append(forbidden(f"{path}.{name}", "must not be specified when labelSelector is not set"))
        elif keys:
            for at, key in enumerate(keys):
                causes += by_rule(f"{path}.{name}[{at}]", key, rules.qualified_name)
    if selector is not None:
        known = set(selector.get("matchLabels") or ())
        for each in selector.get("matchExpressions") or ():
            if each.get("key") in wanted and each["key"] in known:
                detail = "exists in both matchLabelKeys and labelSelector"
                causes.append(invalid(f"{path}[{wanted.index(each['key'])}]", each["key"], detail))
            known.add(each.get("key", ""))
    for at, key in enumerate(wanted):
        if key in unwanted:
            detail = "exists in both matchLabelKeys and mismatchLabelKeys"
            causes.append(invalid(f"{path}.matchLabelKeys[{at}]", key, detail))
    return causes


def spread(constraints: list[JsonObject], path: str) -> Causes:
    """Return what is wrong with how pods shall be spread."""
    causes: Causes = []
    for at, each in enumerate(constraints):
        where = f"{path}[{at}]"
        skew, key, action = each.get("maxSkew", 0), each.get("topologyKey", ""), each.get("whenUnsatisfiable", "")
        if skew <= 0:
            causes.append(invalid(f"{where}.maxSkew", skew, "must be greater than zero"))
        if not key:
            causes.append(required(f"{where}.topologyKey", "can not be empty"))
        causes += one_of(f"{where}.whenUnsatisfiable", action, _SPREAD_ACTIONS)
        rest = {(it.get("topologyKey", ""), it.get("whenUnsatisfiable", "")) for it in constraints[at + 1 :]}
        if (key, action) in rest:
            causes.append(duplicate(f"{where}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {action}}}"))
        causes += _domains(each.get("minDomains"), action, f"{where}.minDomains")
        for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            causes += one_of(f"{where}.{name}", each[name], _INCLUSION) if name in each else []
        causes += _label_keys(each, where, each.get("labelSelector"))
        causes += label_selector(each.get("labelSelector"), f"{where}.labelSelector")
    return causes


def _domains(least: int | None, action: str, path: str) -> Causes:
    if least is None:
        return []
    causes = [invalid(path, least, "must be greater than zero")] if least <= 0 else []
    if action != "DoNotSchedule":
        detail = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
        causes.append(invalid(path, least, detail))
    return causes


def gates(found: list[JsonObject], path: str) -> Causes:
    """Return what is wrong with the gates that keep a pod from being scheduled."""
    causes: Causes = []
    seen: set[str] = set()
    for where, gate in enumerated(found, path):
        name = gate.get("name", "")
        causes += by_rule(where, name, rules.qualified_name)
        if name in seen:
            causes.append(duplicate(where, name))
        seen.add(name)
    return causes
