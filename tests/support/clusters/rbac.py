"""Clusters with RBAC in which the operator has exactly the permissions of a configuration, and records of their use."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from haulout.api.objects import RawObject
from haulout.app.manifests import operator_manifests, workload
from haulout.app.manifests.operator_manifests import Installation
from haulout.controllers.profiles.config.model import Configuration
from haulout.controllers.profiles.external.network_client import NetworkClient
from haulout.controllers.profiles.plugin import HttpResponse
from haulout.kube.client import Client
from haulout.kube.rbac import Permission
from haulout.kube.transport import Request
from haulout_sandbox.apiserver.auth.rbac import User, request_attributes
from support.clusters.live_cluster import LiveCluster, SandboxCluster
from support.clusters.process import Program
from support.fakes.external_client import FakeExternalClient

_ANYBODY = User("anybody")
_TOKEN = {"x-subject-token": "t0ken"}


def shipped_rbac(configuration: Configuration | None, *, pod_deletion: bool = False) -> list[RawObject]:
    """Return the roles that we ship for a configuration."""
    wanted = Installation(image="example/haulout", configuration=configuration, pod_deletion=pod_deletion)
    return operator_manifests.role_objects(wanted)


def rbac_without(roles: Sequence[RawObject], permission: Permission, verb: str) -> list[RawObject]:
    """Return roles without one verb of a permission; the rules must have it."""
    wanted = permission.group, permission.resource, list(permission.names)
    left: list[RawObject] = []
    removed_count = 0
    for role in roles:
        if "rules" not in role or role["metadata"].get("namespace") != permission.namespace:
            left.append(role)
            continue
        rules = []
        for rule in role["rules"]:
            rule_key = rule.get("apiGroups", [""])[0], rule.get("resources", [""])[0], rule.get("resourceNames", [])
            is_wanted = role["metadata"]["name"] == workload.NAME and rule_key == wanted and verb in rule["verbs"]
            removed_count += is_wanted
            verbs = [candidate for candidate in rule["verbs"] if not (is_wanted and candidate == verb)]
            rules += [{**rule, "verbs": verbs}] if verbs else []
        left.append({**role, "rules": rules})
    assert removed_count == 1, f"no rule lets anybody {verb} {permission}"
    return left


def unused_verbs(cluster: LiveCluster, permissions: Iterable[Permission]) -> list[str]:
    """Return which verbs of permissions the operator has not used; on a real cluster nobody knows."""
    if not isinstance(cluster, SandboxCluster):
        return []
    requests = [candidate.request for process in cluster.processes.values() for candidate in process.transport.requests]
    return [
        f"{verb} {each} {', '.join(each.names)}".strip()
        for each in permissions
        for verb in each.verbs
        if not any(_uses(request, each, verb) for request in requests) and not _falls_back(each, verb, requests)
    ]


def _falls_back(permission: Permission, verb: str, requests: Iterable[Request]) -> bool:
    """Return whether a list is the fallback of a watch on a server without streaming lists."""
    return verb == "list" and any(_uses(request, permission, "watch") for request in requests)


def _uses(request: Request, permission: Permission, verb: str) -> bool:
    attributes = request_attributes(_ANYBODY, request.method, request.path, dict(request.query))
    resource = f"{attributes.resource}/{attributes.subresource}" if attributes.subresource else attributes.resource
    return (
        (attributes.verb, attributes.group, resource) == (verb, permission.group, permission.resource)
        and permission.namespace in (None, attributes.namespace)
        and (not permission.names or attributes.name in permission.names)
    )


@dataclass
class ExternalClientWithSecrets(FakeExternalClient):
    """A fake external client that issues a token for each login, and reads the Secrets of a cluster."""

    client: Client | None = None

    async def read_secret(self, namespace: str, name: str) -> Mapping[str, bytes]:
        """Ask the cluster."""
        return await NetworkClient(client=self.client).read_secret(namespace, name)

    async def request(self, method: str, url: str, **more: Any) -> HttpResponse:
        """Answer, with a token."""
        return replace(await super().request(method, url, **more), headers=_TOKEN)

    def for_program(self, program: Program) -> Program:
        """Return a program whose Secrets these are."""

        async def with_client(client: Client) -> None:
            self.client = client
            await program(client)

        return with_client
