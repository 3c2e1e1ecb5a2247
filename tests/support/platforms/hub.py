"""A management cluster and workload clusters in one process, and a hub between them.

    clusters = HubClusters(clock)
    prod = clusters.add_cluster("team-a", "prod")
    async with clusters.running_hub():
        await clusters.add_machine(prod, "m1")

No controller runs in any of them: the test acts as Cluster API, and as the maintenance profiles of the workload
clusters.
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

from haulout.api.clusterapi import (
    APPROVE_DELETION,
    APPROVE_MAINTENANCE,
    CLUSTER_NAME,
    ENABLED,
    MACHINE_DELETED,
    MACHINE_MAINTENANCE,
    MAINTENANCE,
    MAINTENANCE_STATE,
    PRE_DRAIN_HOOK,
    ClusterKey,
    cluster_resource,
    machine_resource,
)
from haulout.api.objects import RawObject
from haulout.api.resources import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, NODES, SECRETS, Resource
from haulout.controllers.clusterapi.cluster_accessor import ClientFactory
from haulout.controllers.clusterapi.cluster_budget import ClusterBudget
from haulout.controllers.clusterapi.controller import ClusterApiController
from haulout.controllers.clusterapi.settings import ClusterApiSettings
from haulout.controllers.clusterapi.status import WorkloadClusterStatus
from haulout.core.clock import Clock
from haulout.errors import KubeError
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from haulout.kube.recorder import EventRecorder
from haulout.kube.transport import Request, Response, Stream, Transport
from haulout.runtime.freezes import FreezeSource, NoFreezes
from haulout_sandbox.apiserver import ApiServer, InProcessTransport
from haulout_sandbox.apiserver.transport.in_process import DEFAULT_LATENCY
from support.expectations.eventually import eventually

FINALIZER = "machine.cluster.x-k8s.io"
WrapTransport = Callable[[str, Transport], Transport]


def a_cluster_api_crd(kind: str, *versions: str) -> RawObject:
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


class _TokenAuthTransport:
    """Accepts requests with a valid token."""

    def __init__(self, transport: Transport, workload: "WorkloadCluster", token: str) -> None:
        self.server = workload.address
        self._transport = transport
        self._workload = workload
        self._token = token

    async def send(self, request: Request) -> Response:
        if self._token not in self._workload.tokens:
            return _UNAUTHORIZED
        return await self._transport.send(request)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        if self._token not in self._workload.tokens:
            yield _UnauthorizedStream()
            return
        async with self._transport.stream(request) as stream:
            yield stream

    async def close(self) -> None:
        await self._transport.close()


_STATUS = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Unauthorized", "code": 401}
_UNAUTHORIZED = Response(401, {}, msgspec.json.encode(_STATUS | {"message": "Unauthorized"}))


class _UnauthorizedStream:
    status = 401
    headers: Mapping[str, str] = {}

    async def lines(self) -> AsyncIterator[bytes]:
        yield _UNAUTHORIZED.body


@dataclass(slots=True)
class WorkloadCluster:
    """A workload cluster."""

    key: ClusterKey
    api: ApiServer
    client: Client  # of a person there
    tokens: set[str] = field(default_factory=set)
    hub_transports: list[InProcessTransport] = field(default_factory=list)  # of hubs that are connected, or were
    is_silent: bool = False
    is_unreachable: bool = False
    latency: timedelta = DEFAULT_LATENCY  # each of its answers
    open_connections: int = 0  # connections

    @property
    def address(self) -> str:
        """Where its API server is."""
        return f"https://{self.key.name}.{self.key.namespace}.example:6443"

    def stop_answering(self) -> None:
        """Accept connections, and send no more responses."""
        self.is_silent = True
        for transport in self.hub_transports:
            transport.silence()

    def become_unreachable(self) -> None:
        """Refuse connections."""
        self.is_unreachable = True
        for transport in self.hub_transports:
            transport.cut()

    def recover(self) -> None:
        """Answer again."""
        self.is_silent = self.is_unreachable = False
        for transport in self.hub_transports:
            transport.mend()

    def connect(self, name: str) -> InProcessTransport:
        """Return a transport that shares the faults of the cluster."""
        transport = self.api.transport(name, latency=self.latency)
        self.hub_transports.append(transport)
        if self.is_silent:
            transport.silence()
        if self.is_unreachable:
            transport.cut()
        return transport


class HubClusters:
    """All clusters, and helpers to read and change them."""

    def __init__(self, clock: Clock, *, versions: tuple[str, ...] = ("v1beta2", "v1beta1")) -> None:
        self.clock = clock
        self.api = ApiServer(clock, random=Random("management"))
        self.admin = Client(self.api.transport("me"), clock=clock, random=Random("me"))
        self.workload_clusters: dict[ClusterKey, WorkloadCluster] = {}
        self.machines: Resource[Any] = machine_resource(versions[0]).with_model(RawObject)
        self.clusters: Resource[Any] = cluster_resource(versions[0]).with_model(RawObject)
        self.hub_transport: InProcessTransport | None = None  # of the hub, to the management cluster
        self.current_hub: ClusterApiController | None = None  # the hub that runs
        self.wrap_transport: WrapTransport = lambda _, transport: transport
        self._versions = versions
        self._hub_count = 0

    async def install_crds(self) -> "HubClusters":
        """Define what Cluster API defines."""
        for kind in ("Machine", "Cluster"):
            await self.admin.create(CUSTOM_RESOURCE_DEFINITIONS, a_cluster_api_crd(kind, *self._versions))
        return self

    async def eventually(self, probe: Callable[[], Any], *, becomes: Any = True, seconds: float = 60) -> Any:
        """Wait until `probe` sees what it should."""
        options: dict[str, Any] = {} if becomes is True else {"becomes": becomes}
        return await eventually(self.clock, probe, within=timedelta(seconds=seconds), **options)

    async def assert_stays(self, probe: Callable[[], Any], *, seconds: float = 30) -> None:
        """Let time pass in which something stays true."""
        for _ in range(10):
            assert probe()
            await self.clock.sleep(timedelta(seconds=seconds / 10))
        assert probe()

    # The hub

    def connect(self, number: int) -> ClientFactory:
        """Return how a hub reaches workload clusters: by the address and the token in a kubeconfig."""

        @asynccontextmanager
        async def connect(kubeconfig: bytes, key: ClusterKey) -> AsyncIterator[Client]:
            described = yaml.safe_load(kubeconfig)
            address = described["clusters"][0]["cluster"]["server"]
            workload = next(candidate for candidate in self.workload_clusters.values() if candidate.address == address)
            transport = workload.connect("hub")
            authenticated = self.wrap_transport(
                str(key), _TokenAuthTransport(transport, workload, described["users"][0]["user"]["token"])
            )
            workload.open_connections += 1
            try:
                yield Client(authenticated, clock=self.clock, random=Random(f"{key} {number}"))
            finally:
                workload.open_connections -= 1
                workload.hub_transports.remove(transport)
                await transport.close()

        return connect

    @asynccontextmanager
    async def running_hub(
        self, cluster_budget: ClusterBudget | None = None, *, freezes: FreezeSource | None = None, **settings: Any
    ) -> AsyncIterator[ClusterApiController]:
        """Run a hub until the context ends, which stops it as a crash does."""
        self._hub_count += 1
        self.hub_transport = self.api.transport("hub")
        hub_side = self.wrap_transport("management", self.hub_transport)
        client = Client(hub_side, clock=self.clock, random=Random(f"hub {self._hub_count}"))
        events = EventRecorder(client, instance="hub")
        hub = self.current_hub = ClusterApiController(
            client,
            connect=self.connect(self._hub_count),
            events=events,
            settings=ClusterApiSettings(**settings),
            cluster_budget=cluster_budget,
            freezes=freezes or NoFreezes(),
            instance="hub",
        )
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in (events.run(), hub.run())]
            try:
                yield hub
            finally:
                for task in tasks:
                    task.cancel()

    # Clusters

    async def add_cluster(self, namespace: str, name: str) -> WorkloadCluster:
        """Create a workload cluster, and the Secret with its kubeconfig."""
        key = ClusterKey(namespace, name)
        api = ApiServer(self.clock, random=Random(str(key)))
        workload = WorkloadCluster(key, api, Client(api.transport("me"), clock=self.clock, random=Random("me")))
        self.workload_clusters[key] = workload
        with suppress(KubeError):
            await self.admin.create(NAMESPACES, {"metadata": {"name": namespace}})
        await self.admin.create(
            self.clusters,
            {
                "apiVersion": self.clusters.api_version,
                "kind": "Cluster",
                "metadata": {"name": name, "namespace": namespace, "finalizers": ["cluster.cluster.x-k8s.io"]},
            },
            namespace=namespace,
        )
        await self.rotate_token(workload, "first")
        return workload

    async def rotate_token(self, workload: WorkloadCluster, token: str, *, keep_old: bool = False) -> None:
        """Put another token into the Secret; the old one becomes invalid unless `keep_old` is set."""
        workload.tokens = (workload.tokens if keep_old else set()) | {token}
        if not keep_old:
            for transport in workload.hub_transports:
                transport.disconnect()
        key, value = workload.key, base64.b64encode(kubeconfig(workload.address, token)).decode()
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "cluster.x-k8s.io/secret",
            "metadata": {"name": key.kubeconfig_secret, "namespace": key.namespace},
            "data": {"value": value},
        }
        if self.api.has("secrets", key.kubeconfig_secret, key.namespace):
            await self.admin.patch(
                SECRETS, key.kubeconfig_secret, merge_patch({"data": body["data"]}), namespace=key.namespace
            )
        else:
            await self.admin.create(SECRETS, body, namespace=key.namespace)

    async def add_machine(
        self,
        workload: WorkloadCluster,
        name: str,
        *,
        enabled: str | None = "true",
        managed: bool = True,
        has_node: bool = True,
    ) -> str:
        """Create a Machine with the node `n-…`; return its key."""
        key = workload.key
        labels = {CLUSTER_NAME: key.name} | ({} if enabled is None else {ENABLED: enabled})
        metadata = {"name": name, "namespace": key.namespace, "labels": labels, "finalizers": [FINALIZER]}
        spec = {"clusterName": key.name}
        body = {"apiVersion": self.machines.api_version, "kind": "Machine", "metadata": metadata, "spec": spec}
        await self.admin.create(self.machines, body, namespace=key.namespace)
        if has_node:
            managed_by = {MAINTENANCE_STATE: "operational"} if managed else {}
            await workload.client.create(NODES, {"metadata": {"name": f"n-{name}", "labels": managed_by}})
            await self._set_node_ref(key.namespace, name)
        return f"{key.namespace}/{name}"

    async def _set_node_ref(self, namespace: str, name: str) -> None:
        status = merge_patch({"status": {"nodeRef": {"name": f"n-{name}"}}})
        await self.admin.patch(self.machines, name, status, namespace=namespace, subresource="status")

    async def finish_deletion(self, machine: str) -> None:
        """Do what Cluster API does at the end of a deletion."""
        namespace, name = machine.split("/")
        workload = self.workload_clusters[ClusterKey(namespace, self.machine(machine)["spec"]["clusterName"])]
        with suppress(KubeError):
            await workload.client.delete(NODES, f"n-{name}")
        await self.patch_machine(machine, metadata={"finalizers": None})

    # Machines

    def machine(self, machine: str) -> RawObject:
        """Return a Machine."""
        namespace, name = machine.split("/")
        return self.api.get("machines.cluster.x-k8s.io", name, namespace)

    async def patch_machine(self, machine: str, **change: Any) -> None:
        """Merge something into a Machine."""
        namespace, name = machine.split("/")
        await self.admin.patch(self.machines, name, merge_patch(change), namespace=namespace)

    async def label_machine(self, machine: str, **labels: str | None) -> None:
        """Set `enabled` or `maintenance`."""
        keys = {"enabled": ENABLED, "maintenance": MAINTENANCE}
        await self.patch_machine(
            machine, metadata={"labels": {keys[candidate]: value for candidate, value in labels.items()}}
        )

    async def delete_machine(self, machine: str) -> None:
        """Delete a Machine, which its finalizer keeps."""
        namespace, name = machine.split("/")
        await self.admin.delete(self.machines, name, namespace=namespace)

    def annotations(self, machine: str) -> Mapping[str, str]:
        """Return the annotations of a Machine."""
        found: Mapping[str, str] = self.machine(machine)["metadata"].get("annotations", {})
        return found

    def hook_annotation(self, machine: str) -> str | None:
        """Return the value of our hook."""
        return self.annotations(machine).get(PRE_DRAIN_HOOK)

    def has_hook(self, machine: str) -> bool:
        """Tell whether our hook is there, with its exact value."""
        return self.hook_annotation(machine) == "runtime-extension-maintenance-controller"

    def maintenance_label(self, machine: str) -> str | None:
        """Return `requested` or `approved`."""
        labels: Mapping[str, str] = self.machine(machine)["metadata"].get("labels", {})
        return labels.get(MAINTENANCE)

    # Nodes

    def node_of(self, workload: WorkloadCluster, machine: str) -> RawObject:
        """Return the node that a Machine became."""
        return workload.api.get("nodes", f"n-{machine.rpartition('/')[2]}")

    def node_labels(self, workload: WorkloadCluster, machine: str) -> Mapping[str, str]:
        """Return the labels of its node."""
        found: Mapping[str, str] = self.node_of(workload, machine)["metadata"].get("labels", {})
        return found

    def is_marked_deleted(self, workload: WorkloadCluster, machine: str) -> bool:
        """Tell whether the node says that its Machine is being deleted."""
        return self.node_labels(workload, machine).get(MACHINE_DELETED) == "true"

    def is_maintenance_requested(self, workload: WorkloadCluster, machine: str) -> bool:
        """Tell whether the node says that maintenance is wanted."""
        return self.node_labels(workload, machine).get(MACHINE_MAINTENANCE) == "true"

    async def label_node(self, workload: WorkloadCluster, machine: str, **labels: str | None) -> None:
        """Set `approve_deletion`, `approve_maintenance`, `managed` or another label of the node."""
        keys = {
            "approve_deletion": APPROVE_DELETION,
            "approve_maintenance": APPROVE_MAINTENANCE,
            "managed": MAINTENANCE_STATE,
        }
        change = {"metadata": {"labels": {keys.get(label, label): value for label, value in labels.items()}}}
        await workload.client.patch(NODES, f"n-{machine.rpartition('/')[2]}", merge_patch(change))

    # Events and status

    def event_reasons(self, api: ApiServer | None = None) -> list[str]:
        """Return the reasons of all events, in order."""
        return [event["reason"] for event in self.events(api)]

    def events(self, api: ApiServer | None = None) -> list[RawObject]:
        """Return all events in order, expired ones included."""
        written = (
            write for write in (api or self.api).history if write.kind.plural == "events" and write.before is None
        )
        return [write.after for write in written if write.after is not None]

    def hub_status(self, workload: WorkloadCluster) -> WorkloadClusterStatus | None:
        """Return the hub's status of a cluster."""
        assert self.current_hub is not None
        return next(
            (candidate for candidate in self.current_hub.cluster_statuses() if candidate.key == workload.key), None
        )

    def hub_write_count(self, api: ApiServer, plural: str) -> int:
        """Count the writes of the hub to objects of a kind."""
        return sum(write.username == "hub" and write.kind.plural == plural for write in api.history)


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
