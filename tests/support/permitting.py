"""Clusters in which the operator may do what a configuration needs, and nothing else; and what of it was used."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from haulout.app import manifests, workload
from haulout.app.manifests import Installation
from haulout.kube.access import Permission
from haulout.kube.client import Client
from haulout.kube.objects import RawObject
from haulout.kube.transport import Request
from haulout.profiles.model import Configuration
from haulout.profiles.outside import Network
from haulout.profiles.plugin import Reply
from haulout_sandbox.apiserver.rbac import User, request_attributes
from support.live import LiveCluster, SandboxCluster
from support.outside import FakeOutside
from support.processes import Program

_ANYBODY = User("anybody")
_TOKEN = {"x-subject-token": "t0ken"}


def rights(configuration: Configuration | None, *, pod_deletion: bool = False) -> list[RawObject]:
    """Return the roles that we ship for a configuration."""
    wanted = Installation(image="example/haulout", configuration=configuration, pod_deletion=pod_deletion)
    return manifests.permissions(wanted)


def without(roles: Sequence[RawObject], permission: Permission, verb: str) -> list[RawObject]:
    """Return roles without one verb of a permission; the rules must have it."""
    wanted = permission.group, permission.resource, list(permission.names)
    left: list[RawObject] = []
    taken = 0
    for role in roles:
        if "rules" not in role or role["metadata"].get("namespace") != permission.namespace:
            left.append(role)
            continue
        rules = []
        for rule in role["rules"]:
            its = rule.get("apiGroups", [""])[0], rule.get("resources", [""])[0], rule.get("resourceNames", [])
            hit = role["metadata"]["name"] == workload.NAME and its == wanted and verb in rule["verbs"]
            taken += hit
            verbs = [it for it in rule["verbs"] if not (hit and it == verb)]
            rules += [{**rule, "verbs": verbs}] if verbs else []
        left.append({**role, "rules": rules})
    assert taken == 1, f"no rule lets anybody {verb} {permission}"
    return left


def unused(cluster: LiveCluster, permissions: Iterable[Permission]) -> list[str]:
    """Return which verbs of permissions the operator has not used; on a real cluster nobody knows."""
    if not isinstance(cluster, SandboxCluster):
        return []
    asked = [it.request for process in cluster.processes.values() for it in process.transport.requests]
    return [
        f"{verb} {each} {', '.join(each.names)}".strip()
        for each in permissions
        for verb in each.verbs
        if not any(_uses(request, each, verb) for request in asked) and not _falls_back(each, verb, asked)
    ]


def _falls_back(permission: Permission, verb: str, asked: Iterable[Request]) -> bool:
    """Tell whether a list is what a watch falls back to where the server cannot send one as part of a watch."""
    return verb == "list" and any(_uses(it, permission, "watch") for it in asked)


def _uses(request: Request, permission: Permission, verb: str) -> bool:
    about = request_attributes(_ANYBODY, request.method, request.path, dict(request.query))
    resource = f"{about.resource}/{about.subresource}" if about.subresource else about.resource
    return (
        (about.verb, about.group, resource) == (verb, permission.group, permission.resource)
        and permission.namespace in (None, about.namespace)
        and (not permission.names or about.name in permission.names)
    )


@dataclass
class OutsideAndSecrets(FakeOutside):
    """The outside world as it is told, with a token for all who log in; and the Secrets of a cluster as they are."""

    client: Client | None = None

    async def secret(self, namespace: str, name: str) -> Mapping[str, bytes]:
        """Ask the cluster."""
        return await Network(client=self.client).secret(namespace, name)

    async def exchange(
        self, method: str, url: str, *, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Reply:
        """Answer, with a token."""
        return replace(await super().exchange(method, url, body=body, headers=headers), headers=_TOKEN)

    def known_to(self, program: Program) -> Program:
        """Return a program whose Secrets these are."""

        async def knowing(client: Client) -> None:
            self.client = client
            await program(client)

        return knowing
