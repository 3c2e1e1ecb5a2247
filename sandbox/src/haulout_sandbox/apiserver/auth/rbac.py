"""RBAC: roles, bindings and the decision whether a request is allowed.

    policy = Policy(roles=…, cluster_roles=…, role_bindings=…, cluster_role_bindings=…)
    attributes = request_attributes(User("eve"), "GET", "/api/v1/nodes")
    if not policy.allows(attributes):
        raise StatusError(forbidden_status(attributes))

A `Policy` is an immutable index of the objects at one revision; its owner creates a new one when an object changes.
Bindings are found by user and group, and rules are sets, so a check takes microseconds however many roles there are.
There are no deny rules, a binding to an unknown role has no effect, and `system:masters` may do everything.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import unquote

from haulout_sandbox.apiserver.kinds.kind import JsonObject
from haulout_sandbox.apiserver.object_names import dns1123_subdomain_problems, segment_problem
from haulout_sandbox.apiserver.request_paths import is_true
from haulout_sandbox.apiserver.status import failure_status

GROUP = "rbac.authorization.k8s.io"
SYSTEM_MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
ANONYMOUS = "system:anonymous"

_SERVICE_ACCOUNT_PREFIX = "system:serviceaccount:"
_Key = tuple[str, str, str]
_MAX_CACHED = 4096  # combinations of user, groups and namespace


@dataclass(frozen=True, slots=True)
class User:
    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    """What a request needs permission for: who, which verb, on what."""

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


def service_account_user(
    namespace: str, name: str, *, uid: str = "", extra: Mapping[str, Sequence[str]] | None = None
) -> User:
    """Return the user of a service account."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
    return User(f"{_SERVICE_ACCOUNT_PREFIX}{namespace}:{name}", groups, uid, extra or {})


def parse_service_account(user: str) -> tuple[str, str] | None:
    """Return namespace and name if `user` is a service account, otherwise None."""
    namespace, colon, name = user.removeprefix(_SERVICE_ACCOUNT_PREFIX).partition(":")
    if not (user.startswith(_SERVICE_ACCOUNT_PREFIX) and colon) or "." in namespace:
        return None
    return None if dns1123_subdomain_problems(namespace) or dns1123_subdomain_problems(name) else (namespace, name)


class Policy:
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
            self._rules[kind, namespace, meta["name"]] = tuple(_Rule(rule) for rule in role.get("rules") or ())
        self._roles_by_subject: dict[_Key, list[_Key]] = {}  # roles by namespace, "User" or "Group", name
        for binding in (*cluster_role_bindings, *role_bindings):
            self._bind(binding)
        self._rules_cache: dict[tuple[str, tuple[str, ...], str], tuple[_Rule, ...]] = {}

    def allows(self, attributes: Attributes) -> bool:
        if SYSTEM_MASTERS in attributes.groups:
            return True
        rules = self._rules_of(attributes.user, attributes.groups, attributes.namespace)
        return any(rule.allows(attributes) for rule in rules)

    def rules_for(self, user: str, groups: Sequence[str], namespace: str) -> list[JsonObject]:
        return [rule.raw for rule in self._rules_of(user, tuple(groups), namespace)]

    def _bind(self, binding: JsonObject) -> None:
        namespace, reference = binding["metadata"].get("namespace", ""), binding["roleRef"]
        role = reference["kind"], namespace if reference["kind"] == "Role" else "", reference["name"]
        for subject in binding.get("subjects") or ():
            kind, name = subject["kind"], subject["name"]
            if kind == "ServiceAccount":
                account_namespace = subject.get("namespace") or namespace
                kind, name = (
                    ("User", f"{_SERVICE_ACCOUNT_PREFIX}{account_namespace}:{name}") if account_namespace else ("", "")
                )
            if kind in ("User", "Group"):
                self._roles_by_subject.setdefault((namespace, kind, name), []).append(role)

    def _rules_of(self, user: str, groups: tuple[str, ...], namespace: str) -> "tuple[_Rule, ...]":
        key = (user, groups, namespace)
        if (cached := self._rules_cache.get(key)) is not None:
            return cached
        subjects = [("User", user), *(("Group", group) for group in groups)]
        namespaces = dict.fromkeys(("", namespace))
        roles = dict.fromkeys(
            role
            for scope in namespaces
            for subject in subjects
            for role in self._roles_by_subject.get((scope, *subject), ())
        )
        if len(self._rules_cache) >= _MAX_CACHED:
            self._rules_cache.clear()
        rules = self._rules_cache[key] = tuple(rule for role in roles for rule in self._rules.get(role, ()))
        return rules


class _Rule:
    """A rule of a role, as sets."""

    __slots__ = ("_groups", "_names", "_prefixes", "_resources", "_urls", "_verbs", "raw")

    def __init__(self, raw: JsonObject) -> None:
        self.raw = raw
        self._verbs = frozenset(raw.get("verbs") or ())
        self._groups = frozenset(raw.get("apiGroups") or ())
        self._resources = frozenset(raw.get("resources") or ())
        self._names = frozenset(raw.get("resourceNames") or ())
        self._urls = frozenset(raw.get("nonResourceURLs") or ())
        self._prefixes = tuple(url.rstrip("*") for url in self._urls if url.endswith("*"))

    def allows(self, attributes: Attributes) -> bool:
        if attributes.verb not in self._verbs and "*" not in self._verbs:
            return False
        if not attributes.is_resource:
            return attributes.path in self._urls or attributes.path.startswith(self._prefixes)
        return (
            (attributes.group in self._groups or "*" in self._groups)
            and self._covers_resource(attributes)
            and (not self._names or attributes.name in self._names)
        )

    def _covers_resource(self, attributes: Attributes) -> bool:
        if "*" in self._resources:
            return True
        if not attributes.subresource:
            return attributes.resource in self._resources
        combined = (f"{attributes.resource}/{attributes.subresource}", f"*/{attributes.subresource}")
        return not self._resources.isdisjoint(combined)


# Attributes of requests, and errors

_VERBS = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_NAMESPACE_SUBRESOURCES = ("status", "finalize")  # subresources of a namespace, not resources in it
_MIN_RESOURCE_PARTS = {"api": 3, "apis": 4}  # api/v1/pods, apis/apps/v1/deployments


def request_attributes(user: User, method: str, path: str, query: Mapping[str, str] | None = None) -> Attributes:
    """Return what a request needs permission for, parsed from the path as `RequestInfo` of the real server does."""
    path = unquote(path)
    parts = path.strip("/").split("/")
    if len(parts) < _MIN_RESOURCE_PARTS.get(parts[0], len(parts) + 1):
        return Attributes(user=user.name, groups=user.groups, verb=method.lower(), path=path, is_resource=False)
    group = parts[1] if parts[0] == "apis" else ""
    parts = parts[_MIN_RESOURCE_PARTS[parts[0]] - 1 :]
    verb, namespace = _VERBS.get(method, ""), ""
    if parts[0] in ("watch", "proxy") and len(parts) > 1:
        verb, *parts = parts
    if parts[0] == "namespaces" and len(parts) > 1:
        namespace, inner = parts[1], parts[2:]
        if inner and inner[0] not in _NAMESPACE_SUBRESOURCES:
            parts = inner
    resource, name, subresource = (*parts, "", "")[:3]
    attributes = Attributes(
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
    return attributes if name else _collection_attributes(attributes, query or {})


def _collection_attributes(attributes: Attributes, query: Mapping[str, str]) -> Attributes:
    if attributes.verb == "delete":
        return replace(attributes, verb="deletecollection")
    if attributes.verb != "get":
        return attributes
    verb = "watch" if is_true(query, "watch") else "list"
    return replace(attributes, verb=verb, name=_selected_name(query.get("fieldSelector", "")))


def _selected_name(field_selector: str) -> str:
    for term in field_selector.split(","):
        name, equals, value = term.replace("==", "=", 1).partition("=")
        if equals and name.strip() == "metadata.name" and not segment_problem(value):
            return value
    return ""


def forbidden_status(attributes: Attributes) -> JsonObject:
    prefix = f'User "{attributes.user}" cannot {attributes.verb}'
    if not attributes.is_resource:
        return forbidden_resource_status("", "", "", f'{prefix} path "{attributes.path}"')
    resource = attributes.resource + (f"/{attributes.subresource}" if attributes.subresource else "")
    scope = f'in the namespace "{attributes.namespace}"' if attributes.namespace else "at the cluster scope"
    message = f'{prefix} resource "{resource}" in API group "{attributes.group}" {scope}'
    return forbidden_resource_status(attributes.group, attributes.resource, attributes.name, message)


def forbidden_resource_status(group: str, resource: str, name: str, detail: str) -> JsonObject:
    qualified = f"{resource}.{group}" if group else resource
    prefix = f'{qualified} "{name}" is ' if resource and name else f"{qualified} is " if resource else ""
    details = {"name": name, "group": group, "kind": resource}
    return failure_status(403, "Forbidden", f"{prefix}forbidden: {detail}", details)
