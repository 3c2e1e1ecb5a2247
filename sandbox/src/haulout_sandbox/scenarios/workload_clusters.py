"""The workload clusters of a scenario and their management by Cluster API, with Metal3 for pools of hosts.

Each is a separate simulated cluster. Each of its pools is a MachineDeployment; its nodes have the properties of the
pool and the names of their Machines. A pool of Metal3 has one spare host, so that Machines can be replaced.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from random import Random

from haulout.api.clusterapi import ClusterKey
from haulout.api.objects import RawObject
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
    DEPLOYMENT_NAME,
    METAL3_MACHINE_KIND,
    Machine,
    a_cluster,
    a_machine_deployment,
)
from haulout_sandbox.clusterapi.objects import custom_resource_definitions as cluster_api_definitions
from haulout_sandbox.clusterapi.workload_clusters import RegisteredCluster, WorkloadClusterRegistry
from haulout_sandbox.metal3.baremetalhost import Metal3
from haulout_sandbox.metal3.infrastructure_provider import Metal3InfrastructureProvider
from haulout_sandbox.metal3.objects import a_host
from haulout_sandbox.metal3.objects import custom_resource_definitions as metal3_definitions
from haulout_sandbox.metal3.rack import Metal3Delays, Rack
from haulout_sandbox.nodes import Machine as Host
from haulout_sandbox.scenarios import expansion
from haulout_sandbox.scenarios.dynamic_client import DynamicClient
from haulout_sandbox.scenarios.model import MachinePool, Scenario, WorkloadCluster

CONTROLLER_CLIENTS = ("cluster-api", "metal3")
# Faster than real infrastructure, so that users see the new node soon.
_CLUSTER_API_DELAYS = ClusterApiDelays(
    instance=timedelta(seconds=15), node_join=timedelta(seconds=60), termination=timedelta(seconds=20)
)
_METAL3_DELAYS = Metal3Delays(
    inspection=timedelta(seconds=10),
    provisioning=timedelta(seconds=40),
    deprovisioning=timedelta(seconds=20),
    shutdown=timedelta(seconds=20),
    power_switch=timedelta(seconds=5),
    boot=timedelta(seconds=30),
)

_NODE_TIMEOUT, _POLL_INTERVAL = timedelta(minutes=3), timedelta(seconds=1)

ClusterFactory = Callable[[int], Cluster]  # creates a cluster by its number


class WorkloadClusters:
    """Creates the workload clusters of a scenario."""

    def __init__(
        self, management: Cluster, scenario: Scenario, *, cluster_factory: ClusterFactory | None = None
    ) -> None:
        self._management = management
        self._scenario = scenario
        self._cluster_factory = cluster_factory or self._new_cluster
        self.clusters = {
            ClusterKey(cluster.namespace, cluster.name): self._cluster_factory(number)
            for number, cluster in enumerate(scenario.clusters, 1)
        }
        self.registry = WorkloadClusterRegistry(management.clock)
        self.kubeconfigs = KubeconfigSecrets(management.client("scenario"), self.registry)
        self.rack = Rack(management.clock, delays=_METAL3_DELAYS)

    def _new_cluster(self, number: int) -> Cluster:
        management = self._management
        return Cluster(
            management.clock, seed=management.seed + number, heartbeat=self._scenario.heartbeat, latency=timedelta()
        )

    def register(
        self, key: ClusterKey, *, server: str = "", ca_pem: bytes = b"", token_factory: Callable[[], str] | None = None
    ) -> RegisteredCluster:
        """Register a cluster with its address; the default address is made up."""
        return self.registry.add(key, self.clusters[key], server=server, ca_pem=ca_pem, token_factory=token_factory)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run all workload clusters while the context lasts."""
        async with AsyncExitStack() as stack:
            for cluster in self.clusters.values():
                await stack.enter_async_context(cluster.running())
            yield

    def management_objects(self) -> Iterator[RawObject]:
        """Yield the objects for the management cluster."""
        if not self._scenario.clusters:
            return
        yield from cluster_api_definitions()
        yield from metal3_definitions()
        for cluster in self._scenario.clusters:
            key = ClusterKey(cluster.namespace, cluster.name)
            yield a_cluster(key, labels=cluster.labels)
            for pool in cluster.pools:
                kind = f"{METAL3_MACHINE_KIND}Template" if pool.bare_metal else "SandboxMachineTemplate"
                for number in range(1, pool.count + 2) if pool.bare_metal else ():
                    yield a_host(f"{pool.name}-{number:02}", namespace=cluster.namespace, number=number)
                yield a_machine_deployment(
                    pool.name,
                    cluster=key,
                    replicas=pool.count,
                    labels=pool.machine_labels,
                    spec={"infrastructureRef": {"kind": kind, "name": pool.name}},
                )

    async def start(self) -> None:
        """Start the management and the workloads; the objects of `management_objects` must be served."""
        if not self.clusters:
            return
        management = self._management
        for key in self.clusters:
            if self.registry.get(key) is None:
                self.register(key)
        metal3_provider = Metal3InfrastructureProvider(
            management.client(CONTROLLER_CLIENTS[1]), self.registry, self.rack, host_factory=self._new_host
        )
        infrastructure_providers: dict[str, InfrastructureProvider] = {
            ANY_INFRASTRUCTURE: SimulatedInstances(
                self.registry, management.clock, delays=_CLUSTER_API_DELAYS, host_factory=self._new_host
            ),
            METAL3_MACHINE_KIND: metal3_provider,
        }
        cluster_api = ClusterApi(
            management.client(CONTROLLER_CLIENTS[0]),
            self.registry,
            random=Random(f"{management.seed} {CONTROLLER_CLIENTS[0]}"),
            infrastructure_providers=infrastructure_providers,
        )
        metal3_controllers = Metal3(
            management.client(CONTROLLER_CLIENTS[1]),
            self.rack,
            random=Random(f"{management.seed} {CONTROLLER_CLIENTS[1]}"),
        )
        for name, run in zip(CONTROLLER_CLIENTS, (cluster_api.run(), metal3_controllers.run()), strict=True):
            management.start_program(run, name=name)
        for spec, cluster in zip(self._scenario.clusters, self.clusters.values(), strict=True):
            cluster.start_program(_deploy_workloads(cluster, spec), name="scenario")

    def _new_host(self, machine: Machine) -> Host:
        """Return the host of a Machine: the properties of its pool, in the pool's zones in turn."""
        pool, number = self._pool_and_number(machine)
        return Host(name=machine.name) if pool is None else replace(_machine_of(pool, number), name=machine.name)

    def _pool_and_number(self, machine: Machine) -> tuple[MachinePool | None, int]:
        pool_name = machine.labels.get(DEPLOYMENT_NAME, "")
        pool_spec = next(
            (
                pool
                for cluster in self._scenario.clusters
                if cluster.key == str(machine.cluster_key)
                for pool in cluster.pools
                if pool.name == pool_name
            ),
            None,
        )
        node_names = self.clusters[machine.cluster_key].kubelets.names
        return pool_spec, len(node_names) + 1


async def _deploy_workloads(cluster: Cluster, spec: WorkloadCluster) -> None:
    """Deploy the workloads of a cluster when all its nodes exist; otherwise the first node would get all pods."""
    nodes, deadline = sum(pool.count for pool in spec.pools), cluster.clock.now() + _NODE_TIMEOUT
    while len(cluster.api.objects_by_key("nodes")) < nodes and cluster.clock.now() < deadline:
        await cluster.clock.sleep(_POLL_INTERVAL)
    objects = DynamicClient(cluster.client("scenario"))
    for obj in expansion.workload_objects(_as_scenario(spec)):
        await objects.create_or_apply(obj)


def _machine_of(pool: MachinePool, number: int) -> Host:
    return expansion.new_machine(pool, number, machines_before=0)


def _as_scenario(cluster: WorkloadCluster) -> Scenario:
    """Return a workload cluster as a scenario of its own."""
    return Scenario(pods_per_node=cluster.pods_per_node, pools=cluster.pools, workloads=cluster.workloads)
