"""An in-memory cluster and an informer of its nodes, for tests of informers."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from haulout.api.objects import Node
from haulout.api.resources import NODES
from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.reflector import ListWatch
from haulout_sandbox.apiserver import ApiServer, InProcessTransport
from support.builders.objects import a_node


class InformerCluster:
    """A cluster in memory and a cache of its nodes."""

    def __init__(self, clock: Clock, *, watch_lists: bool = True, page_size: int = 500) -> None:
        self.clock = clock
        self.cluster = ApiServer(clock, watch_lists=watch_lists)
        self.transport: InProcessTransport = self.cluster.transport()
        self.client = Client(self.transport, clock=clock, random=random.Random(1))
        self.informer: Informer[Node] = Informer(
            self.client,
            ListWatch(NODES, page_size=page_size),
            transform=as_is,
            indexes={"pool": lambda node: (node.metadata.labels.get("pool", ""),)},
        )
        self.changes: list[tuple[str, str]] = []
        self.informer.subscribe(self.on_change)

    def on_change(self, old: Node | None, new: Node | None) -> None:
        """Record a short form of what handlers receive."""
        self.changes.append((old.resource_version if old else "-", new.resource_version if new else "-"))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow the cluster."""
        async with asyncio.TaskGroup() as tasks:
            informer_task = tasks.create_task(self.informer.run())
            await self.informer.wait_synced()
            yield
            informer_task.cancel()

    async def settle(self, seconds: float = 1) -> None:
        """Let time pass."""
        await self.clock.sleep(timedelta(seconds=seconds))

    def node_names(self) -> list[str]:
        """Return the names of the nodes in the cache."""
        return sorted(node.name for node in self.informer.all())

    def put_node(self, name: str, **labels: str) -> str:
        """Write a node; returns its resource version."""
        return str(self.cluster.put(a_node(name, labels=labels))["metadata"]["resourceVersion"])
