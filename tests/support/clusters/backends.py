"""The backends of behaviour tests: the sandbox on simulated time, and a real API server.

A test takes the `api_server` fixture and does not know which backend it has. Where the two differ, the sandbox is
wrong. These backends are bare API servers; `support.clusters.cluster_plan` has whole clusters with nodes and workloads.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Protocol
from urllib.parse import urlsplit

from controlplane import ControlPlane
from haulout.core.clock import Clock, RealClock
from haulout.kube.client import Client
from haulout.kube.transports import config
from haulout.kube.transports.http import HttpTransport
from haulout_sandbox.apiserver import ApiServer, InProcessTransport, User
from support.faults.tcp_proxy import a_tcp_proxy


class NetworkConnection(Protocol):
    """The connection between one client and the cluster."""

    def cut(self) -> None:
        """Break all connections and refuse new ones."""
        ...

    def mend(self) -> None:
        """Let new connections through; those that were silenced are lost."""
        ...

    def silence(self) -> None:
        """Keep connections open, accept new ones, and let nothing through."""
        ...


class ClusterBackend(Protocol):
    """A cluster under test."""

    clock: Clock
    namespace: str
    prefix: str  # for the names of objects that are in no namespace

    async def client(self) -> Client:
        """Return a client of a user who may do everything."""
        ...

    async def client_of(self, user: User) -> Client:
        """Return a client of a user who may do what roles say."""
        ...

    async def client_with_connection(self) -> tuple[Client, NetworkConnection]:
        """Return such a client and its connection."""
        ...

    async def crash(self) -> None:
        """Kill the API server and start it again."""
        ...

    async def expire_history(self) -> None:
        """Make every watch from an earlier resource version get 410."""
        ...


class SandboxConnection:
    """The connection to the sandbox."""

    def __init__(self, transport: InProcessTransport) -> None:
        self._transport = transport

    def cut(self) -> None:
        """Break all connections and refuse new ones."""
        self._transport.cut()

    def mend(self) -> None:
        """Let new connections through; those that were silenced are lost."""
        self._transport.cut()
        self._transport.mend()

    def silence(self) -> None:
        """Stay open, and let nothing through."""
        self._transport.silence()


class SandboxBackend:
    """A sandbox without controllers."""

    namespace = "test"
    prefix = "test"

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.api_server = ApiServer(clock, namespaces=[self.namespace], rbac=True)
        self._transports: list[InProcessTransport] = []

    async def client(self) -> Client:
        """Return a client."""
        return (await self.client_with_connection())[0]

    async def client_of(self, user: User) -> Client:
        """Return a client of this user."""
        transport = self.api_server.transport(user=user)
        self._transports.append(transport)
        return Client(transport, clock=self.clock, random=random.Random(user.name))

    async def client_with_connection(self) -> tuple[Client, NetworkConnection]:
        """Return a client and its transport, which is its connection."""
        transport = self.api_server.transport()
        self._transports.append(transport)
        seed = len(self._transports)
        return Client(transport, clock=self.clock, random=random.Random(seed)), SandboxConnection(transport)

    async def crash(self) -> None:
        """Break every connection; refuse new ones for three seconds."""
        for transport in self._transports:
            transport.cut()
        await self.clock.sleep(timedelta(seconds=3))
        for transport in self._transports:
            transport.mend()

    async def expire_history(self) -> None:
        """Compact, and end the watches, as a restart does."""
        self.api_server.compact()
        await self.crash()


class RealBackend:
    """A real control plane."""

    def __init__(self, control_plane: ControlPlane, *, namespace: str, cleanup: AsyncExitStack) -> None:
        self.clock: Clock = RealClock()
        self.namespace = namespace
        self.prefix = namespace
        self.control_plane = control_plane
        self._cleanup = cleanup

    async def client(self) -> Client:
        """Return a client of the admin."""
        return await self._client(config.load(kubeconfig=str(self.control_plane.kubeconfig())))

    async def client_of(self, user: User) -> Client:
        """Return a client of this user."""
        path = self.control_plane.kubeconfig(user.name, groups=user.groups)
        return await self._client(config.load(kubeconfig=str(path)))

    async def client_with_connection(self) -> tuple[Client, NetworkConnection]:
        """Return a client of the admin whose connections go through a proxy of their own."""
        direct = config.load(kubeconfig=str(self.control_plane.kubeconfig()))
        proxy = await self._cleanup.enter_async_context(a_tcp_proxy(urlsplit(direct.server).port or 443))
        return await self._client(replace(direct, server=f"https://127.0.0.1:{proxy.port}")), proxy

    async def _client(self, connection: config.Connection) -> Client:
        client = Client(HttpTransport(connection, clock=self.clock), clock=self.clock, random=random.Random())
        self._cleanup.push_async_callback(client.close)
        return client

    async def crash(self) -> None:
        """Kill the API server and start it again."""
        await asyncio.to_thread(self.control_plane.kill_apiserver)
        await asyncio.to_thread(self.control_plane.start_apiserver)

    async def expire_history(self) -> None:
        """Compact etcd and restart the API server."""
        await asyncio.to_thread(self.control_plane.expire_history)


@asynccontextmanager
async def a_real_backend(control_plane: ControlPlane, *, namespace: str) -> AsyncIterator[ClusterBackend]:
    """Yield the real cluster as one test sees it: with a namespace of its own."""
    async with AsyncExitStack() as cleanup:
        yield RealBackend(control_plane, namespace=namespace, cleanup=cleanup)
