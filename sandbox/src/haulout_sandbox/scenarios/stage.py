"""Where a scenario is played: a cluster, and all that can be done to it.

Machines and lines are the cluster's own affair. All else is asked of the API server by a client of the name `scenario`,
as a person would with kubectl. What is left to chance comes from a seeded generator, so the same story happens each
time.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from random import Random
from typing import Any

from haulout.errors import ApiError, ConfigError
from haulout.kinds.clusterapi import ClusterKey
from haulout.kube.client import Client
from haulout_sandbox.cluster import Cluster
from haulout_sandbox.scenarios import machine_pools, plan
from haulout_sandbox.scenarios.cloud_deeds import CloudDeeds
from haulout_sandbox.scenarios.deeds import Deed, Does
from haulout_sandbox.scenarios.esx import EsxDeeds
from haulout_sandbox.scenarios.fleet import Fleet
from haulout_sandbox.scenarios.hub_deeds import HubDeeds
from haulout_sandbox.scenarios.line_deeds import LineDeeds
from haulout_sandbox.scenarios.loading import Loaded
from haulout_sandbox.scenarios.node_deeds import NodeDeeds
from haulout_sandbox.scenarios.object_deeds import ObjectDeeds
from haulout_sandbox.scenarios.objects import Objects, UnknownKind
from haulout_sandbox.scenarios.workload_clusters import Another, WorkloadClusters

CLIENT = "scenario"

Connect = Callable[[bytes, ClusterKey], AbstractAsyncContextManager[Client]]


class Stage:
    """Puts a scenario up in a cluster, and does what happens in it."""

    def __init__(self, cluster: Cluster, loaded: Loaded, *, another: Another | None = None) -> None:
        self.cluster = cluster
        self.clusters = WorkloadClusters(cluster, loaded.scenario, another=another)
        self.loaded = loaded
        self.client = client = cluster.client(CLIENT)
        self._objects = Objects(client)
        self.fleet = Fleet(cluster, client, loaded.scenario.pools)
        self.deeds: Mapping[str, Does] = {
            **NodeDeeds(cluster, client, self.fleet).all,
            **CloudDeeds(cluster, client, self.fleet).all,
            **EsxDeeds(cluster.clock, self.fleet.esx).all,
            **ObjectDeeds(client, self._objects, loaded).all,
            **LineDeeds(cluster, spared=CLIENT).all,
            **HubDeeds(client, self.clusters).all,
        }

    @property
    def has_machines(self) -> bool:
        """Whether it has Machines of OpenShift."""
        return self.loaded.scenario.has_machines

    @property
    def workload_clusters(self) -> Mapping[ClusterKey, Cluster]:
        """The clusters that its cluster manages."""
        return self.clusters.clusters

    @property
    def connect(self) -> Connect:
        """How its workload clusters are reached by their kubeconfigs."""
        return self.clusters.workloads.connect

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Have its cluster run while the context lasts, and those that this one manages."""
        async with self.cluster.running(), self.clusters.running():
            yield

    async def put_up(self) -> None:
        """Bring machines and objects in; what the API server refuses is an error of the scenario."""
        scenario = self.loaded.scenario
        self.fleet.fill()
        manifests = (obj for each in scenario.manifests for obj in self.loaded.objects(each))
        managing = (*machine_pools.objects(scenario), *self.clusters.objects())
        for obj in (*managing, *manifests, *plan.objects(scenario)):
            try:
                await self._objects.create(obj)
            except (ApiError, UnknownKind) as error:
                raise ConfigError(f"{obj['kind']} {obj['metadata']['name']}: {error}", file=self.loaded.file) from error

        if scenario.has_machines:
            self.cluster.host(machine_pools.machine_api(self.cluster, self.fleet).run(), name=machine_pools.CLIENT)
        await self.clusters.begin()

    async def act(self, name: str, action: Any, random: Random) -> Deed:
        """Do what `action`, which the scenario calls `name`, says."""
        return await self.deeds[name](action, random)
