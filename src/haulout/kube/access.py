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

from haulout.errors import Forbidden, NotFound
from haulout.kube import answers
from haulout.kube.client import Client
from haulout.kube.namespaces import namespace
from haulout.kube.objects import Base, RawObject
from haulout.kube.resources import ACCESS_REVIEWS, SELF_REVIEWS
from haulout.kube.transport import Request

ANONYMOUS = "system:anonymous"

_QUESTIONS_AT_ONCE = 8
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


class Refusal(NamedTuple):
    """A verb that we may not use, with what the server said about it, if anything."""

    permission: Permission
    verb: str
    reason: str = ""


class UserInfo(Base, frozen=True):
    """Who the server takes us for."""

    username: str = ""
    groups: tuple[str, ...] = ()


def lean(permissions: Iterable[Permission]) -> tuple[Permission, ...]:
    """Return the same permissions, without verbs that another of them allows anyway."""
    left = list(dict.fromkeys(permissions))
    for at, each in reversed(list(enumerate(left))):  # of two that allow the same, the first keeps it
        others = [it for number, it in enumerate(left) if number != at]
        verbs = tuple(verb for verb in each.verbs if not any(it.covers(each, verb) for it in others))
        left[at] = replace(each, verbs=verbs)
    return tuple(it for it in left if it.verbs)


async def missing(client: Client, permissions: Iterable[Permission]) -> list[Refusal]:
    """Return which of `permissions` we do not have, in their order."""
    gate = asyncio.Semaphore(_QUESTIONS_AT_ONCE)

    async def ask(permission: Permission, verb: str) -> Refusal | None:
        for name in permission.names or ("",):
            async with gate:
                refusal = await _refusal(client, permission, verb, name)
            if refusal is not None:
                return refusal
        return None

    try:
        async with asyncio.TaskGroup() as group:
            questions = [group.create_task(ask(each, verb)) for each in permissions for verb in each.verbs]
    except ExceptionGroup as failures:
        # All questions go to the same server, so that the first failure tells it all.
        raise failures.exceptions[0] from None
    return [refusal for question in questions if (refusal := question.result())]


async def whoami(client: Client) -> UserInfo | None:
    """Return who the server takes us for; None if it cannot say (before Kubernetes 1.28) or does not want to."""
    body = {"apiVersion": SELF_REVIEWS.api_version, "kind": SELF_REVIEWS.kind}
    doing = "asking the server who we are"
    request = Request(method="POST", path=SELF_REVIEWS.path(), body=msgspec.json.encode(body))
    try:
        response = await client.request(request, doing=doing)
    except (NotFound, Forbidden):
        return None
    identity = answers.decode(_SelfReview, response.body, doing=doing).status.user_info
    return identity if identity.username else None


def grant_manifest(who: UserInfo, refused: Sequence[Refusal], *, namespaces: Iterable[str] = ()) -> str:
    """Return YAML that grants `who` what was `refused`, ready for `kubectl apply -f -`.

    It makes `namespaces` that a role needs, and that need not be there yet.
    """
    import yaml

    wanted = [replace(permission, verbs=(verb,)) for permission, verb, _ in refused]
    name = _grant_name(who, _rules(wanted))
    needed = {it.namespace for it in wanted}
    made = [namespace(it) for it in namespaces if it in needed]
    return yaml.safe_dump_all([*made, *roles(name, wanted, _subject(who))], sort_keys=False, explicit_start=True)


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


class _Verdict(Base, frozen=True):
    allowed: bool = False
    reason: str = ""
    evaluation_error: str = ""


class _AccessReview(Base, frozen=True):
    status: _Verdict = _Verdict()


async def _refusal(client: Client, permission: Permission, verb: str, name: str) -> Refusal | None:
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
        "apiVersion": ACCESS_REVIEWS.api_version,
        "kind": ACCESS_REVIEWS.kind,
        "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
    }
    doing = f"asking the server whether we may {verb} {permission}"
    request = Request(method="POST", path=ACCESS_REVIEWS.path(), body=msgspec.json.encode(body))
    response = await client.request(request, doing=doing)
    verdict = answers.decode(_AccessReview, response.body, doing=doing).status
    return None if verdict.allowed else Refusal(permission, verb, verdict.reason or verdict.evaluation_error)


# Granting

_Rule = dict[str, list[str]]


def _rules(permissions: Iterable[Permission]) -> dict[str | None, list[_Rule]]:
    """Return the rules of a role for each namespace; None is the cluster, and comes first."""
    verbs: dict[tuple[str | None, str, str, tuple[str, ...]], dict[str, None]] = {}
    for it in permissions:
        key = it.namespace, it.group, it.resource, it.names
        verbs.setdefault(key, {}).update(dict.fromkeys(it.verbs))
    ordered = sorted(verbs.items(), key=lambda item: item[0][0] or "")
    return {
        namespace: [
            {"apiGroups": [group], "resources": [resource], "verbs": list(granted)}
            | ({"resourceNames": list(names)} if names else {})
            for (_, group, resource, names), granted in items
        ]
        for namespace, items in groupby(ordered, key=lambda item: item[0][0])
    }


def _grant_name(who: UserInfo, rules: dict[str | None, list[_Rule]]) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", who.username.lower())[:_SLUG_LENGTH].strip("-")
    granted = repr((who.username, rules)).encode()
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


def _subject(who: UserInfo) -> dict[str, str]:
    account = _SERVICE_ACCOUNT.fullmatch(who.username)
    if account:
        return {"kind": "ServiceAccount", "namespace": account[1], "name": account[2]}
    return {"apiGroup": _RBAC, "kind": "User", "name": who.username}
