"""The client libraries that are measured, each behind the same few calls.

Every contender does the same work in the way its library is meant to be used: keep a copy of all pods or nodes by key
and follow changes to it, read a lease, annotate a node, evict a pod. Ours keeps the copy in a `Informer` of rows with
an index by node, as the operator does; the others list by pages into a dict of their own objects and watch from there,
since neither has a cache. All of them start from a kubeconfig.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sized
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple, Protocol

from haulout.api.resources import LEASES, NODES, PODS
from haulout.controllers.profiles.view.transform import PodFields, pod_transform
from haulout.core.clock import RealClock
from haulout.kube.client import PAGE_SIZE, Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.patches import merge_patch
from haulout.kube.reflector import ListWatch
from haulout.kube.transports.config import load
from haulout.kube.transports.http import HttpTransport

Kind = Literal["pods", "nodes"]
OnChange = Callable[[str], None]  # called with the resource version of each changed object, when the copy shows it

ANNOTATION = "bench.haulout.dev/written"


class PodName(NamedTuple):
    """Which pod."""

    namespace: str
    name: str


class ClientLibrary(Protocol):
    """A client library at work."""

    def synced_copy(self, kind: Kind, on_change: OnChange) -> AbstractAsyncContextManager[Sized]:
        """Load everything of one kind, then follow it; yields the copy when it is complete."""
        ...

    async def get_lease(self, namespace: str, name: str) -> None:
        """Read a small object."""
        ...

    async def annotate(self, node: str, value: str) -> str:
        """Change a node, and return the resource version that this gave it."""
        ...

    async def evict(self, pod: PodName) -> None:
        """Ask a pod to leave."""
        ...


class Haulout:
    """This project's client and cache."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def informer(self, kind: Kind) -> Informer[Any]:
        """Return an empty cache, as the operator would make it."""
        if kind == "nodes":
            return Informer(self.client, ListWatch(NODES), transform=as_is)
        pods = ListWatch(PODS.with_model(PodFields))
        return Informer(self.client, pods, transform=pod_transform(), indexes={"node": lambda row: (row.node,)})

    @asynccontextmanager
    async def synced_copy(self, kind: Kind, on_change: OnChange) -> AsyncIterator[Sized]:
        """Load everything of one kind, then follow it."""
        copy = self.informer(kind)
        copy.subscribe(lambda old, new: on_change(new.resource_version) if old and new else None)
        async with asyncio.TaskGroup() as group:
            informer_task = group.create_task(copy.run())
            await copy.wait_synced()
            yield copy
            informer_task.cancel()

    async def get_lease(self, namespace: str, name: str) -> None:
        """Read a small object."""
        await self.client.get(LEASES, name, namespace=namespace)

    async def annotate(self, node: str, value: str) -> str:
        """Change a node."""
        patch = merge_patch({"metadata": {"annotations": {ANNOTATION: value}}})
        return (await self.client.patch(NODES, node, patch)).resource_version

    async def evict(self, pod: PodName) -> None:
        """Ask a pod to leave."""
        await self.client.evict(pod.name, namespace=pod.namespace)


class _ListAndWatch(ABC):
    """A library without a cache: it lists into a dict and watches from there."""

    @asynccontextmanager
    async def synced_copy(self, kind: Kind, on_change: OnChange) -> AsyncIterator[Sized]:
        """Load everything of one kind, then follow it."""
        copy: dict[str, Any] = {}
        async with asyncio.TaskGroup() as group:
            resource_version = await self._load(kind, copy)
            watch_task = group.create_task(self._watch_changes(kind, resource_version, copy, on_change))
            yield copy
            watch_task.cancel()

    @abstractmethod
    async def _load(self, kind: Kind, copy: dict[str, Any]) -> str:
        """List everything into `copy`; returns the resource version to watch from."""

    @abstractmethod
    async def _watch_changes(
        self, kind: Kind, resource_version: str, copy: dict[str, Any], on_change: OnChange
    ) -> None:
        """Watch, and keep `copy` up to date."""


class KubernetesAsyncio(_ListAndWatch):
    """The asynchronous sibling of the official client."""

    def __init__(self, api: Any) -> None:
        from kubernetes_asyncio import client, watch

        self._models = client
        self._watch = watch.Watch
        self._core: Any = client.CoreV1Api(api)  # its types do not know `_content_type`
        self._leases = client.CoordinationV1Api(api)
        self._lists: dict[Kind, Any] = {
            "pods": self._core.list_pod_for_all_namespaces,
            "nodes": self._core.list_node,
        }

    async def _load(self, kind: Kind, copy: dict[str, Any]) -> str:
        token = None
        while True:
            page = await self._lists[kind](limit=PAGE_SIZE, _continue=token)
            for obj in page.items:
                copy[f"{obj.metadata.namespace}/{obj.metadata.name}"] = obj
            token = page.metadata._continue  # noqa: SLF001 - the library's name for the field
            if not token:
                return str(page.metadata.resource_version)

    async def _watch_changes(
        self, kind: Kind, resource_version: str, copy: dict[str, Any], on_change: OnChange
    ) -> None:
        async with self._watch().stream(self._lists[kind], resource_version=resource_version) as changes:
            async for change in changes:
                obj = change["object"]
                copy[f"{obj.metadata.namespace}/{obj.metadata.name}"] = obj
                on_change(obj.metadata.resource_version)

    async def get_lease(self, namespace: str, name: str) -> None:
        """Read a small object."""
        await self._leases.read_namespaced_lease(name, namespace)

    async def annotate(self, node: str, value: str) -> str:
        """Change a node."""
        body = {"metadata": {"annotations": {ANNOTATION: value}}}
        written = await self._core.patch_node(node, body, _content_type="application/merge-patch+json")
        return str(written.metadata.resource_version)

    async def evict(self, pod: PodName) -> None:
        """Ask a pod to leave."""
        metadata = self._models.V1ObjectMeta(name=pod.name, namespace=pod.namespace)
        await self._core.create_namespaced_pod_eviction(
            pod.name, pod.namespace, self._models.V1Eviction(metadata=metadata)
        )


class Lightkube(_ListAndWatch):
    """A small typed client."""

    def __init__(self, client: Any) -> None:
        from lightkube.models.meta_v1 import ObjectMeta
        from lightkube.resources.coordination_v1 import Lease
        from lightkube.resources.core_v1 import Node, Pod

        self._client = client
        self._kinds: dict[Kind, Any] = {"pods": Pod, "nodes": Node}
        self._lease = Lease
        self._metadata = ObjectMeta

    async def _load(self, kind: Kind, copy: dict[str, Any]) -> str:
        listed = self._client.list(self._kinds[kind], chunk_size=PAGE_SIZE, **_all_namespaces(kind))
        async for obj in listed:
            copy[f"{obj.metadata.namespace}/{obj.metadata.name}"] = obj
        return str(listed.resourceVersion)

    async def _watch_changes(
        self, kind: Kind, resource_version: str, copy: dict[str, Any], on_change: OnChange
    ) -> None:
        changes = self._client.watch(self._kinds[kind], resource_version=resource_version, **_all_namespaces(kind))
        async for _, obj in changes:
            copy[f"{obj.metadata.namespace}/{obj.metadata.name}"] = obj
            on_change(obj.metadata.resourceVersion)

    async def get_lease(self, namespace: str, name: str) -> None:
        """Read a small object."""
        await self._client.get(self._lease, name, namespace=namespace)

    async def annotate(self, node: str, value: str) -> str:
        """Change a node."""
        from lightkube.types import PatchType

        body = {"metadata": {"annotations": {ANNOTATION: value}}}
        written = await self._client.patch(self._kinds["nodes"], node, body, patch_type=PatchType.MERGE)
        return str(written.metadata.resourceVersion)

    async def evict(self, pod: PodName) -> None:
        """Ask a pod to leave."""
        eviction = self._kinds["pods"].Eviction(metadata=self._metadata(name=pod.name, namespace=pod.namespace))
        await self._client.create(eviction, pod.name, namespace=pod.namespace)


def _all_namespaces(kind: Kind) -> dict[str, str]:
    return {"namespace": "*"} if kind == "pods" else {}


@asynccontextmanager
async def haulout(kubeconfig: Path) -> AsyncIterator[Haulout]:
    """Open ours."""
    clock = RealClock()
    transport = HttpTransport(load(kubeconfig=str(kubeconfig), clock=clock), clock=clock)
    client = Client(transport, clock=clock, random=Random(7))
    try:
        yield Haulout(client)
    finally:
        await client.close()


@asynccontextmanager
async def kubernetes_asyncio(kubeconfig: Path) -> AsyncIterator[KubernetesAsyncio]:
    """Open kubernetes_asyncio."""
    from kubernetes_asyncio import client, config

    await config.load_kube_config(config_file=str(kubeconfig))
    async with client.ApiClient() as api:
        yield KubernetesAsyncio(api)


@asynccontextmanager
async def lightkube(kubeconfig: Path) -> AsyncIterator[Lightkube]:
    """Open lightkube."""
    from lightkube import AsyncClient, KubeConfig

    client = AsyncClient(config=KubeConfig.from_file(kubeconfig))
    try:
        yield Lightkube(client)
    finally:
        await client.close()


OURS = "haulout"
OPENERS: dict[str, Callable[[Path], AbstractAsyncContextManager[ClientLibrary]]] = {
    OURS: haulout,
    "lightkube": lightkube,
    "kubernetes_asyncio": kubernetes_asyncio,
}
