"""Where a scenario is played: a cluster, and all that can be done to it.

Machines and lines are the cluster's own affair. All else is asked of the API server by a client of the name `scenario`,
as a person would with kubectl. What is left to chance comes from a seeded generator, so the same story happens each
time.
"""

from collections.abc import Mapping
from random import Random
from typing import Any

from haulout.errors import ApiError, ConfigError
from haulout.sandbox.cluster import Cluster
from haulout.sandbox.scenarios import plan
from haulout.sandbox.scenarios.deeds import Deed, Does
from haulout.sandbox.scenarios.line_deeds import LineDeeds
from haulout.sandbox.scenarios.loading import Loaded
from haulout.sandbox.scenarios.node_deeds import NodeDeeds
from haulout.sandbox.scenarios.object_deeds import ObjectDeeds
from haulout.sandbox.scenarios.objects import Objects, UnknownKind

CLIENT = "scenario"


class Stage:
    """Puts a scenario up in a cluster, and does what happens in it."""

    def __init__(self, cluster: Cluster, loaded: Loaded) -> None:
        self.cluster = cluster
        self.loaded = loaded
        client = cluster.client(CLIENT)
        self._objects = Objects(client)
        self.deeds: Mapping[str, Does] = {
            **NodeDeeds(cluster, client, loaded.scenario.pools).all,
            **ObjectDeeds(client, self._objects, loaded).all,
            **LineDeeds(cluster, spared=CLIENT).all,
        }

    async def put_up(self) -> None:
        """Bring machines and objects in; what the API server refuses is an error of the scenario."""
        scenario = self.loaded.scenario
        for machine in plan.machines(scenario):
            self.cluster.kubelets.add(machine)
        manifests = (obj for each in scenario.manifests for obj in self.loaded.objects(each))
        for obj in (*manifests, *plan.objects(scenario)):
            try:
                await self._objects.create(obj)
            except (ApiError, UnknownKind) as error:
                raise ConfigError(f"{obj['kind']} {obj['metadata']['name']}: {error}", file=self.loaded.file) from error

    async def act(self, name: str, action: Any, random: Random) -> Deed:
        """Do what `action`, which the scenario calls `name`, says."""
        return await self.deeds[name](action, random)
