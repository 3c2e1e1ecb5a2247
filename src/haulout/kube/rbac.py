"""RBAC checks: which permissions the operator lacks, who it is, and a manifest that grants the rest.

Each verb is checked with its own SelfSubjectAccessReview. Only the server's answer counts, because a cluster may
combine several authorizers. Reading roles and bindings would need more permissions than the check is about.

`grant_manifest` builds the RBAC objects that grant exactly the denied permissions. Their name is derived from the user
and the permissions, so that a later manifest never revokes what an earlier one granted.
"""

import asyncio
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, NamedTuple

import msgspec

from haulout.api.objects import Base, RawObject
from haulout.api.resources import SELF_SUBJECT_ACCESS_REVIEWS, SELF_SUBJECT_REVIEWS
from haulout.errors import Forbidden, NotFound
from haulout.kube import responses
from haulout.kube.client import Client
from haulout.kube.namespaces import namespace
from haulout.kube.transport import Request

ANONYMOUS = "system:anonymous"

# One after the other, the reviews of a start take seconds; all at once they may exceed the share of the user in API
# priority and fairness.
_MAX_CONCURRENT_REVIEWS = 8
_RBAC = "rbac.authorization.k8s.io"
_SERVICE_ACCOUNT = re.compile(r"system:serviceaccount:([^:]+):([^:]+)")
_SLUG_LENGTH = 40


@dataclass(frozen=True, slots=True)
class Permission:
    """Some verbs on a resource, and their purpose."""

    verbs: tuple[str, ...]
    group: str  # empty for the core group
    resource: str  # with its subresource: `pods/eviction`
    namespace: str | None  # None: cluster-scoped, or in all namespaces
    why: str
    names: tuple[str, ...] = ()  # resourceNames; empty: all objects

    def __str__(self) -> str:
        """Return the resource as error messages name it: `leases.coordination.k8s.io in haulout`."""
        resource, slash, subresource = self.resource.partition("/")
        name = f"{resource}.{self.group}" if self.group else resource
        return f"{name}{slash}{subresource}" + (f" in {self.namespace}" if self.namespace else "")

    def covers(self, other: "Permission", verb: str) -> bool:
        """Return whether this permission allows `verb` on everything that `other` is about."""
        return (
            verb in self.verbs
            and (self.group, self.resource) == (other.group, other.resource)
            and self.namespace in (None, other.namespace)
            and (not self.names or (bool(other.names) and set(other.names) <= set(self.names)))
        )


class DeniedPermission(NamedTuple):
    """A verb that is denied, with the server's reason, if any."""

    permission: Permission
    verb: str
    reason: str = ""


class UserInfo(Base, frozen=True):
    """The user as which the server has authenticated the operator."""

    username: str = ""
    groups: tuple[str, ...] = ()


def without_redundant(permissions: Iterable[Permission]) -> tuple[Permission, ...]:
    """Return the permissions without the verbs that another one of them already allows."""
    remaining = list(dict.fromkeys(permissions))
    for at, candidate in reversed(list(enumerate(remaining))):  # of two equal permissions, keep the first
        others = [permission for number, permission in enumerate(remaining) if number != at]
        verbs = tuple(
            verb for verb in candidate.verbs if not any(permission.covers(candidate, verb) for permission in others)
        )
        remaining[at] = replace(candidate, verbs=verbs)
    return tuple(permission for permission in remaining if permission.verbs)


async def denied_permissions(client: Client, permissions: Iterable[Permission]) -> list[DeniedPermission]:
    """Return which of `permissions` are denied, in their order."""
    semaphore = asyncio.Semaphore(_MAX_CONCURRENT_REVIEWS)

    async def check(permission: Permission, verb: str) -> DeniedPermission | None:
        # A review without a name asks about all objects, which a role with resourceNames does not allow.
        for name in permission.names or ("",):
            async with semaphore:
                denied = await _review(client, permission, verb, name)
            if denied is not None:
                return denied
        return None

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(check(each, verb)) for each in permissions for verb in each.verbs]
    except ExceptionGroup as failures:
        # All reviews go to the same server, so the first failure is representative.
        raise failures.exceptions[0] from None
    return [denied for task in tasks if (denied := task.result())]


async def whoami(client: Client) -> UserInfo | None:
    """Return the authenticated user; None if the server does not say (before Kubernetes 1.28, or forbidden)."""
    body = {"apiVersion": SELF_SUBJECT_REVIEWS.api_version, "kind": SELF_SUBJECT_REVIEWS.kind}
    doing = "asking the server who we are"
    request = Request(method="POST", path=SELF_SUBJECT_REVIEWS.path(), body=msgspec.json.encode(body))
    try:
        response = await client.request(request, doing=doing)
    except (NotFound, Forbidden):
        return None
    identity = responses.decode(_SelfReview, response.body, doing=doing).status.user_info
    return identity if identity.username else None


def grant_manifest(user: UserInfo, denied: Sequence[DeniedPermission], *, namespaces: Iterable[str] = ()) -> str:
    """Return YAML that grants `user` the `denied` permissions, for `kubectl apply -f -`.

    The YAML contains those `namespaces` that a role needs and that may not exist yet.
    """
    import yaml

    permissions = [replace(permission, verbs=(verb,)) for permission, verb, _ in denied]
    name = _grant_name(user, _rules(permissions))
    needed = {item.namespace for item in permissions}
    namespace_objects = [namespace(item) for item in namespaces if item in needed]
    return yaml.safe_dump_all(
        [*namespace_objects, *roles(name, permissions, _subject(user))], sort_keys=False, explicit_start=True
    )


def roles(name: str, permissions: Iterable[Permission], subject: Mapping[str, str]) -> list[RawObject]:
    return [
        each
        for namespace, rules in _rules(permissions).items()
        for each in _role_and_binding(name, namespace, rules, subject)
    ]


# Reviews


class _SelfStatus(Base, frozen=True):
    user_info: UserInfo = UserInfo()


class _SelfReview(Base, frozen=True):
    status: _SelfStatus = _SelfStatus()


class _AccessReviewStatus(Base, frozen=True):
    allowed: bool = False
    reason: str = ""
    evaluation_error: str = ""


class _AccessReview(Base, frozen=True):
    status: _AccessReviewStatus = _AccessReviewStatus()


async def _review(client: Client, permission: Permission, verb: str, name: str) -> DeniedPermission | None:
    resource, _, subresource = permission.resource.partition("/")
    attributes = {
        "verb": verb,
        "group": permission.group,
        "resource": resource,
        # A review has the subresource in a field of its own, while a rule of a Role says `pods/eviction`
        # (ResourceAttributes in staging/src/k8s.io/api/authorization/v1/types.go).
        "subresource": subresource,
        # An empty namespace means all of them, and for cluster-scoped resources none.
        "namespace": permission.namespace or "",
        "name": name,
    }
    body = {
        "apiVersion": SELF_SUBJECT_ACCESS_REVIEWS.api_version,
        "kind": SELF_SUBJECT_ACCESS_REVIEWS.kind,
        "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
    }
    doing = f"asking the server whether we may {verb} {permission}"
    request = Request(method="POST", path=SELF_SUBJECT_ACCESS_REVIEWS.path(), body=msgspec.json.encode(body))
    response = await client.request(request, doing=doing)
    status = responses.decode(_AccessReview, response.body, doing=doing).status
    return None if status.allowed else DeniedPermission(permission, verb, status.reason or status.evaluation_error)


# Manifests

_Rule = dict[str, list[str]]


def _rules(permissions: Iterable[Permission]) -> dict[str | None, list[_Rule]]:
    """Return the rules for each namespace. None is for the ClusterRole, and comes first."""
    verbs: dict[tuple[str | None, str, str, tuple[str, ...]], dict[str, None]] = {}
    for permission in permissions:
        key = permission.namespace, permission.group, permission.resource, permission.names
        verbs.setdefault(key, {}).update(dict.fromkeys(permission.verbs))
    ordered = sorted(verbs.items(), key=lambda item: item[0][0] or "")
    return {
        namespace: [
            {"apiGroups": [group], "resources": [resource], "verbs": list(granted)}
            | ({"resourceNames": list(names)} if names else {})
            for (_, group, resource, names), granted in items
        ]
        for namespace, items in groupby(ordered, key=lambda item: item[0][0])
    }


def _grant_name(user: UserInfo, rules: dict[str | None, list[_Rule]]) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", user.username.lower())[:_SLUG_LENGTH].strip("-")
    # With a fixed name, `kubectl apply` of a second manifest would remove the rules of the first one.
    granted = repr((user.username, rules)).encode()
    return "-".join(part for part in ("haulout", slug, hashlib.sha256(granted).hexdigest()[:8]) if part)


def _role_and_binding(
    name: str, namespace: str | None, rules: list[_Rule], subject: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    prefix = "" if namespace else "Cluster"
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    api_version = f"{_RBAC}/v1"
    role = {"apiVersion": api_version, "kind": f"{prefix}Role", "metadata": metadata, "rules": rules}
    binding = {
        "apiVersion": api_version,
        "kind": f"{prefix}RoleBinding",
        "metadata": dict(metadata),
        "roleRef": {"apiGroup": _RBAC, "kind": f"{prefix}Role", "name": name},
        "subjects": [dict(subject)],
    }
    return role, binding


def _subject(user: UserInfo) -> dict[str, str]:
    account = _SERVICE_ACCOUNT.fullmatch(user.username)
    if account:
        return {"kind": "ServiceAccount", "namespace": account[1], "name": account[2]}
    return {"apiGroup": _RBAC, "kind": "User", "name": user.username}
