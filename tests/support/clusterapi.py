"""A management cluster with Cluster API in it, and its workload clusters, on simulated time.

async with managed(clock, "a/prod", "b/prod") as hub:
    first, second = await hub.with_machines("a/prod", replicas=2)
    await hub.delete("machines", first)
    await hub.eventually(lambda: hub.reason(first), becomes="DrainingNode")
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from random import Random
from typing import Any

from haulout.core.clock import Clock
from haulout.kinds.clusterapi import VERSIONS, ClusterKey
from haulout.kube.client import Client
from haulout.kube.objects import RawObject
from haulout.kube.patches import merge_patch
from haulout.kube.resources import Resource
from haulout_sandbox import metal3
from haulout_sandbox.cluster import Cluster
from haulout_sandbox.clusterapi import (
    ANY,
    METAL3,
    ClusterApi,
    Infrastructure,
    Instances,
    Kubeconfigs,
    Paces,
    Workloads,
    a_cluster,
    a_machine_deployment,
    definitions,
)
from haulout_sandbox.nodes import Delays
from support.builders import a_namespace
from support.eventually import eventually
from support.narration import latest
from support.processes import Process

BRISK = Paces(instance=timedelta(seconds=3), node=timedelta(seconds=10), termination=timedelta(seconds=3))
WELL_KNOWN = {
    "nodes": ("", "v1", "Node", False),
    "pods": ("", "v1", "Pod", True),
    "secrets": ("", "v1", "Secret", True),
    "namespaces": ("", "v1", "Namespace", False),
    "baremetalhosts": ("metal3.io", "v1alpha1", "BareMetalHost", True),
}


class Managed:
    """A management cluster and its workload clusters."""

    def __init__(self, management: Cluster, workloads: Workloads, version: str, rack: metal3.Rack) -> None:
        self.management = management
        self.workloads = workloads
        self.version = version
        self.rack = rack
        self.clock = management.clock
        self.me = management.client("me")
        self.restart: Callable[[], None] = lambda: None  # kills Cluster API, and starts another
        self.kubeconfigs = Kubeconfigs(self.me, workloads)

    def cluster(self, key: str) -> Cluster:
        """Return a workload cluster."""
        found = self.workloads.get(key_of(key))
        assert found is not None
        return found.cluster

    def machine(self, key: str) -> RawObject:
        """Return a Machine, by `namespace/name`."""
        return self.get("machines", key)

    def machines(self, cluster: str) -> list[str]:
        """Return the Machines of a workload cluster, by `namespace/name`."""
        wanted = key_of(cluster)
        found = self.management.api.objects("machines", namespace=wanted.namespace)
        return [f"{wanted.namespace}/{it['metadata']['name']}" for it in found if _of(it) == wanted.name]

    def running(self, cluster: str) -> list[str]:
        """Return those that are nodes and stay."""
        return [it for it in self.machines(cluster) if _runs(self.machine(it))]

    def reason(self, machine: str) -> str:
        """Return how far the deletion of a Machine is."""
        found = (it for it in self.machine(machine)["status"]["conditions"] if it["type"] == "Deleting")
        return str(next(found)["reason"])

    def node(self, machine: str) -> RawObject:
        """Return the Node of a Machine."""
        found = self.machine(machine)
        name, cluster = found["status"]["nodeRef"]["name"], f"{found['metadata']['namespace']}/{_of(found)}"
        return self.cluster(cluster).api.get("nodes", name)

    def get(self, plural: str, key: str) -> RawObject:
        """Return an object of the management cluster."""
        namespace, _, name = key.rpartition("/")
        return self.management.api.get(plural, name, namespace or "default")

    def has(self, plural: str, key: str) -> bool:
        """Tell whether there is such an object in the management cluster."""
        namespace, _, name = key.rpartition("/")
        return self.management.api.has(plural, name, namespace or "default")

    async def create(self, obj: RawObject) -> None:
        """Create an object in the management cluster."""
        plural = f"{obj['kind'].lower()}s"
        await self.me.create(self._resource(plural), obj, namespace=obj["metadata"].get("namespace"))

    async def patch(self, plural: str, key: str, **change: Any) -> None:
        """Change an object of the management cluster by a merge patch."""
        namespace, _, name = key.rpartition("/")
        await self.me.patch(self._resource(plural), name, merge_patch(change), namespace=namespace or None)

    async def annotate(self, plural: str, key: str, **annotations: str | None) -> None:
        """Give an object annotations, or take them away."""
        await self.patch(plural, key, metadata={"annotations": annotations})

    async def delete(self, plural: str, key: str) -> None:
        """Delete an object of the management cluster."""
        namespace, _, name = key.rpartition("/")
        await self.me.delete(self._resource(plural), name, namespace=namespace or None)

    async def with_machines(
        self, cluster: str, name: str = "workers", *, replicas: int = 1, spec: Mapping[str, object] | None = None
    ) -> list[str]:
        """Make a MachineDeployment; return its Machines when all of them are nodes."""
        made = a_machine_deployment(name, cluster=key_of(cluster), replicas=replicas, spec=spec, version=self.version)
        before = set(self.running(cluster))
        await self.create(made)
        await self.eventually(lambda: len(set(self.running(cluster)) - before), becomes=replicas)
        return sorted(set(self.running(cluster)) - before)

    async def eventually(
        self, look: Callable[[], Any], *, within: timedelta = timedelta(minutes=10), **becomes: Any
    ) -> Any:
        """Wait for what will be so."""
        histories = (self.management, *(it.cluster for it in self.workloads.all()))

        def happened() -> list[str]:
            return [line for it in histories for line in latest(it.api.history)]

        every = timedelta(milliseconds=250)
        return await eventually(self.clock, look, within=within, every=every, happened=happened, **becomes)

    def _resource(self, plural: str) -> Resource[RawObject]:
        group, version, kind, namespaced = WELL_KNOWN.get(
            plural, ("cluster.x-k8s.io", self.version, _KINDS.get(plural, ""), True)
        )
        return Resource(group, version, plural, kind, namespaced, RawObject)


_KINDS = {
    "clusters": "Cluster",
    "machinedeployments": "MachineDeployment",
    "machinesets": "MachineSet",
    "machines": "Machine",
    "machinedrainrules": "MachineDrainRule",
}


def key_of(text: str) -> ClusterKey:
    """Return the key of `namespace/name`."""
    namespace, _, name = text.partition("/")
    return ClusterKey(namespace, name)


@asynccontextmanager
async def managed(
    clock: Clock, *keys: str, versions: tuple[str, ...] = VERSIONS, paces: Paces = BRISK
) -> AsyncIterator[Managed]:
    """Have a management cluster with these workload clusters while the context lasts."""
    management = _cluster(clock, seed=0)
    for definition in (*definitions(*versions), *metal3.definitions()):
        management.api.put(definition)
    workloads, rack = Workloads(clock), metal3.Rack(clock, paces=metal3.QUICK)
    hub = Managed(management, workloads, versions[0], rack)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(management.running())
        hosts = metal3.HostInstances(management.client("metal3"), workloads, rack)
        runs_on: dict[str, Infrastructure] = {ANY: Instances(workloads, clock, paces=paces), METAL3: hosts}

        async def cluster_api(client: Client) -> None:
            api = ClusterApi(client, workloads, random=Random(1), infrastructures=runs_on, version=versions[0])
            await api.run()

        process = Process(management, "cluster-api", cluster_api)
        process.start()
        hub.restart = process.restart
        management.host(metal3.Metal3(management.client("metal3"), rack, random=Random(2)).run(), name="metal3")
        for number, key in enumerate(keys, 1):
            await add(stack, hub, key, seed=number)
        yield hub


async def add(stack: AsyncExitStack, hub: Managed, key: str, *, seed: int) -> None:
    """Bring in another workload cluster."""
    wanted = key_of(key)
    workload = _cluster(hub.clock, seed=seed)
    await stack.enter_async_context(workload.running())
    hub.workloads.add(wanted, workload)
    if not hub.management.api.has("namespaces", wanted.namespace):
        hub.management.api.put(a_namespace(wanted.namespace))
    await hub.create(a_cluster(wanted, version=hub.version))
    await hub.eventually(lambda: hub.has("secrets", f"{wanted.namespace}/{wanted.secret}"))


def _cluster(clock: Clock, *, seed: int) -> Cluster:
    heartbeat, latency = timedelta(seconds=10), timedelta()
    return Cluster(clock, seed=seed, heartbeat=heartbeat, latency=latency, delays=Delays.none())


def _of(machine: RawObject) -> str:
    return str(machine["spec"]["clusterName"])


def _runs(machine: RawObject) -> bool:
    conditions = {it["type"]: it["status"] for it in machine.get("status", {}).get("conditions", ())}
    return "deletionTimestamp" not in machine["metadata"] and conditions.get("NodeReady") == "True"
