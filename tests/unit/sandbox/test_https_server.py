"""The sandbox on the network is the sandbox: same answers, same watches, and it lets go at once."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from haulout.api.objects import Node, RawObject
from haulout.api.resources import NODES
from haulout.core.clock import RealClock
from haulout.errors import ApiError, Forbidden, Invalid, NotFound, Unauthorized, Unreachable
from haulout.kube.client import Client
from haulout.kube.informer import Informer, as_is
from haulout.kube.reflector import ListWatch
from haulout.kube.transport import Request
from haulout.kube.transports.config import Connection
from haulout.kube.transports.credentials import Identity, StaticCredentials
from haulout.kube.transports.http import HttpTransport
from haulout.kube.transports.tls import TlsClientConfig
from haulout_sandbox.apiserver import ApiServer, User
from haulout_sandbox.apiserver.serializer.request_body import MAX_BODY_BYTES
from haulout_sandbox.https_server import HttpsServer
from support.builders.crds import NODE_MAINTENANCE_CRD
from support.builders.objects import a_node
from support.servers.certificates import Authority
from support.servers.listening_sandbox import a_listening_sandbox
from support.servers.raw_http_client import RawClient

pytestmark = pytest.mark.real_time


class ListeningServer:
    """A sandbox that listens on loopback."""

    def __init__(self, folder: Path, *, rbac: bool = False) -> None:
        self.api = ApiServer(RealClock(), rbac=rbac, namespaces=["shop"])
        self.https_server = HttpsServer(self.api, tokens={"secret": "alice", "eves": User("eve", ("crew",))})
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
        async with self.https_server.serve(host="127.0.0.1", tls=tls) as port:
            connection = Connection(
                server=f"https://127.0.0.1:{port}",
                context="sandbox",
                source="test",
                user="alice",
                tls=TlsClientConfig(ca_pem=self.authority.pem),
                credentials=StaticCredentials(Identity(f"Bearer {token}")),
            )
            transport = HttpTransport(connection, clock=RealClock())
            try:
                yield transport
            finally:
                await transport.close()


@pytest.fixture
def server(tmp_path: Path) -> ListeningServer:
    return ListeningServer(tmp_path)


async def test_all_warnings_reach_the_caller(server: ListeningServer) -> None:
    server.api.put(NODE_MAINTENANCE_CRD)
    odd = {
        "apiVersion": "nodemaintenance.medik8s.io/v1beta1",
        "kind": "NodeMaintenance",
        "metadata": {"name": "m"},
        "spec": {"nodeName": "n1", "odd": 1, "other": 2},
    }
    path = "/apis/nodemaintenance.medik8s.io/v1beta1/nodemaintenances"
    async with server.transport() as transport:
        answer = await transport.send(Request(method="POST", path=path, body=msgspec.json.encode(odd)))
    fields = ("spec.odd", "spec.other")
    assert answer.headers["warning"].split(", ") == [rf'299 - "unknown field \"{name}\""' for name in fields]


async def test_what_is_written_over_the_network_is_in_the_cluster(server: ListeningServer) -> None:
    async with server.client() as client:
        await client.create(NODES, a_node("n1"))
        assert server.api.get("nodes", "n1")["metadata"]["name"] == "n1"
        assert server.api.history[-1].username == "alice"
        with pytest.raises(NotFound, match='nodes "n2" not found'):
            await client.get(NODES, "n2")
        with pytest.raises(Invalid, match="Required value"):
            await client.create(NODES, {"metadata": {}})


async def test_selectors_and_unusual_names_are_transmitted_unchanged(server: ListeningServer) -> None:
    server.api.put(a_node("n1", labels={"pool": "a-b"}))
    server.api.put(a_node("n2"))
    async with server.client() as client:
        found = await client.list(NODES, labels="pool in (a-b,c),!gone")
        assert [node.name for node in found.items] == ["n1"]
        with pytest.raises(NotFound):
            await client.get(NODES, "a/b?c=d e")


async def test_a_cache_follows_over_the_network(server: ListeningServer) -> None:
    async with server.client() as client, asyncio.TaskGroup() as tasks:
        cache: Informer[Node] = Informer(client, ListWatch(NODES), transform=as_is)
        following = tasks.create_task(cache.run())
        await cache.wait_synced()
        written = server.api.put(a_node("n1"))
        async with asyncio.timeout(10):
            await cache.wait_for_resource_version(written["metadata"]["resourceVersion"])
        assert cache.get("n1") is not None
        following.cancel()


async def test_the_server_stops_at_once_with_open_watches(server: ListeningServer) -> None:
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        async with server.client() as client:
            cache: Informer[Node] = Informer(client, ListWatch(NODES), transform=as_is)
            following = tasks.create_task(cache.run())
            await cache.wait_synced()
        following.cancel()


async def test_an_unknown_token_gets_401(server: ListeningServer) -> None:
    async with server.client(token="guess") as client:
        with pytest.raises(Unauthorized):
            await client.get(NODES, "n1")


@pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
async def test_a_body_that_is_too_large_is_refused_as_the_real_server_does(server: ListeningServer) -> None:
    async with server.client() as client:
        huge: RawObject = {**a_node("n1"), "data": "x" * MAX_BODY_BYTES}
        with pytest.raises(ApiError, match="Request entity too large: limit is 3145728"):
            await client.create(NODES, huge)
        await client.create(NODES, a_node("n1"))


async def test_a_token_identifies_its_user(tmp_path: Path) -> None:
    site = ListeningServer(tmp_path, rbac=True)
    async with site.client(token="eves") as client:
        with pytest.raises(Forbidden, match='User "eve" cannot get resource "nodes"'):
            await client.get(NODES, "n1")
    async with site.client() as client:
        await client.create(NODES, a_node("n1"))
        as_eve = Request(method="GET", path="/api/v1/nodes/n1", headers=(("Impersonate-User", "eve"),))
        assert (await client.transport.send(as_eve)).status == 403
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}
        accounts = "/api/v1/namespaces/shop/serviceaccounts"
        for path, body in ((accounts, account), (f"{accounts}/robot/token", {})):
            made = await client.transport.send(Request(method="POST", path=path, body=msgspec.json.encode(body)))
            assert made.status == 201
    token = msgspec.json.decode(made.body)["status"]["token"]
    async with site.client(token=token) as client:
        with pytest.raises(Forbidden, match='User "system:serviceaccount:shop:robot" cannot get'):
            await client.get(NODES, "n1")
        site.api.remove("serviceaccounts", "robot", "shop")
        with pytest.raises(Unauthorized):
            await client.get(NODES, "n1")


async def test_a_server_that_is_down_closes_the_connection(server: ListeningServer) -> None:
    async with server.client() as client, asyncio.TaskGroup() as tasks:
        await client.create(NODES, a_node("n1"))
        restart = tasks.create_task(server.api.restart(downtime=timedelta(seconds=1)))
        with pytest.raises(Unreachable):
            await client.transport.send(Request(method="PUT", path="/version"))
        await restart
        assert (await client.get(NODES, "n1")).name == "n1"


async def test_a_body_without_end_is_not_read_and_ends_the_connection(tmp_path: Path) -> None:
    def ask_all(client: RawClient) -> list[tuple[int, str]]:
        endless = b"x" * (20 << 20)
        answers = [
            client.request("GET", "/version", headers=[("X-Long", "a" * 1_200_000)]),
            client.request("POST", "/api/v1/nodes", endless),
            client.request("POST", "/api/v1/nodes", endless, chunked=True),
            client.request("POST", "/api/v1/nodes", endless, token="guess"),
            client.request("POST", "/api/v1/nodes", b"x" * (MAX_BODY_BYTES + 1)),
            client.request("GET", "/version"),
        ]
        return [(item.code, item.headers.get("connection", "")) for item in answers]

    with a_listening_sandbox(tmp_path, tokens={"secret": "alice"}, fill=lambda _: None) as client:
        known = RawClient(client.server, client.ca, "secret")
        answers = await asyncio.to_thread(ask_all, known)
    assert answers[0][0] == 400
    assert answers[1:] == [(413, "close"), (413, "close"), (401, "close"), (413, ""), (200, "")]
