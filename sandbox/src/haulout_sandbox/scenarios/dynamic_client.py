"""A client for objects of any kind, as manifests name it: create, apply, look up.

Kinds are discovered from the cluster, and again when a kind is missing, because a manifest may define it.
"""

from collections.abc import Iterable

from haulout.api.objects import RawObject
from haulout.api.resources import NAMESPACES, Resource
from haulout.errors import AlreadyExists, NotFound
from haulout.kube.client import Client
from haulout.kube.discovery import Discovery, ServedResource, discover
from haulout.kube.patches import apply_patch


class NoKindMatch(LookupError):
    """The cluster does not serve this kind."""


class DynamicClient:
    """Creates and applies objects of any kind."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._discovery: Discovery | None = None
        self._namespaces: set[str] = set()

    async def create_or_apply(self, obj: RawObject) -> None:
        """Create an object, and its namespace if missing; if the object exists, apply it."""
        resource = await self.resource_for(obj["kind"], obj["apiVersion"])
        metadata = obj["metadata"]
        namespace = metadata.get("namespace", "default") if resource.namespaced else None
        if namespace:
            await self._ensure_namespace(namespace)
        try:
            await self._client.create(resource, obj, namespace=namespace)
        except AlreadyExists:
            await self._client.patch(resource, metadata["name"], apply_patch(obj), namespace=namespace, force=True)

    async def resource_for(self, kind: str, api_version: str = "") -> Resource[RawObject]:
        """Return the resource of a kind; without a version, the first version that serves it."""
        if self._discovery is None or (served := _find_served(self._discovery, kind, api_version)) is None:
            self._discovery = await discover(self._client)
            served = _find_served(self._discovery, kind, api_version)
        if served is None:
            raise NoKindMatch(f"the cluster serves no {f'{api_version} ' if api_version else ''}{kind}")
        version = api_version.rpartition("/")[2] or served.preferred_version
        return Resource(served.group, version, served.plural, served.kind, served.namespaced, RawObject)

    async def _ensure_namespace(self, namespace: str) -> None:
        if namespace in self._namespaces:
            return
        try:
            await self._client.get(NAMESPACES, namespace)
        except NotFound:
            await self._client.create(NAMESPACES, {"metadata": {"name": namespace}})
        self._namespaces.add(namespace)


def _find_served(discovery: Discovery, kind: str, api_version: str) -> ServedResource | None:
    group, _, version = api_version.rpartition("/")
    matching: Iterable[ServedResource] = (
        served_resource
        for served_resource in discovery.resources.values()
        if served_resource.kind.lower() == kind.lower()
    )
    if api_version:
        matching = (
            served_resource
            for served_resource in matching
            if served_resource.group == group and version in served_resource.versions
        )
    return next(iter(matching), None)
