"""Surroundings on the sandbox's API server, without a controller: who is woken, by what, and what is followed.

async with surrounded(clock, configuration("capacity")) as around:
    around.api.put(a_pod("shop/cart-0", on="n1"))
    await around.settle()
    assert "pods n1" in around.told
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from random import Random

import msgspec

from haulout.core.clock import Clock
from haulout.kube.cache import Cache, as_is
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder
from haulout.kube.follow import Selection
from haulout.kube.objects import Node, RawObject
from haulout.kube.resources import NODES
from haulout.kube.transport import Request, Response, Stream, Transport
from haulout.profiles import config, data
from haulout.profiles.model import Configuration
from haulout.profiles.plugin import Sights
from haulout.profiles.plugins.registry import registries
from haulout.profiles.sights import NodeSights
from haulout.profiles.surroundings import Surroundings
from haulout.profiles.telling import Teller
from haulout_sandbox.apiserver import ApiServer
from support.outside import FakeOutside

MOMENT = timedelta(milliseconds=100)


def configuration(*checks: str, notify: str = "") -> Configuration:
    """Return a configuration whose only profile uses these checks: `capacity`, or `stagger: {…}` with options."""
    instances = []
    for number, check in enumerate(checks):
        kind, _, options = check.partition(":")
        instances.append(f"  - {{type: {kind}, name: c{number}, config: {options or '{}'}}}")
    chain = " && ".join(f"c{number}" for number in range(len(checks)))
    lines = [
        "intervals: {requeue: 30s}",
        "instances:",
        *(["  check:", *instances] if checks else ["  check: []"]),
        *([f"  notify: [{notify}]"] if notify else []),
        "profiles:",
        "- name: os",
        "  maintenance-required:",
        *(["    notify: tell"] if notify else []),
        *([f"    transitions: [{{check: {chain}, next: in-maintenance}}]"] if checks else []),
    ]
    return config.load("\n".join(lines).encode(), registries(), {}).configuration


class Spy:
    """A transport that remembers which watches are open, and what was asked."""

    def __init__(self, transport: Transport) -> None:
        self.server = transport.server
        self.open: list[str] = []
        self.sent: list[str] = []
        self._transport = transport

    async def send(self, request: Request) -> Response:
        """Send a request."""
        self.sent.append(f"{request.method} {request.path}")
        return await self._transport.send(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        """Open a watch."""
        return self._stream(request)

    @asynccontextmanager
    async def _stream(self, request: Request) -> AsyncIterator[Stream]:
        async with self._transport.stream(request) as stream:
            self.open.append(request.path)
            try:
                yield stream
            finally:
                self.open.remove(request.path)

    async def close(self) -> None:
        """Do nothing."""


class Around:
    """Surroundings, and the controller that they tell."""

    def __init__(self, clock: Clock, *, outside: FakeOutside | None = None) -> None:
        self.api = ApiServer(clock, random=Random("around"))
        self.clock = clock
        self.outside = outside or FakeOutside()
        self.line = self.api.transport("haulout")
        self.spy = Spy(self.line)
        self.client = Client(self.spy, clock=clock, random=Random(1))
        self.events = EventRecorder(self.client, instance="haulout", controller="maintenance")
        self.teller = Teller(self.events, clock=clock)
        self.told: list[str] = []
        self.woken: list[str] = []
        self.failing: list[str] = []
        self.nodes = NodeSights(data.entries_of, changed=lambda *_: None)
        self.surroundings = Surroundings(self, self.client, outside=self.outside)
        self._cache: Cache[Node] = Cache(self.client, Selection(NODES), row=as_is)

    def wake(self, node: str) -> None:
        """Take note of it."""
        self.woken.append(node)

    def fails_on(self, node: str) -> None:
        """Take note of it."""
        self.failing.append(node)

    def note_topics(self, topics: frozenset[str]) -> None:
        """Take note of them."""
        self.told += sorted(topics)

    def sights(self, node: str = "n1") -> Sights:
        """Return what the checks of a node see."""
        return self.surroundings.sights(node, self.nodes)

    @property
    def followed(self) -> list[str]:
        """What is followed beside nodes, by its last part."""
        return sorted(path.rpartition("/")[2] for path in self.spy.open if not path.endswith("/nodes"))

    async def use(self, wanted: Configuration) -> None:
        """Go on by another configuration."""
        await self.surroundings.prepare(wanted)
        self.surroundings.use(wanted)
        await self.settle()

    async def settle(self, lasting: timedelta = MOMENT) -> None:
        """Let things happen."""
        await self.clock.sleep(lasting)

    async def run(self) -> None:
        """Follow all, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(_endless(self._cache))
            group.create_task(self.events.run())
            group.create_task(self.surroundings.run())
            await self._cache.wait_synced()
            self._cache.subscribe(self.nodes.follow)


@asynccontextmanager
async def surrounded(
    clock: Clock, wanted: Configuration, *objects: RawObject, outside: FakeOutside | None = None
) -> AsyncIterator[Around]:
    """Yield surroundings that are known, of a cluster with these objects."""
    around = Around(clock, outside=outside)
    put(around, objects)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(around.run())
        await around.use(wanted)
        around.told.clear()
        around.woken.clear()
        try:
            yield around
        finally:
            running.cancel()


def put(around: Around, objects: Iterable[RawObject]) -> None:
    """Put objects into the cluster."""
    for obj in objects:
        around.api.put(msgspec.json.decode(msgspec.json.encode(obj)))


async def _endless(cache: Cache[Node]) -> None:
    await cache.run()
