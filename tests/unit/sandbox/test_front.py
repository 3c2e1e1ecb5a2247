"""The sandbox on the network is the sandbox: same answers, same watches, and it lets go at once."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from haulout.core.clock import RealClock
from haulout.errors import ApiError, Invalid, NotFound, Unauthorized
from haulout.kube.cache import Cache, as_is
from haulout.kube.client import Client
from haulout.kube.follow import Selection
from haulout.kube.network.config import Connection
from haulout.kube.network.credentials import Fixed, Identity
from haulout.kube.network.http import HttpTransport
from haulout.kube.network.tls import Tls
from haulout.kube.objects import Node, RawObject
from haulout.kube.resources import NODES
from haulout.kube.transport import Request
from haulout.sandbox.apiserver import ApiServer
from haulout.sandbox.front import LARGEST_BODY, Front
from support.builders import a_node
from support.certificates import Authority
from support.definitions import NODE_MAINTENANCE

pytestmark = pytest.mark.real_time


class Site:
    """A sandbox that listens on loopback."""

    def __init__(self, folder: Path) -> None:
        self.api = ApiServer(RealClock())
        self.front = Front(self.api, tokens={"secret": "alice"})
        self.authority = Authority()
        self.folder = folder

    @asynccontextmanager
    async def client(self, *, token: str = "secret") -> AsyncIterator[Client]:
        """Listen, and yield a client that comes over the network."""
        async with self.transport(token=token) as transport:
            yield Client(transport, clock=RealClock(), random=random.Random(1))

    @asynccontextmanager
    async def transport(self, *, token: str = "secret") -> AsyncIterator[HttpTransport]:
        """Listen, and yield a way in over the network."""
        tls = self.authority.issue("127.0.0.1").server_context(self.folder)
        async with self.front.serving(host="127.0.0.1", tls=tls) as port:
            connection = Connection(
                server=f"https://127.0.0.1:{port}",
                context="sandbox",
                source="test",
                user="alice",
                tls=Tls(ca_pem=self.authority.pem),
                credentials=Fixed(Identity(f"Bearer {token}")),
            )
            transport = HttpTransport(connection, clock=RealClock())
            try:
                yield transport
            finally:
                await transport.close()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def test_all_warnings_reach_the_caller(site: Site) -> None:
    site.api.put(NODE_MAINTENANCE)
    odd = {
        "apiVersion": "nodemaintenance.medik8s.io/v1beta1",
        "kind": "NodeMaintenance",
        "metadata": {"name": "m", "finalizers": ["odd"]},
        "spec": {"nodeName": "n1", "odd": 1},
    }
    path = "/apis/nodemaintenance.medik8s.io/v1beta1/nodemaintenances"
    async with site.transport() as transport:
        answer = await transport.send(Request(method="POST", path=path, body=msgspec.json.encode(odd)))
    unknown, finalizer = answer.headers["warning"].split(", ")
    assert unknown == r'299 - "unknown field \"spec.odd\""'
    assert finalizer.startswith('299 - "metadata.finalizers: ')


async def test_what_is_written_over_the_network_is_in_the_cluster(site: Site) -> None:
    async with site.client() as client:
        await client.create(NODES, a_node("n1"))
        assert site.api.get("nodes", "n1")["metadata"]["name"] == "n1"
        assert site.api.history[-1].who == "alice"
        with pytest.raises(NotFound, match='nodes "n2" not found'):
            await client.get(NODES, "n2")
        with pytest.raises(Invalid, match="name or generateName is required"):
            await client.create(NODES, {"metadata": {}})


async def test_selectors_and_odd_names_survive_the_journey(site: Site) -> None:
    site.api.put(a_node("n1", labels={"pool": "a-b"}))
    site.api.put(a_node("n2"))
    async with site.client() as client:
        found = await client.list(NODES, labels="pool in (a-b,c),!gone")
        assert [node.name for node in found.items] == ["n1"]
        with pytest.raises(NotFound):
            await client.get(NODES, "a/b?c=d e")


async def test_a_cache_follows_over_the_network(site: Site) -> None:
    async with site.client() as client, asyncio.TaskGroup() as tasks:
        cache: Cache[Node] = Cache(client, Selection(NODES), row=as_is)
        following = tasks.create_task(cache.run())
        await cache.wait_synced()
        written = site.api.put(a_node("n1"))
        async with asyncio.timeout(10):
            await cache.read_after_write(written["metadata"]["resourceVersion"])
        assert cache.get("n1") is not None
        following.cancel()


async def test_it_stops_at_once_though_somebody_watches(site: Site) -> None:
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        async with site.client() as client:
            cache: Cache[Node] = Cache(client, Selection(NODES), row=as_is)
            following = tasks.create_task(cache.run())
            await cache.wait_synced()
        following.cancel()


async def test_who_is_not_known_is_turned_away(site: Site) -> None:
    async with site.client(token="guess") as client:
        with pytest.raises(Unauthorized):
            await client.get(NODES, "n1")


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
async def test_a_body_that_is_too_large_is_refused_as_the_real_server_does(site: Site) -> None:
    async with site.client() as client:
        huge: RawObject = {**a_node("n1"), "data": "x" * LARGEST_BODY}
        with pytest.raises(ApiError, match="Request entity too large: limit is 3145728"):
            await client.create(NODES, huge)
        await client.create(NODES, a_node("n1"))
