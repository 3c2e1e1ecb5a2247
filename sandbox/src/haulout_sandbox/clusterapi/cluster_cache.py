"""Informers of the Nodes of workload clusters, which the management cluster runs over the connection between them.

While that connection is down, the cache is stale; writes fail and are retried.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from haulout.api.clusterapi import ClusterKey
from haulout.errors import NotFound
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.reflector import ListWatch
from haulout_sandbox.clusterapi.workload_clusters import CLUSTER_API_CLIENT, WorkloadClusterRegistry
from haulout_sandbox.controllers.objects import NODES, Node


class ClusterCache:
    """Caches the Nodes of all workload clusters."""

    def __init__(self, registry: WorkloadClusterRegistry) -> None:
        self._registry = registry
        self._handlers: list[Callable[[ClusterKey, Node], object]] = []
        self._node_informers: dict[ClusterKey, Informer[Node]] = {}

    def subscribe(self, handler: Callable[[ClusterKey, Node], object]) -> None:
        """Call `handler` for each changed Node."""
        self._handlers.append(handler)

    def client(self, key: ClusterKey) -> Client | None:
        """Return the client of a workload cluster, or None if there is no such cluster."""
        workload_cluster = self._registry.get(key)
        return None if workload_cluster is None else workload_cluster.cluster.client(CLUSTER_API_CLIENT)

    def get_node(self, key: ClusterKey, *, name: str = "", provider_id: str | None = None) -> Node | None:
        """Return a Node by its name or providerID."""
        informer = self._node_informers.get(key)
        if informer is None:
            return None
        if name:
            return informer.get(name)
        return next((node for node in informer.all() if provider_id and node.spec.provider_id == provider_id), None)

    async def delete_node(self, key: ClusterKey, name: str) -> None:
        """Delete a Node, if it exists."""
        client = self.client(key)
        if client is not None:
            with suppress(NotFound):
                await client.delete(NODES, name)

    async def run(self) -> None:
        """Run until cancelled, also for workload clusters that are added later."""
        changed = asyncio.Event()
        changed.set()
        tasks: dict[ClusterKey, asyncio.Task[None]] = {}
        unsubscribe = self._registry.subscribe(lambda _: changed.set())
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    await changed.wait()
                    changed.clear()
                    current_keys = {element.key for element in self._registry.all()}
                    for key in [element for element in tasks if element not in current_keys]:
                        tasks.pop(key).cancel()
                        self._node_informers.pop(key, None)
                    for workload_cluster in self._registry.all():
                        if workload_cluster.key not in tasks:
                            tasks[workload_cluster.key] = group.create_task(self._run_informer(workload_cluster.key))
        finally:
            unsubscribe()

    async def _run_informer(self, key: ClusterKey) -> None:
        client = self.client(key)
        if client is None:
            return
        informer = self._node_informers[key] = Informer(client, ListWatch(NODES), transform=as_is)

        def on_change(old: Node | None, new: Node | None) -> None:
            changed = new or old
            if changed is not None:
                for handler in self._handlers:
                    handler(key, changed)

        informer.subscribe(on_change)
        await informer.run()
