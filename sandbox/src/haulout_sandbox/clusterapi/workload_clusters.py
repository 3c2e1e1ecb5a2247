"""Workload clusters in the same process, and connections to them from their management cluster.

    registry = WorkloadClusterRegistry(clock)
    workload = registry.add(ClusterKey("team-a", "prod"), Cluster(clock))
    async with registry.connect(workload.kubeconfig(), workload.key) as client:
        await client.list(NODES)

As over a network, only address and token of a kubeconfig determine the connection. Each request sends the token, so a
rotated token is refused from then on (401), while open watches continue, as on a real API server. The connection
between the clusters can fail (`break_connection`): that affects clients in the management cluster, and none in the
workload cluster.
"""

import base64
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from itertools import count
from random import Random
from typing import Any

import yaml

from haulout.api.clusterapi import ClusterKey
from haulout.core.clock import Clock
from haulout.errors import KubeconfigError, Unreachable
from haulout.kube.client import Client
from haulout.kube.transport import Request, Response, Stream
from haulout_sandbox.apiserver import InProcessTransport
from haulout_sandbox.apiserver.auth.access_control import admin_user
from haulout_sandbox.apiserver.status import StatusError, json_response
from haulout_sandbox.apiserver.transport.faults import FaultRule, RequestFaults
from haulout_sandbox.cluster import Cluster

HUB_CLIENT, CLUSTER_API_CLIENT = "hub", "cluster-api"  # clients in the management cluster
_USER = "kubernetes-admin"
_SLOW_DELAY = timedelta(seconds=20)


class Outage(StrEnum):
    """The kind of outage of a connection to a workload cluster."""

    HANG = "hang"  # connections stay open, but nothing arrives
    REFUSE = "refuse"  # connections break and cannot be opened
    SLOW = "slow"  # each response is delayed


@dataclass(slots=True)
class RegisteredCluster:
    """A workload cluster with its address and token."""

    key: ClusterKey
    cluster: Cluster
    server: str  # its address
    token_factory: Callable[[], str]
    ca_pem: bytes = b""
    token: str = ""
    _slow_rules: list[tuple[InProcessTransport, FaultRule[RequestFaults]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rotate()

    def rotate(self) -> None:
        """Issue a new token; the old one is refused from now on."""
        if self.token:
            self.cluster.api.revoke_token(self.token)
        self.token = self.token_factory()
        self.cluster.api.add_token(self.token, admin_user(_USER))

    def kubeconfig(self) -> bytes:
        """Return the kubeconfig with the current token."""
        name, user = self.key.name, f"{self.key.name}-admin"
        cluster = {"server": self.server}
        if self.ca_pem:
            cluster["certificate-authority-data"] = base64.b64encode(self.ca_pem).decode()
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": f"{user}@{name}",
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": user, "user": {"token": self.token}}],
            "contexts": [{"name": f"{user}@{name}", "context": {"cluster": name, "user": user}}],
        }
        return yaml.safe_dump(content, sort_keys=False, encoding="utf-8")

    def break_connection(self, outage: Outage) -> None:
        """Let the connection from the management cluster fail until `heal_connection`."""
        for transport in self._transports():
            match outage:
                case Outage.HANG:
                    transport.silence()
                case Outage.REFUSE:
                    transport.cut()
                case Outage.SLOW:
                    self._slow_rules.append((transport, transport.faults.delay(_SLOW_DELAY, times=None)))

    def heal_connection(self) -> None:
        for transport in self._transports():
            transport.mend()
        for transport, rule in self._slow_rules:
            transport.faults.remove(rule)
        self._slow_rules.clear()

    def _transports(self) -> list[InProcessTransport]:
        return [self.cluster.transport(name) for name in (HUB_CLIENT, CLUSTER_API_CLIENT)]


class WorkloadClusterRegistry:
    """The workload clusters, by key and by address."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._clusters: dict[ClusterKey, RegisteredCluster] = {}
        self._handlers: list[Callable[[ClusterKey], object]] = []
        self._connections = count(1)

    def add(
        self,
        key: ClusterKey,
        cluster: Cluster,
        *,
        server: str = "",
        ca_pem: bytes = b"",
        token_factory: Callable[[], str] | None = None,
    ) -> RegisteredCluster:
        """Add a workload cluster with its own address; without `token_factory`, tokens are guessable."""
        numbers = count(1)
        registered = RegisteredCluster(
            key,
            cluster,
            server or f"https://{key.name}.{key.namespace}.sandbox:6443",
            token_factory or (lambda: f"{key.namespace}-{key.name}-{next(numbers)}"),
            ca_pem,
        )
        self._clusters[key] = registered
        self._notify(key)
        return registered

    def remove(self, key: ClusterKey) -> None:
        self._clusters.pop(key).break_connection(Outage.REFUSE)
        self._notify(key)

    def get(self, key: ClusterKey) -> RegisteredCluster | None:
        return self._clusters.get(key)

    def all(self) -> tuple[RegisteredCluster, ...]:
        return tuple(self._clusters.values())

    def by_server(self, server: str) -> RegisteredCluster | None:
        return next((candidate for candidate in self._clusters.values() if candidate.server == server), None)

    def subscribe(self, handler: Callable[[ClusterKey], object]) -> Callable[[], None]:
        """Call `handler` when clusters are added or removed; return a function that unsubscribes."""
        self._handlers.append(handler)
        return lambda: self._handlers.remove(handler)

    def connect(self, kubeconfig: bytes, key: ClusterKey) -> AbstractAsyncContextManager[Client]:
        """Yield a client for a kubeconfig, as `haulout.controllers.clusterapi` requires it."""
        return self._open_client(kubeconfig, key)

    @asynccontextmanager
    async def _open_client(self, kubeconfig: bytes, key: ClusterKey) -> AsyncIterator[Client]:
        transport = _WorkloadClusterTransport(self, *_read_kubeconfig(kubeconfig, key))
        try:
            yield Client(transport, clock=self._clock, random=Random(f"{HUB_CLIENT} {key} {next(self._connections)}"))
        finally:
            await transport.close()

    def _notify(self, key: ClusterKey) -> None:
        for handler in tuple(self._handlers):
            handler(key)


class _WorkloadClusterTransport:
    """A `haulout.kube.transport.Transport` with a token and an address."""

    def __init__(self, registry: WorkloadClusterRegistry, server: str, token: str) -> None:
        self.server = server
        self._registry = registry
        self._token = token
        self._is_closed = False

    async def send(self, request: Request) -> Response:
        transport = self._transport(request)
        auth_failure = await self._auth_failure(transport, request)
        return auth_failure or await transport.send(request)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        transport = self._transport(request)
        auth_failure = await self._auth_failure(transport, request)
        if auth_failure is not None:
            yield _CompleteStream(auth_failure)
            return
        async with transport.stream(request) as stream:
            yield stream

    async def close(self) -> None:
        self._is_closed = True

    def _transport(self, request: Request) -> InProcessTransport:
        registered = self._registry.by_server(self.server)
        if registered is None or self._is_closed:
            raise Unreachable(f"{request.method} {request.path}: no connection to {self.server}", sent=False)
        return registered.cluster.transport(HUB_CLIENT)

    async def _auth_failure(self, transport: InProcessTransport, request: Request) -> Response | None:
        """Return the response to an unknown token; it arrives only if the server can be reached."""
        registered = self._registry.by_server(self.server)
        try:
            if registered is not None:
                registered.cluster.api.authenticate(f"Bearer {self._token}")
        except StatusError as error:
            await transport.send(Request(method="GET", path="/version", timeout=request.timeout))
            return json_response(error.status["code"], error.status)
        return None


class _CompleteStream:
    """A complete response, read as a stream."""

    def __init__(self, response: Response) -> None:
        self.status = response.status
        self.headers = response.headers
        self._body = response.body

    async def lines(self) -> AsyncIterator[bytes]:
        yield self._body


def _read_kubeconfig(kubeconfig: bytes, key: ClusterKey) -> tuple[str, str]:
    """Return address and token of the current context."""
    source = f"secret {key.namespace}/{key.kubeconfig_secret}"
    try:
        config: Any = yaml.load(kubeconfig, Loader=yaml.CSafeLoader)
        (context,) = (entry["context"] for entry in config["contexts"] if entry["name"] == config["current-context"])
        (cluster,) = (entry["cluster"] for entry in config["clusters"] if entry["name"] == context["cluster"])
        (user,) = (entry["user"] for entry in config["users"] if entry["name"] == context["user"])
        return str(cluster["server"]), str(user.get("token", ""))
    except (yaml.YAMLError, TypeError, KeyError, ValueError):
        raise KubeconfigError("expected a kubeconfig with a current context", file=source) from None
