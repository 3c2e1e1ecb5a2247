"""API discovery: which resources a cluster serves, in which versions, with which verbs.

Servers since Kubernetes 1.27 serve everything in two documents (aggregated discovery, at /api and /apis). Older servers
list only their groups there; each version of a group has its own document. Those are read one after the other, because
such servers are few and their documents small.

An extension API server may be unavailable. Its resources are then unknown, which is not the same as absent:
`Discovery.unavailable` lists their group versions, and all other resources are unaffected.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from haulout.api.objects import Base, ObjectMeta
from haulout.api.resources import Resource
from haulout.core.backoff import Backoff
from haulout.core.retry import Retry
from haulout.errors import ApiError, KubeError, MalformedResponse, NotFound, Unauthorized
from haulout.kube import responses
from haulout.kube.client import Client
from haulout.kube.transport import Request

log = logging.getLogger(__name__)

M = TypeVar("M")

# In order of preference: aggregated discovery (KEP-3352), its beta, then what every server has. A server that supports
# neither of the first two answers with the legacy documents.
_ACCEPT = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,"
    "application/json"
)


@dataclass(frozen=True, slots=True)
class ServedResource:
    """A served resource. Attributes that differ between versions are those of the preferred version."""

    group: str
    plural: str
    kind: str
    namespaced: bool
    versions: tuple[str, ...]  # in the server's order of preference
    verbs: tuple[str, ...]
    subresources: tuple[str, ...]
    short_names: tuple[str, ...]

    @property
    def preferred_version(self) -> str:
        return self.versions[0]


@dataclass(frozen=True, slots=True)
class Discovery:
    """All resources that a cluster serves, and the group versions that could not be read."""

    resources: Mapping[tuple[str, str], ServedResource]
    unavailable: tuple[str, ...]  # `group/version` of extension API servers that do not answer

    def find(self, group: str, plural: str) -> ServedResource | None:
        return self.resources.get((group, plural))

    def serves(self, resource: Resource[Any]) -> bool:
        """Return whether `resource` is served in the version that Haulout uses."""
        found = self.find(resource.group, resource.plural)
        return found is not None and resource.version in found.versions

    def is_complete_for(self, group: str) -> bool:
        """Return whether all versions of `group` were read.

        If not, a resource that `find` does not return may exist.
        """
        return not any(name.rpartition("/")[0] == group for name in self.unavailable)


async def discover(client: Client) -> Discovery:
    versions = [*await _read(client, "/api"), *await _read(client, "/apis")]
    return Discovery(
        resources=_by_name(versions),
        unavailable=tuple(version.name for version in versions if version.resources is None),
    )


async def serves(client: Client, *resources: Resource[Any]) -> bool:
    """Return whether the cluster serves all of these resources, which share one group and version.

    This takes one request, unlike `discover`.
    """
    path = f"/apis/{resources[0].api_version}"
    doing = f"discovering what is served under {path}"
    try:
        response = await client.request(Request(method="GET", path=path), doing=doing)
    except NotFound:
        return False
    found = responses.decode(_LegacyVersion, response.body, doing=doing).resources or ()
    return {served.name for served in found} >= {resource.plural for resource in resources}


async def wait_until_served(
    client: Client,
    *versions: Resource[M],
    product: str,
    backoff: Backoff,
    on_absent: Callable[[], object] | None = None,
) -> Resource[M]:
    """Return the first of these versions of a resource that the cluster serves, once it serves one.

    A problem is logged once. `on_absent` is called instead if `product` is not installed, after each attempt.
    """
    retry, logged, resource = Retry(client.clock, client.random, backoff), "", versions[0]
    while True:
        reason: Exception
        try:
            for version in versions:
                if await serves(client, version):
                    return version
            reason = LookupError(f"there are no {resource}")
            problem = f"{product} is not installed in this cluster: {reason}"
        except KubeError as error:
            reason, problem = error, f"cannot check whether {product} is installed: {error}"
        if on_absent is not None and isinstance(reason, LookupError):
            on_absent()
        elif problem != logged:
            logged = problem
            log.warning("%s; retrying", problem)
        await retry.wait(reason)


@dataclass(frozen=True, slots=True)
class _Version:
    """One version of one group, from either kind of document."""

    group: str
    version: str
    resources: tuple[ServedResource, ...] | None  # None: its server does not answer

    @property
    def name(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


def _by_name(versions: Iterable[_Version]) -> dict[tuple[str, str], ServedResource]:
    resources: dict[tuple[str, str], list[ServedResource]] = {}
    for version in versions:
        for found in version.resources or ():
            resources.setdefault((found.group, found.plural), []).append(found)
    return {
        name: replace(found[0], versions=tuple(served.preferred_version for served in found))
        for name, found in resources.items()
    }


async def _read(client: Client, path: str) -> list[_Version]:
    doing = f"discovering what is served under {path}"
    response = await client.request(Request(method="GET", path=path, accept=_ACCEPT), doing=doing)
    document = responses.decode(_Document, response.body, doing=doing)
    match document.kind:
        case "APIGroupDiscoveryList":
            return [_from_aggregated(group, version) for group in document.items or () for version in group.versions]
        case "APIVersions":
            names = [("", version) for version in document.versions or ()]
        case "APIGroupList":
            names = [(group.name, version) for group in document.groups or () for version in group.in_order()]
        case kind:
            raise MalformedResponse(f"{doing}: expected a list of API groups, got kind {kind!r}: is this Kubernetes?")
    return [await _read_legacy(client, group, version, prefix=path) for group, version in names]


# Aggregated discovery: types in k8s.io/api/apidiscovery/v2; v2beta1 has the same fields. A list may be null where Go
# encodes a nil slice.


class _ResponseKind(Base, frozen=True):
    kind: str = ""


class _Subresource(Base, frozen=True):
    subresource: str


class _Resource(Base, frozen=True):
    resource: str
    scope: str = ""
    response_kind: _ResponseKind | None = None
    verbs: tuple[str, ...] | None = None
    short_names: tuple[str, ...] | None = None
    subresources: tuple[_Subresource, ...] | None = None


class _GroupVersion(Base, frozen=True):
    version: str
    freshness: str = ""
    resources: tuple[_Resource, ...] | None = None


class _Group(Base, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    versions: tuple[_GroupVersion, ...] = ()


def _from_aggregated(group: _Group, version: _GroupVersion) -> _Version:
    name = group.metadata.name
    # The aggregator could not fetch the document, and repeats an earlier one or none. To rely on that would
    # treat a resource as served whose requests all fail.
    if version.freshness == "Stale":
        return _Version(name, version.version, None)
    found = tuple(
        ServedResource(
            group=name,
            plural=resource.resource,
            kind=resource.response_kind.kind,
            namespaced=resource.scope == "Namespaced",
            versions=(version.version,),
            verbs=resource.verbs or (),
            subresources=tuple(sub.subresource for sub in resource.subresources or ()),
            short_names=resource.short_names or (),
        )
        for resource in version.resources or ()
        # Without a kind, the entry is only the parent of subresources and cannot be requested itself.
        if resource.response_kind and resource.response_kind.kind
    )
    return _Version(name, version.version, found)


# Legacy discovery: types in k8s.io/apimachinery/pkg/apis/meta/v1.


class _NamedVersion(Base, frozen=True):
    version: str = ""


class _LegacyGroup(Base, frozen=True):
    name: str = ""
    versions: tuple[_NamedVersion, ...] = ()
    preferred_version: _NamedVersion = _NamedVersion()

    def in_order(self) -> list[str]:
        """Return the versions, the preferred one first."""
        names = [version.version for version in self.versions]
        return sorted(names, key=lambda name: name != self.preferred_version.version)


class _LegacyResource(Base, frozen=True):
    name: str  # `pods`; subresources are separate entries, such as `pods/eviction`
    kind: str = ""
    namespaced: bool = False
    verbs: tuple[str, ...] | None = None
    short_names: tuple[str, ...] | None = None


class _LegacyVersion(Base, frozen=True):
    resources: tuple[_LegacyResource, ...] | None = None


class _Document(Base, frozen=True):
    """Any of the three documents at /api and /apis. `kind` tells which list it has."""

    kind: str = ""
    items: tuple[_Group, ...] | None = None
    groups: tuple[_LegacyGroup, ...] | None = None
    versions: tuple[str, ...] | None = None


async def _read_legacy(client: Client, group: str, version: str, *, prefix: str) -> _Version:
    path = "/".join(part for part in (prefix, group, version) if part)
    doing = f"discovering what is served under {path}"
    try:
        response = await client.request(Request(method="GET", path=path), doing=doing)
    # Bad credentials concern all groups. Any other error is that of one extension API server, whose group alone is
    # unknown.
    except Unauthorized:
        raise
    except ApiError:
        return _Version(group, version, None)
    resources = responses.decode(_LegacyVersion, response.body, doing=doing).resources or ()
    subresources: dict[str, list[str]] = {}
    for resource in resources:
        parent, slash, subresource = resource.name.partition("/")
        if slash:
            subresources.setdefault(parent, []).append(subresource)
    found = tuple(
        ServedResource(
            group=group,
            plural=resource.name,
            kind=resource.kind,
            namespaced=resource.namespaced,
            versions=(version,),
            verbs=resource.verbs or (),
            subresources=tuple(subresources.get(resource.name, ())),
            short_names=resource.short_names or (),
        )
        for resource in resources
        if "/" not in resource.name
    )
    return _Version(group, version, found)
