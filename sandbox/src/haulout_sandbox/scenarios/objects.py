"""Objects of any kind by what manifests call them: created, applied, found.

Which kinds there are is asked of the cluster, and asked again when a kind is missing: a manifest may bring it along.
"""

from collections.abc import Iterable

from haulout.errors import AlreadyExists, NotFound
from haulout.kube.client import Client
from haulout.kube.discovery import Discovery, Found, discover
from haulout.kube.objects import RawObject
from haulout.kube.patches import apply_patch
from haulout.kube.resources import NAMESPACES, Resource


class UnknownKind(LookupError):
    """The cluster serves no such kind."""


class Objects:
    """The way of a scenario to objects of all kinds."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._served: Discovery | None = None
        self._namespaces: set[str] = set()

    async def create(self, obj: RawObject) -> None:
        """Create an object, and its namespace if need be; one that is already there becomes like it."""
        resource = await self.resource(obj["kind"], obj["apiVersion"])
        meta = obj["metadata"]
        namespace = meta.get("namespace", "default") if resource.namespaced else None
        if namespace:
            await self._ensure(namespace)
        try:
            await self._client.create(resource, obj, namespace=namespace)
        except AlreadyExists:
            await self._client.patch(resource, meta["name"], apply_patch(obj), namespace=namespace, force=True)

    async def resource(self, kind: str, api_version: str = "") -> Resource[RawObject]:
        """Return where objects of a kind are served; without a version, the first that has it."""
        if self._served is None or (found := _find(self._served, kind, api_version)) is None:
            self._served = await discover(self._client)
            found = _find(self._served, kind, api_version)
        if found is None:
            raise UnknownKind(f"the cluster serves no {f'{api_version} ' if api_version else ''}{kind}")
        version = api_version.rpartition("/")[2] or found.preferred
        return Resource(found.group, version, found.plural, found.kind, found.namespaced, RawObject)

    async def _ensure(self, namespace: str) -> None:
        if namespace in self._namespaces:
            return
        try:
            await self._client.get(NAMESPACES, namespace)
        except NotFound:
            await self._client.create(NAMESPACES, {"metadata": {"name": namespace}})
        self._namespaces.add(namespace)


def _find(served: Discovery, kind: str, api_version: str) -> Found | None:
    group, _, version = api_version.rpartition("/")
    fitting: Iterable[Found] = (it for it in served.resources.values() if it.kind.lower() == kind.lower())
    if api_version:
        fitting = (it for it in fitting if it.group == group and version in it.versions)
    return next(iter(fitting), None)
