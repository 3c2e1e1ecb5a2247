"""Nobody grants what they lack: the check on writes of roles and bindings.

Who may write a role still cannot put rights into it that they do not have themselves, unless they may `escalate` it;
who may write a binding cannot bind a role with such rights, unless they may `bind` it. The rules, and the words in
which the missing rights are told, are those of `pkg/registry/rbac` and of `auth/rbac/validation` in component-helpers.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.rbac import GROUP, Attributes, Policy, refusal
from haulout_sandbox.apiserver.status import failure

_FULL_AUTHORITY: list[JsonObject] = [
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
]
_ROLES = {"Role": "roles", "ClusterRole": "clusterroles"}
_BINDINGS = ("RoleBinding", "ClusterRoleBinding")


def escalation_problem(
    policy: Policy, attributes: Attributes, obj: JsonObject, *, old: JsonObject | None = None
) -> JsonObject | None:
    """Return the Status that refuses a write of a role or binding that grants what its author lacks; None for fine.

    `attributes` are those of the request, which itself was allowed; `obj` is what would be stored, with its kind, and
    `old` what an update replaces.
    """
    if _only_deletes(obj, old):
        return None
    if obj["kind"] in _BINDINGS:
        return _binding_problem(policy, attributes, obj)
    # A POST names nothing in its path, so the right to escalate one named role does not cover its creation.
    if _may(policy, attributes, verb="escalate", resource=attributes.resource, name=attributes.name):
        return None
    why = _lacking(policy, attributes, obj.get("rules") or ())
    gathers = any(((it or {}).get("aggregationRule") or {}).get("clusterRoleSelectors") for it in (obj, old))
    if not why and gathers and _lacking(policy, attributes, _FULL_AUTHORITY):
        why = "must have cluster-admin privileges to use the aggregationRule"
    return refusal(GROUP, attributes.resource, obj["metadata"].get("name", ""), why) if why else None


def _binding_problem(policy: Policy, attributes: Attributes, binding: JsonObject) -> JsonObject | None:
    role = binding["roleRef"]
    resource, name = _ROLES.get(role["kind"], ""), role["name"]
    if resource and _may(policy, attributes, verb="bind", resource=resource, name=name):
        return None
    rules = policy.role_rules(role, attributes.namespace)
    if rules is None:
        # The server says it of the resource of the request, though it is the role that is missing.
        details = {"name": name, "group": GROUP, "kind": attributes.resource}
        return failure(404, "NotFound", f'{attributes.resource}.{GROUP} "{name}" not found', details)
    why = _lacking(policy, attributes, rules)
    return refusal(GROUP, attributes.resource, binding["metadata"].get("name", ""), why) if why else None


def _may(policy: Policy, attributes: Attributes, *, verb: str, resource: str, name: str) -> bool:
    asked = replace(attributes, verb=verb, group=GROUP, resource=resource, subresource="", name=name)
    return policy.decide(asked).allowed


def _only_deletes(obj: JsonObject, old: JsonObject | None) -> bool:
    """Tell whether an update changes only what lets the garbage collector delete the object in the end."""
    if old is None:
        return False
    ours = ("ownerReferences", "finalizers", "managedFields")

    def rest(it: JsonObject) -> JsonObject:
        meta = {name: value for name, value in it["metadata"].items() if name not in ours}
        return {**it, "metadata": meta}

    return rest(obj) == rest(old)


def _lacking(policy: Policy, attributes: Attributes, rules: Iterable[JsonObject]) -> str:
    """Return, in the server's words, which of these rights the user lacks; empty if none."""
    own, problems = policy.rules_for(attributes.user, attributes.groups, attributes.namespace)
    missing = [it for rule in rules for it in _broken_down(rule) if not any(_covers(held, it) for held in own)]
    if not missing:
        return ""
    lines = "\n".join(sorted({_compact(rule) for rule in _joined(missing)}))
    who = f'user "{attributes.user}" (groups={_quoted(attributes.groups)})'
    said = f"{who} is attempting to grant RBAC permissions not currently held:\n{lines}"
    return said + (f"; resolution errors: [{problems}]" if problems else "")


def _broken_down(rule: JsonObject) -> Iterator[JsonObject]:
    """Yield the rule as rules of one verb on one thing each."""
    for group in rule.get("apiGroups") or ():
        for resource in rule.get("resources") or ():
            for verb in rule.get("verbs") or ():
                one = {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
                names = rule.get("resourceNames")
                yield from ({**one, "resourceNames": [name]} for name in names) if names else (one,)
    for url in rule.get("nonResourceURLs") or ():
        yield from ({"nonResourceURLs": [url], "verbs": [verb]} for verb in rule.get("verbs") or ())


def _covers(held: JsonObject, asked: JsonObject) -> bool:
    """Tell whether one rule held covers one broken-down rule."""

    def has(name: str, *extra: str) -> bool:
        wanted, owned = asked.get(name), held.get(name) or ()
        return not wanted or any(it in owned for it in (wanted[0], "*", *extra))

    resource = (asked.get("resources") or ("",))[0]
    any_sub = (f"*/{resource.partition('/')[2]}",) if "/" in resource else ()
    return (
        has("verbs")
        and has("apiGroups")
        and has("resources", *any_sub)
        and (not held.get("resourceNames") or (bool(asked.get("resourceNames")) and _has_name(held, asked)))
        and (not asked.get("nonResourceURLs") or _covers_url(held, asked["nonResourceURLs"][0]))
    )


def _has_name(held: JsonObject, asked: JsonObject) -> bool:
    return asked["resourceNames"][0] in held["resourceNames"]


def _covers_url(held: JsonObject, url: str) -> bool:
    return any(
        own == url or (own.endswith("*") and url.startswith(own.rstrip("*")))
        for own in held.get("nonResourceURLs") or ()
    )


def _joined(rules: Sequence[JsonObject]) -> list[JsonObject]:
    """Return broken-down rules with the verbs of the same resource together."""
    by_resource: dict[tuple[str, ...], JsonObject] = {}
    others = []
    for rule in rules:
        if "nonResourceURLs" in rule:
            others.append(rule)
            continue
        key = (*rule["apiGroups"], *rule["resources"], *rule.get("resourceNames", ()))
        known = by_resource.setdefault(key, {**rule, "verbs": []})
        known["verbs"] += rule["verbs"]
    return [*others, *by_resource.values()]


def _compact(rule: JsonObject) -> str:
    order = ("apiGroups", "resources", "nonResourceURLs", "resourceNames", "verbs")
    titles = ("APIGroups", "Resources", "NonResourceURLs", "ResourceNames", "Verbs")
    told = (f"{title}:{_quoted(rule[name])}" for name, title in zip(order, titles, strict=True) if rule.get(name))
    return f"{{{', '.join(told)}}}"


def _quoted(words: Iterable[str]) -> str:
    return "[" + " ".join(f'"{word}"' for word in words) + "]"
