"""The stand-in as a whole: its controllers in the management cluster, and what they see of workload clusters."""

import asyncio
from collections.abc import Mapping
from functools import partial
from random import Random

from haulout.kinds.clusterapi import VERSIONS
from haulout.kube.client import Client
from haulout_sandbox.clusterapi.clusters import Clusters
from haulout_sandbox.clusterapi.deployments import MachineDeployments
from haulout_sandbox.clusterapi.infrastructure import Infrastructure, Instances
from haulout_sandbox.clusterapi.machines import ANY, Machines
from haulout_sandbox.clusterapi.objects import kinds
from haulout_sandbox.clusterapi.remotes import Remotes
from haulout_sandbox.clusterapi.sets import MachineSets
from haulout_sandbox.clusterapi.workloads import Workloads
from haulout_sandbox.controllers.base import Controllers


class ClusterApi:
    """Runs Cluster API in a management cluster that serves its definitions in `version`.

    Machines run on the one of `infrastructures` that is for the kind of their infrastructure, or else on `Instances`.
    """

    def __init__(
        self,
        client: Client,
        workloads: Workloads,
        *,
        random: Random,
        infrastructures: Mapping[str, Infrastructure] | None = None,
        version: str = VERSIONS[0],
    ) -> None:
        known = kinds(version)
        runs_on = {ANY: Instances(workloads, client.clock), **(infrastructures or {})}
        self._remotes = Remotes(workloads)
        self._controllers = Controllers(
            client,
            random=random,
            kinds=(
                partial(Clusters, kinds=known, workloads=workloads),
                partial(MachineDeployments, kinds=known),
                partial(MachineSets, kinds=known),
                partial(Machines, kinds=known, remotes=self._remotes, infrastructures=runs_on),
            ),
        )

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._remotes.run())
            tasks.create_task(self._controllers.run())
