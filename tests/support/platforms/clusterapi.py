"""A management cluster with Cluster API and its workload clusters, on simulated time.

async with management_cluster(clock, "a/prod", "b/prod") as hub:
    first, second = await hub.create_machines("a/prod", replicas=2)
    await hub.delete("machines", first)
    await hub.eventually(lambda: hub.deletion_reason(first), becomes="DrainingNode")
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from random import Random
from typing import Any

from haulout.api.clusterapi import VERSIONS, ClusterKey
from haulout.api.objects import RawObject
from haulout.api.resources import Resource
from haulout.core.clock import Clock
from haulout.kube.client import Client
from haulout.kube.patches import merge_patch
from haulout_sandbox.cluster import Cluster
from haulout_sandbox.clusterapi.cluster import KubeconfigSecrets
from haulout_sandbox.clusterapi.infrastructure_provider import (
    ClusterApiDelays,
    InfrastructureProvider,
    SimulatedInstances,
)
from haulout_sandbox.clusterapi.machine import ANY_INFRASTRUCTURE
from haulout_sandbox.clusterapi.manager import ClusterApi
from haulout_sandbox.clusterapi.objects import (
    METAL3_MACHINE_KIND,
    a_cluster,
    a_machine_deployment,
    custom_resource_definitions,
)
from haulout_sandbox.clusterapi.workload_clusters import WorkloadClusterRegistry
from haulout_sandbox.metal3.baremetalhost import Metal3
from haulout_sandbox.metal3.infrastructure_provider import Metal3InfrastructureProvider
from haulout_sandbox.metal3.objects import custom_resource_definitions as metal3_definitions
from haulout_sandbox.metal3.rack import QUICK_DELAYS, Rack
from haulout_sandbox.nodes import Delays
from support.builders.objects import a_namespace
from support.clusters.process import Process
from support.expectations.eventually import eventually
from support.expectations.history_text import recent_writes

SHORT_DELAYS = ClusterApiDelays(
    instance=timedelta(seconds=3), node_join=timedelta(seconds=10), termination=timedelta(seconds=3)
)
OTHER_RESOURCES = {
    "nodes": ("", "v1", "Node", False),
    "pods": ("", "v1", "Pod", True),
    "secrets": ("", "v1", "Secret", True),
    "namespaces": ("", "v1", "Namespace", False),
    "baremetalhosts": ("metal3.io", "v1alpha1", "BareMetalHost", True),
}


class ManagementCluster:
    """A management cluster and its workload clusters."""

    def __init__(self, management: Cluster, workloads: WorkloadClusterRegistry, version: str, rack: Rack) -> None:
        self.management = management
        self.workloads = workloads
        self.version = version
        self.rack = rack
        self.clock = management.clock
        self.admin = management.client("me")
        self.restart: Callable[[], None] = lambda: None  # kills Cluster API, and starts another
        self.kubeconfigs = KubeconfigSecrets(self.admin, workloads)

    def cluster(self, key: str) -> Cluster:
        """Return a workload cluster."""
        found = self.workloads.get(cluster_key(key))
        assert found is not None
        return found.cluster

    def machine(self, key: str) -> RawObject:
        """Return a Machine, by `namespace/name`."""
        return self.get("machines", key)

    def machines(self, cluster: str) -> list[str]:
        """Return the Machines of a workload cluster, by `namespace/name`."""
        wanted = cluster_key(cluster)
        found = self.management.api.objects("machines", namespace=wanted.namespace)
        return [
            f"{wanted.namespace}/{machine['metadata']['name']}"
            for machine in found
            if _cluster_name(machine) == wanted.name
        ]

    def running_machines(self, cluster: str) -> list[str]:
        """Return those that are nodes and stay."""
        return [machine for machine in self.machines(cluster) if _is_running_node(self.machine(machine))]

    def deletion_reason(self, machine: str) -> str:
        """Return the reason of a Machine's deletion condition."""
        found = (
            condition for condition in self.machine(machine)["status"]["conditions"] if condition["type"] == "Deleting"
        )
        return str(next(found)["reason"])

    def node(self, machine: str) -> RawObject:
        """Return the Node of a Machine."""
        found = self.machine(machine)
        name, cluster = found["status"]["nodeRef"]["name"], f"{found['metadata']['namespace']}/{_cluster_name(found)}"
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
        await self.admin.create(self._resource(plural), obj, namespace=obj["metadata"].get("namespace"))

    async def patch(self, plural: str, key: str, **change: Any) -> None:
        """Change an object of the management cluster by a merge patch."""
        namespace, _, name = key.rpartition("/")
        await self.admin.patch(self._resource(plural), name, merge_patch(change), namespace=namespace or None)

    async def annotate(self, plural: str, key: str, **annotations: str | None) -> None:
        """Give an object annotations, or take them away."""
        await self.patch(plural, key, metadata={"annotations": annotations})

    async def delete(self, plural: str, key: str) -> None:
        """Delete an object of the management cluster."""
        namespace, _, name = key.rpartition("/")
        await self.admin.delete(self._resource(plural), name, namespace=namespace or None)

    async def create_machines(
        self, cluster: str, name: str = "workers", *, replicas: int = 1, spec: Mapping[str, object] | None = None
    ) -> list[str]:
        """Create a MachineDeployment; return its Machines when all of them are nodes."""
        made = a_machine_deployment(
            name, cluster=cluster_key(cluster), replicas=replicas, spec=spec, version=self.version
        )
        before = set(self.running_machines(cluster))
        await self.create(made)
        await self.eventually(lambda: len(set(self.running_machines(cluster)) - before), becomes=replicas)
        return sorted(set(self.running_machines(cluster)) - before)

    async def eventually(
        self, probe: Callable[[], Any], *, within: timedelta = timedelta(minutes=10), **becomes: Any
    ) -> Any:
        """Wait until a condition holds."""
        histories = (self.management, *(workload.cluster for workload in self.workloads.all()))

        def recent_events() -> list[str]:
            return [line for history in histories for line in recent_writes(history.api.history)]

        every = timedelta(milliseconds=250)
        return await eventually(self.clock, probe, within=within, every=every, recent_events=recent_events, **becomes)

    def _resource(self, plural: str) -> Resource[RawObject]:
        group, version, kind, namespaced = OTHER_RESOURCES.get(
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


def cluster_key(text: str) -> ClusterKey:
    """Return the key of `namespace/name`."""
    namespace, _, name = text.partition("/")
    return ClusterKey(namespace, name)


@asynccontextmanager
async def management_cluster(
    clock: Clock, *keys: str, versions: tuple[str, ...] = VERSIONS, delays: ClusterApiDelays = SHORT_DELAYS
) -> AsyncIterator[ManagementCluster]:
    """Run a management cluster with these workload clusters until the context ends."""
    management = _cluster(clock, seed=0)
    for definition in (*custom_resource_definitions(*versions), *metal3_definitions()):
        management.api.put(definition)
    workloads, rack = WorkloadClusterRegistry(clock), Rack(clock, delays=QUICK_DELAYS)
    hub = ManagementCluster(management, workloads, versions[0], rack)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(management.running())
        hosts = Metal3InfrastructureProvider(management.client("metal3"), workloads, rack)
        infrastructures: dict[str, InfrastructureProvider] = {
            ANY_INFRASTRUCTURE: SimulatedInstances(workloads, clock, delays=delays),
            METAL3_MACHINE_KIND: hosts,
        }

        async def cluster_api(client: Client) -> None:
            api = ClusterApi(
                client, workloads, random=Random(1), infrastructure_providers=infrastructures, version=versions[0]
            )
            await api.run()

        process = Process(management, "cluster-api", cluster_api)
        process.start()
        hub.restart = process.restart
        management.start_program(Metal3(management.client("metal3"), rack, random=Random(2)).run(), name="metal3")
        for number, key in enumerate(keys, 1):
            await add_workload_cluster(stack, hub, key, seed=number)
        yield hub


async def add_workload_cluster(stack: AsyncExitStack, hub: ManagementCluster, key: str, *, seed: int) -> None:
    """Add another workload cluster."""
    cluster_key_ = cluster_key(key)
    workload = _cluster(hub.clock, seed=seed)
    await stack.enter_async_context(workload.running())
    hub.workloads.add(cluster_key_, workload)
    if not hub.management.api.has("namespaces", cluster_key_.namespace):
        hub.management.api.put(a_namespace(cluster_key_.namespace))
    await hub.create(a_cluster(cluster_key_, version=hub.version))
    await hub.eventually(lambda: hub.has("secrets", f"{cluster_key_.namespace}/{cluster_key_.kubeconfig_secret}"))


def _cluster(clock: Clock, *, seed: int) -> Cluster:
    heartbeat, latency = timedelta(seconds=10), timedelta()
    return Cluster(clock, seed=seed, heartbeat=heartbeat, latency=latency, delays=Delays.zero())


def _cluster_name(machine: RawObject) -> str:
    return str(machine["spec"]["clusterName"])


def _is_running_node(machine: RawObject) -> bool:
    conditions = {
        condition["type"]: condition["status"] for condition in machine.get("status", {}).get("conditions", ())
    }
    return "deletionTimestamp" not in machine["metadata"] and conditions.get("NodeReady") == "True"
