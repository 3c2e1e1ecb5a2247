"""A management cluster and workload clusters in one process, and a hub between them.

    world = World(clock)
    prod = world.add_cluster("team-a", "prod")
    async with world.hub():
        await world.add_machine(prod, "m1")
        await world.eventually(lambda: world.has_hook("team-a/m1"))

No controller runs in any of them: the test is Cluster API, and the maintenance profiles of the workload clusters.
"""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any

import msgspec
import yaml

from haulout.core.clock import Clock
from haulout.errors import KubeError
from haulout.hub.admission import Admission
from haulout.hub.connecting import Connect
from haulout.hub.controller import Hub
from haulout.hub.settings import HubSettings
from haulout.hub.standing import ClusterStanding
from haulout.kinds.clusterapi import (
    APPROVE_DELETION,
    APPROVE_MAINTENANCE,
    CLUSTER_NAME,
    ENABLED,
    HOOK,
    MACHINE_DELETED,
    MACHINE_MAINTENANCE,
    MAINTENANCE,
    MANAGED,
    ClusterKey,
    clusters,
    machines,
)
from haulout.kube.client import Client
from haulout.kube.events import EventRecorder
from haulout.kube.objects import RawObject
from haulout.kube.patches import merge_patch
from haulout.kube.resources import DEFINITIONS, NAMESPACES, NODES, SECRETS, Resource
from haulout.kube.transport import Request, Response, Stream, Transport
from haulout_sandbox.apiserver import ApiServer, InProcessTransport
from haulout_sandbox.apiserver.transport import USUAL_LATENCY
from support.eventually import eventually

FINALIZER = "machine.cluster.x-k8s.io"
Between = Callable[[str, Transport], Transport]


def definition(kind: str, *versions: str) -> RawObject:
    """Return a definition of Cluster API that takes anything."""
    plural = f"{kind.lower()}s"
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.cluster.x-k8s.io",
            "annotations": {"api-approved.kubernetes.io": "unapproved, a stand-in"},
        },
        "spec": {
            "group": "cluster.x-k8s.io",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "scope": "Namespaced",
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": number == 0,
                    "subresources": {"status": {}},
                    "schema": {
                        "openAPIV3Schema": {"type": "object", "properties": {"spec": anything, "status": anything}}
                    },
                }
                for number, version in enumerate(versions)
            ],
        },
    }


class _Door:
    """Lets in who shows a token that counts."""

    def __init__(self, transport: Transport, side: "Side", token: str) -> None:
        self.server = side.address
        self._transport = transport
        self._side = side
        self._token = token

    async def send(self, request: Request) -> Response:
        if self._token not in self._side.tokens:
            return _UNAUTHORIZED
        return await self._transport.send(request)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        if self._token not in self._side.tokens:
            yield _Refused()
            return
        async with self._transport.stream(request) as stream:
            yield stream

    async def close(self) -> None:
        await self._transport.close()


_STATUS = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Unauthorized", "code": 401}
_UNAUTHORIZED = Response(401, {}, msgspec.json.encode(_STATUS | {"message": "Unauthorized"}))


class _Refused:
    status = 401
    headers: Mapping[str, str] = {}

    async def lines(self) -> AsyncIterator[bytes]:
        yield _UNAUTHORIZED.body


@dataclass(slots=True)
class Side:
    """A workload cluster."""

    key: ClusterKey
    api: ApiServer
    client: Client  # of a person there
    tokens: set[str] = field(default_factory=set)
    lines: list[InProcessTransport] = field(default_factory=list)  # of hubs that are connected, or were
    is_silent: bool = False
    is_away: bool = False
    takes: timedelta = USUAL_LATENCY  # each of its answers
    open: int = 0  # connections

    @property
    def address(self) -> str:
        """Where its API server is."""
        return f"https://{self.key.name}.{self.key.namespace}.example:6443"

    def fall_silent(self) -> None:
        """Accept whatever comes, and say nothing any more."""
        self.is_silent = True
        for line in self.lines:
            line.silence()

    def go_away(self) -> None:
        """Refuse connections."""
        self.is_away = True
        for line in self.lines:
            line.cut()

    def come_back(self) -> None:
        """Answer again."""
        self.is_silent = self.is_away = False
        for line in self.lines:
            line.mend()

    def connected(self, name: str) -> InProcessTransport:
        """Return a way in, which suffers what the cluster suffers."""
        line = self.api.transport(name, latency=self.takes)
        self.lines.append(line)
        if self.is_silent:
            line.silence()
        if self.is_away:
            line.cut()
        return line


class World:
    """All clusters, and how tests look at them and what they do to them."""

    def __init__(self, clock: Clock, *, versions: tuple[str, ...] = ("v1beta2", "v1beta1")) -> None:
        self.clock = clock
        self.api = ApiServer(clock, random=Random("management"))
        self.me = Client(self.api.transport("me"), clock=clock, random=Random("me"))
        self.sides: dict[ClusterKey, Side] = {}
        self.machines: Resource[Any] = machines(versions[0]).of(RawObject)
        self.clusters: Resource[Any] = clusters(versions[0]).of(RawObject)
        self.line: InProcessTransport | None = None  # of the hub, to the management cluster
        self.now: Hub | None = None  # the hub that runs
        self.between: Between = lambda _, transport: transport
        self._versions = versions
        self._lives = 0

    async def begin(self) -> "World":
        """Define what Cluster API defines."""
        for kind in ("Machine", "Cluster"):
            await self.me.create(DEFINITIONS, definition(kind, *self._versions))
        return self

    async def eventually(self, look: Callable[[], Any], *, becomes: Any = True, seconds: float = 60) -> Any:
        """Wait until `look` sees what it should."""
        options: dict[str, Any] = {} if becomes is True else {"becomes": becomes}
        return await eventually(self.clock, look, within=timedelta(seconds=seconds), **options)

    async def stays(self, look: Callable[[], Any], *, seconds: float = 30) -> None:
        """Let time pass in which something stays true."""
        for _ in range(10):
            assert look()
            await self.clock.sleep(timedelta(seconds=seconds / 10))
        assert look()

    # The hub

    def connect(self, life: int) -> Connect:
        """Return how a hub reaches workload clusters: by the address and the token in a kubeconfig."""

        @asynccontextmanager
        async def connect(kubeconfig: bytes, key: ClusterKey) -> AsyncIterator[Client]:
            described = yaml.safe_load(kubeconfig)
            address = described["clusters"][0]["cluster"]["server"]
            side = next(it for it in self.sides.values() if it.address == address)
            line = side.connected("hub")
            door = self.between(str(key), _Door(line, side, described["users"][0]["user"]["token"]))
            side.open += 1
            try:
                yield Client(door, clock=self.clock, random=Random(f"{key} {life}"))
            finally:
                side.open -= 1
                side.lines.remove(line)
                await line.close()

        return connect

    @asynccontextmanager
    async def hub(self, admission: Admission | None = None, **settings: Any) -> AsyncIterator[Hub]:
        """Run a hub while the context lasts; its end is a crash."""
        self._lives += 1
        self.line = self.api.transport("hub")
        way = self.between("management", self.line)
        client = Client(way, clock=self.clock, random=Random(f"hub {self._lives}"))
        events = EventRecorder(client, instance="hub")
        hub = self.now = Hub(
            client,
            connect=self.connect(self._lives),
            events=events,
            settings=HubSettings(**settings),
            admission=admission,
            instance="hub",
        )
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(it) for it in (events.run(), hub.run())]
            try:
                yield hub
            finally:
                for task in tasks:
                    task.cancel()

    # Clusters

    async def add_cluster(self, namespace: str, name: str) -> Side:
        """Make a workload cluster, with a Secret that leads to it."""
        key = ClusterKey(namespace, name)
        api = ApiServer(self.clock, random=Random(str(key)))
        side = Side(key, api, Client(api.transport("me"), clock=self.clock, random=Random("me")))
        self.sides[key] = side
        with suppress(KubeError):
            await self.me.create(NAMESPACES, {"metadata": {"name": namespace}})
        await self.me.create(
            self.clusters,
            {
                "apiVersion": self.clusters.api_version,
                "kind": "Cluster",
                "metadata": {"name": name, "namespace": namespace, "finalizers": ["cluster.cluster.x-k8s.io"]},
            },
            namespace=namespace,
        )
        await self.give_key(side, "first")
        return side

    async def give_key(self, side: Side, token: str, *, keeps: bool = False) -> None:
        """Put another token into the Secret; the one before counts no longer, unless it `keeps`."""
        side.tokens = (side.tokens if keeps else set()) | {token}
        if not keeps:
            for line in side.lines:
                line.disconnect()
        key, value = side.key, base64.b64encode(kubeconfig(side.address, token)).decode()
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "cluster.x-k8s.io/secret",
            "metadata": {"name": key.secret, "namespace": key.namespace},
            "data": {"value": value},
        }
        if self.api.has("secrets", key.secret, key.namespace):
            await self.me.patch(SECRETS, key.secret, merge_patch({"data": body["data"]}), namespace=key.namespace)
        else:
            await self.me.create(SECRETS, body, namespace=key.namespace)

    async def add_machine(
        self, side: Side, name: str, *, enabled: str | None = "true", managed: bool = True, joined: bool = True
    ) -> str:
        """Make a Machine that became the node `n-…`; return its key."""
        key = side.key
        labels = {CLUSTER_NAME: key.name} | ({} if enabled is None else {ENABLED: enabled})
        metadata = {"name": name, "namespace": key.namespace, "labels": labels, "finalizers": [FINALIZER]}
        spec = {"clusterName": key.name}
        body = {"apiVersion": self.machines.api_version, "kind": "Machine", "metadata": metadata, "spec": spec}
        await self.me.create(self.machines, body, namespace=key.namespace)
        if joined:
            managed_by = {MANAGED: "operational"} if managed else {}
            await side.client.create(NODES, {"metadata": {"name": f"n-{name}", "labels": managed_by}})
            await self._joined(key.namespace, name)
        return f"{key.namespace}/{name}"

    async def _joined(self, namespace: str, name: str) -> None:
        status = merge_patch({"status": {"nodeRef": {"name": f"n-{name}"}}})
        await self.me.patch(self.machines, name, status, namespace=namespace, subresource="status")

    async def end_machine(self, machine: str) -> None:
        """Do what Cluster API does at the end of a deletion."""
        namespace, name = machine.split("/")
        side = self.sides[ClusterKey(namespace, self.machine(machine)["spec"]["clusterName"])]
        with suppress(KubeError):
            await side.client.delete(NODES, f"n-{name}")
        await self.change(machine, metadata={"finalizers": None})

    # What is on Machines

    def machine(self, machine: str) -> RawObject:
        """Return a Machine."""
        namespace, name = machine.split("/")
        return self.api.get("machines.cluster.x-k8s.io", name, namespace)

    async def change(self, machine: str, **change: Any) -> None:
        """Merge something into a Machine."""
        namespace, name = machine.split("/")
        await self.me.patch(self.machines, name, merge_patch(change), namespace=namespace)

    async def label(self, machine: str, **labels: str | None) -> None:
        """Set `enabled` or `maintenance`."""
        keys = {"enabled": ENABLED, "maintenance": MAINTENANCE}
        await self.change(machine, metadata={"labels": {keys[it]: value for it, value in labels.items()}})

    async def delete(self, machine: str) -> None:
        """Have a Machine deleted, which its finalizer keeps."""
        namespace, name = machine.split("/")
        await self.me.delete(self.machines, name, namespace=namespace)

    def annotations(self, machine: str) -> Mapping[str, str]:
        """Return the annotations of a Machine."""
        found: Mapping[str, str] = self.machine(machine)["metadata"].get("annotations", {})
        return found

    def hook(self, machine: str) -> str | None:
        """Return the value of our hook."""
        return self.annotations(machine).get(HOOK)

    def has_hook(self, machine: str) -> bool:
        """Tell whether our hook is there, with its exact value."""
        return self.hook(machine) == "runtime-extension-maintenance-controller"

    def wish(self, machine: str) -> str | None:
        """Return `requested` or `approved`."""
        labels: Mapping[str, str] = self.machine(machine)["metadata"].get("labels", {})
        return labels.get(MAINTENANCE)

    # What is on nodes

    def node(self, side: Side, machine: str) -> RawObject:
        """Return the node that a Machine became."""
        return side.api.get("nodes", f"n-{machine.rpartition('/')[2]}")

    def labels(self, side: Side, machine: str) -> Mapping[str, str]:
        """Return the labels of its node."""
        found: Mapping[str, str] = self.node(side, machine)["metadata"].get("labels", {})
        return found

    def is_deleted(self, side: Side, machine: str) -> bool:
        """Tell whether the node says that its Machine is being deleted."""
        return self.labels(side, machine).get(MACHINE_DELETED) == "true"

    def is_maintained(self, side: Side, machine: str) -> bool:
        """Tell whether the node says that maintenance is wanted."""
        return self.labels(side, machine).get(MACHINE_MAINTENANCE) == "true"

    async def mark(self, side: Side, machine: str, **labels: str | None) -> None:
        """Set `approve_deletion`, `approve_maintenance`, `managed` or another label of the node."""
        keys = {
            "approve_deletion": APPROVE_DELETION,
            "approve_maintenance": APPROVE_MAINTENANCE,
            "managed": MANAGED,
        }
        change = {"metadata": {"labels": {keys.get(it, it): value for it, value in labels.items()}}}
        await side.client.patch(NODES, f"n-{machine.rpartition('/')[2]}", merge_patch(change))

    # What is told

    def told(self, api: ApiServer | None = None) -> list[str]:
        """Return the reasons of all events, in order."""
        return [it["reason"] for it in self.events(api)]

    def events(self, api: ApiServer | None = None) -> list[RawObject]:
        """Return all events, in order, also those that the server has forgotten by now."""
        written = (it for it in (api or self.api).history if it.kind.plural == "events" and it.before is None)
        return [it.after for it in written if it.after is not None]

    def standing(self, side: Side) -> ClusterStanding | None:
        """Return how the hub says that it stands with a cluster."""
        assert self.now is not None
        return next((it for it in self.now.standings() if it.key == side.key), None)

    def patches(self, api: ApiServer, plural: str) -> int:
        """Count what the hub wrote to objects of a kind."""
        return sum(it.who == "hub" and it.kind.plural == plural for it in api.history)


def kubeconfig(server: str, token: str) -> bytes:
    """Return a kubeconfig with a token."""
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "it",
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "clusters": [{"name": "it", "cluster": {"server": server}}],
            "users": [{"name": "it", "user": {"token": token}}],
        }
    ).encode()
