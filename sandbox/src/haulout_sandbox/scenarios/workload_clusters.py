"""The workload clusters of a scenario, and what manages them: Cluster API, and Metal3 where pools are made of hosts.

Each is a cluster of its own beside that of the scenario. A pool of it is a MachineDeployment; its nodes are made as the
pool says, and called like their Machines. A pool of Metal3 has one host more than it needs, so that Machines can be
replaced.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from random import Random

from haulout.kinds.clusterapi import ClusterKey
from haulout.kube.objects import RawObject
from haulout_sandbox import clusterapi, metal3
from haulout_sandbox.cluster import Cluster
from haulout_sandbox.clusterapi import (
    ANY,
    METAL3,
    ClusterApi,
    Infrastructure,
    Instances,
    Kubeconfigs,
    Paces,
    Workload,
    Workloads,
)
from haulout_sandbox.clusterapi.objects import DEPLOYMENT_NAME, Machine
from haulout_sandbox.nodes import Machine as Host
from haulout_sandbox.scenarios import plan
from haulout_sandbox.scenarios.model import MachinePool, Scenario, WorkloadCluster
from haulout_sandbox.scenarios.objects import Objects

CLIENTS = ("cluster-api", "metal3")
# Quicker than life, so that people who watch see the new node come.
_PACES = Paces(instance=timedelta(seconds=15), node=timedelta(seconds=60), termination=timedelta(seconds=20))
_RACK = metal3.Paces(
    inspection=timedelta(seconds=10),
    provisioning=timedelta(seconds=40),
    deprovisioning=timedelta(seconds=20),
    shutdown=timedelta(seconds=20),
    switch=timedelta(seconds=5),
    boot=timedelta(seconds=30),
)

_NODES_WITHIN, _LOOKS_EVERY = timedelta(minutes=3), timedelta(seconds=1)

Another = Callable[[int], Cluster]  # a cluster beside the first, by its number


class WorkloadClusters:
    """Puts up the workload clusters of a scenario."""

    def __init__(self, management: Cluster, scenario: Scenario, *, another: Another | None = None) -> None:
        self._management = management
        self._scenario = scenario
        self._another = another or self._alike
        self.clusters = {
            ClusterKey(it.namespace, it.name): self._another(number) for number, it in enumerate(scenario.clusters, 1)
        }
        self.workloads = Workloads(management.clock)
        self.kubeconfigs = Kubeconfigs(management.client("scenario"), self.workloads)
        self.rack = metal3.Rack(management.clock, paces=_RACK)

    def _alike(self, number: int) -> Cluster:
        of = self._management
        return Cluster(of.clock, seed=of.seed + number, heartbeat=self._scenario.heartbeat, latency=timedelta())

    def place(
        self, key: ClusterKey, *, server: str = "", ca_pem: bytes = b"", new_token: Callable[[], str] | None = None
    ) -> Workload:
        """Have a cluster be at an address; those of which nobody says so have one that is made up."""
        return self.workloads.add(key, self.clusters[key], server=server, ca_pem=ca_pem, new_token=new_token)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Have all of them run while the context lasts."""
        async with AsyncExitStack() as stack:
            for cluster in self.clusters.values():
                await stack.enter_async_context(cluster.running())
            yield

    def objects(self) -> Iterator[RawObject]:
        """Yield what belongs into the management cluster."""
        if not self._scenario.clusters:
            return
        yield from clusterapi.definitions()
        yield from metal3.definitions()
        for cluster in self._scenario.clusters:
            key = ClusterKey(cluster.namespace, cluster.name)
            yield clusterapi.a_cluster(key, labels=cluster.labels)
            for pool in cluster.pools:
                kind = f"{METAL3}Template" if pool.bare_metal else "SandboxMachineTemplate"
                for number in range(1, pool.count + 2) if pool.bare_metal else ():
                    yield metal3.a_host(f"{pool.name}-{number:02}", namespace=cluster.namespace, number=number)
                yield clusterapi.a_machine_deployment(
                    pool.name,
                    cluster=key,
                    replicas=pool.count,
                    labels=pool.machine_labels,
                    spec={"infrastructureRef": {"kind": kind, "name": pool.name}},
                )

    async def begin(self) -> None:
        """Have them managed, and what runs on them; what `objects` yields must be served."""
        if not self.clusters:
            return
        management = self._management
        for key in self.clusters:
            if self.workloads.get(key) is None:
                self.place(key)
        hosts = metal3.HostInstances(management.client(CLIENTS[1]), self.workloads, self.rack, host=self._host)
        infrastructures: dict[str, Infrastructure] = {
            ANY: Instances(self.workloads, management.clock, paces=_PACES, host=self._host),
            METAL3: hosts,
        }
        api = ClusterApi(
            management.client(CLIENTS[0]),
            self.workloads,
            random=Random(f"{management.seed} {CLIENTS[0]}"),
            infrastructures=infrastructures,
        )
        metal = metal3.Metal3(
            management.client(CLIENTS[1]), self.rack, random=Random(f"{management.seed} {CLIENTS[1]}")
        )
        for name, run in zip(CLIENTS, (api.run(), metal.run()), strict=True):
            management.host(run, name=name)
        for wanted, cluster in zip(self._scenario.clusters, self.clusters.values(), strict=True):
            cluster.host(_furnish(cluster, wanted), name="scenario")

    def _host(self, machine: Machine) -> Host:
        """Return what the node of a Machine is made of: as its pool says, in the zones of that in turn."""
        pool, number = self._pool(machine)
        return Host(name=machine.name) if pool is None else replace(_made(pool, number), name=machine.name)

    def _pool(self, machine: Machine) -> tuple[MachinePool | None, int]:
        wanted = machine.labels.get(DEPLOYMENT_NAME, "")
        found = next(
            (
                pool
                for cluster in self._scenario.clusters
                if cluster.key == str(machine.cluster)
                for pool in cluster.pools
                if pool.name == wanted
            ),
            None,
        )
        there = self.clusters[machine.cluster].kubelets.names
        return found, len(there) + 1


async def _furnish(cluster: Cluster, wanted: WorkloadCluster) -> None:
    """Have what runs on a cluster, once all of its nodes are there: all of it would be on the first of them."""
    nodes, until = sum(pool.count for pool in wanted.pools), cluster.clock.now() + _NODES_WITHIN
    while len(cluster.api.by_key("nodes")) < nodes and cluster.clock.now() < until:
        await cluster.clock.sleep(_LOOKS_EVERY)
    objects = Objects(cluster.client("scenario"))
    for obj in plan.objects(_alone(wanted)):
        await objects.create(obj)


def _made(pool: MachinePool, number: int) -> Host:
    return plan.machine(pool, number, before=0)


def _alone(cluster: WorkloadCluster) -> Scenario:
    """Return the scenario that a workload cluster would be by itself."""
    return Scenario(pods_per_node=cluster.pods_per_node, pools=cluster.pools, workloads=cluster.workloads)
