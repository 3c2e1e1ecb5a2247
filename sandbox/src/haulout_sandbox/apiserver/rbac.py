"""Who may do what: roles and bindings of RBAC.

    policy = Policy(roles=…, cluster_roles=…, role_bindings=…, cluster_role_bindings=…)
    attributes = request_attributes(User("eve"), "GET", "/api/v1/nodes")
    if not policy.allows(attributes):
        raise Refused(forbidden(attributes))

A `Policy` is an immutable index of the objects as they were; whoever keeps the store makes a new one when one of them
changed. Bindings are found by user and group, and rules are sets, so a check costs microseconds however many roles
there are. Nothing denies, an unknown role is passed over, `system:masters` may do everything.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import unquote

from haulout_sandbox.apiserver.kinds import JsonObject
from haulout_sandbox.apiserver.names import segment_problem, subdomain_problems
from haulout_sandbox.apiserver.paths import is_true
from haulout_sandbox.apiserver.status import failure

GROUP = "rbac.authorization.k8s.io"
MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
ANONYMOUS = "system:anonymous"

_ACCOUNT = "system:serviceaccount:"
_Key = tuple[str, str, str]
_REMEMBERED = 4096  # combinations of user, groups and namespace


@dataclass(frozen=True, slots=True)
class User:
    """Who asks, as authentication found out."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    """One question: may `user`, a member of `groups`, do this."""

    user: str
    groups: tuple[str, ...] = ()
    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    namespace: str = ""
    path: str = ""
    is_resource: bool = True


def account_user(namespace: str, name: str, *, uid: str = "", extra: Mapping[str, Sequence[str]] | None = None) -> User:
    """Return a service account as the user that it is."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
    return User(f"{_ACCOUNT}{namespace}:{name}", groups, uid, extra or {})


def account_name(user: str) -> tuple[str, str] | None:
    """Return the namespace and the name of the service account that a user is, or None if it is none."""
    namespace, colon, name = user.removeprefix(_ACCOUNT).partition(":")
    if not (user.startswith(_ACCOUNT) and colon) or "." in namespace:
        return None
    return None if subdomain_problems(namespace) or subdomain_problems(name) else (namespace, name)


class Policy:
    """Roles and bindings, ready to be asked."""

    def __init__(
        self,
        *,
        roles: Iterable[JsonObject] = (),
        cluster_roles: Iterable[JsonObject] = (),
        role_bindings: Iterable[JsonObject] = (),
        cluster_role_bindings: Iterable[JsonObject] = (),
    ) -> None:
        self._rules: dict[_Key, tuple[_Rule, ...]] = {}  # by kind, namespace, name
        for role in (*roles, *cluster_roles):
            meta = role["metadata"]
            namespace = meta.get("namespace", "")
            kind = "Role" if namespace else "ClusterRole"
            self._rules[kind, namespace, meta["name"]] = tuple(_Rule(it) for it in role.get("rules") or ())
        self._bound: dict[_Key, list[_Key]] = {}  # roles by namespace, "User" or "Group", name
        for binding in (*cluster_role_bindings, *role_bindings):
            self._bind(binding)
        self._remembered: dict[tuple[str, tuple[str, ...], str], tuple[_Rule, ...]] = {}

    def allows(self, attributes: Attributes) -> bool:
        """Tell whether it is allowed."""
        if MASTERS in attributes.groups:
            return True
        rules = self._rules_of(attributes.user, attributes.groups, attributes.namespace)
        return any(rule.allows(attributes) for rule in rules)

    def rules_for(self, user: str, groups: Sequence[str], namespace: str) -> list[JsonObject]:
        """Return all rules that apply to a user in a namespace."""
        return [rule.raw for rule in self._rules_of(user, tuple(groups), namespace)]

    def _bind(self, binding: JsonObject) -> None:
        namespace, reference = binding["metadata"].get("namespace", ""), binding["roleRef"]
        role = reference["kind"], namespace if reference["kind"] == "Role" else "", reference["name"]
        for subject in binding.get("subjects") or ():
            kind, name = subject["kind"], subject["name"]
            if kind == "ServiceAccount":
                home = subject.get("namespace") or namespace
                kind, name = ("User", f"{_ACCOUNT}{home}:{name}") if home else ("", "")
            if kind in ("User", "Group"):
                self._bound.setdefault((namespace, kind, name), []).append(role)

    def _rules_of(self, user: str, groups: tuple[str, ...], namespace: str) -> "tuple[_Rule, ...]":
        key = (user, groups, namespace)
        if (known := self._remembered.get(key)) is not None:
            return known
        subjects = [("User", user), *(("Group", group) for group in groups)]
        where = dict.fromkeys(("", namespace))
        roles = dict.fromkeys(
            role for it in where for subject in subjects for role in self._bound.get((it, *subject), ())
        )
        if len(self._remembered) >= _REMEMBERED:
            self._remembered.clear()
        found = self._remembered[key] = tuple(rule for role in roles for rule in self._rules.get(role, ()))
        return found


class _Rule:
    """One rule of a role, as sets."""

    __slots__ = ("_groups", "_names", "_prefixes", "_resources", "_urls", "_verbs", "raw")

    def __init__(self, raw: JsonObject) -> None:
        self.raw = raw
        self._verbs = frozenset(raw.get("verbs") or ())
        self._groups = frozenset(raw.get("apiGroups") or ())
        self._resources = frozenset(raw.get("resources") or ())
        self._names = frozenset(raw.get("resourceNames") or ())
        self._urls = frozenset(raw.get("nonResourceURLs") or ())
        self._prefixes = tuple(url.rstrip("*") for url in self._urls if url.endswith("*"))

    def allows(self, asked: Attributes) -> bool:
        if asked.verb not in self._verbs and "*" not in self._verbs:
            return False
        if not asked.is_resource:
            return asked.path in self._urls or asked.path.startswith(self._prefixes)
        return (
            (asked.group in self._groups or "*" in self._groups)
            and self._covers_resource(asked)
            and (not self._names or asked.name in self._names)
        )

    def _covers_resource(self, asked: Attributes) -> bool:
        if "*" in self._resources:
            return True
        if not asked.subresource:
            return asked.resource in self._resources
        combined = (f"{asked.resource}/{asked.subresource}", f"*/{asked.subresource}")
        return not self._resources.isdisjoint(combined)


# What a request is about, and how it is refused

_VERBS = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_OF_NAMESPACES = ("status", "finalize")  # what follows a namespace's name without being a resource in it
_RESOURCE_PARTS = {"api": 3, "apis": 4}  # api/v1/pods, apis/apps/v1/deployments


def request_attributes(user: User, method: str, path: str, query: Mapping[str, str] | None = None) -> Attributes:
    """Return what a request asks to be allowed, as `RequestInfo` of the real server tells it from the path."""
    path = unquote(path)
    parts = path.strip("/").split("/")
    if len(parts) < _RESOURCE_PARTS.get(parts[0], len(parts) + 1):
        return Attributes(user=user.name, groups=user.groups, verb=method.lower(), path=path, is_resource=False)
    group = parts[1] if parts[0] == "apis" else ""
    parts = parts[_RESOURCE_PARTS[parts[0]] - 1 :]
    verb, namespace = _VERBS.get(method, ""), ""
    if parts[0] in ("watch", "proxy") and len(parts) > 1:
        verb, *parts = parts
    if parts[0] == "namespaces" and len(parts) > 1:
        namespace, inside = parts[1], parts[2:]
        if inside and inside[0] not in _OF_NAMESPACES:
            parts = inside
    resource, name, subresource = (*parts, "", "")[:3]
    asked = Attributes(
        user=user.name,
        groups=user.groups,
        verb=verb,
        group=group,
        resource=resource,
        subresource=subresource,
        name=name,
        namespace=namespace,
        path=path,
    )
    return asked if name else _about_many(asked, query or {})


def _about_many(asked: Attributes, query: Mapping[str, str]) -> Attributes:
    if asked.verb == "delete":
        return replace(asked, verb="deletecollection")
    if asked.verb != "get":
        return asked
    verb = "watch" if is_true(query, "watch") else "list"
    return replace(asked, verb=verb, name=_selected_name(query.get("fieldSelector", "")))


def _selected_name(field_selector: str) -> str:
    for term in field_selector.split(","):
        name, equals, value = term.replace("==", "=", 1).partition("=")
        if equals and name.strip() == "metadata.name" and not segment_problem(value):
            return value
    return ""


def forbidden(attributes: Attributes) -> JsonObject:
    """Return the Status that refuses a request."""
    who = f'User "{attributes.user}" cannot {attributes.verb}'
    if not attributes.is_resource:
        return refusal("", "", "", f'{who} path "{attributes.path}"')
    full = attributes.resource + (f"/{attributes.subresource}" if attributes.subresource else "")
    where = f'in the namespace "{attributes.namespace}"' if attributes.namespace else "at the cluster scope"
    said = f'{who} resource "{full}" in API group "{attributes.group}" {where}'
    return refusal(attributes.group, attributes.resource, attributes.name, said)


def refusal(group: str, resource: str, name: str, why: str) -> JsonObject:
    """Return the Status that says that something about a resource is forbidden."""
    qualified = f"{resource}.{group}" if group else resource
    subject = f'{qualified} "{name}" is ' if resource and name else f"{qualified} is " if resource else ""
    details = {"name": name, "group": group, "kind": resource}
    return failure(403, "Forbidden", f"{subject}forbidden: {why}", details)
