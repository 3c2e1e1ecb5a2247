"""The informers of the profiles controller on the sandbox's API server, without the controller.

Tests check which node is requeued because of what, and which resources are watched.

    async with running_informers(clock, configuration("capacity")) as informers:
        put_objects(informers, [a_pod("shop/cart-0", on="n1")])
        await informers.settle()
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from random import Random

import msgspec

from haulout.api.objects import Node, RawObject
from haulout.api.resources import NODES
from haulout.controllers.profiles.config import loader
from haulout.controllers.profiles.config.model import Configuration
from haulout.controllers.profiles.controller import NAME
from haulout.controllers.profiles.events import ProfileEvents
from haulout.controllers.profiles.machine import data_annotation
from haulout.controllers.profiles.plugin import ClusterView
from haulout.controllers.profiles.plugins.registry import registries
from haulout.controllers.profiles.view.informers import ProfileInformers
from haulout.controllers.profiles.view.node_index import NodeIndex
from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.recorder import EventRecorder
from haulout.kube.reflector import ListWatch
from haulout.kube.transport import Request, Response, Stream, Transport
from haulout.runtime.journal import Journal
from haulout_sandbox.apiserver import ApiServer
from support.fakes.external_client import FakeExternalClient

SETTLE_TIME = timedelta(milliseconds=100)


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
    return loader.load("\n".join(lines).encode(), registries(), {}).configuration


class RecordingTransport:
    """A transport that records open watches and requests."""

    def __init__(self, transport: Transport) -> None:
        self.server = transport.server
        self.open_watches: list[str] = []
        self.requests: list[str] = []
        self._transport = transport

    async def send(self, request: Request) -> Response:
        """Send a request."""
        self.requests.append(f"{request.method} {request.path}")
        return await self._transport.send(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        """Open a watch."""
        return self._stream(request)

    @asynccontextmanager
    async def _stream(self, request: Request) -> AsyncIterator[Stream]:
        async with self._transport.stream(request) as stream:
            self.open_watches.append(request.path)
            try:
                yield stream
            finally:
                self.open_watches.remove(request.path)

    async def close(self) -> None:
        """Do nothing."""


class InformersUnderTest:
    """The informers, and a fake controller that they notify."""

    def __init__(self, clock: Clock, *, external_client: FakeExternalClient | None = None) -> None:
        self.api = ApiServer(clock, random=Random("around"))
        self.clock = clock
        self.external_client = external_client or FakeExternalClient()
        self.transport = self.api.transport("haulout")
        self.recording_transport = RecordingTransport(self.transport)
        self.client = Client(self.recording_transport, clock=clock, random=Random(1))
        self.event_recorder = EventRecorder(self.client, instance="haulout", controller="maintenance")
        self.events = ProfileEvents(Journal(NAME, self.event_recorder, metrics=self.client.metrics), clock=clock)
        self.topics: list[str] = []
        self.woken_nodes: list[str] = []
        self.failing_nodes: list[str] = []
        self.nodes = NodeIndex(data_annotation.statuses_of, on_change=lambda *_: None)
        self.profile_informers = ProfileInformers(self, self.client, external=self.external_client)
        self._cache: Informer[Node] = Informer(self.client, ListWatch(NODES), transform=as_is)

    def requeue(self, node: str) -> None:
        """Record it."""
        self.woken_nodes.append(node)

    def record_repeated_failure(self, node: str) -> None:
        """Record it."""
        self.failing_nodes.append(node)

    def requeue_for_topics(self, topics: frozenset[str]) -> None:
        """Record them."""
        self.topics += sorted(topics)

    def cluster_view(self, node: str = "n1") -> ClusterView:
        """Return what the checks of a node see."""
        return self.profile_informers.cluster_view(node, self.nodes)

    @property
    def watched_resources(self) -> list[str]:
        """The resources that are watched besides nodes, by plural."""
        return sorted(
            path.rpartition("/")[2] for path in self.recording_transport.open_watches if not path.endswith("/nodes")
        )

    async def apply_configuration(self, wanted: Configuration) -> None:
        """Apply another configuration."""
        await self.profile_informers.prepare(wanted)
        self.profile_informers.use(wanted)
        await self.settle()

    async def settle(self, duration: timedelta = SETTLE_TIME) -> None:
        """Let pending work finish."""
        await self.clock.sleep(duration)

    async def run(self) -> None:
        """Run all informers until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(_run_informer(self._cache))
            group.create_task(self.event_recorder.run())
            group.create_task(self.profile_informers.run())
            await self._cache.wait_synced()
            self._cache.subscribe(self.nodes.on_watch_event)


@asynccontextmanager
async def running_informers(
    clock: Clock, wanted: Configuration, *objects: RawObject, external_client: FakeExternalClient | None = None
) -> AsyncIterator[InformersUnderTest]:
    """Yield synced informers of a cluster with these objects."""
    informers = InformersUnderTest(clock, external_client=external_client)
    put_objects(informers, objects)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(informers.run())
        await informers.apply_configuration(wanted)
        informers.topics.clear()
        informers.woken_nodes.clear()
        try:
            yield informers
        finally:
            running.cancel()


def put_objects(informers: InformersUnderTest, objects: Iterable[RawObject]) -> None:
    """Put objects into the cluster."""
    for obj in objects:
        informers.api.put(msgspec.json.decode(msgspec.json.encode(obj)))


async def _run_informer(cache: Informer[Node]) -> None:
    await cache.run()
