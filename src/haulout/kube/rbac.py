"""What we may do in a cluster, who we are there, and what would grant us the rest.

The server is asked about each verb by itself (SelfSubjectAccessReview): that is the one answer that counts, whatever
mixture of authorizers it has. Reading roles and bindings would need more rights than are being looked for.

`grant_manifest` turns refusals into the RBAC objects that would lift exactly these. Their name is derived from whom and
what they grant: applying a later manifest never takes away what an earlier one gave.
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

_MAX_CONCURRENT_REVIEWS = 8
_RBAC = "rbac.authorization.k8s.io"
_SERVICE_ACCOUNT = re.compile(r"system:serviceaccount:([^:]+):([^:]+)")
_SLUG_LENGTH = 40


@dataclass(frozen=True, slots=True)
class Permission:
    """Some verbs on a resource, and what they are wanted for."""

    verbs: tuple[str, ...]
    group: str  # empty for the core group
    resource: str  # with its subresource: `pods/eviction`
    namespace: str | None  # None: in all namespaces, or not in one
    why: str
    names: tuple[str, ...] = ()  # of the only objects that it is about; empty: all

    def __str__(self) -> str:
        """Return `leases.coordination.k8s.io in haulout`, as messages name it."""
        resource, slash, subresource = self.resource.partition("/")
        name = f"{resource}.{self.group}" if self.group else resource
        return f"{name}{slash}{subresource}" + (f" in {self.namespace}" if self.namespace else "")

    def covers(self, other: "Permission", verb: str) -> bool:
        """Tell whether it allows a verb of another permission, whatever that is about."""
        return (
            verb in self.verbs
            and (self.group, self.resource) == (other.group, other.resource)
            and self.namespace in (None, other.namespace)
            and (not self.names or (bool(other.names) and set(other.names) <= set(self.names)))
        )


class DeniedPermission(NamedTuple):
    """A verb that we may not use, with what the server said about it, if anything."""

    permission: Permission
    verb: str
    reason: str = ""


class UserInfo(Base, frozen=True):
    """Who the server takes us for."""

    username: str = ""
    groups: tuple[str, ...] = ()


def without_redundant(permissions: Iterable[Permission]) -> tuple[Permission, ...]:
    """Return the same permissions, without verbs that another of them allows anyway."""
    remaining = list(dict.fromkeys(permissions))
    for at, candidate in reversed(list(enumerate(remaining))):  # of two that allow the same, the first keeps it
        others = [permission for number, permission in enumerate(remaining) if number != at]
        verbs = tuple(
            verb for verb in candidate.verbs if not any(permission.covers(candidate, verb) for permission in others)
        )
        remaining[at] = replace(candidate, verbs=verbs)
    return tuple(permission for permission in remaining if permission.verbs)


async def denied_permissions(client: Client, permissions: Iterable[Permission]) -> list[DeniedPermission]:
    """Return which of `permissions` we do not have, in their order."""
    semaphore = asyncio.Semaphore(_MAX_CONCURRENT_REVIEWS)

    async def check(permission: Permission, verb: str) -> DeniedPermission | None:
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
        # All questions go to the same server, so that the first failure tells it all.
        raise failures.exceptions[0] from None
    return [denied for task in tasks if (denied := task.result())]


async def whoami(client: Client) -> UserInfo | None:
    """Return who the server takes us for; None if it cannot say (before Kubernetes 1.28) or does not want to."""
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
    """Return YAML that grants `user` what was `denied`, ready for `kubectl apply -f -`.

    It makes `namespaces` that a role needs, and that need not be there yet.
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
    """Return the roles that hold `permissions`, and the bindings that give them to `subject`."""
    return [
        each
        for namespace, rules in _rules(permissions).items()
        for each in _role_and_binding(name, namespace, rules, subject)
    ]


# Asking


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
        "subresource": subresource,
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


# Granting

_Rule = dict[str, list[str]]


def _rules(permissions: Iterable[Permission]) -> dict[str | None, list[_Rule]]:
    """Return the rules of a role for each namespace; None is the cluster, and comes first."""
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
