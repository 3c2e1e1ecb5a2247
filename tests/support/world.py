"""A cluster in memory and a cache of its nodes, for tests of how the one follows the other."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from haulout.core.clock import Clock
from haulout.kube.cache import Cache, as_is
from haulout.kube.client import Client
from haulout.kube.follow import Selection
from haulout.kube.objects import Node
from haulout.kube.resources import NODES
from haulout_sandbox.apiserver import ApiServer, InProcessTransport
from support.builders import a_node


class World:
    """A cluster in memory and a cache of its nodes."""

    def __init__(self, clock: Clock, *, watch_lists: bool = True, page_size: int = 500) -> None:
        self.clock = clock
        self.cluster = ApiServer(clock, watch_lists=watch_lists)
        self.transport: InProcessTransport = self.cluster.transport()
        self.client = Client(self.transport, clock=clock, random=random.Random(1))
        self.cache: Cache[Node] = Cache(
            self.client,
            Selection(NODES, page_size=page_size),
            row=as_is,
            indexes={"pool": lambda node: (node.metadata.labels.get("pool", ""),)},
        )
        self.told: list[tuple[str, str]] = []
        self.cache.subscribe(self.note)

    def note(self, old: Node | None, new: Node | None) -> None:
        """Keep what handlers are told, in short."""
        self.told.append((old.resource_version if old else "-", new.resource_version if new else "-"))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow the cluster."""
        async with asyncio.TaskGroup() as tasks:
            follower = tasks.create_task(self.cache.run())
            await self.cache.wait_synced()
            yield
            follower.cancel()

    async def settle(self, seconds: float = 1) -> None:
        """Let time pass."""
        await self.clock.sleep(timedelta(seconds=seconds))

    def names(self) -> list[str]:
        """Return what the cache shows."""
        return sorted(node.name for node in self.cache.all())

    def put(self, name: str, **labels: str) -> str:
        """Write a node; returns its resource version."""
        return str(self.cluster.put(a_node(name, labels=labels))["metadata"]["resourceVersion"])
