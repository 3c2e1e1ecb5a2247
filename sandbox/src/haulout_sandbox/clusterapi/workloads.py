"""Workload clusters in the same process, and the way to them from their management cluster.

    workloads = Workloads(clock)
    workload = workloads.add(ClusterKey("team-a", "prod"), Cluster(clock))
    async with workloads.connect(workload.kubeconfig(), workload.key) as client:
        await client.list(NODES)

A kubeconfig leads by its address and token alone to the cluster, as it would over a network. Each request shows the
token anew, so one that was replaced is refused from then on (401), while watches that are open go on, as on a real API
server. The line between the two clusters can fail (`fail`): that befalls whoever comes from the management cluster, and
nobody in the workload cluster itself.
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

from haulout.core.clock import Clock
from haulout.errors import KubeconfigError, Unreachable
from haulout.kinds.clusterapi import ClusterKey
from haulout.kube.client import Client
from haulout.kube.transport import Request, Response, Stream
from haulout_sandbox.apiserver import InProcessTransport
from haulout_sandbox.apiserver.faults import RequestPlan, Rule
from haulout_sandbox.apiserver.gate import administrator
from haulout_sandbox.apiserver.status import Refused, answer
from haulout_sandbox.cluster import Cluster

HUB, OWN = "hub", "cluster-api"  # who comes from the management cluster
_USER = "kubernetes-admin"
_SLOW_BY = timedelta(seconds=20)


class Outage(StrEnum):
    """What can be wrong with the line to a workload cluster."""

    HANG = "hang"  # connections stand, and nothing comes
    REFUSE = "refuse"  # connections break, and cannot be made
    SLOW = "slow"  # each answer takes long


@dataclass(slots=True)
class Workload:
    """A workload cluster."""

    key: ClusterKey
    cluster: Cluster
    server: str  # its address
    new_token: Callable[[], str]
    ca_pem: bytes = b""
    token: str = ""
    _slowed: list[tuple[InProcessTransport, Rule[RequestPlan]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Have a first token."""
        self.rotate()

    def rotate(self) -> None:
        """Have another token; the one before is refused from now on."""
        if self.token:
            self.cluster.api.take_token(self.token)
        self.token = self.new_token()
        self.cluster.api.give_token(self.token, administrator(_USER))

    def kubeconfig(self) -> bytes:
        """Return the kubeconfig by which it can be reached now."""
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

    def fail(self, outage: Outage) -> None:
        """Have the line from the management cluster fail, until `mend`."""
        for line in self._lines():
            match outage:
                case Outage.HANG:
                    line.silence()
                case Outage.REFUSE:
                    line.cut()
                case Outage.SLOW:
                    self._slowed.append((line, line.faults.slow(_SLOW_BY, times=None)))

    def mend(self) -> None:
        """Have it be well again."""
        for line in self._lines():
            line.mend()
        for line, rule in self._slowed:
            line.faults.lift(rule)
        self._slowed.clear()

    def _lines(self) -> list[InProcessTransport]:
        return [self.cluster.transport(name) for name in (HUB, OWN)]


class Workloads:
    """The workload clusters that there are, by key and by address."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._all: dict[ClusterKey, Workload] = {}
        self._heard_by: list[Callable[[ClusterKey], object]] = []
        self._connections = count(1)

    def add(
        self,
        key: ClusterKey,
        cluster: Cluster,
        *,
        server: str = "",
        ca_pem: bytes = b"",
        new_token: Callable[[], str] | None = None,
    ) -> Workload:
        """Have a workload cluster, at an address of its own; without `new_token` tokens can be guessed."""
        numbers = count(1)
        workload = Workload(
            key,
            cluster,
            server or f"https://{key.name}.{key.namespace}.sandbox:6443",
            new_token or (lambda: f"{key.namespace}-{key.name}-{next(numbers)}"),
            ca_pem,
        )
        self._all[key] = workload
        self._tell(key)
        return workload

    def remove(self, key: ClusterKey) -> None:
        """Have nobody answer at its address any more."""
        self._all.pop(key).fail(Outage.REFUSE)
        self._tell(key)

    def get(self, key: ClusterKey) -> Workload | None:
        """Return a workload cluster, if it is there."""
        return self._all.get(key)

    def all(self) -> tuple[Workload, ...]:
        """Return all of them."""
        return tuple(self._all.values())

    def at(self, server: str) -> Workload | None:
        """Return the one at an address."""
        return next((it for it in self._all.values() if it.server == server), None)

    def subscribe(self, handler: Callable[[ClusterKey], object]) -> Callable[[], None]:
        """Have `handler` hear of clusters that come and go; returns what ends that."""
        self._heard_by.append(handler)
        return lambda: self._heard_by.remove(handler)

    def connect(self, kubeconfig: bytes, key: ClusterKey) -> AbstractAsyncContextManager[Client]:
        """Have a client by a kubeconfig while the context lasts, as `haulout.hub` wants it."""
        return self._connected(kubeconfig, key)

    @asynccontextmanager
    async def _connected(self, kubeconfig: bytes, key: ClusterKey) -> AsyncIterator[Client]:
        transport = _Line(self, *_read(kubeconfig, key))
        try:
            yield Client(transport, clock=self._clock, random=Random(f"{HUB} {key} {next(self._connections)}"))
        finally:
            await transport.close()

    def _tell(self, key: ClusterKey) -> None:
        for handler in tuple(self._heard_by):
            handler(key)


class _Line:
    """A `haulout.kube.transport.Transport` of somebody who shows a token at an address."""

    def __init__(self, workloads: Workloads, server: str, token: str) -> None:
        self.server = server
        self._workloads = workloads
        self._token = token
        self._is_closed = False

    async def send(self, request: Request) -> Response:
        """Send `request` and read the whole answer."""
        way = self._way(request)
        refusal = await self._refusal(way, request)
        return refusal or await way.send(request)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        """Send `request` and read the answer as it comes."""
        way = self._way(request)
        refusal = await self._refusal(way, request)
        if refusal is not None:
            yield _Said(refusal)
            return
        async with way.stream(request) as stream:
            yield stream

    async def close(self) -> None:
        """Give up."""
        self._is_closed = True

    def _way(self, request: Request) -> InProcessTransport:
        found = self._workloads.at(self.server)
        if found is None or self._is_closed:
            raise Unreachable(f"{request.method} {request.path}: no connection to {self.server}", sent=False)
        return found.cluster.transport(HUB)

    async def _refusal(self, way: InProcessTransport, request: Request) -> Response | None:
        """Return what those hear whose token nobody knows: if the server can be reached, and no sooner."""
        found = self._workloads.at(self.server)
        try:
            if found is not None:
                found.cluster.api.identify(f"Bearer {self._token}")
        except Refused as refused:
            await way.send(Request(method="GET", path="/version", timeout=request.timeout))
            return answer(refused.status["code"], refused.status)
        return None


class _Said:
    """An answer that is there as a whole, read as a stream."""

    def __init__(self, response: Response) -> None:
        self.status = response.status
        self.headers = response.headers
        self._body = response.body

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the answer."""
        yield self._body


def _read(kubeconfig: bytes, key: ClusterKey) -> tuple[str, str]:
    """Return address and token of the current context."""
    where = f"secret {key.namespace}/{key.secret}"
    try:
        config: Any = yaml.load(kubeconfig, Loader=yaml.CSafeLoader)
        (context,) = (it["context"] for it in config["contexts"] if it["name"] == config["current-context"])
        (cluster,) = (it["cluster"] for it in config["clusters"] if it["name"] == context["cluster"])
        (user,) = (it["user"] for it in config["users"] if it["name"] == context["user"])
        return str(cluster["server"]), str(user.get("token", ""))
    except (yaml.YAMLError, TypeError, KeyError, ValueError):
        raise KubeconfigError("expected a kubeconfig with a current context", file=where) from None
