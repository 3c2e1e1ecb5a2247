"""The cluster of a scenario, and the execution of actions on it.

The simulated cluster itself provides machines and connections. All else goes through the API server with a client
called `scenario`, as a person would act with kubectl. Random choices use a seeded generator, so that each run is the
same.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from random import Random
from typing import Any

from haulout.api.clusterapi import ClusterKey
from haulout.errors import ApiError, ConfigError
from haulout.kube.client import Client
from haulout_sandbox.cluster import Cluster
from haulout_sandbox.scenarios import expansion, openshift_machines
from haulout_sandbox.scenarios.actions.action_result import ActionHandler, ActionResult
from haulout_sandbox.scenarios.actions.clouds import CloudActions
from haulout_sandbox.scenarios.actions.clusterapi import ClusterApiActions
from haulout_sandbox.scenarios.actions.faults import FaultActions
from haulout_sandbox.scenarios.actions.nodes import NodeActions
from haulout_sandbox.scenarios.actions.objects import ObjectActions
from haulout_sandbox.scenarios.dynamic_client import DynamicClient, NoKindMatch
from haulout_sandbox.scenarios.esx import EsxActions
from haulout_sandbox.scenarios.fleet import Fleet
from haulout_sandbox.scenarios.loader import LoadedScenario
from haulout_sandbox.scenarios.workload_clusters import ClusterFactory, WorkloadClusters

SCENARIO_CLIENT = "scenario"

Connect = Callable[[bytes, ClusterKey], AbstractAsyncContextManager[Client]]


class ScenarioCluster:
    """Deploys a scenario to a cluster and executes its actions."""

    def __init__(
        self, cluster: Cluster, loaded_scenario: LoadedScenario, *, cluster_factory: ClusterFactory | None = None
    ) -> None:
        self.cluster = cluster
        self.workload_cluster_manager = WorkloadClusters(
            cluster, loaded_scenario.scenario, cluster_factory=cluster_factory
        )
        self.loaded_scenario = loaded_scenario
        self.client = client = cluster.client(SCENARIO_CLIENT)
        self._dynamic_client = DynamicClient(client)
        self.fleet = Fleet(cluster, client, loaded_scenario.scenario.pools)
        self.action_handlers: Mapping[str, ActionHandler] = {
            **NodeActions(cluster, client, self.fleet).handlers,
            **CloudActions(cluster, client, self.fleet).handlers,
            **EsxActions(cluster.clock, self.fleet.esx).handlers,
            **ObjectActions(client, self._dynamic_client, loaded_scenario).handlers,
            **FaultActions(cluster, excluded_client=SCENARIO_CLIENT).handlers,
            **ClusterApiActions(client, self.workload_cluster_manager).handlers,
        }

    @property
    def has_machines(self) -> bool:
        """Return whether the cluster has OpenShift Machines."""
        return self.loaded_scenario.scenario.has_machines

    @property
    def workload_clusters(self) -> Mapping[ClusterKey, Cluster]:
        """Return the workload clusters that the cluster manages."""
        return self.workload_cluster_manager.clusters

    @property
    def connect(self) -> Connect:
        """Return the function that connects to workload clusters by kubeconfig."""
        return self.workload_cluster_manager.registry.connect

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the cluster and its workload clusters while the context lasts."""
        async with self.cluster.running(), self.workload_cluster_manager.running():
            yield

    async def deploy(self) -> None:
        """Create machines and objects; an object that the API server refuses is an error of the scenario."""
        scenario = self.loaded_scenario.scenario
        self.fleet.add_initial_machines()
        manifests = (obj for manifest in scenario.manifests for obj in self.loaded_scenario.objects(manifest))
        management_objects = (
            *openshift_machines.openshift_objects(scenario),
            *self.workload_cluster_manager.management_objects(),
        )
        for obj in (*management_objects, *manifests, *expansion.workload_objects(scenario)):
            try:
                await self._dynamic_client.create_or_apply(obj)
            except (ApiError, NoKindMatch) as error:
                raise ConfigError(
                    f"{obj['kind']} {obj['metadata']['name']}: {error}", file=self.loaded_scenario.file
                ) from error

        if scenario.has_machines:
            self.cluster.start_program(
                openshift_machines.new_machine_api(self.cluster, self.fleet).run(),
                name=openshift_machines.MACHINE_API_CLIENT,
            )
        await self.workload_cluster_manager.start()

    async def execute(self, name: str, action: Any, random: Random) -> ActionResult:
        """Execute an action, which the scenario calls `name`."""
        return await self.action_handlers[name](action, random)
