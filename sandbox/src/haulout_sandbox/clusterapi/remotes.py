"""The Nodes of workload clusters, as Cluster API sees them from the management cluster: watched over the line between.

While that line is down the copy is old; what is written then fails, and is tried again.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from haulout.errors import NotFound
from haulout.kinds.clusterapi import ClusterKey
from haulout.kube.cache import Cache, as_is
from haulout.kube.client import Client
from haulout.kube.follow import Selection
from haulout_sandbox.clusterapi.workloads import OWN, Workloads
from haulout_sandbox.controllers.objects import NODES, Node


class Remotes:
    """Follows the Nodes of all workload clusters."""

    def __init__(self, workloads: Workloads) -> None:
        self._workloads = workloads
        self._heard_by: list[Callable[[ClusterKey, Node], object]] = []
        self._nodes: dict[ClusterKey, Cache[Node]] = {}

    def subscribe(self, handler: Callable[[ClusterKey, Node], object]) -> None:
        """Have `handler` hear which Nodes changed."""
        self._heard_by.append(handler)

    def client(self, key: ClusterKey) -> Client | None:
        """Return the way into a workload cluster; None: there is none."""
        workload = self._workloads.get(key)
        return None if workload is None else workload.cluster.client(OWN)

    def node(self, key: ClusterKey, *, name: str = "", provider_id: str | None = None) -> Node | None:
        """Return a Node, by its name or by what it runs on."""
        nodes = self._nodes.get(key)
        if nodes is None:
            return None
        if name:
            return nodes.get(name)
        return next((it for it in nodes.all() if provider_id and it.spec.provider_id == provider_id), None)

    async def delete(self, key: ClusterKey, name: str) -> None:
        """Delete a Node, if it is there."""
        client = self.client(key)
        if client is not None:
            with suppress(NotFound):
                await client.delete(NODES, name)

    async def run(self) -> None:
        """Follow them until cancelled, also those that come later."""
        changed = asyncio.Event()
        changed.set()
        tasks: dict[ClusterKey, asyncio.Task[None]] = {}
        end = self._workloads.subscribe(lambda _: changed.set())
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    await changed.wait()
                    changed.clear()
                    there = {it.key for it in self._workloads.all()}
                    for key in [it for it in tasks if it not in there]:
                        tasks.pop(key).cancel()
                        self._nodes.pop(key, None)
                    for workload in self._workloads.all():
                        if workload.key not in tasks:
                            tasks[workload.key] = group.create_task(self._follow(workload.key))
        finally:
            end()

    async def _follow(self, key: ClusterKey) -> None:
        client = self.client(key)
        if client is None:
            return
        nodes = self._nodes[key] = Cache(client, Selection(NODES), row=as_is)

        def note(old: Node | None, new: Node | None) -> None:
            changed = new or old
            if changed is not None:
                for handler in self._heard_by:
                    handler(key, changed)

        nodes.subscribe(note)
        await nodes.run()
