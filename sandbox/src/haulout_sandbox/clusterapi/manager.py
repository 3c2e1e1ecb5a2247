"""The manager of the simulated Cluster API: its controllers, and its caches of workload clusters."""

import asyncio
from collections.abc import Mapping
from functools import partial
from random import Random

from haulout.api.clusterapi import VERSIONS
from haulout.kube.client import Client
from haulout_sandbox.clusterapi.cluster import ClusterController
from haulout_sandbox.clusterapi.cluster_cache import ClusterCache
from haulout_sandbox.clusterapi.infrastructure_provider import InfrastructureProvider, SimulatedInstances
from haulout_sandbox.clusterapi.machine import ANY_INFRASTRUCTURE, MachineController
from haulout_sandbox.clusterapi.machinedeployment import MachineDeploymentController
from haulout_sandbox.clusterapi.machineset import MachineSetController
from haulout_sandbox.clusterapi.objects import resources_of
from haulout_sandbox.clusterapi.workload_clusters import WorkloadClusterRegistry
from haulout_sandbox.controllers.base import ControllerManager


class ClusterApi:
    """Runs Cluster API in a management cluster that serves its CRDs in `version`.

    A Machine uses the one of `infrastructure_providers` for the kind of its infrastructure, or else
    `SimulatedInstances`.
    """

    def __init__(
        self,
        client: Client,
        registry: WorkloadClusterRegistry,
        *,
        random: Random,
        infrastructure_providers: Mapping[str, InfrastructureProvider] | None = None,
        version: str = VERSIONS[0],
    ) -> None:
        resources = resources_of(version)
        providers = {ANY_INFRASTRUCTURE: SimulatedInstances(registry, client.clock), **(infrastructure_providers or {})}
        self._cluster_cache = ClusterCache(registry)
        self._controllers = ControllerManager(
            client,
            random=random,
            factories=(
                partial(ClusterController, resources=resources, registry=registry),
                partial(MachineDeploymentController, resources=resources),
                partial(MachineSetController, resources=resources),
                partial(
                    MachineController,
                    resources=resources,
                    cluster_cache=self._cluster_cache,
                    infrastructure_providers=providers,
                ),
            ),
        )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._cluster_cache.run())
            tasks.create_task(self._controllers.run())
